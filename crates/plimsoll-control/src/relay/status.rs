//! [`RelayUpstreams`]: status of the streams to the relayed server, for the admin API.
//!
//! Nothing depends on this status. The loss of the relayed server does not affect readiness:
//! proxies keep their resources and still receive demand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::StreamStatus;
use crate::tls_dialer::TlsDialer;

/// Status of the streams to the relayed server.
#[derive(Debug, Default)]
pub struct RelayUpstreams {
    status: Mutex<RelayStatus>,
    tls: Mutex<Option<Arc<TlsDialer>>>,
}

/// Snapshot of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RelayStatus {
    /// Number of relayed discovery streams.
    pub streams: u64,
    /// Number of them that are connected to the other server.
    pub connected: u64,
    /// Number of lost connections and failed connection attempts.
    pub failures: u64,
    /// Error of the latest failure; kept after reconnecting.
    pub last_error: Option<String>,
    /// Number of clusters and assignments that could not be decoded and were passed on unchanged.
    pub unreadable: u64,
    /// Number of responses of the other server that were rejected because a resource has no name.
    pub refused: u64,
}

impl RelayUpstreams {
    /// Returns a snapshot of the status.
    pub fn status(&self) -> RelayStatus {
        self.lock().clone()
    }

    /// Opens the status of another stream; `None` if there are `max` already.
    pub(crate) fn open(self: &Arc<Self>, max: u64) -> Option<StreamStatus> {
        let mut status = self.lock();
        if status.streams >= max {
            return None;
        }
        status.streams += 1;
        drop(status);
        Some(StreamStatus::new(Arc::clone(self)))
    }

    /// Sets how the server is dialed; `None` for plain text.
    pub(crate) fn set_connector(&self, connector: Option<Arc<TlsDialer>>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = connector;
    }

    pub(crate) fn connector(&self) -> Option<Arc<TlsDialer>> {
        let connector = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        connector.clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut RelayStatus)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, RelayStatus> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
