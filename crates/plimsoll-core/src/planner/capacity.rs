//! [`CapacityEstimator`]: what each host of a service can serve, learned from load reports.
//!
//! The estimate is rate ÷ utilization, both of one reporting window, so it does not depend on the
//! weight in force or on how late reports are: it is measured, not controlled. An integral
//! controller of the weights swings as soon as reports are late. Estimates are averaged in
//! logarithms, because twice and half as much are equally wrong.
//!
//! What can be learned is small on purpose: a window counts for a host only if it was busy and
//! mostly successful, and for the service only if half of the hosts count. Weights
//! are bounded, move slowly and are delivered rarely: each delivery makes data planes rebuild their
//! schedulers. A host that nothing is known about weighs as much as the median, so no weight is 0.

mod learner;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::zone_plan::HostCapacity;
use crate::model::assignment::{ClusterLoadAssignment, LbEndpoint};
use crate::time::Instant;
use crate::units::FieldError;

pub use learner::{CapacityLearner, NodeName, UTILIZATION};

/// Requests that a host must have answered before its estimate follows: windows are added up until
/// it has…
const MIN_REQUESTS: u64 = 50;
/// …unless that takes longer: then demand and load have changed since the first of them.
const MAX_SPAN: Duration = Duration::from_secs(60);
/// Answered requests of a host in a window for each one that failed, at least: errors cost less
/// than answers, so a host that fails fast would seem strong.
const ANSWERED_PER_FAILURE: u64 = 10;
/// Utilization below which background work of the host counts for more than requests.
const MIN_UTILIZATION: f64 = 0.1;
/// Utilization above which a report is no utilization.
const MAX_UTILIZATION: f64 = 10.0;
/// Utilization from which on a host is full: more requests would not raise it, so it can show that
/// it serves less than thought, not that it serves more.
const FULL: f64 = 0.98;
/// How far an estimate follows what is measured, at first…
const GAIN: f64 = 0.3;
/// …and once it has made [`SETTLED_AFTER`] steps.
const SETTLED_GAIN: f64 = 0.1;
const SETTLED_AFTER: u32 = 10;
/// An estimate that is wrong by this factor…
const JUMP: f64 = 1.5;
/// …in so many steps in a row, in one direction, is followed as at first.
const JUMPS: i32 = 3;
/// Steps that an estimate needs before it counts.
const MIN_STEPS: u32 = 3;
/// Weight of the median host. One more or less is 2 %.
pub const MEDIAN_WEIGHT: u32 = 50;
/// A quarter of the median, and four times as much.
const WEIGHTS: (u32, u32) = (13, 200);
/// Written weights may be any; so that sums of all hosts fit 32 bits.
const MAX_RAMPED: u32 = 50_000;
/// Factor by which a delivery changes a weight at most.
const MAX_STEP: f64 = 1.4;
/// A delivery has a host that moved by one in this many parts.
const MATERIAL_PARTS: f64 = 20.0;
/// Time between two deliveries.
const PAUSE: Duration = Duration::from_secs(10);

/// What the reports of one window say of one host, over all reporters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSample {
    pub succeeded: u64,
    pub failed: u64,
    /// Mean of the reports; at least 0.
    pub utilization: f64,
}

/// Why a window taught nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frozen {
    /// The service has no hosts, or the window no length.
    Empty,
    /// Less than half of the hosts had requests, few errors and a utilization above a tenth.
    FewHosts,
    /// Nodes that are still there and sent more than a twentieth of the requests do not report.
    SilentNodes,
}

/// Weights of hosts, and what a host of weight 1 serves.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedCapacity {
    unit: HostCapacity,
    weights: BTreeMap<SocketAddr, u32>,
}

/// Learns the capacity of the hosts of one service.
#[derive(Clone, Debug, Default)]
pub struct CapacityEstimator {
    hosts: BTreeMap<SocketAddr, Estimate>,
    delivered: Option<(LearnedCapacity, Instant)>,
    frozen: Option<Frozen>,
}

/// Requests per second that a host serves at utilization 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Estimate {
    rate: f64,
    /// Steps since the host is known, or since it jumped.
    steps: u32,
    /// Steps in a row that were much higher, or, below 0, much lower.
    jumps: i32,
    /// Whether it has counted since the host is known.
    counts: bool,
    /// Windows since the latest step.
    gathered: Gathered,
}

/// Windows of a host, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gathered {
    succeeded: u64,
    seconds: f64,
    /// Sum of the utilization of each window × its seconds.
    used: f64,
    is_full: bool,
}

impl LearnedCapacity {
    /// Returns what a host of weight 1 serves.
    pub const fn unit(&self) -> HostCapacity {
        self.unit
    }

