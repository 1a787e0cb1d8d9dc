//! [`DialPermits`]: permits of the connections of a cluster that are being dialed.
//!
//! A dial is a task on the runtime of the request that started it. If nobody drives that runtime,
//! the dial does not end, and its permit would be lost for requests on other runtimes; so it is
//! taken back once the dial is overdue. `endpoint::acquire` dials.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::time::Instant;

use crate::upstream::connection::ConnectionPermit;

type Slot = Arc<Mutex<Option<ConnectionPermit>>>;

#[derive(Debug, Default)]
pub(crate) struct DialPermits(Mutex<VecDeque<(Instant, Slot)>>);

/// Permit of a dial in progress, which may be taken back; released when dropped.
#[derive(Debug)]
pub(crate) struct DialPermit(Slot);

impl DialPermits {
    /// Lends a permit to a dial that ends before `overdue_at`, if its runtime is running.
    pub(crate) fn lend(&self, permit: ConnectionPermit, overdue_at: Instant) -> DialPermit {
        let slot = Arc::new(Mutex::new(Some(permit)));
        let mut dials = lock(&self.0);
        while dials.front().is_some_and(|(_, slot)| lock(slot).is_none()) {
            dials.pop_front();
        }
        dials.push_back((overdue_at, Arc::clone(&slot)));
        DialPermit(slot)
    }

    /// Returns the number of dials of the host with this number of connections.
    pub(crate) fn of_host(&self, host: &Arc<AtomicU32>) -> usize {
        let dials = lock(&self.0);
        let is_of_host = |slot: &Slot| {
            let permit = lock(slot);
            permit
                .as_ref()
                .is_some_and(|permit| permit.is_of_host(host))
        };
        dials.iter().filter(|(_, slot)| is_of_host(slot)).count()
    }

    /// Takes back and releases the permits of overdue dials.
    pub(crate) fn take_back_overdue(&self, now: Instant) {
        let mut dials = lock(&self.0);
        dials.retain(|(overdue_at, slot)| {
            let mut permit = lock(slot);
            if *overdue_at <= now {
                permit.take();
            }
            permit.is_some()
        });
    }
}

impl DialPermit {
    /// Whether it was neither taken for a connection nor taken back.
    pub(crate) fn is_lent(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Returns the permit for the open connection; `None` if it was taken back.
    pub(crate) fn take(&self) -> Option<ConnectionPermit> {
        lock(&self.0).take()
    }
}

impl Drop for DialPermit {
    fn drop(&mut self) {
        drop(self.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::upstream::CircuitBreakers;

    use super::*;
    use crate::upstream::connection::ConnectionLimits;

    #[test]
    fn permits_of_overdue_dials_are_taken_back() {
        let limits = Arc::new(ConnectionLimits::default());
        let lend = |second| {
            let permit =
                limits.try_acquire_connection(&Arc::default(), &CircuitBreakers::default());
            let at = Instant::from_secs(second);
            limits.dialing.lend(permit.unwrap(), at)
        };
        let (stuck, opened, failed, slow) = (lend(5), lend(5), lend(5), lend(6));
        let connection = opened.take();
        assert!(connection.is_some());
        drop(failed);
        assert_eq!(limits.connections(), 3);
        limits.dialing.take_back_overdue(Instant::from_secs(4));
        assert_eq!(limits.connections(), 3);
        limits.dialing.take_back_overdue(Instant::from_secs(5));
        assert_eq!(limits.connections(), 2);
        assert!(stuck.take().is_none());
        assert!(slow.take().is_some());
        drop(connection);
        assert_eq!(limits.connections(), 0);
        assert_eq!(lock(&limits.dialing.0).len(), 1, "of the slow dial");
        let _next = lend(7);
        assert_eq!(lock(&limits.dialing.0).len(), 1);
    }
}
