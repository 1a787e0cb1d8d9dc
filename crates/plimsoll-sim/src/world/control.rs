//! Load reports of proxies to the control plane, and fractions back, with delays and outages.

use plimsoll_core::model::locality::Locality;

use super::World;
use super::queue::Event;
use crate::num;
use crate::scenario::NEVER;

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
        self.drain_planner();
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
        if let Some(fractions) = control.poll_fractions() {
            let number = self.fractions.insert(fractions);
            let arrival = self.now + self.scenario.control_plane.delay;
            self.queue.post(arrival, Event::Fractions(number));
        }
        let due = control.poll_timeout().max(self.now);
        if due < self.planner_timer_at {
            self.planner_timer_at = due;
            self.queue.post(due, Event::PlannerTimer);
        }
    }

    pub(super) fn fractions_arrive(&mut self, number: u32) {
        let Some(fractions) = self.fractions.take(number) else {
            return;
        };
        if self.faults.control_plane_down {
            return;
        }
        for balancer in 0..self.balancers.len() {
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_observed_traffic(fractions.clone(), self.now);
            }
            self.arm(num::index(balancer));
        }
    }
}
