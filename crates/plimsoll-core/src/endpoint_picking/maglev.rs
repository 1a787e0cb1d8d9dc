//! Maglev lookup table (envoy-semantics §8.4): identical to Envoy's, slot by slot, so that both
//! send a key to the same host.
//!
//! A [`MaglevTable`] is immutable: the writer builds it when hosts change, workers look hosts up.
//! Keys and weights are in `hash_key`, bounded load is in `bounded_load`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use xxhash_rust::xxh64::xxh64;

use super::hash_key::HashedHost;
use crate::model::endpoint_policy::{ConsistentHashing, Maglev};

/// Maglev table: a host for every slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaglevTable {
    /// Host index of each slot: `table_size` slots, one if there is a single host, or none.
    slots: Box<[u32]>,
}

impl MaglevTable {
    /// Builds the table: hosts take slots in turn, each in the order that its key dictates, as
    /// often as its weight demands. The order of `hosts` does not matter.
    ///
    /// # Panics
    ///
    /// If `table_size` is not one that [`Maglev`] accepts: only with a prime does every host reach
    /// every slot.
    pub fn build(hosts: &[HashedHost<'_>], table_size: u64) -> Self {
        assert!(
            Maglev::try_new(Some(table_size), ConsistentHashing::default()).is_ok(),
            "table_size {table_size} is a prime within bounds"
        );
        let mut entries: Vec<_> = (0..)
            .zip(hosts)
            .filter(|(_, host)| host.has_weight())
            .map(|(index, host)| (index, *host))
            .collect();
        let slots = match entries[..] {
            [] => Vec::new(),
            [(only, _)] => vec![only],
            _ => {
                // Weight before index, so that equal keys are ordered independently of the list.
                entries.sort_unstable_by(|(i, a), (j, b)| {
                    let weights = || a.weight.total_cmp(&b.weight);
                    a.key.cmp(b.key).then_with(weights).then(i.cmp(j))
                });
                fill(&entries, table_size)
            }
        };
        Self {
            slots: slots.into(),
        }
    }

    /// Returns the host index for `hash`; each further `attempt`, after a host was refused, looks
    /// elsewhere (which may be the same host again). `None` only if the table is empty.
    #[inline]
    pub fn lookup(&self, hash: u64, attempt: u32) -> Option<u32> {
        // -k in two's complement: most bits change. Attempt 0 leaves the hash as it is.
        let hash = hash ^ u64::from(attempt).wrapping_neg();
        let slot = hash.checked_rem(self.slots.len() as u64)?;
        #[expect(clippy::cast_possible_truncation, reason = "less than the length")]
        self.slots.get(slot as usize).copied()
    }

    /// Returns the host of every slot; a single slot if there is a single host.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Whether the table has no host.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// A host while the table is being filled (Envoy's `TableBuildEntry`).
struct BuildEntry {
    host: u32,
    weight: f64,
    /// Slot that the host tries next, and the stride to the slot after it.
    next: u64,
    skip: u64,
    /// The host takes a slot in the first round in which round × weight reaches this target.
    target: f64,
}

impl BuildEntry {
    fn new(host: u32, hashed: &HashedHost<'_>, table_size: u64) -> Self {
        let key = hashed.key.as_bytes();
        Self {
            host,
            weight: hashed.weight,
            next: xxh64(key, 0) % table_size,
            skip: xxh64(key, 1) % (table_size - 1) + 1,
            target: 0.0,
        }
    }

    fn take(&mut self, slots: &mut Slots) {
        loop {
            let slot = self.next;
            self.next += self.skip;
            if self.next >= slots.table_size {
                self.next -= slots.table_size;
            }
            if slots.claim(slot, self.host) {
                return;
            }
        }
    }

    /// First round after `round` in which the host is due; `None` if it is after `last`.
    fn due_after(&self, round: u64, last: u64) -> Option<u64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "rounds are at most the table size"
        )]
        let is_due = |round: u64| round as f64 * self.weight >= self.target;
        let quotient = self.target / self.weight;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is bounded next"
        )]
        let estimate = quotient as u64;
        // The quotient is rounded, but the product decides: start one below the estimate and step.
        let start = estimate.saturating_sub(1).max(round + 1);
        (start..=last).find(|&round| is_due(round))
    }
}

/// The table while it is being filled. Most slots that are tried near the end are taken: one bit
/// each stays in the cache, which the hosts of a large table would not.
struct Slots {
    table_size: u64,
    hosts: Vec<u32>,
    taken: Vec<u64>,
}

impl Slots {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by Maglev")]
    fn new(table_size: u64) -> Self {
        Self {
            table_size,
            hosts: vec![0; table_size as usize],
            taken: vec![0; table_size.div_ceil(64) as usize],
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "below table_size")]
    fn claim(&mut self, slot: u64, host: u32) -> bool {
        let (word, bit) = (&mut self.taken[slot as usize / 64], 1 << (slot % 64));
        let free = *word & bit == 0;
        if free {
            *word |= bit;
            self.hosts[slot as usize] = host;
        }
        free
    }
}

/// Fills the table. Envoy walks all hosts in every round and skips those that are not due yet; the
/// queue yields the same order without the walk, which matters if few hosts are heavy.
fn fill(hosts: &[(u32, HashedHost<'_>)], table_size: u64) -> Vec<u32> {
    let mut entries: Vec<_> = hosts
        .iter()
        .map(|(index, host)| BuildEntry::new(*index, host, table_size))
        .collect();
    let heaviest = entries.iter().map(|entry| entry.weight).fold(0.0, f64::max);
    let mut slots = Slots::new(table_size);
    // Ordered by round, then by position of the host. In the first round every host is due.
    let mut queue: BinaryHeap<_> = (0..entries.len())
        .map(|entry| Reverse((1, entry)))
        .collect();
    for _ in 0..table_size {
        // Every round fills a slot, so rounds after the `table_size`th are never needed.
        let mut first = queue
            .peek_mut()
            .expect("the heaviest host is due in every round");
        let Reverse((round, index)) = *first;
        let entry = &mut entries[index];
        entry.take(&mut slots);
        entry.target += heaviest;
        match entry.due_after(round, table_size) {
            Some(next) => *first = Reverse((next, index)),
            None => drop(PeekMut::pop(first)),
        }
    }
    slots.hosts
}

#[cfg(test)]
mod tests;
