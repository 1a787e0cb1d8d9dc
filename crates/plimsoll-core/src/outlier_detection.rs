//! [`OutlierDetector`]: judges hosts by how their requests ended (gRFC A50, Envoy).
//!
//! Counters of hosts in, one [`HealthSignal`] per ejection or return out, to be given to
//! `Balancer::handle_health`. It holds no clock: a driver calls [`OutlierDetector::handle_tick`]
//! when [`OutlierDetector::poll_timeout`] says so. Settings live in `model::outlier_detection`.
//!
//! Where the gRFC and Envoy 1.40 differ, this is Envoy: an ejection must fit into
//! `max_ejection_percent` (the gRFC may exceed it by one host; `always_eject_one_host` allows one),
//! only hosts with enough requests count towards `minimum_hosts`, a failure percentage *at* the
//! threshold ejects, hosts that are out are not judged, and the multiplier stops growing at
//! `max_ejection_time`. Hosts return at the end of a sweep, as in the gRFC.

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

/// What is known of a host when it is judged: totals since it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSample {
    /// Which host.
    pub address: SocketAddr,
    /// Requests so far.
    pub totals: RequestCounts,
    /// Errors since the last success.
    pub consecutive_errors: u32,
}

impl HostSample {
    /// The counters of `host`, now.
    pub fn of(host: &Host) -> Self {
        Self {
            address: host.address(),
            totals: host.request_counts(),
            consecutive_errors: host.consecutive_errors(),
        }
    }
}

/// Judges the hosts of one cluster.
#[derive(Debug)]
pub struct OutlierDetector {
    config: Arc<OutlierDetection>,
    hosts: BTreeMap<SocketAddr, Judged>,
    /// Start of the running interval.
    started_at: Instant,
    signals: VecDeque<(SocketAddr, HealthSignal)>,
    stats: OutlierStats,
}

/// What is remembered of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    /// Totals at the start of the interval.
    latched: RequestCounts,
    /// Ended in the interval that is judged.
    window: RequestCounts,
    /// Errors up to here have been judged as consecutive ones.
    judged_errors: u64,
    ejected_at: Option<Instant>,
    /// How many times the base an ejection lasts.
    multiplier: u32,
}

