//! Timer and state of `locality_basis: OBSERVED_LOAD`: response times of hosts in, locality shares
//! out (decision 0016).
//!
//! `locality_picking::observed_load` estimates load from response times and
//! `locality_picking::convergent` turns load into shares, within the preconditions of zone-aware
//! routing. Until the load of all localities is known, host counts decide, with probes: a proxy
//! that knows only its own locality would keep everything there. Shares are stored by locality and
//! every change of health or membership reorders them at once: a locality without healthy hosts
//! gets nothing, a new one starts with its share of the capacity.
//!
//! Errors are not timed, so a locality that answers errors at once keeps the response time that it
//! had, and would get the requests that others spill. While observed load fails more requests than
//! host counts would, host counts decide (`host_count_fallback`).
//!
//! `OBSERVED_LOAD` cannot help if hosts respond equally fast until they fail. A locality that is
//! always slow looks loaded: hence the local one keeps at least its share of the capacity.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::failing_hosts::HostCounts;
use crate::counts::LocalityCounts;
use crate::host::{Host, ResponseCounters, Window};
use crate::host_source::HostSource;
use crate::locality_picking::convergent::{ControlledSlot, ControllerSettings, Convergent};
use crate::locality_picking::failing_localities::{FailingLocalities, Sample};
use crate::locality_picking::host_count_fallback::HostCountFallback;
use crate::locality_picking::load_aware_locality::SmoothedSlot;
use crate::locality_picking::observed_load::{Estimate, relative_loads};
use crate::locality_picking::zone_aware::{Observed, ZoneRouting, is_forced_local};
use crate::model::load_aware_locality::DEFAULT_REMOTE_PROBE_FRACTION;
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, ZoneAware};
use crate::snapshot::{HostList, PriorityTable};
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct ObservedLoad {
    priorities: BTreeMap<usize, PriorityState>,
}

#[derive(Debug)]
struct PriorityState {
    /// Response counters at the last tick. Not kept in hosts, which several subsets may observe.
    latched: BTreeMap<SocketAddr, (Arc<Host>, ResponseCounters)>,
    estimates: BTreeMap<Locality, Estimate>,
    controller: Convergent,
    /// Shares of the last tick; empty until the load of all localities is known, and while host
    /// counts take their place.
    shares: BTreeMap<Locality, f64>,
    counts: HostCounts,
    failing: FailingLocalities,
    fallback: HostCountFallback,
    last_tick: Instant,
    next_tick: Instant,
}

impl ObservedLoad {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.priorities.values().map(|state| state.next_tick).min()
    }

    pub(super) fn stop(&mut self) {
        self.priorities.clear();
    }

    /// Resets a priority whose requests do not follow observed shares now: its data would mislead.
    pub(super) fn pause(&mut self, priority: usize) {
        self.priorities.remove(&priority);
    }

    /// Applies the observed shares, unless zone-aware routing is off or forced to be local.
    pub(super) fn routing(
        &mut self,
        config: &ZoneAware,
        zone: ZoneRouting,
        priority: usize,
        table: &PriorityTable,
        now: Instant,
    ) -> ZoneRouting {
        if !zone.is_active() || is_forced_local(config, &table.counts) {
            self.pause(priority);
            return zone;
        }
        let state = self
            .priorities
            .entry(priority)
            .or_insert_with(|| PriorityState::starting(config, table, now));
        let by_host_count = zone.expected_shares().unwrap_or_default();
        if state.next_tick <= now {
            state.tick(config, table, &by_host_count, now);
        }
        let local = table.counts.has_local_locality;
        if state.fallback.is_active() {
            return ZoneRouting {
                failing: state.fallback.blamed().to_vec(),
                ..zone
            };
        }
        match state.present_shares(config, table) {
            Some(shares) => zone.with_shares(&shares, local, Observed::Decides),
            None if !state.is_any_known() => zone,
            None => {
                let shares = with_probes(&by_host_count, config, table);
                zone.with_shares(&shares, local, Observed::Learning)
            }
        }
    }
}

