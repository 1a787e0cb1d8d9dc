//! [`PriorityTable`]: the lists of hosts of one priority, and how a pick reads them.
//!
//! A list is a few numbers that say where it lies in the roster of hosts, or in the positions of
//! the hosts of one class. A pick reads these numbers and one host; what it touches does not grow
//! with the cluster. Tables are made in `build`; what is decided by their counts lives outside.

use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::host::Host;
use crate::host::in_flight::{CounterBlocks, CounterPlace};
use crate::host_source::HostSource;

/// The hosts of one priority. Rebuilt when hosts come or go; what it knows of a slot is shared
/// until hosts of that slot do, because to touch ten thousand hosts for one takes long.
#[derive(Debug)]
pub(crate) struct Roster {
    slots: Box<[Arc<[Arc<Host>]>]>,
    /// Every host, slot by slot: its slot and its position there.
    places: Box<[(u32, u32)]>,
    /// Where the requests in flight of every host are counted.
    counters: Box<[CounterPlace]>,
    blocks: CounterBlocks,
}

/// The hosts of one slot, sorted by address, and where their requests in flight are counted.
#[derive(Debug)]
pub(crate) struct SlotRoster {
    pub(crate) hosts: Arc<[Arc<Host>]>,
    pub(crate) counters: Box<[CounterPlace]>,
}

impl Roster {
    /// The roster of these slots.
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

    /// Whether it has exactly these hosts, slot by slot.
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

    /// How many hosts there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

/// One priority: lists of hosts and what was counted on them. Rebuilt when hosts, health or weights
/// of the priority change; the roster is shared until hosts come or go.
#[derive(Debug)]
pub struct PriorityTable {
    pub(crate) counts: HostSetCounts,
    pub(super) roster: Arc<Roster>,
    /// Positions in the roster: of the healthy hosts, unless every host is, then of the degraded.
    pub(super) positions: Box<[u32]>,
    /// Every list there is: all, healthy, degraded; then healthy, degraded and all of each slot.
    pub(super) lists: Box<[Extent]>,
    /// Weight of each slot in the assignment.
    pub(super) slot_weights: Vec<u32>,
    /// Effective locality weights for healthy and degraded hosts; `None` = no scheduler.
    pub(crate) locality_weights: [Option<Vec<f64>>; 2],
}

/// Where a list of hosts lies.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) start: u32,
    pub(super) len: u32,
    /// How many at its start are in the own locality.
    pub(super) local: u32,
    /// Weights differ within it.
    pub(super) weighted: bool,
    pub(super) within: Within,
}

/// What a list is a part of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Within {
    /// The positions of the table.
    Positions,
    /// All hosts of the roster.
    Roster,
    /// All hosts of the roster, and of them it is this whole slot.
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
    /// How many lists there are.
    pub(crate) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// The list behind a source; an unknown slot is an empty list.
    #[inline(always)]
    pub(crate) fn list(&self, source: HostSource) -> HostList<'_> {
        let id = match source {
            HostSource::AllHosts => 0,
            HostSource::HealthyHosts => 1,
            HostSource::DegradedHosts => 2,
            HostSource::LocalityHealthyHosts(index) => 3 + 3 * index,
            HostSource::LocalityDegradedHosts(index) => 4 + 3 * index,
            HostSource::LocalityAllHosts(index) => 5 + 3 * index,
        };
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

    /// The hosts behind a flat source, slot by slot.
    pub(crate) fn hosts_by_slot(&self, source: HostSource) -> impl Iterator<Item = HostList<'_>> {
        let of_slot = match source {
            HostSource::AllHosts | HostSource::LocalityAllHosts(_) => HostSource::LocalityAllHosts,
            HostSource::HealthyHosts | HostSource::LocalityHealthyHosts(_) => {
                HostSource::LocalityHealthyHosts
            }
            HostSource::DegradedHosts | HostSource::LocalityDegradedHosts(_) => {
                HostSource::LocalityDegradedHosts
            }
        };
        (0..self.slot_weights.len()).map(move |index| self.list(of_slot(index)))
    }

    /// Weight of each locality slot in the assignment.
    pub(crate) fn assigned_weights(&self) -> impl Iterator<Item = u32> {
        self.slot_weights.iter().copied()
    }

    /// All hosts.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.roster.slots.iter().flat_map(|slot| &**slot)
    }
}

#[cfg(test)]
impl PriorityTable {
    /// Whether both tables were built from the same roster.
    pub(crate) fn shares_roster(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.roster, &other.roster)
    }

    /// Whether the hosts of slot `index` are the same array in both.
    pub(crate) fn shares_slot(&self, other: &Self, index: usize) -> bool {
        Arc::ptr_eq(&self.roster.slots[index], &other.roster.slots[index])
    }
}

/// A list to pick from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostList<'a> {
    table: &'a PriorityTable,
    extent: &'a Extent,
    /// Number of the list within its priority: where workers keep its cursor.
    pub(crate) id: usize,
}

impl<'a> HostList<'a> {
    /// How many hosts are listed.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.extent.len
    }

    /// Whether nothing is listed.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.extent.len == 0
    }

    /// Whether weights differ within the list.
    #[inline]
    pub(crate) const fn is_weighted(&self) -> bool {
        self.extent.weighted
    }

    /// How many at the start of the list are in the own locality.
    #[inline]
    pub(crate) const fn local(&self) -> u32 {
        self.extent.local
    }

    /// The host at `index`, which is below [`Self::len`].
    #[inline(always)]
    pub(crate) fn host(&self, index: u32) -> &'a Arc<Host> {
        let roster = &*self.table.roster;
        let (slot, position) = match self.extent.within {
            Within::Slot(slot) => (slot, index),
            Within::Positions | Within::Roster => roster.places[self.position(index)],
        };
        &roster.slots[slot as usize][position as usize]
    }

    /// Requests in flight on the host at `index`, without a look at the host.
    #[inline(always)]
    pub(crate) fn active_requests(&self, index: u32) -> u64 {
        let roster = &*self.table.roster;
        u64::from(roster.blocks.get(roster.counters[self.position(index)]))
    }

    /// Position in the roster of the host at `index`.
    #[inline(always)]
    fn position(&self, index: u32) -> usize {
        debug_assert!(index < self.len(), "an index of the list");
        let at = self.extent.start as usize + index as usize;
        match self.extent.within {
            Within::Positions => self.table.positions[at] as usize,
            Within::Roster | Within::Slot(_) => at,
        }
    }

    /// The hosts, in order.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = &'a Arc<Host>> {
        (0..self.len()).map(move |index| self.host(index))
    }
}
