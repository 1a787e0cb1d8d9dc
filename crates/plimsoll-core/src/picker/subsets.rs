//! Picks from a cluster with subsets: resolves which subset or fallback serves a request, then
//! picks a host from it as from any cluster. Order and fallbacks are Envoy's, without its
//! allocations: criteria are never copied but filtered by a list of keys.

use std::sync::Arc;

use super::state::PickerState;
use super::{Choice, PickArgs, PickContext, PickError};
use crate::host_source::HostSource;
use crate::model::metadata::criteria::Criterion;
use crate::model::subset::{
    LbSubsetConfig, MetadataFallbackPolicy, SelectorFallbackPolicy, SubsetFallbackPolicy,
};
use crate::rng::Rng;
use crate::snapshot::{RoutingSnapshot, SubsetEntry, SubsetHosts, SubsetTable};

#[derive(Debug, Default)]
pub(super) struct SubsetStates {
    slots: Vec<Option<SubsetState>>,
}

#[derive(Debug)]
struct SubsetState {
    /// Id of the subset; `None` is the default subset.
    id: Option<u64>,
    state: PickerState,
}

impl SubsetStates {
    /// Drops state of removed subsets and syncs the rest: state must not keep removed hosts alive.
    pub(super) fn sync(&mut self, table: &SubsetTable, rng: &mut impl Rng) {
        let mut old = std::mem::take(&mut self.slots);
        self.slots.resize_with(table.slots, || None);
        let many = table.entries.iter().filter_map(|entry| match &entry.hosts {
            SubsetHosts::Many(routing) => Some((entry.slot, Some(entry.id), routing)),
            SubsetHosts::Single { .. } => None,
        });
        let default = table
            .default
            .iter()
            .map(|routing| (table.default_slot, None, routing));
        for (slot, id, routing) in default.chain(many) {
            let Some(known) = old.get_mut(slot as usize) else {
                continue;
            };
            let known = known.take().filter(|known| known.id == id);
            self.slots[slot as usize] = known.map(|mut known| {
                if !known.state.is_synced_with(routing) {
                    known.state.sync(routing, rng);
                }
                known
            });
        }
    }

    fn get_or_create(
        &mut self,
        slot: u32,
        id: Option<u64>,
        routing: &RoutingSnapshot,
        seed: u64,
        rng: &mut impl Rng,
    ) -> &mut PickerState {
        let kept = self.slots[slot as usize].get_or_insert_with(|| SubsetState {
            id,
            state: PickerState::new(seed),
        });
        if !kept.state.is_synced_with(routing) {
            kept.state.sync(routing, rng);
        }
        &mut kept.state
    }
}

/// Match criteria of a request, optionally restricted to some keys.
#[derive(Clone, Copy)]
struct RequestCriteria<'a> {
    criteria: &'a [Criterion],
    keys: Option<&'a [Arc<str>]>,
}

impl<'a> RequestCriteria<'a> {
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

    /// Restricts the criteria to the keys of the first selector that they cover.
    fn without_redundant_keys(self, config: &'a LbSubsetConfig) -> Self {
        let has = |key: &Arc<str>| self.iter().any(|criterion| criterion.key == *key);
        config
            .subset_selectors()
            .iter()
            .find(|selector| selector.keys().iter().all(has))
            .map_or(self, |selector| self.only(selector.keys()))
    }
}

#[derive(Clone, Copy)]
enum Resolution<'p> {
    Subset(&'p SubsetEntry),
    AnyEndpoint,
    DefaultSubset,
    NoFallback,
    ClusterFallback,
}

pub(super) struct SubsetPick<'p, 'w, R> {
    pub(super) snapshot: &'p RoutingSnapshot,
    pub(super) table: &'p SubsetTable,
    pub(super) context: PickContext<'w, R>,
}

impl<'p, R: Rng> SubsetPick<'p, '_, R> {
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
        match resolve(self.table, criteria) {
            Resolution::Subset(entry) => {
                self.context.stats.lb_subsets_selected.increment();
                self.within(entry, args)
            }
            Resolution::AnyEndpoint => self.any_endpoint(args),
            Resolution::DefaultSubset => self.default_subset(args),
            Resolution::NoFallback => Err(PickError::NoSubset),
            Resolution::ClusterFallback => self.fallback(args),
        }
    }

    /// Applies the fallback policy of the cluster, and `panic_mode_any` after it.
    fn fallback(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        let outcome = match self.table.config.fallback_policy() {
            SubsetFallbackPolicy::NoFallback => return Err(PickError::NoSubset),
            SubsetFallbackPolicy::AnyEndpoint => self.any_endpoint(args),
            SubsetFallbackPolicy::DefaultSubset => self.default_subset(args),
        };
        if outcome.is_ok() {
            self.context.stats.lb_subsets_fallback.increment();
            return outcome;
        }
        if !self.table.config.panic_mode_any() {
            return outcome;
        }
        let any = self.any_endpoint(args);
        if any.is_ok() {
            self.context.stats.lb_subsets_fallback_panic.increment();
        }
        any
    }

    fn any_endpoint(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        super::decide(self.snapshot, args, self.context.reborrow())
    }

    fn default_subset(&mut self, args: PickArgs<'_>) -> Result<Choice<'p>, PickError> {
        let routing = self.table.default.as_deref().ok_or(PickError::NoSubset)?;
        self.balance(self.table.default_slot, None, routing, args)
    }

    fn within(
        &mut self,
        entry: &'p SubsetEntry,
        args: PickArgs<'_>,
    ) -> Result<Choice<'p>, PickError> {
        match &entry.hosts {
            SubsetHosts::Many(routing) => self.balance(entry.slot, Some(entry.id), routing, args),
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
        slot: u32,
        id: Option<u64>,
        routing: &'p RoutingSnapshot,
        args: PickArgs<'_>,
    ) -> Result<Choice<'p>, PickError> {
        let PickContext {
            state,
            rng,
            stats,
            active,
        } = self.context.reborrow();
        let seed = state.seed();
        let state = state
            .subsets
            .as_mut()
            .expect("a picker state in sync with subsets has states for them")
            .get_or_create(slot, id, routing, seed, rng);
        let context = PickContext {
            state,
            rng,
            stats,
            active,
        };
        super::decide(routing, args, context)
    }
}

fn resolve<'p>(table: &'p SubsetTable, criteria: &[Criterion]) -> Resolution<'p> {
    let config = &*table.config;
    let mut requested = RequestCriteria {
        criteria,
        keys: None,
    };
    loop {
        if config.allow_redundant_keys() {
            requested = requested.without_redundant_keys(config);
        }
        if let Some(entry) = table.find(requested.iter()) {
            return Resolution::Subset(entry);
        }
        let keys = requested.iter().map(|criterion| &*criterion.key);
        let Some(selector) = config.fallback_selector(keys) else {
            return Resolution::ClusterFallback;
        };
        match selector.fallback_policy() {
            SelectorFallbackPolicy::NotDefined => return Resolution::ClusterFallback,
            SelectorFallbackPolicy::NoFallback => return Resolution::NoFallback,
            SelectorFallbackPolicy::AnyEndpoint => return Resolution::AnyEndpoint,
            SelectorFallbackPolicy::DefaultSubset => return Resolution::DefaultSubset,
            // Terminates: each fallback has fewer keys.
            SelectorFallbackPolicy::KeysSubset => {
                requested = requested.only(selector.fallback_keys_subset());
            }
        }
    }
}
