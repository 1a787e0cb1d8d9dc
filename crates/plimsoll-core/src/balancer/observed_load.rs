//! [`ObservedLoad`]: the `OBSERVED_LOAD` basis as the writer runs it: windows of hosts in, shares
//! of localities out, on a timer (decisions D5, page 0016).
//!
//! `locality_picking::observed_load` makes loads of response times, `locality_picking::convergent`
//! makes shares of loads, inside the preconditions of zone-aware routing; until enough requests
//! have been answered, host counts decide. Shares are kept by locality, and every change of health
//! or membership puts them into the present order at once: a locality without healthy hosts gets
//! nothing, a new one starts with what its capacity is.
//!
//! It helps where load shows as waiting, long before hosts are full. It cannot help while hosts
//! answer equally fast up to the point where they break, and a locality that is slow by nature
//! looks loaded. That is why it never sends away more than a balancer without zones would: the own
//! locality keeps at least its share of the capacity.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::counts::LocalityCounts;
use crate::host::{Host, Reading, Window};
use crate::host_source::HostSource;
use crate::locality_picking::convergent::{ControlledSlot, Controls, Convergent};
use crate::locality_picking::load_aware_locality::SmoothedSlot;
use crate::locality_picking::observed_load::{Estimate, relative_loads};
use crate::locality_picking::zone_aware::{ZoneRouting, is_forced_local};
use crate::model::load_aware_locality::DEFAULT_REMOTE_PROBE_FRACTION;
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, ZoneAware};
use crate::snapshot::{HostList, PriorityTable};
use crate::time::Instant;
use crate::units::BASIS_POINTS;

/// State of all priorities that are routed by it.
#[derive(Debug, Default)]
pub(super) struct ObservedLoad {
    priorities: BTreeMap<usize, PriorityState>,
}

/// State of one priority.
#[derive(Debug)]
struct PriorityState {
    /// Counters of hosts at the last tick. Beside the hosts and not in them, because with subsets
    /// a host is observed by several.
    latched: BTreeMap<SocketAddr, (Arc<Host>, Reading)>,
    estimates: BTreeMap<Locality, Estimate>,
    controller: Convergent,
    /// Shares of the last tick; empty until a locality is known.
    shares: BTreeMap<Locality, f64>,
    last_tick: Instant,
    next_tick: Instant,
}

impl ObservedLoad {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.priorities.values().map(|state| state.next_tick).min()
    }

    /// Forgets everything, when the basis is another one.
    pub(super) fn stop(&mut self) {
        self.priorities.clear();
    }

    /// Forgets a priority whose requests go elsewhere than the shares say: what is learned then
    /// would be blamed on the wrong shares.
    pub(super) fn pause(&mut self, priority: usize) {
        self.priorities.remove(&priority);
    }

    /// The routing of a priority, with the shares that were observed. What switches zone-aware
    /// routing off or forces it to be local holds, and then there is nothing to observe.
    pub(super) fn routing(
        &mut self,
        config: &ZoneAware,
        zone: ZoneRouting,
        (priority, table): (usize, &PriorityTable),
        now: Instant,
    ) -> ZoneRouting {
        if !zone.is_active() || is_forced_local(config, &table.counts) {
            self.pause(priority);
            return zone;
        }
        match self.shares(config, (priority, table), now) {
            Some(shares) => zone.with_shares(&shares, table.counts.has_local_locality),
            None => zone,
        }
    }

    /// Shares of the present slots of a priority, of which none is that of a slot without healthy
    /// hosts; `None` until enough requests have been answered.
    fn shares(
        &mut self,
        config: &ZoneAware,
        (priority, table): (usize, &PriorityTable),
        now: Instant,
    ) -> Option<Vec<f64>> {
        let state = self
            .priorities
            .entry(priority)
            .or_insert_with(|| PriorityState::starting(config, table, now));
        if state.next_tick <= now {
            state.tick(config, table, now);
        }
        state.present_shares(config, table)
    }
}

impl PriorityState {
    fn starting(config: &ZoneAware, table: &PriorityTable, now: Instant) -> Self {
        Self {
            // Requests of an earlier time say nothing about the shares of this one.
            latched: table.hosts().map(latch).collect(),
            estimates: BTreeMap::new(),
            controller: Convergent::default(),
            shares: BTreeMap::new(),
            last_tick: now,
            next_tick: now.saturating_add(config.observed_load_period()),
        }
    }