impl Judged {
    /// A host whose past does not count.
    fn from_now(sample: &HostSample) -> Self {
        Self {
            latched: sample.totals,
            judged_errors: sample.totals.failed,
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
    /// A detector for hosts that are at `hosts` now: what they did before does not count.
    pub fn new(config: Arc<OutlierDetection>, hosts: &[HostSample], now: Instant) -> Self {
        let known = hosts
            .iter()
            .map(|sample| (sample.address, Judged::from_now(sample)));
        Self {
            config,
            hosts: known.collect(),
            started_at: now,
            signals: VecDeque::new(),
            stats: OutlierStats::default(),
        }
    }

    /// The hosts there are now. New ones are judged from here on, those that left are forgotten.
    /// Without this call hosts become known with the next tick.
    pub fn handle_hosts(&mut self, hosts: &[HostSample]) {
        let mut before = std::mem::take(&mut self.hosts);
        for sample in hosts {
            let known = before.remove(&sample.address);
            let judged = known.unwrap_or_else(|| Judged::from_now(sample));
            self.hosts.insert(sample.address, judged);
        }
    }

    /// Other settings. The running interval keeps its start; when nothing is on any more, all hosts
    /// return.
    pub fn handle_config(&mut self, config: Arc<OutlierDetection>, now: Instant) {
        let was_enabled = self.config.is_enabled();
        self.config = config;
        if !self.config.is_enabled() {
            for (&address, judged) in &mut self.hosts {
                judged.multiplier = 0;
                if judged.ejected_at.take().is_some() {
                    self.signals
                        .push_back((address, HealthSignal::OutlierReturned));
                }
            }
        } else if !was_enabled {
            self.started_at = now;
        }
    }

    /// The interval is over: judges all hosts of the cluster and lets back who was out for long
    /// enough. Hosts that are not among `hosts` any more are forgotten.
    pub fn handle_tick(&mut self, hosts: &[HostSample], rng: &mut impl Rng, now: Instant) {
        self.started_at = now;
        if !self.config.is_enabled() {
            return;
        }
        self.latch(hosts);
        for sample in hosts {
            self.judge_consecutive(sample, rng, now);
        }
        self.judge_success_rate(rng, now);
        self.judge_failure_percentage(rng, now);
        self.forgive(now);
    }

    /// A host has reached [`OutlierDetection::consecutive_5xx`] errors in a row: judges it at once,
    /// without waiting for the tick. Hosts unknown so far wait for it.
    pub fn handle_consecutive_errors(
        &mut self,
        sample: &HostSample,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        self.judge_consecutive(sample, rng, now);
    }

    /// When [`Self::handle_tick`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.started_at.saturating_add(self.config.interval);
        self.config.is_enabled().then_some(due)
    }

    /// The oldest word on a host that was not yet passed on.
    pub fn poll_signal(&mut self) -> Option<(SocketAddr, HealthSignal)> {
        self.signals.pop_front()
    }

    /// Hosts that are out now.
    pub fn ejected(&self) -> impl Iterator<Item = SocketAddr> {
        let hosts = self.hosts.iter();
        hosts
            .filter(|(_, judged)| judged.ejected_at.is_some())
            .map(|(&address, _)| address)
    }

    /// Counters, under `outlier_detection.` as in Envoy.
    pub const fn stats(&self) -> &OutlierStats {
        &self.stats
    }

    /// Takes the counts of the interval that ended.
    fn latch(&mut self, hosts: &[HostSample]) {
        let mut before = std::mem::take(&mut self.hosts);
        for sample in hosts {
            let known = before.remove(&sample.address);
            // Counters that went back are those of another host at the same address.
            let known = known.filter(|known| {
                known.latched.succeeded <= sample.totals.succeeded
                    && known.latched.failed <= sample.totals.failed
            });
            let mut judged = known.unwrap_or_default();
            judged.window = sample.totals.report(&mut judged.latched);
            self.hosts.insert(sample.address, judged);
        }
    }

    fn judge_consecutive(&mut self, sample: &HostSample, rng: &mut impl Rng, now: Instant) {
        let Some(settings) = self.config.consecutive_5xx else {
            return;
        };
        let Some(judged) = self.hosts.get_mut(&sample.address) else {
            return;
        };
        // Errors that led to an ejection do not lead to another one.
        let fresh = sample.totals.failed.saturating_sub(judged.judged_errors);
        let in_a_row = u64::from(sample.consecutive_errors).min(fresh);
        if judged.ejected_at.is_some() || in_a_row < u64::from(settings.threshold) {
            return;
        }
        judged.judged_errors = sample.totals.failed;
        let percent = settings.enforcement_percentage;
        self.eject(
            sample.address,
            (Algorithm::Consecutive5xx, percent),
            rng,
            now,
        );
    }

    fn judge_success_rate(&mut self, rng: &mut impl Rng, now: Instant) {
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
                self.eject(address, (Algorithm::SuccessRate, percent), rng, now);
            }
        }
    }

    fn judge_failure_percentage(&mut self, rng: &mut impl Rng, now: Instant) {
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
                self.eject(address, (Algorithm::FailurePercentage, percent), rng, now);
            }
        }
    }

    /// Success rates, percent, of hosts that are in and ended at least `volume` requests.
    #[expect(clippy::cast_precision_loss, reason = "requests of one interval")]
    fn success_rates(&self, volume: u32) -> Vec<(SocketAddr, f64)> {
        let judged = self
            .hosts
            .iter()
            .filter(|(_, host)| host.ejected_at.is_none());
        let rates = judged.filter_map(|(&address, host)| {
            let ended = host.window.succeeded + host.window.failed;
            // A host without requests has no rate, whatever the settings.
            (ended >= u64::from(volume.max(1)))
                .then(|| (address, 100.0 * host.window.succeeded as f64 / ended as f64))
        });
        rates.collect()
    }

    /// Ejects the host if there is room and the draw agrees.
    fn eject(
        &mut self,
        address: SocketAddr,
        (algorithm, enforcement_percentage): (Algorithm, u32),
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
        let Some(judged) = self.hosts.get_mut(&address).filter(|_| drawn) else {
            return;
        };
        judged.ejected_at = Some(now);
        // A longer one would not last longer, only be forgiven later.
        if self.config.ejection_time(judged.multiplier) < self.config.max_ejection_time {
            judged.multiplier += 1;
        }
        enforced.increment();
        stats.ejections_enforced_total.increment();
        self.signals
            .push_back((address, HealthSignal::OutlierEjected));
    }

    /// Whether one more may be ejected.
    fn has_room(&self) -> bool {
        let out = self.ejected().count();
        let allowed = self.hosts.len() * self.config.max_ejection_percent as usize;
        (out + 1) * 100 <= allowed || (self.config.always_eject_one_host && out == 0)
    }

    /// Lets back who was out for long enough; who is in is forgiven one ejection per interval.
    fn forgive(&mut self, now: Instant) {
        for (&address, judged) in &mut self.hosts {
            let Some(since) = judged.ejected_at else {
                judged.multiplier = judged.multiplier.saturating_sub(1);
                continue;
            };
            let term = self.config.ejection_time(judged.multiplier);
            if now.saturating_duration_since(since) >= term {
                judged.ejected_at = None;
                // What failed while it was out is no reason to send it out again.
                judged.judged_errors = judged.latched.failed;
                self.signals
                    .push_back((address, HealthSignal::OutlierReturned));
            }
        }
    }
}

impl OutlierDetection {
    /// How long an ejection lasts.
    fn ejection_time(&self, multiplier: u32) -> Duration {
        self.base_ejection_time
            .saturating_mul(multiplier)
            .min(self.max_ejection_time)
    }
}

/// Of the whole population, as Envoy computes it.
#[expect(clippy::cast_precision_loss, reason = "hosts of one cluster")]
fn mean_and_stdev(rates: &[(SocketAddr, f64)]) -> (f64, f64) {
    let count = rates.len() as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let squares = rates.iter().map(|(_, rate)| (rate - mean).powi(2));
    (mean, (squares.sum::<f64>() / count).sqrt())
}

#[cfg(test)]
mod tests;
