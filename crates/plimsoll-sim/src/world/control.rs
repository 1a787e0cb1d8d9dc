//! Load reports of proxies to the control plane, and fractions back, with their delays and outages.

use plimsoll_core::model::locality::Locality;

use super::World;
use super::queue::Event;
use crate::scenario::NEVER;

impl World<'_> {
    /// A proxy sends its load report.
    pub(super) fn send_load_report(&mut self, balancer: u32) {
        let settings = &self.scenario.control_plane;
        let next = self.now + settings.report_interval;
        self.queue.post(next, Event::LoadReport(balancer));
        let Some(proxy) = &mut self.balancers[balancer as usize].proxy else {
            return;
        };
        let zones = self.scenario.zones.iter();
        let localities: Vec<Locality> = zones.map(|zone| zone.locality.clone()).collect();
        let weight = u64::from(self.scenario.requests_per_sample);
        let stats = proxy.drain_load_stats(&localities, weight, self.now);
        let number = self.load_reports.insert((proxy.node.clone(), stats));
        self.queue
            .post(self.now + settings.delay, Event::LoadReportArrives(number));
    }

    /// A load report arrives at the control plane, if there is one.
    pub(super) fn load_report_arrives(&mut self, number: u32) {
        let Some((node, stats)) = self.load_reports.take(number) else {
            return;
        };
        if self.situation.control_plane_down {
            return;
        }
        if let Some(control) = &mut self.control {
            control.handle_load_report(&node, &stats, self.now);
        }
        self.drain_planner();
    }

    /// The planner wants to be woken.
    pub(super) fn planner_timer(&mut self) {
        self.planner_armed = NEVER;
        if let Some(control) = &mut self.control
            && control.poll_timeout() <= self.now
        {
            control.handle_timeout(self.now);
        }
        self.drain_planner();
    }

    /// Sends what the planner has to say, and arms its timer.
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
        if due < self.planner_armed {
            self.planner_armed = due;
            self.queue.post(due, Event::PlannerTimer);
        }
    }

    /// Fractions arrive at the proxies.
    pub(super) fn fractions_arrive(&mut self, number: u32) {
        let Some(fractions) = self.fractions.take(number) else {
            return;
        };
        if self.situation.control_plane_down {
            return;
        }
        for balancer in 0..self.balancers.len() {
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_observed_traffic(fractions.clone(), self.now);
            }
            self.arm(crate::num::index(balancer));
        }
    }
}
