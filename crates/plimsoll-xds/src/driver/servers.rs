//! Management servers in order of preference, and which one is in use (gRFC A71).
//!
//! The discovery stream selects the server, load reporting follows it. `ads_client` decides when to
//! fail over, `connect` dials.

use std::sync::Arc;

use tokio::sync::watch;

use super::connect::ConnectOptions;

/// Management servers in order of preference. Clones share the selection.
#[derive(Clone, Debug)]
pub struct Servers {
    list: Arc<[ConnectOptions]>,
    current: watch::Sender<usize>,
}

impl Servers {
    /// Creates a list of servers, most preferred first.
    pub fn new(first: ConnectOptions, fallback: impl IntoIterator<Item = ConnectOptions>) -> Self {
        Self {
            list: std::iter::once(first).chain(fallback).collect(),
            current: watch::Sender::new(0),
        }
    }

    /// Returns the server in use.
    pub fn current(&self) -> &ConnectOptions {
        &self.list[self.index()]
    }

    pub(super) fn index(&self) -> usize {
        *self.current.borrow()
    }

    pub(super) fn before(&self, index: usize) -> &[ConnectOptions] {
        &self.list[..index]
    }

    /// Selects the server at `index`; returns whether there is one.
    pub(super) fn select(&self, index: usize) -> bool {
        let known = index < self.list.len();
        if known {
            self.current.send_replace(index);
        }
        known
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }
}

impl From<ConnectOptions> for Servers {
    fn from(only: ConnectOptions) -> Self {
        Self::new(only, [])
    }
}
