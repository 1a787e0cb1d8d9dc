//! [`Hosts`]: what happens to a request at a host: it waits, is served, or is refused.
//!
//! A host has a capacity (requests per second), some servers that work side by side, and a queue in
//! order of arrival with a bound; what does not fit is refused with a 5xx. Latency rises with
//! utilization because of waiting, not by a formula. When each simulated request stands for several
//! (`requests_per_sample`), single hosts see too few of them for that: then hosts of one zone and
//! group share a meter, and waiting is drawn from the stationary queue at that utilization
//! (`pooled`). Who sends requests lives in `proxy`; what a report says on its way in `network`.

mod meter;
mod pooled;
#[cfg(test)]
mod tests;

use plimsoll_core::rng::Xoshiro256;

use crate::draws::{self, Purpose};
use crate::num;
use crate::scenario::{HostSettings, Scenario, Service};
use crate::situation::Situation;
use meter::Meter;

/// All upstream hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    settings: HostSettings,
    hosts: Vec<Host>,
    /// Moments at which each server of each host is free again.
    free: Vec<u64>,
    meters: Vec<Meter>,
    /// Capacity behind each meter.
    metered_capacity: Vec<f64>,
    requests_per_sample: f64,
    rng: Xoshiro256,
}

/// One upstream host.
#[derive(Clone, Copy, Debug)]
struct Host {
    zone: u32,
    meter: u32,
    /// Requests per second it can serve when intact.
    nominal: f64,
    /// Requests per second it can serve now; 0 = dead.
    capacity: f64,
}

/// What becomes of a request at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// When the answer leaves the host.
    pub(crate) at: u64,
    pub(crate) outcome: Outcome,
}

/// How a host answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody answers.
    Dead,
    /// With a 5xx: the queue is full.
    Refused,
    /// With a response.
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
                    hosts.push(Host {
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
            meters: vec![Meter::new(scenario.reports.meter_window); meters],
            metered_capacity: Vec::new(),
            hosts,
            requests_per_sample: f64::from(scenario.requests_per_sample),
            rng: draws::stream(scenario.seed, Purpose::Service, 0),
        };
        all.measure_capacity();
        all
    }

    /// The zone of a host.
    pub(crate) fn zone(&self, host: usize) -> usize {
        self.hosts[host].zone as usize
    }

    /// Whether nobody answers there.
    pub(crate) fn is_dead(&self, host: usize) -> bool {
        self.hosts[host].capacity <= 0.0
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Takes over what is broken now. A host that comes back has an empty queue.
    pub(crate) fn apply(&mut self, situation: &Situation) {
        let servers = self.free.len() / self.hosts.len().max(1);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let zone = &situation.zones[host.zone as usize];
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

    /// A request arrives at a host.
    pub(crate) fn serve(&mut self, host: usize, at: u64) -> Served {
        let Host {
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

    /// What the host would say about itself: its own rate ÷ its capacity, not limited to 1.
    pub(crate) fn utilization(&mut self, host: usize, at: u64) -> f64 {
        let meter = self.hosts[host].meter as usize;
        let rate = self.meters[meter].rate(at) * self.requests_per_sample;
        num::ratio(rate, self.metered_capacity[meter])
    }

    /// The server of a host that is free first.
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
