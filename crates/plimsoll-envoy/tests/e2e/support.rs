//! Support of the tests: Envoys with the module, servers, traffic, and waiting.

pub(crate) mod bootstrap;
pub(crate) mod envoy;
#[path = "../../../plimsoll/tests/e2e/support/http.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
pub(crate) mod http;
#[path = "../../../plimsoll/tests/e2e/support/process.rs"]
#[allow(dead_code, reason = "shared with the tests of the binary")]
pub(crate) mod process;
pub(crate) mod servers;
pub(crate) mod traffic;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Releases that the library supports.
pub(crate) const RELEASES: [&str; 3] = ["1.38.3", "1.39.3", "1.40.0"];
/// Time after which a waiting test fails; generous, because a passing test does not depend on it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls `check` until it returns a value.
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `check` holds.
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    wait_for(what, || check().then_some(()));
}

/// Creates an empty directory for the files and logs of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("envoy-module/{name}-{number}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(directory);
    // It does not exist in the first run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Returns the directory in which `deps.sh` installs the peers.
fn peers() -> PathBuf {
    let peers = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../peers");
    assert!(
        peers.is_dir(),
        "Envoy is not installed: run `make test` (or scripts/deps.sh test) once"
    );
    peers
}

/// Returns the Envoy of a release.
pub(crate) fn envoy_binary(release: &str) -> PathBuf {
    let separate = peers().join(format!("envoy-{release}/envoy/_bin/envoy"));
    if separate.is_file() {
        return separate;
    }
    let pythons = std::fs::read_dir(peers().join("venv/lib")).unwrap();
    let mut binaries = pythons
        .map(|python| {
            python
                .unwrap()
                .path()
                .join("site-packages/envoy/_bin/envoy")
        })
        .filter(|binary| binary.is_file());
    binaries.next().expect("Envoy is installed by `make test`")
}

/// Returns the library that Cargo built with the tests.
pub(crate) fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libplimsoll_envoy.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}
