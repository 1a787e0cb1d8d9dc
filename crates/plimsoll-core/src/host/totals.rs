//! Request totals of one host, counted by many threads and read by one.
//!
//! A reader that sees a request end has also seen it begin, so that the number in progress is never
//! negative, whatever the order of events. Compiled a second time by tests/interleavings.rs.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts only grow, except that an issued request may be withdrawn as unsent.
#[derive(Debug)]
pub(crate) struct Totals {
    issued: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// Request counts: totals, or the difference of two totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    pub issued: u64,
    pub succeeded: u64,
    pub failed: u64,
}

impl Totals {
    pub(crate) fn new() -> Self {
        Self {
            issued: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn issue(&self) {
        self.issued.fetch_add(1, Ordering::Relaxed);
    }

    /// Un-counts an unsent request. It has not ended, so no reader misses its beginning.
    #[inline]
    pub(crate) fn withdraw(&self) {
        self.issued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a success. Release ordering: see [`Self::read`].
    #[inline]
    pub(crate) fn succeed(&self) {
        self.succeeded.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Release);
    }

    /// Reads ended requests before issued ones, or one could have ended without having begun.
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
    /// Returns the totals minus `reported`, and adds the difference to `reported`. A request
    /// reported and later withdrawn is missing from a later report, so that the sum stays right.
    pub(crate) fn report(self, reported: &mut Self) -> Self {
        let since = Self {
            issued: self.issued.saturating_sub(reported.issued),
            succeeded: self.succeeded.saturating_sub(reported.succeeded),
            failed: self.failed.saturating_sub(reported.failed),
        };
        *reported = reported.plus(since);
        since
    }

    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            issued: self.issued.saturating_add(other.issued),
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
        }
    }

    pub(crate) const fn in_progress(self) -> u64 {
        self.issued
            .saturating_sub(self.succeeded)
            .saturating_sub(self.failed)
    }
}
