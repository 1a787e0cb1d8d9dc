//! Records commit, profile, target and compiler for `plimsoll --version`.
//!
//! The build never fails here: without git, or outside a clone, the commit is "unknown". Builds
//! from an archive can pass it in `PLIMSOLL_COMMIT`. Debug builds do not run git, because every
//! commit would then rebuild the binary and its tests.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    let variable = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let profile = variable("PROFILE").unwrap_or_else(|| "unknown".to_owned());
    let from_git = || (profile == "release").then(commit).flatten();
    let commit = variable("PLIMSOLL_COMMIT").or_else(from_git);
    let compiler = variable("RUSTC").and_then(|rustc| output(&rustc, &["--version"]));
    // Cargo ignores the profile's `strip` for a package that has an `opt-level` of its own.
    if profile == "release" && variable("DEBUG").as_deref() == Some("false") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
    for (name, value) in [
        ("PLIMSOLL_BUILD_COMMIT", commit),
        ("PLIMSOLL_BUILD_PROFILE", Some(profile.clone())),
        ("PLIMSOLL_BUILD_TARGET", variable("TARGET")),
        ("PLIMSOLL_BUILD_COMPILER", compiler),
    ] {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
}

/// Returns the commit that is checked out, marked `-modified` if tracked files differ from it.
fn commit() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    // HEAD's reflog grows with every commit and checkout. Naming a file that does not exist would
    // rerun this script in every build.
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_some() { "-modified" } else { "" };
    Some(format!("{commit}{mark}"))
}

/// Runs a program and returns its trimmed output; `None` if it is missing, fails or prints
/// nothing.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let stdout = String::from_utf8(output.stdout).ok()?;
    let text = stdout.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
