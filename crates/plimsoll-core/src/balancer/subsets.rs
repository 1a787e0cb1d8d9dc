//! [`Subsets`]: the hosts of a cluster divided by their metadata, as the writer keeps them.
//!
//! A host joins the subset of each selector whose keys it has all of, with exactly its values;
//! a subset exists from its first host to its last. Which hosts are in which subset is worked out
//! anew for a priority whose endpoints changed (`membership`); a change of health touches only the
//! subsets of that host. What follows from the hosts of a subset is computed in `slice`, by the
//! code that decides for a whole cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::members::{Members, Place};
use super::routing::Shared;
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
pub(super) use slice::{Common, Refresh};

/// Where the worker's state of the default subset is kept; those of the others follow.
const DEFAULT_SLOT: u32 = 0;

/// All subsets of a cluster.
#[derive(Debug)]
pub(super) struct Subsets {
    config: Arc<LbSubsetConfig>,
    /// The hosts of `default_subset`, where some request can fall back to it.
    default: Option<Slice>,
    /// The subset of every slot but the default's; `None` = the slot is free.
    slots: Vec<Option<Subset>>,
    free: Vec<usize>,
    /// Slots by the hash of what is asked for.
    by_hash: BTreeMap<u64, Vec<u32>>,
    active: u32,
    next_id: u64,
    /// Hosts of each priority that are one too many in subsets of a single host.
    duplicates: Vec<u64>,
    /// That of the priority looked at last, which is what Envoy's gauge says.
    last_duplicates: u64,
    /// Some subset could not be made because there were too many.
    limited: bool,
    /// Each pass over a priority has a number.
    pass: u64,
}

#[derive(Debug)]
struct Subset {
    /// Never given twice, so that state of a subset that is gone is not taken for that of its
    /// successor.
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
    /// The first host of each priority.
    hosts: BTreeMap<usize, Arc<Host>>,
    /// The pass that found one, and whom.
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

/// Subsets that came and went.
#[derive(Debug, Default)]
struct Turnover {
    created: u64,
    removed: u64,
    left_out: u64,
}

impl Subsets {
    /// Those of a cluster with these settings; `None` if it has no subsets.
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

    /// All subsets go, because settings are others or there are none.
    pub(super) fn retire(&self, stats: &BalancerStats) {
        (0..self.active).for_each(|_| stats.lb_subsets_removed.increment());
    }

    /// Takes over what changed; returns what workers see.
    pub(super) fn refresh(
        &mut self,
        members: &Members,
        refresh: &Refresh<'_>,
        shared: &Shared<'_>,
        events: &mut impl Extend<Event>,
    ) -> Arc<SubsetTable> {
        if refresh.membership {
            let turnover = self.divide(members, refresh.priorities);
            self.report(&turnover, shared.stats, events);
        } else if let Some(&last) = refresh.priorities.last() {
            self.last_duplicates = self.duplicates.get(last).copied().unwrap_or(0);
        }
        for slice in self.slices_mut() {
            if refresh.host.is_none_or(|place| slice.contains(place)) {
                slice.refresh(members, refresh, shared);
            }
        }
        Arc::new(self.table())
    }

    fn slices_mut(&mut self) -> impl Iterator<Item = &mut Slice> {
        let many = self.slots.iter_mut().flatten();
        let many = many.filter_map(|subset| match &mut subset.hosts {
            Hosts::Many(slice) => Some(&mut **slice),
            Hosts::Single(_) => None,
        });
        self.default.iter_mut().chain(many)
    }

    fn report(
        &mut self,
        turnover: &Turnover,
        stats: &BalancerStats,
        events: &mut impl Extend<Event>,
    ) {
        let Turnover {
            created,
            removed,
            left_out,
        } = *turnover;
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
                let subset = self.slots[slot as usize - 1].as_ref();
                let subset = subset.expect("slots by hash are taken");
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
