//! Subsets of a cluster: hosts partitioned by their metadata (`lb_subset_config`).
//!
//! A host joins one subset per selector, if it has all keys of the selector: the subset of exactly
//! its values. A subset exists from its first host to its last. `membership` recomputes the subsets
//! of a priority whose endpoints changed; a change of a host's health touches only its subsets.
//! `slice` computes the routing over a subset, with the code that also routes for whole clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::members::{MemberIndex, Members};
use super::routing::ClusterContext;
use crate::event::Event;
use crate::host::Host;
use crate::model::cluster::ClusterConfig;
use crate::model::metadata::criteria::Criterion;
use crate::model::subset::LbSubsetConfig;
use crate::snapshot::{SubsetEntry, SubsetHosts, SubsetTable};
use crate::stats::BalancerStats;

mod membership;
mod slice;

use slice::Slice;
pub(super) use slice::{SnapshotContext, SubsetRefresh};

/// Slot of the picker state for the default subset; the other subsets follow.
const DEFAULT_SLOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Subsets {
    config: Arc<LbSubsetConfig>,
    /// The hosts of `default_subset`, if any request can fall back to it.
    default: Option<Slice>,
    /// Subset of every slot except the default's; `None` marks a free slot.
    slots: Vec<Option<Subset>>,
    free: Vec<usize>,
    by_hash: BTreeMap<u64, Vec<u32>>,
    active: u32,
    next_id: u64,
    /// Per priority: surplus hosts in subsets with `single_host_per_subset`.
    duplicates: Vec<u64>,
    /// `duplicates` of the priority processed last: the value of Envoy's gauge.
    last_duplicates: u64,
    /// Whether `max_subsets` kept some subset from being created.
    limited: bool,
    pass: u64,
}

#[derive(Debug)]
struct Subset {
    /// Never reused, so that picker state of a removed subset is not used for another subset.
    id: u64,
    hash: u64,
    criteria: Arc<[Criterion]>,
    hosts: Hosts,
}

#[derive(Debug)]
enum Hosts {
    Many(Box<Slice>),
    Single(SingleHost),
}

/// A subset of a selector with `single_host_per_subset`.
#[derive(Debug, Default)]
struct SingleHost {
    hosts: BTreeMap<usize, Arc<Host>>,
    /// Number of the membership pass that last found a host for the subset, and that host.
    found: (u64, Option<Arc<Host>>),
}

impl Hosts {
    fn is_active(&self) -> bool {
        match self {
            Self::Many(slice) => slice.has_hosts(),
            Self::Single(single) => !single.hosts.is_empty(),
        }
    }
}

#[derive(Debug, Default)]
struct SubsetChanges {
    created: u64,
    removed: u64,
    left_out: u64,
}

impl Subsets {
    /// Creates the subsets of a cluster; `None` if it has no `lb_subset_config`.
    pub(super) fn of(config: &ClusterConfig) -> Option<Box<Self>> {
        config
            .lb_subset_config()
            .map(|config| Box::new(Self::new(config)))
    }

    fn new(config: &Arc<LbSubsetConfig>) -> Self {
        Self {
            config: Arc::clone(config),
            default: config.uses_default_subset().then(Slice::default),
            slots: Vec::new(),
            free: Vec::new(),
            by_hash: BTreeMap::new(),
            active: 0,
            next_id: 0,
            duplicates: Vec::new(),
            last_duplicates: 0,
            limited: false,
            pass: 0,
        }
    }

    /// Counts all subsets as removed, because the subset settings changed.
    pub(super) fn retire(&self, stats: &BalancerStats) {
        (0..self.active).for_each(|_| stats.lb_subsets_removed.increment());
    }

    pub(super) fn refresh(
        &mut self,
        members: &Members,
        refresh: &SubsetRefresh<'_>,
        context: &ClusterContext<'_>,
        events: &mut impl Extend<Event>,
    ) -> Arc<SubsetTable> {
        if refresh.membership {
            let changes = self.partition(members, refresh.priorities);
            self.report(&changes, context.stats, events);
        } else if let Some(&last) = refresh.priorities.last() {
            self.last_duplicates = self.duplicates.get(last).copied().unwrap_or(0);
        }
        for slice in self.slices_mut() {
            if refresh.host.is_none_or(|place| slice.contains(place)) {
                slice.refresh(members, refresh, context);
            }
        }
        Arc::new(self.table())
    }

    fn slices_mut(&mut self) -> impl Iterator<Item = &mut Slice> {
        let subsets = self.slots.iter_mut().flatten();
        let many = subsets.filter_map(|subset| match &mut subset.hosts {
            Hosts::Many(slice) => Some(&mut **slice),
            Hosts::Single(_) => None,
        });
        self.default.iter_mut().chain(many)
    }

    fn report(
        &mut self,
        changes: &SubsetChanges,
        stats: &BalancerStats,
        events: &mut impl Extend<Event>,
    ) {
        let SubsetChanges {
            created,
            removed,
            left_out,
        } = *changes;
        (0..created).for_each(|_| stats.lb_subsets_created.increment());
        (0..removed).for_each(|_| stats.lb_subsets_removed.increment());
        if created + removed > 0 {
            events.extend([Event::SubsetsChanged {
                created,
                removed,
                active: u64::from(self.active),
            }]);
        }
        if left_out > 0 && !self.limited {
            let limit = self.config.max_subsets();
            events.extend([Event::SubsetLimitReached { limit, left_out }]);
        }
        self.limited = left_out > 0;
    }

    fn table(&self) -> SubsetTable {
        let mut entries = Vec::with_capacity(self.active as usize);
        for (&hash, slots) in &self.by_hash {
            for &slot in slots {
                let subset = self.slots[slot as usize - 1]
                    .as_ref()
                    .expect("every slot in by_hash has a subset");
                let hosts = match &subset.hosts {
                    Hosts::Many(slice) if slice.has_hosts() => {
                        slice.snapshot().cloned().map(SubsetHosts::Many)
                    }
                    Hosts::Many(_) => None,
                    Hosts::Single(single) => {
                        let first = single.hosts.iter().next();
                        first.map(|(&priority, host)| SubsetHosts::Single {
                            host: Arc::clone(host),
                            priority,
                        })
                    }
                };
                entries.extend(hosts.map(|hosts| SubsetEntry {
                    hash,
                    id: subset.id,
                    slot,
                    criteria: Arc::clone(&subset.criteria),
                    hosts,
                }));
            }
        }
        SubsetTable {
            config: Arc::clone(&self.config),
            entries: entries.into(),
            default: self.default.as_ref().and_then(|it| it.snapshot().cloned()),
            slots: self.slots.len() + 1,
            default_slot: DEFAULT_SLOT,
            active: self.active,
            limited: self.limited,
            single_host_duplicates: self.last_duplicates,
        }
    }
}

#[cfg(test)]
mod tests;
