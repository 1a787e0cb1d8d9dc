//! Picks from a cluster with subsets: which subset or fallback serves a request, then a host of it
//! as of any cluster. Order and fallbacks as in Envoy, without its allocations: criteria are never
//! copied, they are looked at through a list of keys.

use std::sync::Arc;

use super::worker::Worker;
use super::{Choice, PickArgs, PickError};
use crate::host_source::HostSource;
use crate::model::metadata::criteria::Criterion;
use crate::model::subset::{
    LbSubsetConfig, MetadataFallbackPolicy, SelectorFallbackPolicy, SubsetFallbackPolicy,
};
use crate::rng::Rng;
use crate::snapshot::{RoutingSnapshot, SubsetEntry, SubsetHosts, SubsetTable};
use crate::stats::PickerStats;

/// State of a worker for each subset it has picked from, by slot.
#[derive(Debug, Default)]
pub(super) struct SubsetWorkers {
    workers: Vec<Option<SubsetWorker>>,
}

#[derive(Debug)]
struct SubsetWorker {
    /// Of the subset it belongs to; `None` is the default subset.
    id: Option<u64>,
    worker: Worker,
}

impl SubsetWorkers {
    /// Takes over the subsets of a snapshot. State of subsets that are gone is dropped, that of the
    /// others follows at once: it must not keep hosts alive that are gone.
    pub(super) fn follow(&mut self, table: &SubsetTable, rng: &mut impl Rng) {
        let mut old = std::mem::take(&mut self.workers);
        self.workers.resize_with(table.slots, || None);
        let many = table.entries.iter().filter_map(|entry| match &entry.hosts {
            SubsetHosts::Many(routing) => Some((entry.slot, Some(entry.id), routing)),
            SubsetHosts::Single { .. } => None,
        });
        let default = table.default.iter();
        let default = default.map(|routing| (table.default_slot, None, routing));
        for (slot, id, routing) in default.chain(many) {
            let Some(known) = old.get_mut(slot as usize) else {
                continue;
            };
            let known = known.take().filter(|known| known.id == id);
            self.workers[slot as usize] = known.map(|mut known| {
                if !known.worker.follows(routing) {
                    known.worker.follow(routing, rng);
                }
                known
            });
        }
    }

    /// The state for one subset, made when it is first picked from.
    fn of(
        &mut self,
        (slot, id): (u32, Option<u64>),
        routing: &RoutingSnapshot,
        (seed, rng): (u64, &mut impl Rng),
    ) -> &mut Worker {
        let kept = &mut self.workers[slot as usize];
        let state = kept.get_or_insert_with(|| SubsetWorker {
            id,
            worker: Worker::new(seed),
        });
        if !state.worker.follows(routing) {
            state.worker.follow(routing, rng);
        }
        &mut state.worker
    }
}

/// What a request asks for: its criteria, or those of them with certain keys.
#[derive(Clone, Copy)]
struct Asked<'a> {
    criteria: &'a [Criterion],
    keys: Option<&'a [Arc<str>]>,
}

impl<'a> Asked<'a> {
    fn iter(self) -> impl Iterator<Item = &'a Criterion> + Clone {
        let keys = self.keys;
        let kept = move |criterion: &&Criterion| keys.is_none_or(|k| k.contains(&criterion.key));
        self.criteria.iter().filter(kept)
    }

    const fn only(self, keys: &'a [Arc<str>]) -> Self {
        Self {
            criteria: self.criteria,
            keys: Some(keys),
        }
    }

    /// What is left by the first selector that it has all keys of.
    fn without_redundant_keys(self, config: &'a LbSubsetConfig) -> Self {
        let has = |key: &Arc<str>| self.iter().any(|criterion| criterion.key == *key);
        let mut selectors = config.subset_selectors().iter();
        let found = selectors.find(|selector| selector.keys().iter().all(has));
        found.map_or(self, |selector| self.only(selector.keys()))
    }
}

/// Who serves a request.
#[derive(Clone, Copy)]
enum Served<'p> {
    Subset(&'p SubsetEntry),
    /// By order of a selector.
    AnyEndpoint,
    DefaultSubset,
    Nobody,
    /// Whoever the fallback policy of the cluster names.
    Fallback,
}

/// A pick from a cluster with subsets.
pub(super) struct SubsetPick<'p, 'w, R> {
    pub(super) snapshot: &'p RoutingSnapshot,
    pub(super) table: &'p SubsetTable,
    pub(super) worker: &'w mut Worker,
    pub(super) rng: &'w mut R,
    pub(super) stats: &'w PickerStats,
}

