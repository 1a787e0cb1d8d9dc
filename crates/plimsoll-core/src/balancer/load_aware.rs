//! [`LoadAware`]: load_aware_locality as the writer runs it: reports of hosts in, weights of
//! localities out, on a timer (envoy-semantics §4.3, decisions D6, D8).
//!
//! Stage 1 (averaging the reports of a slot) lives here because it looks at hosts; the other stages
//! live in `locality_picking::{load_aware_locality, convergent}`. Weights are kept by locality, so
//! a change of membership between two ticks only puts them into the new order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host_source::HostSource;
use crate::locality_picking::convergent::{ControlledSlot, Controls, Convergent};
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

/// The three sets of hosts that are weighed independently.
const SOURCES: [HostSource; 3] = [
    HostSource::HealthyHosts,
    HostSource::DegradedHosts,
    HostSource::AllHosts,
];

/// State of all priorities.
#[derive(Debug, Default)]
pub(super) struct LoadAware {
    priorities: Vec<[SourceState; 3]>,
    next_tick: Option<Instant>,
}

/// State of one priority and source.
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

    /// Whether a tick is due; the first one is at once.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next_tick.is_none_or(|tick| tick <= now)
    }

    /// Forgets everything, when the policy is another one.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Recomputes the weights of every priority. `feed_forward` are the shares of priority 0 that
    /// measured demand asks for.
    pub(super) fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        views: &[PriorityView],
        (feed_forward, stats): (Option<&[f64]>, &LoadAwareStats),
        now: Instant,
    ) {
        // Re-armed at the start, as in Envoy: a slow tick does not stretch the period.
        self.next_tick = Some(now.saturating_add(settings.weight_update_period()));
        self.priorities.resize_with(views.len(), Default::default);
        let mut outcomes = Vec::with_capacity(3 * views.len());
        for (priority, (states, view)) in self.priorities.iter_mut().zip(views).enumerate() {
            for (state, source) in states.iter_mut().zip(SOURCES) {
                let asked =
                    feed_forward.filter(|_| priority == 0 && source == HostSource::HealthyHosts);
                outcomes.push((
                    source,
                    state.tick(settings, &view.table, (source, asked), now),
                ));
            }
        }
        count(&outcomes, stats);
    }

    /// The tables of every priority, in the order of its present slots. Hash tables cost far more
    /// than weights: they are kept for the priorities that `keep_hash` names.
    pub(super) fn publish(
        &self,
        views: &mut [PriorityView],
        config: &ClusterConfig,
        keep_hash: impl Fn(usize) -> bool,
    ) {
        for (priority, view) in views.iter_mut().enumerate() {
            let states = self.priorities.get(priority);
            let old = view.load_aware.take().filter(|_| keep_hash(priority));
            let source = |class: usize| {
                let state = states.map(|states| &states[class]);
                let mut table = source_table(&view.table, state);
                table.hash = match &old {
                    Some(old) => old.sources[class].hash.clone(),
                    // All hosts are asked for in panic only.
                    None if class < 2 || view.source.panic => {
                        slot_hash_tables(&view.table, SOURCES[class], config)
                    }
                    None => Vec::new(),
                };
                table
            };
            let sources = [source(0), source(1), source(2)];
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
        (source, feed_forward): (HostSource, Option<&[f64]>),
        now: Instant,
    ) -> LocalityWeights {
        let gathered: Vec<Gathered> = table
            .hosts_by_slot(source)
            .map(|hosts| gather(hosts, settings, now))
            .collect();
        let slots = slot_loads(table, &gathered);
        let smoothed = self.smoother.smooth(settings.alpha(), &slots);
        let local = table.counts.has_local_locality;
        let outcome = match settings.spill_controller() {
            SpillController::Headroom => headroom_weights(settings, &smoothed, local),
            SpillController::Convergent => {
                let controls = Controls::from(settings);
                let controlled = controlled(&slots, &smoothed, &gathered);
                self.controller
                    .tick(&controls, &controlled, local, feed_forward)
            }
        };
        let present = || {
            slots
                .iter()
                .zip(&smoothed)
                .filter(|(slot, _)| slot.has_hosts)
        };
        self.weights = slots
            .iter()
            .zip(&outcome.weights)
            .filter(|(slot, _)| slot.has_hosts)
            .map(|(slot, &weight)| (slot.locality.clone(), weight))
            .collect();
        self.utilization = present()
            .filter(|(_, smoothed)| !smoothed.cold)
            .map(|(slot, smoothed)| (slot.locality.clone(), smoothed.utilization))
            .collect();
        self.all_local = outcome.all_local;
        outcome
    }
}

/// What the hosts of one slot reported.
#[derive(Clone, Copy, Debug, Default)]
struct Gathered {
    eligible: u64,
    /// Mean of the valid reports.
    utilization: Option<f64>,
    /// Mean age of the reports, seconds.
    age: f64,
}

