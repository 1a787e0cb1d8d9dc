//! Finds a host of the engine in the lists of one Envoy thread.
//!
//! The engine knows hosts by address; Envoy wants the index in its list of healthy hosts. The table
//! is rebuilt after a membership update, when the next request needs it: Envoy sends one update per
//! priority, and they coalesce.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;

use crate::host_sets::{HostSets, for_each_host, parse_address};

/// A healthy host in Envoy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub priority: u32,
    pub healthy_index: u32,
    /// Index in the list of all hosts, for gauges and retry predicates.
    pub index: usize,
}

/// Healthy hosts by address.
#[derive(Debug, Default)]
pub struct HostTable {
    slots: HashMap<SocketAddr, Slot, BuildHasherDefault<AddressHasher>>,
    /// All healthy hosts, also those without an IP address.
    any: Vec<Slot>,
    cursor: usize,
}

impl HostTable {
    /// Reads the lists of this thread again.
    pub fn rebuild(&mut self, hosts: &impl HostSets) {
        self.slots.clear();
        self.any.clear();
        for priority in 0..hosts.priorities() {
            self.slots.reserve(hosts.healthy_hosts(priority));
            for_each_host(hosts, priority, |entry| {
                let Some(healthy_index) = entry.healthy_index else {
                    return;
                };
                let slot = Slot {
                    priority,
                    healthy_index,
                    index: entry.index,
                };
                self.any.push(slot);
                if let Some(address) = parse_address(entry.address) {
                    self.slots.entry(address).or_insert(slot);
                }
            });
        }
    }

    /// Returns the host if it is healthy on this thread.
    #[inline]
    pub fn get(&self, address: SocketAddr) -> Option<Slot> {
        self.slots.get(&address).copied()
    }

    /// Returns healthy hosts of the first priority that has any, in turn. For requests that arrive
    /// while this thread and the engine have different hosts.
    pub fn any(&mut self) -> Option<Slot> {
        let first = self.any.first()?.priority;
        let count = self
            .any
            .iter()
            .take_while(|slot| slot.priority == first)
            .count();
        self.cursor = self.cursor.wrapping_add(1);
        self.any.get(self.cursor % count).copied()
    }
}

/// Hash of an address: multiplies and folds. Addresses come from the control plane, so nobody
/// chooses them to collide.
#[derive(Debug, Default)]
pub struct AddressHasher(u64);

impl AddressHasher {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn mix(&mut self, value: u64) {
        let state = (self.0.rotate_left(23) ^ value).wrapping_add(Self::FACTOR);
        let wide = u128::from(state) * u128::from(Self::FACTOR);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the two halves of the product"
        )]
        let (low, high) = (wide as u64, (wide >> 64) as u64);
        self.0 = low ^ high;
    }
}

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::health::HealthStatus;

    use super::*;
    use crate::host_sets::tests::{Fake, FakeHost};

    #[test]
    fn healthy_hosts_have_both_indices() {
        let mut fake = Fake::zones(&[("a", 3)]);
        fake.priorities[0][0].health = HealthStatus::Unhealthy;
        fake.priorities
            .push(vec![FakeHost::new("b", "10.0.9.1:80")]);
        let mut table = HostTable::default();
        table.rebuild(&fake);
        let get = |address: &str| table.get(address.parse().unwrap());
        assert_eq!(get("10.0.1.1:80"), None);
        let slot = |priority, healthy_index, index| Slot {
            priority,
            healthy_index,
            index,
        };
        assert_eq!(get("10.0.1.3:80"), Some(slot(0, 1, 2)));
        assert_eq!(get("10.0.9.1:80"), Some(slot(1, 0, 0)));
        let turns: Vec<_> = (0..4).map(|_| table.any().unwrap().index).collect();
        assert_eq!(turns, [2, 1, 2, 1], "of the first priority");
    }

    #[test]
    fn the_next_priority_serves_when_the_first_has_no_healthy_host() {
        let mut fake = Fake::zones(&[("a", 1)]);
        fake.priorities[0][0].health = HealthStatus::Degraded;
        let mut table = HostTable::default();
        table.rebuild(&fake);
        assert_eq!(table.any(), None);
        fake.priorities.push(vec![FakeHost::new("b", "/pipe")]);
        table.rebuild(&fake);
        assert_eq!(table.any().map(|slot| slot.priority), Some(1));
    }

    #[test]
    fn addresses_spread() {
        let hash = |last: u8| {
            use std::hash::Hash;
            let mut hasher = AddressHasher::default();
            SocketAddr::from(([10, 0, 0, last], 80)).hash(&mut hasher);
            hasher.finish() % 4096
        };
        let buckets: std::collections::HashSet<_> = (0..=255).map(hash).collect();
        assert!(buckets.len() > 230, "{}", buckets.len());
    }
}
