//! [`Hosts`]: queuing model of the upstream hosts.
//!
//! A host has a capacity (requests per second), several parallel servers, and a bounded FIFO queue;
//! requests beyond the queue are refused with a 5xx.
//! Hosts may fail instead, as events of the scenario say. Latency rises with utilization because of
//! queuing, not by a formula. When each simulated request represents several
//! (`requests_per_sample`), single hosts see too few to form queues: hosts of one zone and group
//! then share a rate meter, and waiting times are drawn from the stationary queue at that
//! utilization (`pooled`). `proxy` sends requests; `network` transmits load reports.

mod meter;
mod pooled;
#[cfg(test)]
mod tests;

use plimsoll_core::rng::Xoshiro256;

use crate::draws::{self, Purpose};
use crate::faults::Faults;
use crate::num;
use crate::scenario::{FailureKind, HostFailure, HostSettings, NetworkSettings, Scenario, Service};
use meter::RateMeter;

#[derive(Debug)]
pub(crate) struct Hosts {
    settings: HostSettings,
    hosts: Vec<ModeledHost>,
    /// Time at which each server of each host becomes free.
    free: Vec<u64>,
    meters: Vec<RateMeter>,
    /// Total capacity of the hosts behind each meter.
    metered_capacity: Vec<f64>,
    requests_per_sample: f64,
    network: NetworkSettings,
    rng: Xoshiro256,
    /// Which requests fail, where only some do.
    failure_rng: Xoshiro256,
}

#[derive(Clone, Copy, Debug)]
struct ModeledHost {
    zone: u32,
    /// Index of the host within its zone.
    position: u32,
    meter: u32,
    /// Capacity in requests per second without faults.
    nominal: f64,
    /// Current capacity in requests per second; 0 = dead.
    capacity: f64,
    failure: Option<HostFailure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// When the response leaves the host.
    pub(crate) at: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The host died; nothing answers.
    Dead,
    /// A 5xx, because the queue is full or the host fails.
    Error,
    /// There was no response in time.
    TimedOut,
    /// There was no connection, so the request was not sent.
    Unconnected,
    Success,
}

