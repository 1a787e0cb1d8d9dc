//! Timer and state of load_aware_locality: utilization reports of hosts in, locality weights out
//! (envoy-semantics §4.3, decisions 0025 and 0027).
//!
//! Stage 1 (averaging the reports of a slot) is in `averages` because it reads hosts; the other
//! stages are in `locality_picking::{load_aware_locality, convergent}`. Weights are stored by
//! locality, so a change of membership between two ticks only reorders them.

mod averages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::averages::{SlotAverage, average_reports, discount};
use super::failing_hosts::HostCounts;
use crate::host_source::{HostClass, HostSource, PerClass};
use crate::locality_picking::convergent::{ControlledSlot, ControllerSettings, Convergent};
use crate::locality_picking::failing_localities::FailingLocalities;
use crate::locality_picking::host_count_fallback::HostCountFallback;
use crate::locality_picking::load_aware_locality::{
    LocalityWeights, SlotLoad, SmoothedSlot, Smoother, headroom_weights,
};
use crate::model::cluster::ClusterConfig;
use crate::model::load_aware_locality::{LoadAwareLocality, SpillController};
use crate::model::locality::Locality;
use crate::snapshot::{
    HashTable, LoadAwareSource, LoadAwareTable, PriorityTable, PriorityView, build_slot_hash_table,
};
use crate::stats::LoadAwareStats;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct LoadAware {
    priorities: Vec<PriorityState>,
    next_tick: Option<Instant>,
}

#[derive(Debug, Default)]
struct PriorityState {
    sources: PerClass<SourceState>,
    counts: HostCounts,
    failing: FailingLocalities,
}

#[derive(Debug, Default)]
struct SourceState {
    smoother: Smoother,
    controller: Convergent,
    weights: BTreeMap<Locality, f64>,
    utilization: BTreeMap<Locality, f64>,
    /// Localities whose reports have expired, or do not count while requests fail.
    silent: BTreeSet<Locality>,
    /// Those whose reports do not count because requests fail.
    discounted: BTreeSet<Locality>,
    /// Those whose hosts reported lately that they are full, while there is room elsewhere.
    full: BTreeSet<Locality>,
    /// Whether their last utilization is still compared.
    compares_expired: bool,
    fallback: HostCountFallback,
    all_local: bool,
}

impl LoadAware {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Whether a tick is due. The first one is due at once.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next_tick.is_none_or(|tick| tick <= now)
    }

    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Recomputes all weights. `feed_forward`: shares of priority 0 that measured demand calls for.
    pub(super) fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        views: &[PriorityView],
        feed_forward: Option<&[f64]>,
        stats: &LoadAwareStats,
        now: Instant,
    ) {
        // Re-armed first, as in Envoy: a slow tick does not stretch the period.
        self.next_tick = Some(now.saturating_add(settings.weight_update_period()));
        self.priorities.resize_with(views.len(), Default::default);
        let mut outcomes = Vec::with_capacity(3 * views.len());
        for (priority, (state, view)) in self.priorities.iter_mut().zip(views).enumerate() {
            state.judge(&view.table, settings, now);
            let failing = &state.failing;
            for (class, state) in state.sources.iter_mut() {
                let feed_forward =
                    feed_forward.filter(|_| priority == 0 && class == HostClass::Healthy);
                let hosts = ClassHosts {
                    table: &view.table,
                    class,
                    failing,
                };
                let outcome = state.tick(settings, hosts, feed_forward, now);
                outcomes.push((class, outcome));
            }
        }
        update_stats(&outcomes, stats);
    }

    /// Stores the weights in the views, in slot order. Reuses hash tables of a view if `keep_hash`.
    pub(super) fn publish(
        &self,
        views: &mut [PriorityView],
        config: &ClusterConfig,
        keep_hash: impl Fn(usize) -> bool,
    ) {
        for (priority, view) in views.iter_mut().enumerate() {
            let states = self.priorities.get(priority);
            let old = view.load_aware.take().filter(|_| keep_hash(priority));
            let sources = PerClass::from_fn(|class| {
                let state = states.map(|states| &states.sources[class]);
                let mut table = source_table(&view.table, state);
                table.hash = match &old {
                    Some(old) => old.sources[class].hash.clone(),
                    // Hash tables over all hosts of a slot are used in panic only.
                    None if class == HostClass::All && !view.source.panic => Vec::new(),
                    None => slot_hash_tables(&view.table, class, config),
                };
                table
            });
            let covered = states.is_some();
            view.load_aware = Some(Arc::new(LoadAwareTable { sources, covered }));
        }
    }
}

impl PriorityState {
    /// Finds the localities whose requests fail.
    fn judge(&mut self, table: &PriorityTable, settings: &LoadAwareLocality, now: Instant) {
        let full = &self.sources[HostClass::Healthy].full;
        let samples = self.counts.samples(table, full, settings, now);
        let slots = table.counts.localities.iter().map(|slot| &slot.locality);
        let samples: Vec<_> = slots.zip(samples).collect();
        self.failing.tick(&samples, settings.weight_update_period());
    }
}

