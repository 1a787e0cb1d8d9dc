//! [`HeldTime`]: paused time that passes only with `tokio::time::advance`, also while the runtime
//! waits for sockets.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::mpsc;

use super::TIMEOUT;

/// Holds the time of a test with `start_paused`.
pub(crate) struct HeldTime(#[expect(dead_code, reason = "dropped at the end")] mpsc::Sender<()>);

impl HeldTime {
    /// After [`TIMEOUT`] time runs again, so that timeouts end a test that hangs.
    pub(crate) fn start() -> Self {
        let (hold, held) = mpsc::channel();
        // Tokio does not advance paused time by itself while a blocking task runs.
        drop(tokio::task::spawn_blocking(move || {
            held.recv_timeout(TIMEOUT)
        }));
        Self(hold)
    }

    /// Lets other tasks and sockets go on until `condition` holds; no time passes.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let started = std::time::Instant::now();
        while !condition() {
            assert!(started.elapsed() < TIMEOUT, "never: {what}");
            tokio::task::yield_now().await;
        }
    }
}