/// Hosts that a mean should rest on, if there are that many: one host's word is mostly noise.
const ENOUGH_HOSTS: f64 = 3.0;
/// How often the time that is looked back may double.
const LOOK_BACK_DOUBLINGS: i32 = 5;

/// Stage 1: the mean of the hosts whose report is valid. CONVERGENT weighs a report by its
/// freshness: with few requests a host's last word may be older than the loop is slow. Where fresh
/// reports are so few that one or two hosts would speak for all, it looks further back; the age
/// tells the controller.
fn gather(hosts: HostList<'_>, settings: &LoadAwareLocality, now: Instant) -> Gathered {
    let mut sums = FadingSums::default();
    if settings.spill_controller() == SpillController::Convergent {
        let tau = settings.smoothing_time_constant().as_secs_f64();
        for doublings in 0..=LOOK_BACK_DOUBLINGS {
            let tau = tau * 2.0_f64.powi(doublings);
            sums = FadingSums::of(hosts, settings, now, |age| (-age / tau).exp().max(1e-9));
            if sums.rests_on_enough() {
                break;
            }
        }
    } else {
        sums = FadingSums::of(hosts, settings, now, |_| 1.0);
    }
    let valid = sums.weights > 0.0;
    Gathered {
        eligible: u64::from(hosts.len()),
        utilization: valid.then(|| sums.utilization / sums.weights),
        age: if valid { sums.ages / sums.weights } else { 0.0 },
    }
}

/// Weighted sums over the valid reports of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct FadingSums {
    reports: f64,
    weights: f64,
    squares: f64,
    utilization: f64,
    ages: f64,
}

impl FadingSums {
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

    /// Whether the mean is as good as one of several hosts.
    fn rests_on_enough(&self) -> bool {
        let hosts = self.weights * self.weights / self.squares.max(f64::MIN_POSITIVE);
        hosts >= ENOUGH_HOSTS.min(0.75 * self.reports)
    }
}

fn slot_loads(table: &PriorityTable, gathered: &[Gathered]) -> Vec<SlotLoad> {
    let slots = table.counts.localities.iter().zip(gathered);
    slots
        .map(|(counts, gathered)| SlotLoad {
            locality: counts.locality.clone(),
            has_hosts: counts.all > 0,
            eligible: gathered.eligible,
            utilization: gathered.utilization,
        })
        .collect()
}

fn controlled<'a>(
    slots: &'a [SlotLoad],
    smoothed: &[SmoothedSlot],
    gathered: &[Gathered],
) -> Vec<(&'a Locality, ControlledSlot)> {
    let slots = slots.iter().zip(smoothed.iter().zip(gathered));
    slots
        .map(|(slot, (&smoothed, gathered))| {
            (
                &slot.locality,
                ControlledSlot {
                    smoothed,
                    report_age: gathered.age,
                },
            )
        })
        .collect()
}

/// Weights and utilizations in the order of the present slots.
fn source_table(table: &PriorityTable, state: Option<&SourceState>) -> LoadAwareSource {
    let localities = || {
        table
            .counts
            .localities
            .iter()
            .map(|counts| &counts.locality)
    };
    let weight = |locality: &Locality| {
        state
            .and_then(|state| state.weights.get(locality))
            .copied()
            .unwrap_or(0.0)
    };
    let prefix_sums = localities().scan(0.0, |sum, locality| {
        *sum += weight(locality);
        Some(*sum)
    });
    let utilization = localities().map(|locality| {
        state
            .and_then(|state| state.utilization.get(locality))
            .copied()
    });
    LoadAwareSource {
        prefix_sums: prefix_sums.collect(),
        all_local: state.is_some_and(|state| state.all_local),
        utilization: utilization.collect(),
        hash: Vec::new(),
    }
}

/// One hash table per slot; empty when the endpoint policy does not hash.
fn slot_hash_tables(
    table: &PriorityTable,
    source: HostSource,
    config: &ClusterConfig,
) -> Vec<Option<Arc<HashTable>>> {
    if !config.endpoint_policy().is_hash() {
        return Vec::new();
    }
    let slots = table.hosts_by_slot(source);
    slots
        .map(|hosts| build_slot_hash_table(hosts, config).map(Arc::new))
        .collect()
}

/// Counters of one tick: each flag at most once, over priorities and sources; stale slots by the
/// set of all hosts.
fn count(outcomes: &[(HostSource, LocalityWeights)], stats: &LoadAwareStats) {
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
        .filter(|(source, _)| *source == HostSource::AllHosts);
    for _ in 0..all.map(|(_, outcome)| outcome.stale_localities).sum() {
        stats.stale_locality_total.increment();
    }
}
