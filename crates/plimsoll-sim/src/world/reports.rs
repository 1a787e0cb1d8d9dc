//! Load reports of hosts: with every response, or out of band; late, lost or noisy.

use std::sync::Arc;

use plimsoll_core::time::Instant;

use super::queue::Event;
use super::requests::Request;
use super::{DelayedReport, World};

impl World<'_> {
    pub(super) fn report_in_band(&mut self, request: &Request, zone: usize) {
        let out_of_band = self.scenario.reports.out_of_band_period.is_some();
        if out_of_band || !self.policy.uses_reports() || self.faults.zones[zone].silent {
            return;
        }
        let utilization = self.hosts.utilization(request.number, self.now);
        let Some(utilization) = self.network.transmit(utilization) else {
            return;
        };
        let report = DelayedReport {
            balancer: request.balancer,
            host: Arc::clone(&request.host),
            utilization,
        };
        match self.scenario.reports.delay {
            0 => self.observe(&report),
            delay => {
                let number = self.reports.insert(report);
                self.queue.post(self.now + delay, Event::Report(number));
            }
        }
    }

    /// Sends the out-of-band report of a host to all proxies.
    pub(super) fn out_of_band(&mut self, host: u32) {
        let Some(period) = self.scenario.reports.out_of_band_period else {
            return;
        };
        self.queue.post(self.now + period, Event::OutOfBand(host));
        let number = host as usize;
        let zone = self.hosts.zone(number);
        if self.faults.zones[zone].silent || self.hosts.is_dead(number) {
            return;
        }
        let utilization = self.hosts.utilization(number, self.now);
        let Some(utilization) = self.network.transmit(utilization) else {
            return;
        };
        let delay = self.scenario.reports.delay;
        for balancer in 0..self.balancers.len() {
            let Some(proxy) = &self.balancers[balancer].proxy else {
                continue;
            };
            let Some(host) = proxy.host(number) else {
                continue;
            };
            if delay == 0 {
                let report = self.network.report(utilization);
                host.observe_orca(report, proxy.config(), Instant::from_nanos(self.now));
                continue;
            }
            let report = DelayedReport {
                balancer: crate::num::index(balancer),
                host: Arc::clone(host),
                utilization,
            };
            let number = self.reports.insert(report);
            self.queue.post(self.now + delay, Event::Report(number));
        }
    }

    pub(super) fn report_arrives(&mut self, number: u32) {
        if let Some(report) = self.reports.take(number) {
            self.observe(&report);
        }
    }

    fn observe(&mut self, report: &DelayedReport) {
        let Some(proxy) = &self.balancers[report.balancer as usize].proxy else {
            return;
        };
        let now = Instant::from_nanos(self.now);
        let orca = self.network.report(report.utilization);
        report.host.observe_orca(orca, proxy.config(), now);
    }
}
