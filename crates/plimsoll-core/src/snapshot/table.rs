//! Host lists of one priority, and how a pick reads them.
//!
//! A list is a range of the roster of hosts, or of the positions of the hosts of one class. A pick
//! reads the range and one host, so the memory it touches does not grow with the cluster.

use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::host::Host;
use crate::host::in_flight::{CounterBlocks, CounterIndex};
use crate::host_source::{HostClass, HostSource, PerClass};

/// The hosts of one priority. Rebuilt when membership changes; the arrays of unchanged slots are
/// shared, because touching ten thousand hosts to add one takes long.
#[derive(Debug)]
pub(crate) struct Roster {
    slots: Box<[Arc<[Arc<Host>]>]>,
    /// Slot and position of every host, slot by slot.
    places: Box<[(u32, u32)]>,
    counters: Box<[CounterIndex]>,
    blocks: CounterBlocks,
}

/// The hosts of one slot, sorted by address, and their in-flight counters.
#[derive(Debug)]
pub(crate) struct SlotRoster {
    pub(crate) hosts: Arc<[Arc<Host>]>,
    pub(crate) counters: Box<[CounterIndex]>,
}

impl Roster {
    pub(crate) fn new<'a>(
        slots: impl Iterator<Item = &'a SlotRoster> + Clone,
        blocks: CounterBlocks,
    ) -> Self {
        let hosts = slots.clone().map(|slot| slot.hosts.len()).sum();
        let mut places = Vec::with_capacity(hosts);
        let mut counters = Vec::with_capacity(hosts);
        for (number, slot) in (0..).zip(slots.clone()) {
            places.extend(
                (0..)
                    .zip(&slot.counters)
                    .map(|(position, _)| (number, position)),
            );
            counters.extend_from_slice(&slot.counters);
        }
        Self {
            slots: slots.map(|slot| Arc::clone(&slot.hosts)).collect(),
            places: places.into(),
            counters: counters.into(),
            blocks,
        }
    }

    pub(crate) fn has_hosts<'a, I>(&self, slots: impl ExactSizeIterator<Item = I>) -> bool
    where
        I: Iterator<Item = &'a Arc<Host>>,
    {
        self.slots.len() == slots.len()
            && self.slots.iter().zip(slots).all(|(mine, mut theirs)| {
                mine.iter()
                    .all(|host| theirs.next().is_some_and(|other| Arc::ptr_eq(host, other)))
                    && theirs.next().is_none()
            })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

/// Host lists and counts of one priority. Rebuilt when hosts, health or weights of the priority
/// change; the roster is shared until membership changes.
#[derive(Debug)]
pub struct PriorityTable {
    pub(crate) counts: HostSetCounts,
    pub(super) roster: Arc<Roster>,
    /// Roster positions of the healthy hosts (unless all are healthy), then of the degraded ones.
    pub(super) positions: Box<[u32]>,
    /// All lists: one for each class of hosts, then the same for each slot.
    pub(super) lists: Box<[Extent]>,
    pub(super) slot_weights: Vec<u32>,
    /// Effective locality weights for healthy and degraded hosts; `None` means no scheduler.
    pub(crate) locality_weights: PerClass<Option<Vec<f64>>>,
}

#[derive(Debug)]
pub(super) struct Extent {
    pub(super) start: u32,
    pub(super) len: u32,
    /// Number of hosts at the start of the list that are in the local locality.
    pub(super) local: u32,
    pub(super) weighted: bool,
    pub(super) within: Within,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Within {
    Positions,
    Roster,
    /// The host array of this slot, which is exactly the range of the roster.
    Slot(u32),
}

impl Extent {
    const EMPTY: Self = Self {
        start: 0,
        len: 0,
        local: 0,
        weighted: false,
        within: Within::Roster,
    };
}

impl PriorityTable {
    pub(crate) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Returns the list of a source; an unknown slot yields an empty list.
    #[inline(always)]
    pub(crate) fn list(&self, source: HostSource) -> HostList<'_> {
        let group = source.slot().map_or(0, |index| 1 + index);
        let id = HostClass::VARIANTS.len() * group + source.class() as usize;
        let (extent, id) = match self.lists.get(id) {
            Some(extent) => (extent, id),
            None => (&Extent::EMPTY, 0),
        };
        HostList {
            table: self,
            extent,
            id,
        }
    }

    /// Returns the lists of all slots for the class of `source`.
    pub(crate) fn hosts_by_slot(&self, source: HostSource) -> impl Iterator<Item = HostList<'_>> {
        let list = move |index| self.list(HostSource::locality(source.class(), index));
        (0..self.slot_weights.len()).map(list)
    }

    pub(crate) fn assigned_weights(&self) -> impl Iterator<Item = u32> {
        self.slot_weights.iter().copied()
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.roster.slots.iter().flat_map(|slot| &**slot)
    }

    pub(crate) fn shares_roster(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.roster, &other.roster)
    }
}

#[cfg(test)]
impl PriorityTable {
    /// Whether both tables share the host array of slot `index`.
    pub(crate) fn shares_slot(&self, other: &Self, index: usize) -> bool {
        Arc::ptr_eq(&self.roster.slots[index], &other.roster.slots[index])
    }
}

/// A host list to pick from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostList<'a> {
    table: &'a PriorityTable,
    extent: &'a Extent,
    /// Id of the list within its priority, which indexes cursors and schedules.
    pub(crate) id: usize,
}

impl<'a> HostList<'a> {
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.extent.len
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.extent.len == 0
    }

    /// Whether host weights differ within the list.
    #[inline]
    pub(crate) const fn is_weighted(&self) -> bool {
        self.extent.weighted
    }

    /// Number of hosts at the start of the list that are in the local locality.
    #[inline]
    pub(crate) const fn local(&self) -> u32 {
        self.extent.local
    }

    /// Returns the host at `index`, which must be below [`Self::len`].
    #[inline(always)]
    pub(crate) fn host(&self, index: u32) -> &'a Arc<Host> {
        let roster = &*self.table.roster;
        let (slot, position) = match self.extent.within {
            Within::Slot(slot) => (slot, index),
            Within::Positions | Within::Roster => roster.places[self.position(index)],
        };
        &roster.slots[slot as usize][position as usize]
    }

    /// Returns the requests in flight on the host at `index`, without reading the host itself.
    #[inline(always)]
    pub(crate) fn active_requests(&self, index: u32) -> u64 {
        let roster = &*self.table.roster;
        u64::from(roster.blocks.get(roster.counters[self.position(index)]))
    }

    /// Returns the roster position of the host at `index`.
    #[inline(always)]
    fn position(&self, index: u32) -> usize {
        debug_assert!(index < self.len(), "index out of bounds of the list");
        let at = self.extent.start as usize + index as usize;
        match self.extent.within {
            Within::Positions => self.table.positions[at] as usize,
            Within::Roster | Within::Slot(_) => at,
        }
    }

    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = &'a Arc<Host>> {
        (0..self.len()).map(move |index| self.host(index))
    }
}
