//! [`WaitQueue`]: requests that wait for an HTTP/1.1 connection, in order of arrival.
//!
//! A connection that becomes free is handed to the oldest request. A program may hold the future of
//! a request without polling it, so a request has [`CLAIM_TIME`] to take its connection; then the
//! connection is taken back, for those behind it. `pool` keeps idle connections.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_queue::SegQueue;
use plimsoll_core::time::Instant;
use tokio::sync::Notify;

use crate::upstream::pool::HttpConnection;

/// How long a connection stays reserved for a request that does not take it. A shorter time would
/// take connections away from tasks on a busy runtime; a longer one would delay requests behind a
/// future that nobody polls.
pub(crate) const CLAIM_TIME: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiting: SegQueue<Arc<Place>>,
    /// Places that were given a connection, and when, oldest first. Locked only while requests
    /// wait for connections.
    handed: Mutex<VecDeque<(Instant, Arc<Place>)>>,
    /// Length of `handed`, to read without the lock.
    handed_count: AtomicUsize,
}

/// A request's place in the queue.
#[derive(Debug, Default)]
pub(crate) struct Place {
    state: Mutex<PlaceState>,
    changed: Notify,
}

#[derive(Debug, Default)]
enum PlaceState {
    #[default]
    Empty,
    Handed(HttpConnection),
    /// The request has ended.
    Left,
}

impl WaitQueue {
    pub(crate) fn enqueue(&self) -> Arc<Place> {
        let place = Arc::new(Place::default());
        self.waiting.push(Arc::clone(&place));
        place
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Hands a connection to the oldest request; returns it if no request waits.
    pub(crate) fn hand(
        &self,
        mut connection: HttpConnection,
        now: Instant,
    ) -> Option<HttpConnection> {
        while let Some(place) = self.waiting.pop() {
            connection = self.hand_to(&place, connection, now)?;
        }
        Some(connection)
    }

    /// Hands a connection to this request; returns it if the request has ended.
    pub(crate) fn hand_to(
        &self,
        place: &Arc<Place>,
        connection: HttpConnection,
        now: Instant,
    ) -> Option<HttpConnection> {
        let refused = place.hand(connection);
        if refused.is_none() {
            let mut handed = lock(&self.handed);
            handed.push_back((now, Arc::clone(place)));
            self.handed_count.store(handed.len(), Ordering::Relaxed);
        }
        refused
    }

    /// Takes back the oldest connection that its request did not claim in time.
    pub(crate) fn take_unclaimed(&self, now: impl FnOnce() -> Instant) -> Option<HttpConnection> {
        if self.handed_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = now();
        let mut handed = lock(&self.handed);
        let mut taken = None;
        while let Some((since, place)) = handed.front() {
            let overdue = now.saturating_duration_since(*since) >= CLAIM_TIME;
            if !overdue && place.holds_connection() {
                break;
            }
            taken = place.take();
            handed.pop_front();
            if taken.is_some() {
                break;
            }
        }
        self.handed_count.store(handed.len(), Ordering::Relaxed);
        taken
    }
}

impl Place {
    /// Waits until the place was given a connection, which may have been taken back since.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn take(&self) -> Option<HttpConnection> {
        self.replace(PlaceState::Empty)
    }

    /// Ends the wait; returns the connection that was not used.
    pub(crate) fn leave(&self) -> Option<HttpConnection> {
        self.replace(PlaceState::Left)
    }

    fn hand(&self, connection: HttpConnection) -> Option<HttpConnection> {
        let mut state = lock(&self.state);
        if let PlaceState::Left = *state {
            return Some(connection);
        }
        *state = PlaceState::Handed(connection);
        drop(state);
        self.changed.notify_one();
        None
    }

    fn holds_connection(&self) -> bool {
        matches!(*lock(&self.state), PlaceState::Handed(_))
    }

    /// Sets the state, unless the request has ended; returns the connection that was there.
    fn replace(&self, next: PlaceState) -> Option<HttpConnection> {
        let mut state = lock(&self.state);
        if let PlaceState::Left = *state {
            return None;
        }
        match std::mem::replace(&mut *state, next) {
            PlaceState::Handed(connection) => Some(connection),
            PlaceState::Empty | PlaceState::Left => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
