//! Load reports of proxies to the control plane, and fractions back, with delays and outages.

use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis};
use plimsoll_core::planner::Spill;
use plimsoll_core::planner::ramp::ramp_fractions;
use plimsoll_core::planner::steered::steered_rules;
use plimsoll_core::planner::weights::{RampStart, ramped_weights};

use super::queue::Event;
use super::{Delivery, World};
use crate::num;
use crate::scenario::NEVER;
use crate::topology;

impl World<'_> {
    pub(super) fn send_load_report(&mut self, balancer: u32) {
        let settings = &self.scenario.control_plane;
        let next = self.now + settings.report_interval;
        self.queue.post(next, Event::LoadReport(balancer));
        let slot = &mut self.balancers[balancer as usize];
        let exaggeration = match slot.number {
            0 => self.scenario.zones[slot.zone].exaggeration,
            _ => 1.0,
        };
        let Some(proxy) = &mut slot.proxy else {
            return;
        };
        let zones = self.scenario.zones.iter();
        let localities: Vec<Locality> = zones.map(|zone| zone.locality.clone()).collect();
        let weight = u64::from(self.scenario.requests_per_sample);
        let mut stats = proxy.drain_load_stats(&localities, weight, self.now);
        for zone in &mut stats.upstream_locality_stats {
            zone.total_issued_requests = num::scaled(zone.total_issued_requests, exaggeration);
        }
        let number = self.load_reports.insert((proxy.node.clone(), stats));
        self.queue
            .post(self.now + settings.delay, Event::LoadReportArrives(number));
    }

    /// Delivers a load report to the control plane, if it is reachable.
    pub(super) fn load_report_arrives(&mut self, number: u32) {
        let Some((node, stats)) = self.load_reports.take(number) else {
            return;
        };
        if self.faults.control_plane_down {
            return;
        }
        if let Some(control) = &mut self.control {
            control.handle_load_report(&node, &stats, self.now);
        }
        self.learn_capacity();
        self.drain_planner();
    }

    /// Returns the assignment of the fleet as proxies get it.
    pub(super) fn sent_fleet(&self) -> ClusterLoadAssignment {
        if self.policy.gets_fleet_weights(self.scenario)
            // Cannot fail: built from an assignment.
            && let Ok(weighted) = topology::weighted_fleet(&self.fleet, &self.sent_zones)
        {
            return weighted;
        }
        self.fleet.clone()
    }

    /// Sends the assignment of the fleet to all proxies.
    pub(super) fn send_fleet(&mut self) {
        let fleet = self.sent_fleet();
        for balancer in 0..self.balancers.len() {
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_fleet_assignment(fleet.clone(), self.now);
            }
            self.arm(num::index(balancer));
        }
    }

    pub(super) fn planner_timer(&mut self) {
        self.planner_timer_at = NEVER;
        if let Some(control) = &mut self.control
            && control.poll_timeout() <= self.now
        {
            control.handle_timeout(self.now);
        }
        self.drain_planner();
    }

    /// Sends the planner's updates and arms its timer.
    pub(super) fn drain_planner(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        let polled = control.poll_plan();
        let due = control.poll_timeout().max(self.now);
        if let Some(plan) = polled {
            let plan = self.by_objective(plan);
            let number = self.plans.insert(plan);
            let arrival = self.now + self.scenario.control_plane.delay;
            self.queue.post(arrival, Event::Plan(number));
        }
        if due < self.planner_timer_at {
            self.planner_timer_at = due;
            self.queue.post(due, Event::PlannerTimer);
        }
    }

    /// Delivers a plan to the proxies, as fractions or as weights of the fleet.
    pub(super) fn plan_arrives(&mut self, number: u32) {
        let Some(plan) = self.plans.take(number) else {
            return;
        };
        if self.faults.control_plane_down {
            return;
        }
        self.plan = Some(Arc::clone(&plan));
        let ramp = self.deliver_cluster();
        if self.policy.gets_fleet_weights(self.scenario) {
            self.sent_zones.clone_from(&plan.zones);
            return self.send_fleet();
        }
        let fleet = HostSetCounts::of_assignment(&self.fleet, 0, None);
        let zones = ramp_fractions(&plan.zones, &fleet, ramp);
        let pairs = zones
            .iter()
            .map(|zone| (zone.locality.clone(), zone.fraction));
        let fractions: FractionMap = pairs.collect();
        for balancer in 0..self.balancers.len() {
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_observed_traffic(fractions.clone(), self.now);
            }
            self.arm(num::index(balancer));
        }
    }

    /// Sends the settings and the assignment of the cluster, if these are not what proxies have: a
    /// zone begins or ceases to fail, or is tried. Returns the ramp in percent with which to follow
    /// fractions.
    pub(super) fn deliver_cluster(&mut self) -> u32 {
        let (delivery, ramp) = self.delivery();
        if delivery == self.delivery {
            return ramp;
        }
        self.delivery = delivery;
        let config = Arc::clone(self.sent_config());
        for balancer in 0..self.balancers.len() {
            let upstream = self.sent_upstream(self.balancers[balancer].zone);
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_config(Arc::clone(&config), self.now);
                proxy.handle_assignment(upstream, self.now);
            }
            self.arm(num::index(balancer));
        }
        ramp
    }

    /// Decides like `plimsoll control` how the cluster is delivered.
    fn delivery(&self) -> (Delivery, u32) {
        let Some(plan) = &self.plan else {
            return (Delivery::Steered, 100);
        };
        let start = steered_rules(&self.config);
        let rules = start
            .clone()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
            .without_dead_band();
        let counts = |assignment| HostSetCounts::of_assignment(assignment, 0, None);
        let (upstream, fleet) = (counts(&self.upstream), counts(&self.fleet));
        let spill = Spill {
            rules: &rules,
            upstream: &upstream,
            fleet: &fleet,
            has_health_checks: self.scenario.host.health_checks,
            has_locality_weights: true,
        };
        let caution = plan.caution(spill, &[&plan.zones]);
        if caution.withholds() {
            return (Delivery::HostCounts, 100);
        }
        match caution.ramp {
            // Feed-forward is demand of this cluster alone, to which the ramp is applied.
            Some(ramp) if self.config.uses_demand_feed_forward() => (Delivery::Steered, ramp),
            Some(ramp) => {
                let start = RampStart::HostCounts(&start);
                let zones = &plan.zones;
                let weights = ramped_weights(&rules, start, &upstream, Some(&fleet), zones, ramp);
                (Delivery::Trial(weights), 100)
            }
            None => (Delivery::Steered, 100),
        }
    }

    pub(super) const fn sent_config(&self) -> &Arc<ClusterConfig> {
        match self.delivery {
            Delivery::Steered => &self.config,
            Delivery::HostCounts => &self.failing_config,
            Delivery::Trial(_) => &self.trial_config,
        }
    }

    /// Returns the assignment of the cluster as proxies of a zone get it.
    pub(super) fn sent_upstream(&self, zone: usize) -> ClusterLoadAssignment {
        let receiver = &self.scenario.zones[zone].locality;
        if let Delivery::Trial(weights) = &self.delivery
            && let Some(own) = weights.iter().find(|one| one.receiver == *receiver)
            // Cannot fail: built from an assignment.
            && let Ok(weighted) = topology::weighted_upstream(&self.upstream, own)
        {
            return weighted;
        }
        self.upstream.clone()
    }
}
