//! Support of the dashboard tests: browser, page, documents, proxies, and waiting.

pub(crate) mod backends;
pub(crate) mod browser;
pub(crate) mod checked;
pub(crate) mod control;
pub(crate) mod data_plane;
pub(crate) mod demo;
pub(crate) mod documents;
pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod page;
pub(crate) mod proxy;

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

/// Creates an empty directory for the files of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("dashboard/{name}-{number}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(directory);
    // It does not exist in the first run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