impl<'p, R: Rng> SubsetPick<'p, '_, R> {
    /// The host for one request.
    pub(super) fn choose(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        let Some(criteria) = args.metadata_match else {
            return self.fallback(args);
        };
        let list = self.table.config.metadata_fallback_policy();
        if list == MetadataFallbackPolicy::FallbackList
            && let Some(attempts) = criteria.attempts()
        {
            let mut outcome = Err(PickError::NoSubset);
            for attempt in attempts {
                outcome = self.try_criteria(attempt, args);
                if outcome.is_ok() {
                    break;
                }
            }
            return outcome;
        }
        self.try_criteria(criteria.criteria(), args)
    }

    fn try_criteria(
        &mut self,
        criteria: &[Criterion],
        args: PickArgs<'_>,
    ) -> Result<Choice<'p>, PickError> {
        match served(self.table, criteria) {
            Served::Subset(entry) => {
                self.stats.lb_subsets_selected.increment();
                self.within(entry, args)
            }
            Served::AnyEndpoint => self.any_endpoint(args),
            Served::DefaultSubset => self.default_subset(args),
            Served::Nobody => Err(PickError::NoSubset),
            Served::Fallback => self.fallback(args),
        }
    }

    /// The fallback policy of the cluster, and panic mode behind it.
    fn fallback(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        let outcome = match self.table.config.fallback_policy() {
            SubsetFallbackPolicy::NoFallback => return Err(PickError::NoSubset),
            SubsetFallbackPolicy::AnyEndpoint => self.any_endpoint(args),
            SubsetFallbackPolicy::DefaultSubset => self.default_subset(args),
        };
        if outcome.is_ok() {
            self.stats.lb_subsets_fallback.increment();
            return outcome;
        }
        if !self.table.config.panic_mode_any() {
            return outcome;
        }
        let any = self.any_endpoint(args);
        if any.is_ok() {
            self.stats.lb_subsets_fallback_panic.increment();
        }
        any
    }

    /// All hosts: what the cluster's own routing is for.
    fn any_endpoint(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        super::decide(self.snapshot, args, (self.worker, self.rng), self.stats)
    }

    fn default_subset(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        let routing = self.table.default.as_deref().ok_or(PickError::NoSubset)?;
        self.balance((self.table.default_slot, None), routing, args)
    }

    fn within(
        &mut self,
        entry: &'p SubsetEntry,
        args: PickArgs<'_>,
    ) -> Result<Choice<'p>, PickError> {
        match &entry.hosts {
            SubsetHosts::Many(routing) => self.balance((entry.slot, Some(entry.id)), routing, args),
            SubsetHosts::Single { host, priority } => Ok(Choice {
                host,
                index: 0,
                local: self.snapshot.own.as_ref() == Some(host.locality()),
                priority: *priority,
                source: HostSource::AllHosts,
            }),
        }
    }

    fn balance(
        &mut self,
        place: (u32, Option<u64>),
        routing: &'p RoutingSnapshot,
        args: PickArgs<'_>,
    ) -> Result<Choice<'p>, PickError> {
        let seed = self.worker.seed();
        let workers = self.worker.subsets.as_mut();
        let workers = workers.expect("a worker that follows subsets has state for them");
        let worker = workers.of(place, routing, (seed, self.rng));
        super::decide(routing, args, (worker, self.rng), self.stats)
    }
}

/// Who serves a request with these criteria.
fn served<'p>(table: &'p SubsetTable, criteria: &[Criterion]) -> Served<'p> {
    let config = &*table.config;
    let mut asked = Asked {
        criteria,
        keys: None,
    };
    loop {
        if config.allow_redundant_keys() {
            asked = asked.without_redundant_keys(config);
        }
        if let Some(entry) = table.find(asked.iter()) {
            return Served::Subset(entry);
        }
        let keys = asked.iter().map(|criterion| &*criterion.key);
        let Some(selector) = config.fallback_of(keys) else {
            return Served::Fallback;
        };
        match selector.fallback_policy() {
            SelectorFallbackPolicy::NotDefined => return Served::Fallback,
            SelectorFallbackPolicy::NoFallback => return Served::Nobody,
            SelectorFallbackPolicy::AnyEndpoint => return Served::AnyEndpoint,
            SelectorFallbackPolicy::DefaultSubset => return Served::DefaultSubset,
            // Fewer keys every time: this ends.
            SelectorFallbackPolicy::KeysSubset => {
                asked = asked.only(selector.fallback_keys_subset());
            }
        }
    }
}
