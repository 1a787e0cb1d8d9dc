//! Outlier detection: ejects hosts whose requests fail too often (gRFC A50, Envoy).
//!
//! The [`OutlierDetector`] reads request counters of hosts and emits one [`HealthSignal`] per
//! ejection or return, to be passed to `Balancer::handle_health`. It has no clock: a driver calls
//! [`OutlierDetector::handle_tick`] when [`OutlierDetector::poll_timeout`] is due. Settings are in
//! `model::outlier_detection`.
//!
//! Where the gRFC and Envoy 1.40 differ, this follows Envoy: an ejection must fit into
//! `max_ejection_percent` (the gRFC may exceed it by one host; `always_eject_one_host` allows one),
//! only hosts with enough requests count towards `minimum_hosts`, a failure percentage *at* the
//! threshold ejects, ejected hosts are not evaluated, and the multiplier stops growing at
//! `max_ejection_time`. Hosts return at the end of a sweep, as in the gRFC.
//!
//! ```
//! use plimsoll_core::balancer::Balancer;
//! use plimsoll_core::outlier_detection::{HostSample, OutlierDetector};
//! use plimsoll_core::rng::Rng;
//! use plimsoll_core::time::Instant;
//!
//! # type Detector = OutlierDetector;
//! fn tick(detector: &mut Detector, balancer: &mut Balancer, rng: &mut impl Rng, now: Instant) {
//!     let hosts: Vec<_> = balancer.hosts().map(|(host, ..)| HostSample::of(host)).collect();
//!     detector.handle_tick(&hosts, rng, now);
//!     while let Some((address, signal)) = detector.poll_signal() {
//!         balancer.handle_health(address, signal, now);
//!     }
//! }
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::host::{Host, RequestCounts};
use crate::model::health::HealthSignal;
use crate::model::outlier_detection::OutlierDetection;
use crate::rng::Rng;
use crate::stats::OutlierStats;
use crate::time::Instant;

/// Counters of a host when it is evaluated: totals since it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSample {
    pub address: SocketAddr,
    pub totals: RequestCounts,
    pub consecutive_errors: u32,
}

impl HostSample {
    /// Reads the current counters of `host`.
    pub fn of(host: &Host) -> Self {
        Self {
            address: host.address(),
            totals: host.request_counts(),
            consecutive_errors: host.consecutive_errors(),
        }
    }
}

/// Outlier detector of one cluster.
#[derive(Debug)]
pub struct OutlierDetector {
    config: Arc<OutlierDetection>,
    hosts: BTreeMap<SocketAddr, HostState>,
    started_at: Instant,
    signals: VecDeque<(SocketAddr, HealthSignal)>,
    stats: OutlierStats,
}

#[derive(Clone, Copy, Debug, Default)]
struct HostState {
    /// Totals at the start of the interval.
    latched: RequestCounts,
    /// Requests that ended in the interval being evaluated.
    window: RequestCounts,
    /// Total errors that were already counted towards an ejection for consecutive errors.
    counted_errors: u64,
    ejected_at: Option<Instant>,
    /// Ejection time in multiples of `base_ejection_time`.
    multiplier: u32,
}

impl HostState {
    /// Starts with the current totals: earlier requests do not count.
    fn starting_at(sample: &HostSample) -> Self {
        Self {
            latched: sample.totals,
            counted_errors: sample.totals.failed,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy)]
enum Algorithm {
    SuccessRate,
    FailurePercentage,
    Consecutive5xx,
}

impl OutlierDetector {
    /// Creates a detector. Requests that `hosts` served before do not count.
    pub fn new(config: Arc<OutlierDetection>, hosts: &[HostSample], now: Instant) -> Self {
        Self {
            config,
            hosts: hosts
                .iter()
                .map(|sample| (sample.address, HostState::starting_at(sample)))
                .collect(),
            started_at: now,
            signals: VecDeque::new(),
            stats: OutlierStats::default(),
        }
    }

    /// Updates the set of hosts. New ones are evaluated from here on, removed ones are forgotten.
    /// Without this call, hosts become known at the next tick.
    pub fn handle_hosts(&mut self, hosts: &[HostSample]) {
        let mut before = std::mem::take(&mut self.hosts);
        for sample in hosts {
            let known = before.remove(&sample.address);
            let state = known.unwrap_or_else(|| HostState::starting_at(sample));
            self.hosts.insert(sample.address, state);
        }
    }

