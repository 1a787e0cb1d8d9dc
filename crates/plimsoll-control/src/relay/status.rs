//! [`Upstreams`]: how the streams to the other server are doing, for people to look at.
//!
//! Sessions write, the admin API reads; nothing is decided by it. A lost server is not a reason to
//! be unready: proxies keep what they have, and demand still reaches them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the streams to the other server are doing.
#[derive(Debug, Default)]
pub struct Upstreams {
    status: Mutex<RelayStatus>,
}

/// The same at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RelayStatus {
    /// Discovery streams that are relayed.
    pub streams: u64,
    /// Those of them that have the other server at the line.
    pub connected: u64,
    /// Streams that were lost, and attempts that failed, so far.
    pub failures: u64,
    /// The last of these, in words; stays after the server is back.
    pub last_error: Option<String>,
    /// Clusters and assignments that were to be improved and could not be read, so far. They
    /// passed untouched.
    pub unreadable: u64,
    /// Responses of the other server that were refused, so far: a resource had no name.
    pub refused: u64,
}

impl Upstreams {
    /// The status now.
    pub fn status(&self) -> RelayStatus {
        self.lock().clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut RelayStatus)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, RelayStatus> {
        // Nothing in here can be half done.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
