//! Capacity of hosts, learned from their load reports as load reports of proxies repeat them to the
//! control plane, and delivered as endpoint weights.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::planner::capacity::{CapacityEstimator, HostSample, LearnedCapacity};
use plimsoll_core::time::Instant;

use super::World;
use super::queue::Event;
use crate::num;
use crate::policy::Policy;
use crate::scenario::Scenario;

/// What the control plane has learned, and the window that is being reported.
#[derive(Debug, Default)]
pub(super) struct Learning {
    estimator: CapacityEstimator,
    window: BTreeMap<SocketAddr, HostSums>,
    since: u64,
    /// Weights that have arrived at the proxies.
    in_force: Option<LearnedCapacity>,
}

/// What the reports of a window sum up for one host.
#[derive(Clone, Copy, Debug, Default)]
struct HostSums {
    succeeded: u64,
    failed: u64,
    utilization: f64,
    reports: u32,
}

impl Learning {
    /// `None` if the scenario does not ask for it.
    pub(super) fn new(scenario: &Scenario, policy: Policy) -> Option<Self> {
        let is_learned = scenario.control_plane.learned_capacity;
        (is_learned && policy == Policy::LrsByReporter).then(Self::default)
    }

    /// Returns the weight of a host that proxies are sent; `None` before anything was learned.
    pub(super) const fn in_force(&self) -> Option<&LearnedCapacity> {
        self.in_force.as_ref()
    }
}

impl World<'_> {
    /// Counts the answer of a host for the load report of its proxy.
    pub(super) fn count_for_capacity(&mut self, host: SocketAddr, number: usize, success: bool) {
        let zone = self.hosts.zone(number);
        if self.learning.is_none() || self.faults.zones[zone].silent {
            return;
        }
        let utilization = self.hosts.utilization(number, self.now);
        let received = self.network.transmit(utilization);
        let Some(learning) = &mut self.learning else {
            return;
        };
        let sums = learning.window.entry(host).or_default();
        let requests = u64::from(self.scenario.requests_per_sample);
        if success {
            sums.succeeded += requests;
        } else {
            sums.failed += requests;
        }
        if let Some(utilization) = received {
            sums.utilization += utilization;
            sums.reports += 1;
        }
    }

    /// Learns once per reporting interval, and sends weights that moved.
    pub(super) fn learn_capacity(&mut self) {
        let interval = self.scenario.control_plane.report_interval;
        let Some(learning) = &mut self.learning else {
            return;
        };
        let elapsed = self.now - learning.since;
        if elapsed < interval {
            return;
        }
        learning.since = self.now;
        let sample = |(host, sums): (SocketAddr, HostSums)| {
            let utilization = sums.utilization / f64::from(sums.reports.max(1));
            let sample = HostSample {
                succeeded: sums.succeeded,
                failed: sums.failed,
                utilization,
            };
            (host, sample)
        };
        let window = std::mem::take(&mut learning.window);
        let samples = window.into_iter().map(sample).collect();
        let endpoints = self.upstream.endpoints().iter();
        let hosts = endpoints.flat_map(|entry| &entry.lb_endpoints);
        let usable = hosts.filter(|host| host.health_status != HealthStatus::Unhealthy);
        learning
            .estimator
            .handle_hosts(&usable.map(|host| host.address).collect());
        // A window that teaches nothing changes nothing.
        let _ = learning
            .estimator
            .handle_window(Duration::from_nanos(elapsed), &samples);
        if let Some(learned) = learning
            .estimator
            .poll_learned(Instant::from_nanos(self.now))
        {
            let number = self.learned.insert(learned);
            let arrival = self.now + self.scenario.control_plane.delay;
            self.queue.post(arrival, Event::Capacity(number));
        }
    }

    /// Delivers weights to the proxies.
    pub(super) fn capacity_arrives(&mut self, number: u32) {
        let (Some(learned), Some(learning)) = (self.learned.take(number), &mut self.learning)
        else {
            return;
        };
        if self.faults.control_plane_down {
            return;
        }
        if let Some(planning) = &mut self.planning {
            planning.set_capacity(learned.unit());
        }
        // Cannot fail: built from an assignment.
        if let Ok(weighted) = learned.applied_to(&self.upstream, 100) {
            self.upstream = weighted;
        }
        learning.in_force = Some(learned);
        for balancer in 0..self.balancers.len() {
            let upstream = self.sent_upstream(self.balancers[balancer].zone);
            if let Some(proxy) = &mut self.balancers[balancer].proxy {
                proxy.handle_assignment(upstream, self.now);
            }
            self.arm(num::index(balancer));
        }
    }
}
