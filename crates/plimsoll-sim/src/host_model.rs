//! [`Hosts`]: queuing model of the upstream hosts.
//!
//! A host has a capacity (requests per second), several parallel servers, and a bounded FIFO queue;
//! requests beyond the queue are refused with a 5xx. Latency rises with utilization because of
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
use crate::scenario::{HostSettings, Scenario, Service};
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
    rng: Xoshiro256,
}

#[derive(Clone, Copy, Debug)]
struct ModeledHost {
    zone: u32,
    meter: u32,
    /// Capacity in requests per second without faults.
    nominal: f64,
    /// Current capacity in requests per second; 0 = dead.
    capacity: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// When the response leaves the host.
    pub(crate) at: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Dead,
    /// A 5xx, because the queue is full.
    Refused,
    Success,
}

impl Hosts {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let pooled = scenario.requests_per_sample > 1;
        let (mut hosts, mut meters) = (Vec::new(), 0);
        for (zone, settings) in scenario.zones.iter().enumerate() {
            for group in &settings.hosts {
                for number in 0..group.count {
                    if number == 0 || !pooled {
                        meters += 1;
                    }
                    hosts.push(ModeledHost {
                        zone: num::index(zone),
                        meter: num::index(meters) - 1,
                        nominal: group.capacity,
                        capacity: group.capacity,
                    });
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
            rng: draws::stream(scenario.seed, Purpose::Service, 0),
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

    pub(crate) fn serve(&mut self, host: usize, at: u64) -> Served {
        let ModeledHost {
            meter, capacity, ..
        } = self.hosts[host];
        if capacity <= 0.0 {
            return Served {
                at,
                outcome: Outcome::Dead,
            };
        }
        self.meters[meter as usize].add(at);
        if self.settings.service == Service::Instant {
            return Served {
                at,
                outcome: Outcome::Success,
            };
        }
        let patience = num::from_seconds(self.settings.queue.unwrap_or(capacity) / capacity);
        let wait = if self.free.is_empty() {
            let utilization = self.utilization(host, at);
            pooled::wait(utilization, self.settings.servers, capacity, &mut self.rng)
        } else {
            self.free[self.next_server(host)].saturating_sub(at)
        };
        if wait > patience {
            return Served {
                at,
                outcome: Outcome::Refused,
            };
        }
        let done = at + wait + self.service_time(capacity);
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
