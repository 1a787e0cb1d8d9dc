//! [`Servers`]: management servers in order of preference, and which one is used (gRFC A71).
//!
//! The discovery stream chooses, load reports follow it. What makes it choose is in `ads_client`,
//! dialling in `connect`.

use std::sync::Arc;

use tokio::sync::watch;

use super::connect::ConnectOptions;

/// Servers in order of preference. Clones know of each other's choice.
#[derive(Clone, Debug)]
pub struct Servers {
    list: Arc<[ConnectOptions]>,
    current: watch::Sender<usize>,
}

impl Servers {
    /// The server that is used, and those for when it cannot be reached, best first.
    pub fn new(first: ConnectOptions, fallback: impl IntoIterator<Item = ConnectOptions>) -> Self {
        Self {
            list: std::iter::once(first).chain(fallback).collect(),
            current: watch::Sender::new(0),
        }
    }

    /// The one that is used.
    pub fn current(&self) -> &ConnectOptions {
        &self.list[self.index()]
    }

    pub(super) fn index(&self) -> usize {
        *self.current.borrow()
    }

    /// Those that would be better than the one at `index`.
    pub(super) fn before(&self, index: usize) -> &[ConnectOptions] {
        &self.list[..index]
    }

    /// Uses the server at `index` from now on, if there is one.
    pub(super) fn choose(&self, index: usize) -> bool {
        let known = index < self.list.len();
        if known {
            self.current.send_replace(index);
        }
        known
    }

    /// Hears of choices.
    pub(super) fn follow(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }
}

impl From<ConnectOptions> for Servers {
    fn from(only: ConnectOptions) -> Self {
        Self::new(only, [])
    }
}