    /// Returns the weight of a host: [`MEDIAN_WEIGHT`] if nothing is known.
    pub fn weight(&self, host: SocketAddr) -> u32 {
        self.weights.get(&host).copied().unwrap_or(MEDIAN_WEIGHT)
    }

    /// Returns an assignment whose hosts have these weights. With a ramp below 100 % a weight is
    /// the geometric mean of what is written and what was learned, because both are ratios; with 0
    /// % all stays as it is written.
    pub fn applied_to(
        &self,
        written: &ClusterLoadAssignment,
        ramp: u32,
    ) -> Result<ClusterLoadAssignment, FieldError> {
        if ramp == 0 {
            return Ok(written.clone());
        }
        let entries = written.endpoints().iter();
        let mut weights: Vec<u32> = entries
            .flat_map(|entry| &entry.lb_endpoints)
            .map(LbEndpoint::weight)
            .collect();
        weights.sort_unstable();
        let median = weights.get(weights.len() / 2).copied().unwrap_or(1);
        written.with_endpoint_weights(|host| {
            let learned = self.weight(host.address);
            if ramp >= 100 {
                return learned;
            }
            let part = f64::from(ramp) / 100.0;
            let of_written = f64::from(host.weight()) / f64::from(median);
            let of_learned = f64::from(learned) / f64::from(MEDIAN_WEIGHT);
            ramped(of_written.powf(1.0 - part) * of_learned.powf(part))
        })
    }

    /// Returns the hosts whose capacity is known, with their weights, sorted.
    pub fn weights(&self) -> impl Iterator<Item = (SocketAddr, u32)> {
        self.weights.iter().map(|(host, weight)| (*host, *weight))
    }
}

impl CapacityEstimator {
    /// Sets the hosts of the service. A host that is new, or that comes back, starts over.
    pub fn handle_hosts(&mut self, hosts: &BTreeSet<SocketAddr>) {
        self.hosts.retain(|host, _| hosts.contains(host));
        for host in hosts {
            self.hosts.entry(*host).or_default();
        }
    }

    /// Forgets a host that restarted: it may run on another machine.
    pub fn handle_restart(&mut self, host: SocketAddr) {
        if let Some(estimate) = self.hosts.get_mut(&host) {
            *estimate = Estimate::default();
        }
    }

    /// Learns from the reports of one window. Unknown hosts are ignored.
    pub fn handle_window(
        &mut self,
        elapsed: Duration,
        samples: &BTreeMap<SocketAddr, HostSample>,
    ) -> Result<(), Frozen> {
        let seconds = elapsed.as_secs_f64();
        let told = |host: &SocketAddr| samples.get(host).filter(|sample| sample.is_usable());
        let telling = self
            .hosts
            .keys()
            .filter(|host| told(host).is_some())
            .count();
        self.frozen = match () {
            () if self.hosts.is_empty() || seconds <= 0.0 => Some(Frozen::Empty),
            () if telling * 2 < self.hosts.len() => Some(Frozen::FewHosts),
            () => None,
        };
        for (host, estimate) in &mut self.hosts {
            match told(host).filter(|_| self.frozen.is_none()) {
                Some(sample) => estimate.handle_window(sample, seconds),
                None => estimate.gathered = Gathered::default(),
            }
        }
        self.frozen.map_or(Ok(()), Err)
    }

    /// Learns nothing from this window, which is not complete.
    pub fn freeze(&mut self, reason: Frozen) {
        self.frozen = Some(reason);
        for estimate in self.hosts.values_mut() {
            estimate.gathered = Gathered::default();
        }
    }

    /// Returns the number of hosts, and of those whose capacity is known.
    pub fn hosts(&self) -> (usize, usize) {
        let known = self.hosts.values().filter(|estimate| estimate.counts);
        (self.hosts.len(), known.count())
    }

    /// Returns why the latest window taught nothing; `None` if it did.
    pub const fn frozen(&self) -> Option<Frozen> {
        self.frozen
    }

    /// Returns requests per second that a host serves at utilization 1; `None` until it is known.
    pub fn rate(&self, host: SocketAddr) -> Option<f64> {
        let estimate = self.hosts.get(&host).filter(|estimate| estimate.counts)?;
        Some(estimate.rate)
    }

    /// Returns what is delivered; `None` before anything is known.
    pub fn delivered(&self) -> Option<&LearnedCapacity> {
        self.delivered.as_ref().map(|(learned, _)| learned)
    }

    /// Returns weights to deliver, if they differ enough from those that are.
    pub fn poll_learned(&mut self, now: Instant) -> Option<LearnedCapacity> {
        let next = self.learned()?;
        if let Some((before, at)) = &self.delivered {
            let is_early = now.saturating_duration_since(*at) < PAUSE;
            if is_early || !next.differs(before) {
                return None;
            }
        }
        self.delivered = Some((next.clone(), now));
        Some(next)
    }

