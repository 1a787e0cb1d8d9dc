//! What tests with real peers share: processes, a small fleet, traffic, and waiting.

pub(crate) mod backends;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod closed_loop;
pub(crate) mod control;
pub(crate) mod declared;
pub(crate) mod descriptors;
pub(crate) mod echo;
pub(crate) mod envoy;
pub(crate) mod fleet;
pub(crate) mod gate;
pub(crate) mod grpc;
pub(crate) mod hosts;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod loop_quality;
pub(crate) mod management_server;
pub(crate) mod orca_backends;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod steered;
pub(crate) mod xds_server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true. Far more than it ever needs: it bounds a test that
/// fails, and decides nothing in one that passes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `check` has something to say. The one place that polls.
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `check` holds.
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    wait_for(what, || check().then_some(()));
}

/// Where `deps.sh` puts the peers.
pub(crate) fn peers() -> PathBuf {
    let peers = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../peers");
    assert!(
        peers.is_dir(),
        "Envoy and gRPC are not installed: run `make test` (or scripts/deps.sh test) once"
    );
    peers
}

/// An empty folder for the files and logs of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = format!("e2e/{name}-{number}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    // There may be none of an earlier run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
