//! What tests with a browser share: the browser, a page, documents, proxies, and waiting.

pub(crate) mod backends;
pub(crate) mod browser;
pub(crate) mod checked;
pub(crate) mod control;
pub(crate) mod data_plane;
pub(crate) mod demo;
pub(crate) mod documents;
pub(crate) mod http;
pub(crate) mod page;
pub(crate) mod proxy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true. It bounds a test that fails, and decides nothing in
/// one that passes.
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

/// An empty folder for the files of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = format!("dashboard/{name}-{number}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    // There may be none of an earlier run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