    /// Applies new settings. The current interval keeps its start; if detection is switched off,
    /// all ejected hosts return.
    pub fn handle_config(&mut self, config: Arc<OutlierDetection>, now: Instant) {
        let was_enabled = self.config.is_enabled();
        self.config = config;
        if !self.config.is_enabled() {
            for (&address, state) in &mut self.hosts {
                state.multiplier = 0;
                if state.ejected_at.take().is_some() {
                    self.signals
                        .push_back((address, HealthSignal::OutlierReturned));
                }
            }
        } else if !was_enabled {
            self.started_at = now;
        }
    }

    /// Evaluates all hosts at the end of an interval, and returns hosts whose ejection time is
    /// over. Hosts that are not in `hosts` are forgotten.
    pub fn handle_tick(&mut self, hosts: &[HostSample], rng: &mut impl Rng, now: Instant) {
        self.started_at = now;
        if !self.config.is_enabled() {
            return;
        }
        self.latch(hosts);
        for sample in hosts {
            self.check_consecutive_errors(sample, rng, now);
        }
        self.check_success_rate(rng, now);
        self.check_failure_percentage(rng, now);
        self.uneject(now);
    }

    /// Evaluates a host that reached [`OutlierDetection::consecutive_5xx`] errors at once, without
    /// waiting for the tick. Unknown hosts wait for the tick.
    pub fn handle_consecutive_errors(
        &mut self,
        sample: &HostSample,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        self.check_consecutive_errors(sample, rng, now);
    }

    /// Returns when [`Self::handle_tick`] must be called next; `None` if detection is off.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.started_at.saturating_add(self.config.interval);
        self.config.is_enabled().then_some(due)
    }

    /// Returns the oldest signal that has not been polled yet.
    pub fn poll_signal(&mut self) -> Option<(SocketAddr, HealthSignal)> {
        self.signals.pop_front()
    }

    /// Returns the hosts that are ejected now.
    pub fn ejected(&self) -> impl Iterator<Item = SocketAddr> {
        self.hosts
            .iter()
            .filter(|(_, state)| state.ejected_at.is_some())
            .map(|(&address, _)| address)
    }

    /// Returns the counters, which Envoy has under `outlier_detection.`.
    pub const fn stats(&self) -> &OutlierStats {
        &self.stats
    }

    fn latch(&mut self, hosts: &[HostSample]) {
        let mut before = std::mem::take(&mut self.hosts);
        for sample in hosts {
            // Counters that went back belong to another host at the same address.
            let known = before.remove(&sample.address).filter(|known| {
                known.latched.succeeded <= sample.totals.succeeded
                    && known.latched.failed <= sample.totals.failed
            });
            let mut state = known.unwrap_or_default();
            state.window = sample.totals.report(&mut state.latched);
            self.hosts.insert(sample.address, state);
        }
    }

    fn check_consecutive_errors(&mut self, sample: &HostSample, rng: &mut impl Rng, now: Instant) {
        let Some(settings) = self.config.consecutive_5xx else {
            return;
        };
        let Some(state) = self.hosts.get_mut(&sample.address) else {
            return;
        };
        // Errors that led to one ejection do not lead to another.
        let fresh = sample.totals.failed.saturating_sub(state.counted_errors);
        let in_a_row = u64::from(sample.consecutive_errors).min(fresh);
        if state.ejected_at.is_some() || in_a_row < u64::from(settings.threshold) {
            return;
        }
        state.counted_errors = sample.totals.failed;
        let percent = settings.enforcement_percentage;
        self.eject(sample.address, Algorithm::Consecutive5xx, percent, rng, now);
    }

    fn check_success_rate(&mut self, rng: &mut impl Rng, now: Instant) {
        let Some(settings) = self.config.success_rate else {
            return;
        };
        let rates = self.success_rates(settings.request_volume);
        if rates.is_empty() || rates.len() < settings.minimum_hosts as usize {
            return;
        }
        let (mean, stdev) = mean_and_stdev(&rates);
        let threshold = mean - stdev * (f64::from(settings.stdev_factor) / 1000.0);
        for (address, rate) in rates {
            if rate < threshold {
                let percent = settings.enforcement_percentage;
                self.eject(address, Algorithm::SuccessRate, percent, rng, now);
            }
        }
    }

