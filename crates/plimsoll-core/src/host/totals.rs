//! [`Totals`]: what became of the requests to one host, counted by many threads, read by one.
//!
//! A reader that sees a request end has also seen it begin, so that what is in progress is never
//! negative, whatever the order of events. Compiled a second time by tests/interleavings.rs.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Requests issued, succeeded and failed. They only grow, except that an issued request may turn
/// out never to have been sent.
#[derive(Debug)]
pub(crate) struct Totals {
    issued: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// Requests at some moment, or between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Sent to the host.
    pub issued: u64,
    /// Ended without an error.
    pub succeeded: u64,
    /// Ended with an error.
    pub failed: u64,
}

impl Totals {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            issued: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A request was sent.
    #[inline]
    pub(crate) fn issue(&self) {
        self.issued.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that counts as sent was not. It has not ended, so no reader misses its beginning.
    #[inline]
    pub(crate) fn withdraw(&self) {
        self.issued.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request that was sent before succeeded. Release: see [`Self::read`].
    #[inline]
    pub(crate) fn succeed(&self) {
        self.succeeded.fetch_add(1, Ordering::Release);
    }

    /// A request that was sent before failed.
    #[inline]
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Release);
    }

    /// All three. Ends are read before beginnings, or a request that begins and ends in between
    /// would have ended without having begun.
    pub(crate) fn read(&self) -> RequestCounts {
        let succeeded = self.succeeded.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        RequestCounts {
            issued: self.issued.load(Ordering::Relaxed),
            succeeded,
            failed,
        }
    }
}

impl RequestCounts {
    /// Of totals: what happened since they were `reported`; then it is. A request that was reported
    /// as issued and withdrawn later is missing from a later report, so that the sum stays right.
    pub(crate) fn report(self, reported: &mut Self) -> Self {
        let since = Self {
            issued: self.issued.saturating_sub(reported.issued),
            succeeded: self.succeeded.saturating_sub(reported.succeeded),
            failed: self.failed.saturating_sub(reported.failed),
        };
        *reported = reported.plus(since);
        since
    }

    /// Both together.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            issued: self.issued.saturating_add(other.issued),
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
        }
    }

    /// Of totals: what was sent and has not ended.
    pub(crate) const fn in_progress(self) -> u64 {
        self.issued
            .saturating_sub(self.succeeded)
            .saturating_sub(self.failed)
    }
}