impl PriorityState {
    fn starting(config: &ZoneAware, table: &PriorityTable, now: Instant) -> Self {
        Self {
            // Earlier requests say nothing about the shares from now on.
            latched: table.hosts().map(latch).collect(),
            estimates: BTreeMap::new(),
            controller: Convergent::default(),
            shares: BTreeMap::new(),
            counts: HostCounts::default(),
            failing: FailingLocalities::default(),
            fallback: HostCountFallback::default(),
            last_tick: now,
            next_tick: now.saturating_add(config.observed_load_period()),
        }
    }

    fn tick(
        &mut self,
        config: &ZoneAware,
        table: &PriorityTable,
        by_host_count: &[f64],
        now: Instant,
    ) {
        let seconds = now
            .saturating_duration_since(self.last_tick)
            .as_secs_f64()
            .max(1e-3);
        self.last_tick = now;
        self.next_tick = now.saturating_add(config.observed_load_period());
        let localities = &table.counts.localities;
        let estimates: Vec<Estimate> = self
            .windows(table)
            .iter()
            .zip(localities)
            .map(|(window, slot)| {
                let mut estimate = self.estimates.remove(&slot.locality).unwrap_or_default();
                estimate.observe(window, seconds);
                estimate
            })
            .collect();
        let keys = || localities.iter().map(|slot| slot.locality.clone());
        self.estimates = keys().zip(estimates.iter().copied()).collect();
        self.judge(config, table, by_host_count);
        let loads = relative_loads(&estimates);
        let mut known = localities.iter().zip(&loads);
        let is_learning = known.any(|(slot, load)| slot.healthy > 0 && load.is_none());
        if self.fallback.is_active() || (self.shares.is_empty() && is_learning) {
            return;
        }
        if self.shares.is_empty() {
            let shares = with_probes(by_host_count, config, table);
            self.controller = Convergent::starting_with(keys().zip(shares));
        }
        let controlled: Vec<_> = localities
            .iter()
            .zip(loads.iter().zip(&estimates))
            .map(|(slot, (load, estimate))| {
                let smoothed = SmoothedSlot {
                    eligible: capacity(config, slot),
                    utilization: load.unwrap_or(0.0),
                    cold: load.is_none(),
                    ..SmoothedSlot::default()
                };
                let (report_age, newest_age) = (estimate.age(), estimate.quiet());
                (
                    &slot.locality,
                    ControlledSlot {
                        smoothed,
                        report_age,
                        newest_age,
                    },
                )
            })
            .collect();
        let local = table.counts.has_local_locality;
        let controls = controls(config, table);
        let weights = self.controller.tick(&controls, &controlled, local, None);
        self.shares = keys().zip(weights.weights).collect();
    }

    /// Finds out whether the shares in force fail more requests than host counts would. The
    /// controller starts over afterwards: it cannot learn from shares that are not in force.
    fn judge(&mut self, config: &ZoneAware, table: &PriorityTable, by_host_count: &[f64]) {
        let localities = table.counts.localities.iter().map(|slot| &slot.locality);
        let sample = |own| Sample {
            own,
            ..Sample::default()
        };
        let samples = self.counts.ended(table).map(sample);
        let samples: Vec<_> = localities.clone().zip(samples).collect();
        let period = config.observed_load_period();
        self.failing.tick(&samples, period);
        let shares = self
            .present_shares(config, table)
            .unwrap_or_else(|| with_probes(by_host_count, config, table));
        let slots: Vec<_> = localities
            .zip(shares.into_iter().zip(by_host_count))
            .map(|(at, (share, by))| (at, share, *by))
            .collect();
        self.fallback.tick(&self.failing, &slots, period);
        if self.fallback.is_active() {
            self.shares.clear();
        }
    }

    fn is_any_known(&self) -> bool {
        let mut estimates = self.estimates.values();
        estimates.any(|estimate| estimate.response_time().is_some())
    }

    /// Requests of each slot since the last tick. Reads all hosts, so that one that recovers brings
    /// no old response times; requests waiting on unhealthy hosts do not count.
    fn windows(&mut self, table: &PriorityTable) -> Vec<Window> {
        let latched: BTreeMap<_, _> = table.hosts().map(latch).collect();
        let earlier = std::mem::replace(&mut self.latched, latched);
        let window = |host: &Arc<Host>| {
            let (_, now) = &self.latched[&host.address()];
            let before = earlier
                .get(&host.address())
                .filter(|(known, _)| Arc::ptr_eq(known, host))
                .map(|(_, before)| *before);
            now.since(before.unwrap_or_default())
        };
        let all = table.hosts_by_slot(HostSource::AllHosts);
        let healthy = table.hosts_by_slot(HostSource::HealthyHosts);
        let slot = |(all, healthy): (HostList<'_>, HostList<'_>)| {
            let mut sum = all.iter().map(window).fold(Window::default(), Window::plus);
            sum.waiting = healthy.iter().map(|host| host.waiting_requests()).sum();
            sum
        };
        all.zip(healthy).map(slot).collect()
    }