    fn check_failure_percentage(&mut self, rng: &mut impl Rng, now: Instant) {
        let Some(settings) = self.config.failure_percentage else {
            return;
        };
        let rates = self.success_rates(settings.request_volume);
        if rates.len() < settings.minimum_hosts as usize {
            return;
        }
        for (address, rate) in rates {
            if 100.0 - rate >= f64::from(settings.threshold) {
                let percent = settings.enforcement_percentage;
                self.eject(address, Algorithm::FailurePercentage, percent, rng, now);
            }
        }
    }

    /// Success rates in percent of hosts that are not ejected and ended `volume` requests.
    #[expect(clippy::cast_precision_loss, reason = "requests of one interval")]
    fn success_rates(&self, volume: u32) -> Vec<(SocketAddr, f64)> {
        let ready = self
            .hosts
            .iter()
            .filter(|(_, host)| host.ejected_at.is_none());
        ready
            .filter_map(|(&address, host)| {
                let ended = host.window.succeeded + host.window.failed;
                // A host without requests has no rate, whatever the settings.
                (ended >= u64::from(volume.max(1)))
                    .then(|| (address, 100.0 * host.window.succeeded as f64 / ended as f64))
            })
            .collect()
    }

    /// Counts an outlier; ejects it if `max_ejection_percent` and the enforcement percentage allow.
    fn eject(
        &mut self,
        address: SocketAddr,
        algorithm: Algorithm,
        enforcement_percentage: u32,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        let stats = &self.stats;
        let (detected, enforced) = match algorithm {
            Algorithm::SuccessRate => (
                &stats.ejections_detected_success_rate,
                &stats.ejections_enforced_success_rate,
            ),
            Algorithm::FailurePercentage => (
                &stats.ejections_detected_failure_percentage,
                &stats.ejections_enforced_failure_percentage,
            ),
            Algorithm::Consecutive5xx => (
                &stats.ejections_detected_consecutive_5xx,
                &stats.ejections_enforced_consecutive_5xx,
            ),
        };
        detected.increment();
        if !self.has_room() {
            stats.ejections_overflow.increment();
            return;
        }
        let drawn = rng.next_u64() % 100 < u64::from(enforcement_percentage);
        let Some(state) = self.hosts.get_mut(&address).filter(|_| drawn) else {
            return;
        };
        state.ejected_at = Some(now);
        // Beyond the maximum, a larger multiplier would only take longer to decay.
        if self.config.ejection_time(state.multiplier) < self.config.max_ejection_time {
            state.multiplier += 1;
        }
        enforced.increment();
        stats.ejections_enforced_total.increment();
        self.signals
            .push_back((address, HealthSignal::OutlierEjected));
    }

    fn has_room(&self) -> bool {
        let out = self.ejected().count();
        let allowed = self.hosts.len() * self.config.max_ejection_percent as usize;
        (out + 1) * 100 <= allowed || (self.config.always_eject_one_host && out == 0)
    }

    /// Ends ejections that are over. Each interval without one lowers a host's multiplier.
    fn uneject(&mut self, now: Instant) {
        for (&address, state) in &mut self.hosts {
            let Some(since) = state.ejected_at else {
                state.multiplier = state.multiplier.saturating_sub(1);
                continue;
            };
            let term = self.config.ejection_time(state.multiplier);
            if now.saturating_duration_since(since) >= term {
                state.ejected_at = None;
                // Requests that failed during the ejection are no reason for another one.
                state.counted_errors = state.latched.failed;
                self.signals
                    .push_back((address, HealthSignal::OutlierReturned));
            }
        }
    }
}

impl OutlierDetection {
    fn ejection_time(&self, multiplier: u32) -> Duration {
        self.base_ejection_time
            .saturating_mul(multiplier)
            .min(self.max_ejection_time)
    }
}

/// Returns mean and population standard deviation, as Envoy computes them.
#[expect(clippy::cast_precision_loss, reason = "hosts of one cluster")]
fn mean_and_stdev(rates: &[(SocketAddr, f64)]) -> (f64, f64) {
    let count = rates.len() as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let squares = rates.iter().map(|(_, rate)| (rate - mean).powi(2));
    (mean, (squares.sum::<f64>() / count).sqrt())
}

#[cfg(test)]
mod tests;
