//! Handlers of starts, failures and recoveries, and the oracle. A dead host stops responding at
//! once, and its failure is detected after `detection`. Detected failures reach every balancer as a
//! new assignment. This does not involve the control plane, just as active health checks do not.

use super::World;
use super::capacity::Learning;
use super::queue::Event;
use crate::control_plane::{ControlPlane, report_phase};
use crate::draws::{self, Purpose};
use crate::faults::Faults;
use crate::num;
use crate::proxy::{self, Proxy};
use crate::scenario::NEVER;
use crate::topology;

const ORACLE_PERIOD: u64 = num::SECOND;
/// Change of a zone's share of demand that is worth an update of the oracle policy.
const ORACLE_BAND: f64 = 0.001;

impl World<'_> {
    pub(super) fn post_initial_events(&mut self) {
        let seed = self.scenario.seed;
        for index in 0..self.balancers.len() {
            let mut rng = draws::stream(seed, Purpose::Start, index);
            let spread = num::seconds(self.scenario.balancer.start_spread);
            let start = num::from_seconds(spread * draws::uniform(&mut rng));
            let number = num::index(index);
            self.queue.post(start, Event::Start(number));
            self.balancers[index].stream.start(start);
            let stream = &mut self.balancers[index].stream;
            if let Some(at) = self.workload.next_arrival(stream) {
                self.queue.post(at, Event::Arrival(number));
            }
            if self.control.is_some() {
                let interval = self.scenario.control_plane.report_interval;
                let phase = report_phase(interval, draws::uniform(&mut rng));
                self.queue.post(
                    start + phase.max(num::SECOND / 10),
                    Event::LoadReport(number),
                );
            }
        }
        for (number, &at) in self.scenario.steps().iter().enumerate() {
            self.queue.post(at, Event::Step(num::index(number)));
        }
        if self.policy.is_oracle() {
            self.queue.post(ORACLE_PERIOD, Event::Oracle);
        }
        if let Some(period) = self.scenario.reports.out_of_band_period
            && self.policy.uses_reports()
        {
            let mut rng = draws::stream(seed, Purpose::Start, self.balancers.len());
            for host in 0..self.hosts.len() {
                let phase = report_phase(period, draws::uniform(&mut rng));
                self.queue.post(phase, Event::OutOfBand(num::index(host)));
            }
        }
    }

    /// Starts a proxy, unless its zone is lost.
    pub(super) fn start(&mut self, balancer: u32) {
        let fleet = self.sent_fleet();
        let config = std::sync::Arc::clone(self.sent_config());
        let upstream = self.sent_upstream(self.balancers[balancer as usize].zone);
        let slot = &mut self.balancers[balancer as usize];
        if self.faults.zones[slot.zone].proxies_lost || slot.proxy.is_some() {
            return;
        }
        // Each start uses another random stream for picks.
        let stream = (slot.starts << 32) | balancer as usize;
        slot.starts += 1;
        let zones = &self.scenario.zones;
        let mut proxy = Proxy::new(
            std::sync::Arc::clone(&config),
            proxy::node(&zones[slot.zone], slot.number),
            zones.len(),
            draws::stream(self.scenario.seed, Purpose::Picks, stream),
            self.now,
        );
        if let Some(settings) = &self.scenario.outlier_detection {
            let rng = draws::stream(self.scenario.seed, Purpose::Outliers, stream);
            proxy.detect_outliers(std::sync::Arc::clone(settings), rng, self.now);
        }
        proxy.handle_fleet_assignment(fleet, self.now);
        if self.policy.prefers_local() && slot.number == 0 {
            proxy.record_ignored_zones();
        }
        proxy.handle_assignment(upstream, self.now);
        slot.proxy = Some(proxy);
        self.arm(balancer);
    }

    /// Applies a scenario event that begins or ends.
    pub(super) fn step(&mut self, step: u32) {
        let faults = Faults::at(self.scenario, self.now);
        self.hosts.apply(&faults);
        let before = std::mem::replace(&mut self.faults, faults);
        let now = self.now;
        let events = self.scenario.events.iter();
        if before.control_plane_down
            && !self.faults.control_plane_down
            && events.clone().any(|event| event.forgets_at(now))
        {
            self.restart_control();
        }
        let restarted: Vec<usize> = events.flat_map(|event| event.restarts_at(now)).collect();
        for balancer in 0..self.balancers.len() {
            let zone = self.balancers[balancer].zone;
            let (was_lost, is_lost) = (
                before.zones[zone].proxies_lost,
                self.faults.zones[zone].proxies_lost,
            );
            let restarts = restarted.contains(&zone);
            if is_lost || restarts {
                self.stop(balancer);
            }
            if !is_lost && (was_lost || restarts) {
                self.start(num::index(balancer));
            }
        }
        self.drain_planner();
        let known = self.now + self.scenario.host.detection;
        self.queue.post(known, Event::Detected(step));
    }

    fn stop(&mut self, balancer: usize) {
        let slot = &mut self.balancers[balancer];
        let Some(mut proxy) = slot.proxy.take() else {
            return;
        };
        slot.ignored.extend(proxy.take_ignored_zones(self.now));
        if let Some(control) = &mut self.control
            && !self.faults.control_plane_down
        {
            control.handle_disconnect(&proxy.node, self.now);
        }
    }

    /// Replaces the control plane by one that knows nothing but the endpoints, and sends those.
    fn restart_control(&mut self) {
        let Some(demand_key) = self.policy.demand_key() else {
            return;
        };
        // Cannot fail: the same settings were accepted at the start.
        let Ok(mut control) = ControlPlane::new(self.scenario, demand_key, self.now) else {
            return;
        };
        control.handle_endpoints(&self.fleet, self.now);
        self.control = Some(control);
        self.planner_timer_at = NEVER;
        self.plan = None;
        self.sent_zones.clear();
        self.deliver_cluster();
        if self.policy.gets_fleet_weights(self.scenario) {
            self.send_fleet();
        }
    }

    /// Applies the changes of a step as detected by every balancer.
    pub(super) fn detected(&mut self, step: u32) {
        let Some(&at) = self.scenario.steps().get(step as usize) else {
            return;
        };
        let known = Faults::at(self.scenario, at);
        let oracle = self.policy.is_oracle();
        let upstream = topology::upstream(self.scenario, &known, oracle);
        let fleet = topology::fleet(self.scenario, &known, oracle.then_some(&self.announced));
        let learned = self.learning.as_ref().and_then(Learning::in_force);
        let upstream = match (upstream, learned) {
            (Ok(upstream), Some(learned)) => learned.applied_to(&upstream, 100),
            (upstream, _) => upstream,
        };
        // Cannot fail: built from a checked scenario, like the first assignments.
        let (Ok(upstream), Ok(fleet)) = (upstream, fleet) else {
            return;
        };
        if upstream == self.upstream && fleet == self.fleet {
            return;
        }
        (self.upstream, self.fleet) = (upstream, fleet);
        if let Some(control) = &mut self.control {
            control.handle_endpoints(&self.fleet, self.now);
        }
        self.deliver_cluster();
        let fleet = self.sent_fleet();
        for balancer in 0..self.balancers.len() {
            let upstream = self.sent_upstream(self.balancers[balancer].zone);
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_fleet_assignment(fleet.clone(), self.now);
                proxy.handle_assignment(upstream, self.now);
            }
            self.arm(num::index(balancer));
        }
        self.drain_planner();
    }

    /// Gives the true demand to the oracle policy if it has changed.
    pub(super) fn oracle(&mut self) {
        self.queue.post(self.now + ORACLE_PERIOD, Event::Oracle);
        let rates = self.workload.rates(self.now);
        let shares = |rates: &[f64]| -> Vec<f64> {
            let total: f64 = rates.iter().sum();
            rates.iter().map(|rate| num::ratio(*rate, total)).collect()
        };
        let (now, announced) = (shares(rates), shares(&self.announced));
        let moved = now
            .iter()
            .zip(&announced)
            .any(|(a, b)| (a - b).abs() > ORACLE_BAND);
        if !moved {
            return;
        }
        self.announced = rates.to_vec();
        let Ok(fleet) = topology::fleet(self.scenario, &self.faults, Some(&self.announced)) else {
            return;
        };
        self.fleet = fleet;
        for slot in &mut self.balancers {
            if let Some(proxy) = &mut slot.proxy {
                proxy.handle_fleet_assignment(self.fleet.clone(), self.now);
            }
        }
    }
}
