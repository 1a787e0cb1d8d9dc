//! [`ConnectionLimit`]: how many downstream connections may be open, in all and per client address.
//! Shared by all workers; `accept` takes a permit for each connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::log_line;
use plimsoll_serve::{LogLimit, peer_of};
use tokio::time::Instant;

use crate::config::MaxConnections;
use crate::log_lines;

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    active: AtomicU64,
    /// Limits are `u64::MAX` where the configuration has none.
    total: AtomicU64,
    per_address: AtomicU64,
    /// Connections that were opened while `per_address` was limited. Locked only then.
    addresses: Mutex<HashMap<IpAddr, u64>>,
    log: Mutex<LogLimit>,
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self {
            active: AtomicU64::new(0),
            total: AtomicU64::new(u64::MAX),
            per_address: AtomicU64::new(u64::MAX),
            addresses: Mutex::default(),
            log: Mutex::default(),
        }
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Total,
    Address,
}

/// Counts a connection until it, or the tunnel that it became, ends.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// Set if the connection is counted for its address.
    address: Option<IpAddr>,
}

impl ConnectionLimit {
    /// Applies limits to connections that are opened from now on.
    pub(crate) fn set(&self, max: MaxConnections) {
        let value = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        self.total.store(value(max.total), Ordering::Relaxed);
        self.per_address
            .store(value(max.per_address), Ordering::Relaxed);
    }

    /// Counts a connection from `address`, unless it exceeds a limit.
    pub(crate) fn acquire(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        let before = self.active.fetch_add(1, Ordering::Relaxed);
        let mut permit = ConnectionPermit {
            limit: Arc::clone(self),
            address: None,
        };
        if before >= self.total.load(Ordering::Relaxed) {
            return Err(Refusal::Total);
        }
        let max = self.per_address.load(Ordering::Relaxed);
        if max == u64::MAX {
            return Ok(permit);
        }
        let address = peer_of(address);
        let mut addresses = self.addresses();
        let open = addresses.entry(address).or_default();
        if *open >= max {
            let open = *open;
            if open == 0 {
                addresses.remove(&address);
            }
            drop(addresses);
            self.log_refusal(address, open);
            return Err(Refusal::Address);
        }
        *open += 1;
        permit.address = Some(address);
        Ok(permit)
    }

    fn log_refusal(&self, address: IpAddr, open: u64) {
        let log = self.log.lock();
        let mut log = log.unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = log.allow(Instant::now()) {
            log_line!(log_lines::ADDRESS_REFUSED, %address, open, suppressed);
        }
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, u64>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl ConnectionPermit {
    /// A permit for connections that tests create without an accept loop.
    pub(crate) fn for_tests() -> Self {
        let limit = Arc::<ConnectionLimit>::default();
        limit.acquire(IpAddr::from([127, 0, 0, 1])).unwrap()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.active.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else {
            return;
        };
        let mut addresses = self.limit.addresses();
        if let Some(open) = addresses.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(total: Option<u64>, per_address: Option<u64>) -> Arc<ConnectionLimit> {
        let limit = Arc::<ConnectionLimit>::default();
        limit.set(MaxConnections { total, per_address });
        limit
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_limited_in_all() {
        let limit = limit(Some(2), None);
        let [first, _second] = [0, 1].map(|last| limit.acquire([10, 0, 0, last].into()).unwrap());
        let refused = limit.acquire(ip("10.0.0.3")).unwrap_err();
        assert_eq!(refused, Refusal::Total);
        drop(first);
        assert!(limit.acquire(ip("10.0.0.3")).is_ok());
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let limit = limit(Some(4), Some(2));
        for same in [
            ["10.0.0.1", "::ffff:10.0.0.1"],
            ["2001:db8::1", "2001:db8::2"],
        ] {
            let kept = same.map(|address| limit.acquire(ip(address)).unwrap());
            let refused = limit.acquire(ip(same[0])).unwrap_err();
            assert_eq!(refused, Refusal::Address);
            let _other = limit.acquire(ip("2001:db8:0:1::1")).unwrap();
            drop(kept);
            assert!(limit.acquire(ip(same[0])).is_ok());
        }
        // Nothing is remembered of addresses without connections.
        assert_eq!(limit.addresses().len(), 0);
        assert_eq!(limit.active.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_limit_that_is_changed_counts_what_it_has_counted() {
        let limit = limit(None, None);
        let uncounted = limit.acquire(ip("10.0.0.1")).unwrap();
        limit.set(MaxConnections {
            total: None,
            per_address: Some(1),
        });
        let counted = limit.acquire(ip("10.0.0.1")).unwrap();
        drop(uncounted);
        assert!(limit.acquire(ip("10.0.0.1")).is_err());
        limit.set(MaxConnections::default());
        assert!(limit.acquire(ip("10.0.0.1")).is_ok());
        drop(counted);
        assert_eq!(limit.addresses().len(), 0);
    }
}
