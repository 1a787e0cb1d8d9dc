//! Timer and state of load_aware_locality: utilization reports of hosts in, locality weights out
//! (envoy-semantics §4.3, decisions 0025 and 0027).
//!
//! Stage 1 (averaging the reports of a slot) is here because it reads hosts; the other stages are
//! in `locality_picking::{load_aware_locality, convergent}`. Weights are stored by locality, so a
//! change of membership between two ticks only reorders them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host_source::{HostClass, HostSource, PerClass};
use crate::locality_picking::convergent::{ControlledSlot, ControllerSettings, Convergent};
use crate::locality_picking::load_aware_locality::{
    LocalityWeights, SlotLoad, SmoothedSlot, Smoother, headroom_weights,
};
use crate::model::cluster::ClusterConfig;
use crate::model::load_aware_locality::{LoadAwareLocality, SpillController};
use crate::model::locality::Locality;
use crate::snapshot::{
    HashTable, HostList, LoadAwareSource, LoadAwareTable, PriorityTable, PriorityView,
    build_slot_hash_table,
};
use crate::stats::LoadAwareStats;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct LoadAware {
    priorities: Vec<PerClass<SourceState>>,
    next_tick: Option<Instant>,
}

#[derive(Debug, Default)]
struct SourceState {
    smoother: Smoother,
    controller: Convergent,
    weights: BTreeMap<Locality, f64>,
    utilization: BTreeMap<Locality, f64>,
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
        for (priority, (states, view)) in self.priorities.iter_mut().zip(views).enumerate() {
            for (class, state) in states.iter_mut() {
                let feed_forward =
                    feed_forward.filter(|_| priority == 0 && class == HostClass::Healthy);
                let outcome = state.tick(settings, &view.table, class, feed_forward, now);
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
                let state = states.map(|states| &states[class]);
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

impl SourceState {
    fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        table: &PriorityTable,
        class: HostClass,
        feed_forward: Option<&[f64]>,
        now: Instant,
    ) -> LocalityWeights {
        let averages: Vec<SlotAverage> = table
            .hosts_by_slot(HostSource::flat(class))
            .map(|hosts| average_reports(hosts, settings, now))
            .collect();
        let slots = slot_loads(table, &averages);
        let smoothed = self.smoother.smooth(settings.alpha(), &slots);
        let local = table.counts.has_local_locality;
        let outcome = match settings.spill_controller() {
            SpillController::Headroom => headroom_weights(settings, &smoothed, local),
            SpillController::Convergent => {
                let controls = ControllerSettings::from(settings);
                let controlled = controlled_slots(&slots, &smoothed, &averages);
                self.controller
                    .tick(&controls, &controlled, local, feed_forward)
            }
        };
        self.weights = slots
            .iter()
            .zip(&outcome.weights)
            .filter(|(slot, _)| slot.has_hosts)
            .map(|(slot, &weight)| (slot.locality.clone(), weight))
            .collect();
        self.utilization = slots
            .iter()
            .zip(&smoothed)
            .filter(|(slot, smoothed)| slot.has_hosts && !smoothed.cold)
            .map(|(slot, smoothed)| (slot.locality.clone(), smoothed.utilization))
            .collect();
        self.all_local = outcome.all_local;
        outcome
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SlotAverage {
    eligible: u64,
    utilization: Option<f64>,
    /// Mean age of the averaged load reports, in seconds.
    age: f64,
}

/// Number of hosts that must effectively contribute to a mean: one host's report is mostly noise.
const MIN_EFFECTIVE_HOSTS: f64 = 3.0;
const MAX_WINDOW_DOUBLINGS: i32 = 5;

/// Stage 1: averages valid load reports. CONVERGENT weighs them by freshness, because with few
/// requests a report may be older than the smoothing time. If one or two hosts would decide, the
/// window is widened; the controller learns the resulting age.
fn average_reports(hosts: HostList<'_>, settings: &LoadAwareLocality, now: Instant) -> SlotAverage {
    let mut sums = WeightedSums::default();
    if settings.spill_controller() == SpillController::Convergent {
        let tau = settings.smoothing_time_constant().as_secs_f64();
        for doublings in 0..=MAX_WINDOW_DOUBLINGS {
            let tau = tau * 2.0_f64.powi(doublings);
            sums = WeightedSums::of(hosts, settings, now, |age| (-age / tau).exp().max(1e-9));
            if sums.has_enough_hosts() {
                break;
            }
        }
    } else {
        sums = WeightedSums::of(hosts, settings, now, |_| 1.0);
    }
    let valid = sums.weights > 0.0;
    SlotAverage {
        eligible: u64::from(hosts.len()),
        utilization: valid.then(|| sums.utilization / sums.weights),
        age: if valid { sums.ages / sums.weights } else { 0.0 },
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct WeightedSums {
    reports: f64,
    weights: f64,
    squares: f64,
    utilization: f64,
    ages: f64,
}

impl WeightedSums {
    fn of(
        hosts: HostList<'_>,
        settings: &LoadAwareLocality,
        now: Instant,
        weight: impl Fn(f64) -> f64,
    ) -> Self {
        let mut sums = Self::default();
        for host in hosts.iter() {
            let Some((utilization, at)) = host.utilization() else {
                continue;
            };
            let age = now.saturating_duration_since(at);
            if settings
                .weight_expiration_period()
                .is_some_and(|expiration| age > expiration)
            {
                continue;
            }
            let age = age.as_secs_f64();
            let weight = weight(age);
            sums.reports += 1.0;
            sums.weights += weight;
            sums.squares += weight * weight;
            sums.utilization += weight * utilization;
            sums.ages += weight * age;
        }
        sums
    }

    fn has_enough_hosts(&self) -> bool {
        let hosts = self.weights * self.weights / self.squares.max(f64::MIN_POSITIVE);
        hosts >= MIN_EFFECTIVE_HOSTS.min(0.75 * self.reports)
    }
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
    LoadAwareSource {
        prefix_sums: prefix_sums.collect(),
        all_local: state.is_some_and(|state| state.all_local),
        utilization: utilization.collect(),
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