    /// Returns the shares of slots, 0 for those without healthy hosts; `None` before enough
    /// responses arrived, and while host counts take their place.
    fn present_shares(&self, config: &ZoneAware, table: &PriorityTable) -> Option<Vec<f64>> {
        if self.shares.is_empty() {
            return None;
        }
        let localities = &table.counts.localities;
        let capacities = || localities.iter().map(|slot| capacity(config, slot));
        let all: f64 = capacities().sum();
        let share = |(slot, capacity): (&LocalityCounts, f64)| {
            let known = self.shares.get(&slot.locality).copied();
            match slot.healthy {
                0 => 0.0,
                _ => known.filter(|&share| share > 0.0).unwrap_or(capacity / all),
            }
        };
        let mut shares: Vec<f64> = localities.iter().zip(capacities()).map(share).collect();
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        (total > 0.0).then_some(shares)
    }
}

/// Returns the shares by host counts with a probe of every other locality with healthy hosts, so
/// that its response times become known.
fn with_probes(by_host_count: &[f64], config: &ZoneAware, table: &PriorityTable) -> Vec<f64> {
    let probed = usize::from(table.counts.has_local_locality);
    let slots = table.counts.localities.iter().enumerate();
    let capacities = slots.map(|(index, slot)| match index {
        local if local < probed => 0.0,
        _ => capacity(config, slot),
    });
    let capacities: Vec<f64> = capacities.collect();
    let all: f64 = capacities.iter().sum();
    if all <= 0.0 {
        return by_host_count.to_vec();
    }
    let shares = by_host_count.iter().zip(capacities);
    let probe = DEFAULT_REMOTE_PROBE_FRACTION;
    let share = |(share, capacity): (&f64, f64)| (1.0 - probe) * share + probe * capacity / all;
    shares.map(share).collect()
}

/// Capacity of a slot: the number of its healthy hosts, or the sum of their weights.
#[expect(clippy::cast_precision_loss, reason = "host counts and weights")]
fn capacity(config: &ZoneAware, slot: &LocalityCounts) -> f64 {
    match config.upstream_locality_basis() {
        CapacityBasis::HealthyHostsNum => slot.healthy as f64,
        CapacityBasis::HealthyHostsWeight => slot.healthy_weight as f64,
    }
}

/// Resolution of the dead band, finer than basis points for zones that have only a few of them.
const PARTS: u64 = 1_000_000_000;

/// Controller settings: response times are not smoothed again, the local locality keeps its share
/// of the capacity, and the dead band is how much more it may serve before it spills.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of the capacity, 0.0 to 1.0"
)]
fn controls(config: &ZoneAware, table: &PriorityTable) -> ControllerSettings {
    let slots = &table.counts.localities;
    let all: f64 = slots.iter().map(|slot| capacity(config, slot)).sum();
    let own = table
        .counts
        .local()
        .map_or(0.0, |own| capacity(config, own));
    let share = if all > 0.0 { own / all } else { 0.0 };
    let capacity = (share * PARTS as f64) as u64;
    let band = config.dead_band_of(capacity, PARTS) as f64 / PARTS as f64;
    ControllerSettings {
        period: config.observed_load_period(),
        smoothing: std::time::Duration::ZERO,
        remote_probe: DEFAULT_REMOTE_PROBE_FRACTION,
        local_floor: share.min(1.0 - DEFAULT_REMOTE_PROBE_FRACTION),
        band: if share > 0.0 { band / share } else { 0.0 },
        start_by_host_count: false,
        feed_forward: 0.0,
        by_host_count: false,
    }
}

fn latch(host: &Arc<Host>) -> (SocketAddr, (Arc<Host>, ResponseCounters)) {
    (host.address(), (Arc::clone(host), host.observed()))
}
