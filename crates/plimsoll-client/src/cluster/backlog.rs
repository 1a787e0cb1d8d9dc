//! [`Backlog`]: calls that waited for discovery and found a circuit breaker open.
//!
//! When discovery ends, all calls that waited for it are released at once. Those beyond
//! `max_requests` or `max_pending_requests` did not exceed a limit by themselves, so they go on as
//! requests end, instead of failing. Calls that start meanwhile and find the breaker open wait
//! behind them. `request::admission` waits here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Waiting calls of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Number of waiting calls, to read without the lock.
    len: AtomicUsize,
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Calls among them that did not wait for discovery.
    late: usize,
    /// When calls that did not wait for discovery are no longer added. Without this, a program that
    /// sends more than the cluster can serve would never see the breaker again.
    closes_at: Option<Instant>,
}

/// A call in the backlog; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct WaitingCall<'a> {
    backlog: &'a Backlog,
    late: bool,
}

impl Backlog {
    /// Adds a call that waited for discovery. The first one opens the backlog for `window`.
    pub(crate) fn join(&self, window: Duration) -> WaitingCall<'_> {
        let mut state = self.lock();
        if state.waiting == 0 {
            state.closes_at = Instant::now().checked_add(window);
        }
        self.add(&mut state, false)
    }

    /// Adds a call that did not wait for discovery, while others wait, and at most `limit` such
    /// calls.
    pub(crate) fn join_late(&self, limit: u32) -> Option<WaitingCall<'_>> {
        // Nearly always empty: then an open breaker costs no lock.
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.lock();
        let open = state.closes_at.is_some_and(|at| Instant::now() < at);
        let has_room = state.late < usize::try_from(limit).unwrap_or(usize::MAX);
        (open && has_room).then(|| self.add(&mut state, true))
    }

    /// Wakes the oldest waiting call, because a request or a wait for a connection has ended.
    pub(crate) fn notify(&self) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.released.notify_one();
        }
    }

    fn add(&self, state: &mut State, late: bool) -> WaitingCall<'_> {
        state.waiting += 1;
        state.late += usize::from(late);
        self.len.store(state.waiting, Ordering::Relaxed);
        WaitingCall {
            backlog: self,
            late,
        }
    }

    /// Number of waiting calls.
    pub(crate) fn waiting(&self) -> u64 {
        self.len.load(Ordering::Relaxed) as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> WaitingCall<'a> {
    /// Ends when [`Backlog::notify`] wakes this call.
    pub(crate) fn released(&self) -> Notified<'a> {
        self.backlog.released.notified()
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.backlog.lock();
        state.waiting -= 1;
        state.late -= usize::from(self.late);
        if state.waiting == 0 {
            state.closes_at = None;
        }
        self.backlog.len.store(state.waiting, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn later_calls_wait_only_behind_others_and_for_a_limited_time() {
        let backlog = Backlog::default();
        assert!(backlog.join_late(9).is_none(), "nobody waits");
        let first = backlog.join(WINDOW);
        let late = backlog.join_late(1).unwrap();
        assert!(backlog.join_late(1).is_none(), "the limit");
        let second = backlog.join(WINDOW);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(backlog.join_late(2).is_some());
        drop(first);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(backlog.join_late(9).is_none(), "15 s after the first");
        drop(second);
        assert!(backlog.join_late(9).is_none(), "still the same backlog");
        drop(late);
        let _again = backlog.join(WINDOW);
        assert!(backlog.join_late(1).is_some());
    }

    #[tokio::test]
    async fn calls_are_woken_in_the_order_of_their_arrival() {
        let backlog = Backlog::default();
        backlog.notify();
        let calls = [backlog.join(WINDOW), backlog.join(WINDOW)];
        let mut released = calls.each_ref().map(|call| Box::pin(call.released()));
        for waiting in &mut released {
            assert!(waiting.now_or_never().is_none());
        }
        let [first, second] = &mut released;
        backlog.notify();
        assert!(second.now_or_never().is_none());
        assert!(first.now_or_never().is_some());
        backlog.notify();
        assert!(second.now_or_never().is_some());
    }
}
