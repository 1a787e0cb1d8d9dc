//! Ring of the ring hash policy (envoy-semantics §8.3): identical to Envoy's, entry by entry, so
//! that both send a key to the same host.
//!
//! A [`Ring`] is immutable: the writer builds it when hosts change, workers look hosts up. Keys,
//! weights and hash functions are in `hash_key`, bounded load is in `bounded_load`.

use std::fmt::Write as _;

use super::hash_key::{HashedHost, hash};
use crate::model::endpoint_policy::RingHash;

/// Hosts on a ring of hashes, each several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Hashes of entries, ascending. Separate from `hosts`, so that a search touches nothing else.
    hashes: Box<[u64]>,
    hosts: Box<[u32]>,
}

impl Ring {
    /// Builds the ring with entries in proportion to the weights.
    ///
    /// The lightest host gets an integer number of entries and the ring has at least
    /// `minimum_ring_size`, unless that would exceed `maximum_ring_size`: then all get fewer, and
    /// light ones may get none. Rounding can add one entry to either size, in the same cases as in
    /// Envoy. The order of `hosts` matters, since the fractions left over by earlier hosts are
    /// carried over to later ones.
    pub fn build(hosts: &[HashedHost<'_>], config: &RingHash) -> Self {
        let scale = scale(hosts, config);
        let mut entries = Vec::with_capacity(whole(scale) + 1);
        let mut key = String::new();
        let mut target = 0.0;
        for (index, host) in (0..).zip(hosts).filter(|(_, host)| host.has_weight()) {
            key.clear();
            key.push_str(host.key);
            key.push('_');
            let prefix = key.len();
            target += scale * host.weight;
            for number in 0..whole(target).saturating_sub(entries.len()) {
                key.truncate(prefix);
                // Writing to a `String` cannot fail.
                let _ = write!(key, "{number}");
                entries.push((hash(config.hash_function(), key.as_bytes()), index));
            }
        }
        // Equal hashes (hosts with the same key) are ordered by host, to be deterministic.
        entries.sort_unstable();
        let (hashes, hosts): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        Self {
            hashes: hashes.into(),
            hosts: hosts.into(),
        }
    }

    /// Returns the host index at or after `hash`, wrapping around; `attempt` entries further on if
    /// a host was refused (which may be the same host again). `None` only if the ring is empty.
    #[inline]
    pub fn lookup(&self, hash: u64, attempt: u32) -> Option<u32> {
        let found = self.hashes.partition_point(|&entry| entry < hash);
        // Past the last entry (found == len) the ring continues with its first.
        let position = (found as u64 + u64::from(attempt)).checked_rem(self.len() as u64)?;
        #[expect(clippy::cast_possible_truncation, reason = "less than the length")]
        self.hosts.get(position as usize).copied()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the ring has no entries.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns hash and host of every entry, ascending.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u32)> {
        self.hashes.iter().copied().zip(self.hosts.iter().copied())
    }
}

/// Returns the number of entries that a host of weight 1 would get.
#[expect(clippy::cast_precision_loss, reason = "sizes are at most 2^23")]
fn scale(hosts: &[HashedHost<'_>], config: &RingHash) -> f64 {
    let weights = hosts
        .iter()
        .filter(|host| host.has_weight())
        .map(|host| host.weight);
    let Some(lightest) = weights.reduce(f64::min) else {
        return 0.0;
    };
    let wanted = (lightest * config.minimum_ring_size() as f64).ceil() / lightest;
    wanted.min(config.maximum_ring_size() as f64)
}

/// Returns the number of entries needed to reach `target`, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most the largest ring, never negative"
)]
fn whole(target: f64) -> usize {
    target.ceil() as usize
}

#[cfg(test)]
mod tests;