/// Hosts of one class, by slot.
#[derive(Clone, Copy)]
struct ClassHosts<'a> {
    table: &'a PriorityTable,
    class: HostClass,
    failing: &'a FailingLocalities,
}

impl ClassHosts<'_> {
    /// Returns the mean reports of the slots, and the localities whose low reports do not count.
    fn averages(
        &self,
        settings: &LoadAwareLocality,
        now: Instant,
    ) -> (Vec<SlotAverage>, BTreeSet<Locality>) {
        let slots = self.table.hosts_by_slot(HostSource::flat(self.class));
        let averages = slots.map(|hosts| average_reports(hosts, settings, now));
        let mut averages: Vec<SlotAverage> = averages.collect();
        let localities = self.table.counts.localities.iter();
        let fails: Vec<bool> = localities
            .clone()
            .map(|slot| self.failing.localities().contains(&slot.locality))
            .collect();
        let discounted = discount(&mut averages, &fails, settings.spill_controller());
        let names = localities
            .zip(discounted)
            .filter(|(_, is_discounted)| *is_discounted)
            .map(|(slot, _)| slot.locality.clone());
        (averages, names.collect())
    }
}

impl SourceState {
    fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        hosts: ClassHosts<'_>,
        feed_forward: Option<&[f64]>,
        now: Instant,
    ) -> LocalityWeights {
        let table = hosts.table;
        let (averages, discounted) = hosts.averages(settings, now);
        self.discounted = discounted;
        let slots = slot_loads(table, &averages);
        if settings.spill_controller() == SpillController::Convergent {
            let returned = slots.iter();
            self.smoother
                .restart(returned.filter(|slot| self.silent.contains(&slot.locality)));
        }
        let period = settings.weight_update_period();
        let smoothed = self.smoother.smooth(settings.alpha(), period, &slots);
        self.silent = slots
            .iter()
            .zip(&smoothed)
            .filter(|(_, smoothed)| smoothed.stale)
            .map(|(slot, _)| slot.locality.clone())
            .collect();
        let local = table.counts.has_local_locality;
        let is_compared = |slot: &SmoothedSlot| slot.stale && !slot.is_forgotten();
        self.compares_expired = local
            && settings.spill_controller() == SpillController::Headroom
            && smoothed.iter().any(is_compared);
        let mut outcome = match settings.spill_controller() {
            SpillController::Headroom => {
                // Nothing is gained by requests that stay in a locality to fail there.
                let failing = hosts.failing.localities();
                let own = slots.first().map(|slot| &slot.locality);
                let prefers_own = local && !own.is_some_and(|own| failing.contains(own));
                headroom_weights(settings, &smoothed, prefers_own)
            }
            SpillController::Convergent => {
                let controls = ControllerSettings {
                    by_host_count: self.fallback.is_active(),
                    ..ControllerSettings::from(settings)
                };
                let controlled = controlled_slots(&slots, &smoothed, &averages);
                self.controller
                    .tick(&controls, &controlled, local, feed_forward)
            }
        };
        self.judge(&outcome, &slots, hosts.failing, period);
        if settings.spill_controller() == SpillController::Headroom {
            self.fallback.blend(&mut outcome, &smoothed);
        }
        self.weights = slots
            .iter()
            .zip(&outcome.weights)
            .filter(|(slot, _)| slot.has_hosts)
            .map(|(slot, &weight)| (slot.locality.clone(), weight))
            .collect();
        self.utilization = slots
            .iter()
            .zip(&smoothed)
            .filter(|(slot, smoothed)| slot.has_hosts && smoothed.is_measured())
            .map(|(slot, smoothed)| (slot.locality.clone(), smoothed.utilization))
            .collect();
        self.full = full(&slots, &averages, settings.spill_controller());
        self.all_local = outcome.all_local;
        // Their reports are valid.
        let silent = self.silent.difference(&self.discounted);
        outcome.stale_localities = silent.count() as u64;
        outcome
    }

    /// Finds out whether these weights fail more requests than host counts would.
    fn judge(
        &mut self,
        outcome: &LocalityWeights,
        slots: &[SlotLoad],
        failing: &FailingLocalities,
        period: std::time::Duration,
    ) {
        #[expect(clippy::cast_precision_loss, reason = "host counts")]
        let hosts = || slots.iter().map(|slot| slot.eligible as f64);
        let all: f64 = hosts().sum();
        let total: f64 = outcome.weights.iter().sum();
        if all <= 0.0 || total <= 0.0 {
            return;
        }
        let shares = outcome.weights.iter().zip(hosts());
        let shares = slots
            .iter()
            .zip(shares)
            .map(|(slot, (weight, hosts))| (&slot.locality, weight / total, hosts / all));
        let shares: Vec<_> = shares.collect();
        self.fallback.tick(failing, &shares, period);
    }
}

