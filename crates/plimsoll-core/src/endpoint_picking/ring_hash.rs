//! The ring of the ring hash policy (envoy-semantics §8.3): the same ring as Envoy's, entry by
//! entry, so that both send a key to the same host.
//!
//! A [`Ring`] is immutable: the writer builds it when hosts change, workers look hosts up. Keys,
//! weights and hash functions live in `hash_key`, the bound on a host's load in `bounded_load`.

use std::fmt::Write as _;

use super::hash_key::{HashedHost, hash};
use crate::model::endpoint_policy::RingHash;

/// Hosts on a ring of hashes, each several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Ascending. Apart from `hosts`, so that a search touches nothing else.
    hashes: Box<[u64]>,
    /// Index of the host of each entry.
    hosts: Box<[u32]>,
}

impl Ring {
    /// Places every host as often as its weight asks for.
    ///
    /// The lightest host gets a whole number of entries and the ring at least `minimum_ring_size`,
    /// unless that would exceed `maximum_ring_size`: then all get fewer, and light ones may get
    /// none. Rounding can add one entry to either size, in the same cases as in Envoy. Order
    /// matters, since the fractions left over by earlier hosts are added up for later ones.
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
                // Writing to a string cannot fail.
                let _ = write!(key, "{number}");
                entries.push((hash(config.hash_function(), key.as_bytes()), index));
            }
        }
        // Equal hashes (as of hosts with the same key) are ordered by host, so that the ring is the
        // same whoever builds it.
        entries.sort_unstable();
        let (hashes, hosts): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        Self {
            hashes: hashes.into(),
            hosts: hosts.into(),
        }
    }

    /// Index of the host at or after `hash`, going round; `attempt` more entries on when a host was
    /// refused (which may be the same host again). `None` only when the ring is empty.
    #[inline]
    pub fn lookup(&self, hash: u64, attempt: u32) -> Option<u32> {
        let found = self.hashes.partition_point(|&entry| entry < hash);
        // Past the last entry (found == len) the ring goes on with its first.
        let position = (found as u64 + u64::from(attempt)).checked_rem(self.len() as u64)?;
        #[expect(clippy::cast_possible_truncation, reason = "less than the length")]
        self.hosts.get(position as usize).copied()
    }

    /// Entries on the ring.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is nobody to choose.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Hash and host of every entry, ascending.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u32)> {
        self.hashes.iter().copied().zip(self.hosts.iter().copied())
    }
}

/// Entries of a host of weight 1.
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

/// The entries needed to reach `target`: a started one counts.
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
