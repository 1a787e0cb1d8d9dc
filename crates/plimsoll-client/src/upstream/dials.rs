//! [`Dials`]: HTTP/2 dials in progress of one pool, so that a burst of requests opens one
//! connection.
//!
//! Each dial is a task of its own: it goes on if the request that started it is dropped, or held
//! without being polled, and its end wakes all requests that wait for it. `endpoint` starts dials.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::SharedSource;

/// Result of a dial for the requests that wait for it; the connection itself is in the pool.
pub(crate) type DialResult = Result<(), SharedSource>;

#[derive(Debug, Default)]
pub(crate) struct Dials(Mutex<Vec<Dial>>);

/// A dial in progress, as seen by requests that wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    server_name: Option<Arc<str>>,
    result: watch::Receiver<Option<DialResult>>,
}

impl Dials {
    /// Locks the list. Only a request that found no connection does.
    pub(crate) fn lock(&self) -> RunningDials<'_> {
        let mut dials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        dials.retain(Dial::is_running);
        RunningDials(dials)
    }

    /// Removes a dial that does not end, because nobody drives its runtime.
    pub(crate) fn forget(&self, dial: &Dial) {
        let is_other = |other: &Dial| !other.result.same_channel(&dial.result);
        self.lock().0.retain(is_other);
    }
}

pub(crate) struct RunningDials<'a>(MutexGuard<'a, Vec<Dial>>);

impl RunningDials<'_> {
    pub(crate) fn find(&self, server_name: Option<&Arc<str>>) -> Option<Dial> {
        let mut dials = self.0.iter();
        dials
            .find(|dial| dial.server_name.as_ref() == server_name)
            .cloned()
    }

    /// Adds a dial; its task sends the result.
    pub(crate) fn add(
        &mut self,
        server_name: Option<Arc<str>>,
    ) -> watch::Sender<Option<DialResult>> {
        let (sender, result) = watch::channel(None);
        self.0.push(Dial {
            server_name,
            result,
        });
        sender
    }
}

impl Dial {
    /// Waits for the end of the dial; `None` if its task was dropped with its runtime.
    pub(crate) async fn ended(&mut self) -> Option<DialResult> {
        let ended = self.result.wait_for(Option::is_some).await;
        ended.ok()?.clone()
    }

    fn is_running(&self) -> bool {
        self.result.has_changed().is_ok() && self.result.borrow().is_none()
    }
}