/// Utilization from which a locality may fail because it is full.
const FULL: f64 = 0.9;
/// Age in seconds of a report that says how full a host is now.
const LATELY: f64 = 3.0;

/// Returns the localities that may fail because they are full, which their weights then relieve:
/// there is room elsewhere. HEADROOM relieves them too much, and fills others.
fn full(
    slots: &[SlotLoad],
    averages: &[SlotAverage],
    controller: SpillController,
) -> BTreeSet<Locality> {
    let is_full = |slot: &SlotAverage| {
        let utilization = slot.utilization;
        slot.newest_age <= LATELY && utilization.is_some_and(|it| it >= FULL)
    };
    let has_room = |slot: &SlotAverage| slot.utilization.is_some_and(|it| it < FULL);
    if controller == SpillController::Headroom || !averages.iter().any(has_room) {
        return BTreeSet::new();
    }
    let full = slots.iter().zip(averages);
    full.filter(|(_, average)| is_full(average))
        .map(|(slot, _)| slot.locality.clone())
        .collect()
}

fn slot_loads(table: &PriorityTable, averages: &[SlotAverage]) -> Vec<SlotLoad> {
    table
        .counts
        .localities
        .iter()
        .zip(averages)
        .map(|(counts, average)| SlotLoad {
            locality: counts.locality.clone(),
            has_hosts: counts.all > 0,
            eligible: average.eligible,
            utilization: average.utilization,
        })
        .collect()
}

fn controlled_slots<'a>(
    slots: &'a [SlotLoad],
    smoothed: &[SmoothedSlot],
    averages: &[SlotAverage],
) -> Vec<(&'a Locality, ControlledSlot)> {
    slots
        .iter()
        .zip(smoothed.iter().zip(averages))
        .map(|(slot, (&smoothed, average))| {
            (
                &slot.locality,
                ControlledSlot {
                    smoothed,
                    report_age: average.age,
                    newest_age: average.newest_age,
                },
            )
        })
        .collect()
}

fn source_table(table: &PriorityTable, state: Option<&SourceState>) -> LoadAwareSource {
    let slots = &table.counts.localities;
    let prefix_sums = slots.iter().scan(0.0, |sum, slot| {
        let weight = state.and_then(|state| state.weights.get(&slot.locality));
        *sum += weight.copied().unwrap_or(0.0);
        Some(*sum)
    });
    let utilization = slots.iter().map(|slot| {
        let utilization = state.and_then(|state| state.utilization.get(&slot.locality));
        utilization.copied()
    });
    let silent = slots
        .iter()
        .map(|slot| state.is_some_and(|state| state.silent.contains(&slot.locality)));
    let fails = slots
        .iter()
        .map(|slot| state.is_some_and(|state| state.discounted.contains(&slot.locality)));
    LoadAwareSource {
        prefix_sums: prefix_sums.collect(),
        all_local: state.is_some_and(|state| state.all_local),
        utilization: utilization.collect(),
        silent: silent.collect(),
        fails: fails.collect(),
        compares_expired: state.is_some_and(|state| state.compares_expired),
        is_fallback: state.is_some_and(|state| state.fallback.is_active()),
        hash: Vec::new(),
    }
}

/// Builds one hash table per slot; empty if the endpoint policy does not hash.
fn slot_hash_tables(
    table: &PriorityTable,
    class: HostClass,
    config: &ClusterConfig,
) -> Vec<Option<Arc<HashTable>>> {
    if !config.endpoint_policy().is_hash() {
        return Vec::new();
    }
    table
        .hosts_by_slot(HostSource::flat(class))
        .map(|hosts| build_slot_hash_table(hosts, config).map(Arc::new))
        .collect()
}

/// Counts each flag at most once per tick over priorities and classes; stale slots by class `All`.
fn update_stats(outcomes: &[(HostClass, LocalityWeights)], stats: &LoadAwareStats) {
    let any = |flag: fn(&LocalityWeights) -> bool| outcomes.iter().any(|(_, o)| flag(o));
    stats.recompute_total.increment();
    let flags = [
        (any(|o| o.all_overloaded), &stats.all_overloaded_total),
        (any(|o| o.local_preferred), &stats.local_preferred_total),
        (any(|o| o.probe_active), &stats.probe_active_total),
        (any(|o| o.spill_active), &stats.spill_active_total),
    ];
    for (_, counter) in flags.into_iter().filter(|&(flag, _)| flag) {
        counter.increment();
    }
    let all = outcomes
        .iter()
        .filter(|(class, _)| *class == HostClass::All);
    for _ in 0..all.map(|(_, outcome)| outcome.stale_localities).sum() {
        stats.stale_locality_total.increment();
    }
}
