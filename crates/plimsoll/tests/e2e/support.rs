//! Support of the end-to-end tests: processes, a small fleet, traffic, and waiting.

pub(crate) mod api_server;
pub(crate) mod backends;
pub(crate) mod balancer;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod closed_loop;
pub(crate) mod control;
pub(crate) mod declared;
pub(crate) mod descriptors;
pub(crate) mod dynamic_proxy;
pub(crate) mod echo;
pub(crate) mod envoy;
pub(crate) mod etcd;
pub(crate) mod fleet;
pub(crate) mod gate;
pub(crate) mod grpc;
pub(crate) mod hosts;
pub(crate) mod http;
pub(crate) mod http2_load;
pub(crate) mod http_differential;
pub(crate) mod kubernetes;
pub(crate) mod load;
pub(crate) mod loop_quality;
pub(crate) mod management_server;
pub(crate) mod orca_backends;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod replicated;
pub(crate) mod xds_server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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

/// Returns the directory in which `deps.sh` installs the peers.
pub(crate) fn peers() -> PathBuf {
    let peers = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../peers");
    assert!(
        peers.is_dir(),
        "Envoy and gRPC are not installed: run `make test` (or scripts/deps.sh test) once"
    );
    peers
}

/// Creates an empty directory for the files and logs of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("e2e/{name}-{number}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(directory);
    // It does not exist in the first run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