    /// `None` while less than half of the hosts are known.
    fn learned(&self) -> Option<LearnedCapacity> {
        let known = || self.hosts.iter().filter(|(_, estimate)| estimate.counts);
        let mut rates: Vec<f64> = known().map(|(_, estimate)| estimate.rate).collect();
        if rates.is_empty() || rates.len() * 2 < self.hosts.len() {
            return None;
        }
        rates.sort_by(f64::total_cmp);
        let median = f64::midpoint(rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        let weight = |(host, estimate): (&SocketAddr, &Estimate)| {
            let before = self
                .delivered()
                .map_or(MEDIAN_WEIGHT, |one| one.weight(*host));
            (*host, limited(estimate.rate / median, before))
        };
        let unit = HostCapacity::requests_per_second(median / f64::from(MEDIAN_WEIGHT)).ok()?;
        Some(LearnedCapacity {
            unit: unit.with_typical_weight(MEDIAN_WEIGHT),
            weights: known().map(weight).collect(),
        })
    }
}

impl LearnedCapacity {
    /// Whether a host, or what all of them serve, moved far enough for a delivery.
    fn differs(&self, before: &Self) -> bool {
        let moved = |from: f64, to: f64| (to - from).abs() * MATERIAL_PARTS >= from;
        let hosts: BTreeSet<SocketAddr> = self
            .weights
            .keys()
            .chain(before.weights.keys())
            .copied()
            .collect();
        moved(before.unit.rate(), self.unit.rate())
            || hosts.into_iter().any(|host| {
                let [from, to] = [before, self].map(|one| f64::from(one.weight(host)));
                moved(from, to)
            })
    }
}

impl HostSample {
    fn is_usable(&self) -> bool {
        self.succeeded > 0
            && self.failed.saturating_mul(ANSWERED_PER_FAILURE) <= self.succeeded
            && (MIN_UTILIZATION..=MAX_UTILIZATION).contains(&self.utilization)
    }
}

impl Estimate {
    #[expect(clippy::cast_precision_loss, reason = "counts of requests")]
    fn handle_window(&mut self, sample: &HostSample, seconds: f64) {
        let gathered = &mut self.gathered;
        gathered.succeeded = gathered.succeeded.saturating_add(sample.succeeded);
        gathered.seconds += seconds;
        gathered.used += sample.utilization * seconds;
        gathered.is_full |= sample.utilization >= FULL;
        if gathered.succeeded >= MIN_REQUESTS {
            // Requests per second, divided by mean utilization: the seconds cancel out.
            let measured = gathered.succeeded as f64 / gathered.used;
            let is_full = gathered.is_full;
            self.gathered = Gathered::default();
            self.follow(measured, is_full);
        } else if gathered.seconds >= MAX_SPAN.as_secs_f64() {
            self.gathered = Gathered::default();
        }
    }

    fn follow(&mut self, measured: f64, is_full: bool) {
        if self.steps == 0 && !self.counts {
            (self.rate, self.steps) = (measured, 1);
            return;
        }
        let ratio = measured / self.rate;
        if is_full && ratio > 1.0 {
            return;
        }
        self.jumps = match self.jumps {
            jumps if ratio > JUMP => jumps.max(0) + 1,
            jumps if ratio < 1.0 / JUMP => jumps.min(0) - 1,
            _ => 0,
        };
        if self.jumps.abs() >= JUMPS {
            (self.steps, self.jumps) = (0, 0);
        }
        let gain = if self.steps < SETTLED_AFTER {
            GAIN
        } else {
            SETTLED_GAIN
        };
        self.rate *= ratio.clamp(1.0 / MAX_STEP, MAX_STEP).powf(gain);
        self.steps = self.steps.saturating_add(1);
        self.counts |= self.steps >= MIN_STEPS;
    }
}

/// Returns the weight of a host of `relative` times the median, not far from the one `before`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to small numbers first"
)]
fn limited(relative: f64, before: u32) -> u32 {
    let before = f64::from(before);
    let wanted = (relative * f64::from(MEDIAN_WEIGHT)).clamp(before / MAX_STEP, before * MAX_STEP);
    (wanted.round() as u32).clamp(WEIGHTS.0, WEIGHTS.1)
}

/// Returns a weight between two, which may be beyond the limits of learned ones, but never 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates when it is cast to an integer"
)]
fn ramped(relative: f64) -> u32 {
    let weight = (relative * f64::from(MEDIAN_WEIGHT)).round() as u32;
    weight.clamp(1, MAX_RAMPED)
}

#[cfg(test)]
mod tests;
