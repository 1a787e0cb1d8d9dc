//! Paths of the repository, of what Cargo has built, and of the programs that `scripts/deps.sh`
//! installs.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        here.canonicalize().unwrap()
    });
    &ROOT
}

/// Returns the directory of Cargo's profile that has the running test: `target/debug`, for example.
fn profile() -> PathBuf {
    let test = env::current_exe().unwrap();
    let mut directories = test.ancestors();
    let deps = directories.find(|path| path.ends_with("deps"));
    let profile = deps.expect("Cargo puts tests into `deps`").parent();
    profile.unwrap().to_owned()
}

/// Returns Cargo's target directory.
pub fn target() -> PathBuf {
    profile().parent().unwrap().to_owned()
}

/// Returns the program `plimsoll`, built with the profile of the running test.
///
/// Cargo tells only the tests of the package `plimsoll` where it is, and builds it for them alone.
/// So Cargo is asked to build it as it is built for those, which takes a moment if nothing changed.
/// A test that runs without Cargo takes the program that is there.
///
/// # Panics
/// If it cannot be built.
pub fn plimsoll() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let profile = profile();
        if let Some(cargo) = env::var_os("CARGO") {
            build(&cargo, profile.file_name().and_then(OsStr::to_str).unwrap());
        }
        let program = profile.join("plimsoll");
        assert!(program.is_file(), "{} is not built", program.display());
        program
    });
    &BUILT
}

fn build(cargo: &OsStr, directory: &str) {
    // Another choice of packages or features would be another build.
    let build = "test --quiet --workspace --all-features --no-run --test cli --profile";
    // The only profile whose directory has another name.
    let profile = if directory == "debug" {
        "dev"
    } else {
        directory
    };
    let mut command = Command::new(cargo);
    command.args(build.split(' ')).arg(profile);
    // What Cargo tells this test of its package is no part of the environment of a build: build
    // scripts that read it would run again, here and in the next build outside of a test.
    let is_of_test = |name: &str| {
        let mut kinds = ["CARGO_BIN_", "CARGO_MANIFEST_", "CARGO_PKG_"].into_iter();
        name == "OUT_DIR" || kinds.any(|kind| name.starts_with(kind))
    };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_of_test(name)).for_each(|name| {
        command.env_remove(name);
    });
    let output = command.current_dir(repository()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// Returns the directory in which `scripts/deps.sh` installs Envoy and gRPC.
///
/// # Panics
/// If it does not exist.
pub fn peers() -> PathBuf {
    let peers = target().join("peers");
    assert!(
        peers.is_dir(),
        "Envoy and gRPC are not installed: run `make test` (or scripts/deps.sh test) once"
    );
    peers
}

/// Returns the Envoy of a release; the newest is beside gRPC, others in directories of their own.
///
/// # Panics
/// If it is not installed.
pub fn envoy(version: &str) -> PathBuf {
    const BINARY: &str = "envoy/_bin/envoy";
    let older = peers().join(format!("envoy-{version}")).join(BINARY);
    if older.is_file() {
        return older;
    }
    let lib = peers().join("venv/lib");
    let pythons = fs::read_dir(&lib).into_iter().flatten().flatten();
    let mut binaries = pythons
        .map(|python| python.path().join("site-packages").join(BINARY))
        .filter(|binary| binary.is_file());
    let found = binaries.next();
    found.unwrap_or_else(|| panic!("no Envoy under {}: run `make test` once", lib.display()))
}

/// Returns the kubectl that `scripts/deps.sh` installs, or that of the machine.
pub fn kubectl() -> PathBuf {
    let installed = target().join("checks/kubectl");
    if installed.exists() {
        installed
    } else {
        "kubectl".into()
    }
}

/// Creates an empty directory for the files and logs of one test of a suite; they stay until the
/// next run.
pub fn scratch(suite: &str, name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = target().join(format!("tmp/{suite}/{name}-{number}"));
    // It does not exist in the first run.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_that_of_the_running_build() {
        let version = Command::new(plimsoll()).arg("--version").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        assert!(version.starts_with("plimsoll "), "{version}");
        assert!(plimsoll().starts_with(target()));
    }
}