impl Hosts {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let pooled = scenario.requests_per_sample > 1;
        let (mut hosts, mut meters) = (Vec::new(), 0);
        for (zone, settings) in scenario.zones.iter().enumerate() {
            let mut position = 0;
            for group in &settings.hosts {
                for number in 0..group.count {
                    if number == 0 || !pooled {
                        meters += 1;
                    }
                    hosts.push(ModeledHost {
                        zone: num::index(zone),
                        position,
                        meter: num::index(meters) - 1,
                        nominal: group.capacity,
                        capacity: group.capacity,
                        failure: None,
                    });
                    position += 1;
                }
            }
        }
        let servers = if pooled {
            0
        } else {
            scenario.host.servers as usize
        };
        let mut all = Self {
            settings: scenario.host,
            free: vec![0; hosts.len() * servers],
            meters: vec![RateMeter::new(scenario.reports.meter_window); meters],
            metered_capacity: Vec::new(),
            hosts,
            requests_per_sample: f64::from(scenario.requests_per_sample),
            network: scenario.network,
            rng: draws::stream(scenario.seed, Purpose::Service, 0),
            failure_rng: draws::stream(scenario.seed, Purpose::Failures, 0),
        };
        all.measure_capacity();
        all
    }

    pub(crate) fn zone(&self, host: usize) -> usize {
        self.hosts[host].zone as usize
    }

    pub(crate) fn is_dead(&self, host: usize) -> bool {
        self.hosts[host].capacity <= 0.0
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Applies the current faults. A host that recovers has an empty queue.
    pub(crate) fn apply(&mut self, faults: &Faults) {
        let servers = self.free.len() / self.hosts.len().max(1);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let zone = &faults.zones[host.zone as usize];
            let was_dead = host.capacity <= 0.0;
            host.capacity = if zone.hosts_lost {
                0.0
            } else {
                host.nominal * zone.capacity_factor
            };
            host.failure = zone.failure(host.position);
            if was_dead {
                self.free[index * servers..(index + 1) * servers].fill(0);
            }
        }
        self.measure_capacity();
    }

    fn measure_capacity(&mut self) {
        self.metered_capacity = vec![0.0; self.meters.len()];
        for host in &self.hosts {
            self.metered_capacity[host.meter as usize] += host.capacity;
        }
    }

    /// Serves a request that arrives at `at`, or fails it. `link` is how requests of its proxy to
    /// the host's zone fail.
    pub(crate) fn serve(&mut self, host: usize, link: Option<HostFailure>, at: u64) -> Served {
        let ModeledHost {
            position,
            capacity,
            failure,
            ..
        } = self.hosts[host];
        let link = link.filter(|link| position < link.hosts);
        if let Some(failed) = link.and_then(|failure| self.fail(failure, at)) {
            return failed;
        }
        if capacity <= 0.0 {
            let outcome = Outcome::Dead;
            return Served { at, outcome };
        }
        if let Some(failed) = failure.and_then(|failure| self.fail(failure, at)) {
            return failed;
        }
        let slowdown = failure.map_or(1.0, |failure| failure.slowdown);
        let served = self.queue(host, at, slowdown);
        let deadline = at + self.network.request_timeout;
        if served.at <= deadline {
            return served;
        }
        Served {
            at: deadline,
            outcome: Outcome::TimedOut,
        }
    }

    /// Returns how a request to a failing host ends; `None` if the host serves it.
    fn fail(&mut self, failure: HostFailure, at: u64) -> Option<Served> {
        let hit = match failure.share {
            0.0 => false,
            1.0 => true,
            share => draws::uniform(&mut self.failure_rng) < share,
        };
        let (outcome, after) = match failure.how {
            FailureKind::Error => (Outcome::Error, 0),
            FailureKind::Hang => (Outcome::TimedOut, self.network.request_timeout),
            FailureKind::Refuse => (Outcome::Unconnected, 0),
            FailureKind::Slow => return None,
            FailureKind::Unreachable => (Outcome::Unconnected, self.network.connect_timeout),
        };
        let at = at + after;
        hit.then_some(Served { at, outcome })
    }

    /// Lets a request wait for one of the host's servers.
    fn queue(&mut self, host: usize, at: u64, slowdown: f64) -> Served {
        let ModeledHost {
            meter, capacity, ..
        } = self.hosts[host];
        self.meters[meter as usize].add(at);
        if self.settings.service == Service::Instant {
            return Served {
                at,
                outcome: Outcome::Success,
            };
        }
        let length = self.settings.queue.unwrap_or(capacity);
        let patience = num::from_seconds(length / capacity * slowdown);
        let wait = if self.free.is_empty() {
            let utilization = self.utilization(host, at) * slowdown;
            let capacity = capacity / slowdown;
            pooled::wait(utilization, self.settings.servers, capacity, &mut self.rng)
        } else {
            self.free[self.next_server(host)].saturating_sub(at)
        };
        if wait > patience {
            return Served {
                at,
                outcome: Outcome::Error,
            };
        }
        let done = at + wait + self.service_time(capacity / slowdown);
        if !self.free.is_empty() {
            let server = self.next_server(host);
            self.free[server] = done;
        }
        Served {
            at: done,
            outcome: Outcome::Success,
        }
    }

    /// Returns the utilization that the host would report: its request rate ÷ its capacity, not
    /// limited to 1.
    pub(crate) fn utilization(&mut self, host: usize, at: u64) -> f64 {
        let meter = self.hosts[host].meter as usize;
        let rate = self.meters[meter].rate(at) * self.requests_per_sample;
        num::ratio(rate, self.metered_capacity[meter])
    }

    /// Returns the server of a host that becomes free first.
    fn next_server(&self, host: usize) -> usize {
        let servers = self.settings.servers as usize;
        let first = host * servers;
        (first..first + servers)
            .min_by_key(|&server| self.free[server])
            .unwrap_or(first)
    }

    fn service_time(&mut self, capacity: f64) -> u64 {
        let mean = f64::from(self.settings.servers) / capacity;
        let factor = match self.settings.service {
            Service::Exponential => draws::exponential(&mut self.rng),
            Service::Constant | Service::Instant => 1.0,
        };
        num::from_seconds(mean * factor)
    }
}
