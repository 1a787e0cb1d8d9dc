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

/// The hosts of one priority, slot by slot, and where their requests in flight are counted.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) hosts: Box<[Arc<Host>]>,
    pub(crate) counters: Box<[CounterPlace]>,
    pub(crate) blocks: CounterBlocks,
}

/// One priority: lists of hosts and what was counted on them. Rebuilt when hosts, health or weights
/// of the priority change; the roster is shared until hosts come or go.
#[derive(Debug)]
pub struct PriorityTable {
    pub(crate) counts: HostSetCounts,
    pub(super) roster: Arc<Roster>,
    /// Positions in the roster: of the healthy hosts, then of the degraded ones, slot by slot.
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
    /// It is a part of the roster itself, not of the positions.
    pub(super) direct: bool,
}

impl Extent {
    const EMPTY: Self = Self {
        start: 0,
        len: 0,
        local: 0,
        weighted: false,
        direct: true,
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
    pub(crate) fn hosts(&self) -> &[Arc<Host>] {
        &self.roster.hosts
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
        &self.table.roster.hosts[self.position(index)]
    }

    /// Requests in flight on the host at `index`, without a look at the host.
    #[inline(always)]
    pub(crate) fn active_requests(&self, index: u32) -> u64 {
        let Roster {
            counters, blocks, ..
        } = &*self.table.roster;
        u64::from(blocks.get(counters[self.position(index)]))
    }

    #[inline(always)]
    fn position(&self, index: u32) -> usize {
        debug_assert!(index < self.len(), "an index of the list");
        let at = self.extent.start as usize + index as usize;
        if self.extent.direct {
            at
        } else {
            self.table.positions[at] as usize
        }
    }

    /// The hosts, in order.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = &'a Arc<Host>> {
        (0..self.len()).map(move |index| self.host(index))
    }
}