    fn tick(&mut self, config: &ZoneAware, table: &PriorityTable, now: Instant) {
        let seconds = now
            .saturating_duration_since(self.last_tick)
            .as_secs_f64()
            .max(1e-3);
        self.last_tick = now;
        self.next_tick = now.saturating_add(config.observed_load_period());
        let localities = &table.counts.localities;
        let windows = self.windows(table).into_iter().zip(localities);
        let observed = windows.map(|(window, slot)| {
            let mut estimate = self.estimates.remove(&slot.locality).unwrap_or_default();
            estimate.observe(&window, seconds);
            estimate
        });
        let estimates: Vec<Estimate> = observed.collect();
        let keys = || localities.iter().map(|slot| slot.locality.clone());
        self.estimates = keys().zip(estimates.iter().copied()).collect();
        let loads = relative_loads(&estimates);
        if loads.iter().all(Option::is_none) {
            return;
        }
        let slots = localities.iter().zip(loads.iter().zip(&estimates));
        let controlled = slots.map(|(slot, (load, estimate))| {
            let smoothed = SmoothedSlot {
                eligible: capacity(config, slot),
                utilization: load.unwrap_or(0.0),
                stale: false,
                cold: load.is_none(),
            };
            let report_age = estimate.age();
            (
                &slot.locality,
                ControlledSlot {
                    smoothed,
                    report_age,
                },
            )
        });
        let controlled: Vec<_> = controlled.collect();
        let local = table.counts.has_local_locality;
        let controls = controls(config, table);
        let weights = self.controller.tick(&controls, &controlled, local, None);
        self.shares = keys().zip(weights.weights).collect();
    }

    /// What happened in each slot since the last tick. All hosts are read, so that one that comes
    /// back does not bring old times along; those that wait for one that is not healthy do not
    /// count.
    fn windows(&mut self, table: &PriorityTable) -> Vec<Window> {
        let latched: BTreeMap<_, _> = table.hosts().map(latch).collect();
        let earlier = std::mem::replace(&mut self.latched, latched);
        let window = |host: &Arc<Host>| {
            let (_, now) = &self.latched[&host.address()];
            let known = earlier.get(&host.address());
            let known = known.filter(|(known, _)| Arc::ptr_eq(known, host));
            now.since(known.map(|(_, before)| *before).unwrap_or_default())
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

    /// The shares of the last tick in the order of the present slots.
    fn present_shares(&self, config: &ZoneAware, table: &PriorityTable) -> Option<Vec<f64>> {
        if self.shares.is_empty() {
            return None;
        }
        let localities = &table.counts.localities;
        let capacities = || localities.iter().map(|slot| capacity(config, slot));
        let all: f64 = capacities().sum();
        let shares = localities.iter().zip(capacities()).map(|(slot, capacity)| {
            let known = self.shares.get(&slot.locality).copied();
            match slot.healthy {
                0 => 0.0,
                _ => known.filter(|&share| share > 0.0).unwrap_or(capacity / all),
            }
        });
        let mut shares: Vec<f64> = shares.collect();
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        (total > 0.0).then_some(shares)
    }
}

/// What a slot can take: its healthy hosts, or their weight.
#[expect(clippy::cast_precision_loss, reason = "host counts and weights")]
fn capacity(config: &ZoneAware, slot: &LocalityCounts) -> f64 {
    match config.upstream_locality_basis() {
        CapacityBasis::HealthyHostsNum => slot.healthy as f64,
        CapacityBasis::HealthyHostsWeight => slot.healthy_weight as f64,
    }
}

/// The controller for this basis: nothing smooths its input again, the own locality keeps its share
/// of the capacity, and the dead band is what the load of that share may exceed it by.
#[expect(clippy::cast_precision_loss, reason = "basis points")]
fn controls(config: &ZoneAware, table: &PriorityTable) -> Controls {
    let slots = &table.counts.localities;
    let all: f64 = slots.iter().map(|slot| capacity(config, slot)).sum();
    let own = table
        .counts
        .local()
        .map_or(0.0, |own| capacity(config, own));
    let share = if all > 0.0 { own / all } else { 0.0 };
    let band = config.dead_band().get() as f64 / BASIS_POINTS as f64;
    Controls {
        period: config.observed_load_period(),
        smoothing: std::time::Duration::ZERO,
        remote_probe: DEFAULT_REMOTE_PROBE_FRACTION,
        local_floor: share.min(1.0 - DEFAULT_REMOTE_PROBE_FRACTION),
        band: if share > 0.0 { band / share } else { 0.0 },
        start_by_host_count: false,
    }
}

fn latch(host: &Arc<Host>) -> (SocketAddr, (Arc<Host>, Reading)) {
    (host.address(), (Arc::clone(host), host.observed()))
}
