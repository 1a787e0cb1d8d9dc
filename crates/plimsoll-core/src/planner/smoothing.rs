//! [`SmoothedRate`]: exponential smoothing of one zone's demand (decision 0022). [`follow`] smooths
//! where requests of one node go, which is only shown.
//!
//! Only the sum over a zone is smoothed. Averaging the reports of different proxies would yield a
//! mean per proxy that depends on which one reports last (envoy-semantics §10, problem 3).
//! `aggregate` provides the sums; `scope` decides what follows from them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::locality::Locality;
use crate::time::Instant;

/// Requests per second below which the demand of a zone that went silent is zero. An exponential
/// never reaches zero by itself, and the shares of demand that is long gone would last forever.
pub(super) const NEGLIGIBLE: f64 = 1e-3;
/// Most destinations that are still shown although the latest report does not name them. Names come
/// from the network: a node that reports other ones each time must not fill the memory.
const MAX_LINGERING: usize = 64;

/// A value that approaches its target: `target + (value − target)·exp(−dt/tau)`, which is the step
/// `alpha = 1 − exp(−dt/tau)` however the time is divided.
/// The target holds from the moment it is set until the next one. The value therefore depends only
/// on reports and their times, not on how often it is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SmoothedRate {
    target: f64,
    value: f64,
    at: Instant,
    /// Before this time the value equals the target; see [`SmoothedRate::new`].
    raw_until: Instant,
}

impl SmoothedRate {
    /// Starts at the first report of a zone, unsmoothed until one reporting `interval` has passed:
    /// during it the sum climbs from one proxy's rate to that of all, and a smoothed value would
    /// need several `tau` to forget the first.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            target: 0.0,
            value: 0.0,
            at: now,
            raw_until: now.saturating_add(interval),
        }
    }

    /// Extends the unsmoothed period, unless over, for another proxy that reports at `interval`.
    pub(super) fn extend(&mut self, first_report: Instant, interval: Duration, now: Instant) {
        if self.is_raw(now) {
            self.raw_until = self.raw_until.max(first_report.saturating_add(interval));
        }
    }

    pub(super) fn set(&mut self, target: f64, tau: Duration, now: Instant) {
        self.value = self.at(tau, now);
        self.at = self.at.max(now);
        self.target = target;
    }

    /// Continues from another value, smoothed from now on.
    pub(super) fn continue_from(&mut self, value: f64, now: Instant) {
        self.value = value;
        self.at = self.at.max(now);
        self.raw_until = self.raw_until.min(now);
    }

    pub(super) fn at(&self, tau: Duration, now: Instant) -> f64 {
        if self.is_raw(self.at) {
            // The value was unsmoothed at the last update, with no newer target: it is its target.
            return self.target;
        }
        let dt = now.saturating_duration_since(self.at).as_secs_f64();
        let kept = (-dt / tau.as_secs_f64()).exp();
        let value = self.target + (self.value - self.target) * kept;
        if self.target == 0.0 && value < NEGLIGIBLE {
            return 0.0;
        }
        value
    }

    pub(super) const fn target(&self) -> f64 {
        self.target
    }

    fn is_raw(&self, now: Instant) -> bool {
        now < self.raw_until
    }
}

/// Moves the rates per destination that are shown of a node towards those of its latest report, so
/// that pages and metrics follow a few reports instead of the noise of the last one. A report
/// covers `covered` of the time constant `tau`. One without requests ends the old rates at once: an
/// idle node may not report again, and they would stay.
pub(super) fn follow(
    shown: &[(Locality, f64)],
    latest: Vec<(Locality, f64)>,
    covered: Duration,
    tau: Duration,
) -> Vec<(Locality, f64)> {
    if latest.iter().all(|(_, rate)| *rate <= 0.0) {
        return latest;
    }
    let kept = (-covered.as_secs_f64() / tau.as_secs_f64()).exp();
    let mut rates: BTreeMap<Locality, f64> = BTreeMap::new();
    for (locality, rate) in latest {
        *rates.entry(locality).or_default() += rate * (1.0 - kept);
    }
    let most = rates.len() + MAX_LINGERING;
    for (locality, rate) in shown {
        let rest = rate * kept;
        if let Some(rate) = rates.get_mut(locality) {
            *rate += rest;
        } else if rest >= NEGLIGIBLE && rates.len() < most {
            rates.insert(locality.clone(), rest);
        }
    }
    rates.into_iter().collect()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact where nothing is smoothed")]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(20);
    const INTERVAL: Duration = Duration::from_secs(10);

    const fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    fn converged(rate: f64) -> SmoothedRate {
        let mut smoothed = SmoothedRate::new(INTERVAL, at(0));
        smoothed.set(rate, TAU, at(0));
        smoothed.set(rate, TAU, at(100));
        smoothed
    }

    #[test]
    fn the_first_interval_is_not_smoothed() {
        let mut smoothed = SmoothedRate::new(INTERVAL, at(0));
        smoothed.set(10.0, TAU, at(0));
        assert_eq!(smoothed.at(TAU, at(0)), 10.0);
        smoothed.set(30.0, TAU, at(4));
        assert_eq!(smoothed.at(TAU, at(4)), 30.0, "the second of three proxies");
        smoothed.set(60.0, TAU, at(9));
        assert_eq!(smoothed.at(TAU, at(9)), 60.0);
        assert_eq!(smoothed.at(TAU, at(50)), 60.0);
        smoothed.set(160.0, TAU, at(50));
        assert_eq!(
            smoothed.at(TAU, at(50)),
            60.0,
            "smoothed after the first interval"
        );
    }

    #[test]
    fn a_step_is_followed_exponentially() {
        let mut smoothed = converged(100.0);
        smoothed.set(200.0, TAU, at(100));
        for secs in [0_u32, 1, 10, 20, 40, 100] {
            let expected = 200.0 - 100.0 * (f64::from(secs) / -20.0).exp();
            let value = smoothed.at(TAU, at(100 + u64::from(secs)));
            assert!(
                (value - expected).abs() < 1e-9,
                "{secs} s: {value} for {expected}"
            );
        }
    }

    #[test]
    fn the_value_does_not_depend_on_how_often_it_is_read() {
        let mut rarely = converged(100.0);
        rarely.set(300.0, TAU, at(100));
        let mut often = rarely.clone();
        for secs in 101..130 {
            often.set(300.0, TAU, at(secs));
        }
        let (rarely, often) = (rarely.at(TAU, at(130)), often.at(TAU, at(130)));
        assert!((rarely - often).abs() < 1e-9, "{rarely} and {often}");
    }

    #[test]
    fn a_silent_zone_becomes_an_exact_zero() {
        let mut smoothed = converged(100.0);
        smoothed.set(0.0, TAU, at(100));
        assert!(smoothed.at(TAU, at(200)) > NEGLIGIBLE);
        // 20 s · ln(100 / 0.001) = 230 s.
        assert_eq!(smoothed.at(TAU, at(331)), 0.0);
        let mut trickle = converged(100.0);
        trickle.set(1e-4, TAU, at(100));
        assert!(
            trickle.at(TAU, at(10_000)) > 0.0,
            "a small rate is not zero"
        );
    }

    #[test]
    fn slower_proxies_extend_the_unsmoothed_period_only_while_it_lasts() {
        let slow = Duration::from_secs(30);
        let mut smoothed = SmoothedRate::new(INTERVAL, at(0));
        smoothed.set(10.0, TAU, at(0));
        smoothed.extend(at(0), slow, at(5));
        smoothed.set(40.0, TAU, at(25));
        assert_eq!(smoothed.at(TAU, at(25)), 40.0);
        smoothed.extend(at(0), Duration::from_secs(60), at(31));
        smoothed.set(80.0, TAU, at(31));
        assert_eq!(smoothed.at(TAU, at(31)), 40.0);
    }

    #[test]
    fn nothing_changes_while_time_stands_still() {
        let mut smoothed = converged(100.0);
        smoothed.set(500.0, TAU, at(100));
        smoothed.set(900.0, TAU, at(100));
        assert_eq!(smoothed.at(TAU, at(100)), 100.0);
        assert_eq!(smoothed.at(TAU, at(40)), 100.0);
    }

    fn sent(rates: &[(&str, f64)]) -> Vec<(Locality, f64)> {
        let rate = |(zone, rate): &(&str, f64)| (Locality::zone_only(zone), *rate);
        rates.iter().map(rate).collect()
    }

    #[test]
    fn shown_rates_follow_a_few_reports() {
        let step = |shown: &[(Locality, f64)], latest: &[(&str, f64)]| {
            follow(shown, sent(latest), INTERVAL, TAU)
        };
        let before = sent(&[("a", 100.0), ("b", 50.0)]);
        let alpha = 1.0 - (-INTERVAL.as_secs_f64() / TAU.as_secs_f64()).exp();
        let shown = step(&before, &[("a", 200.0), ("c", 10.0)]);
        let expected = [100.0 + 100.0 * alpha, 50.0 * (1.0 - alpha), 10.0 * alpha];
        for ((_, rate), expected) in shown.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-9, "{shown:?}");
        }
        assert_eq!(shown.len(), 3);
        // It converges, and a destination that gets nothing any more is dropped.
        let mut shown = before;
        for _ in 0..200 {
            shown = step(&shown, &[("a", 200.0)]);
        }
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!((shown[0].1 - 200.0).abs() < 1e-6, "{shown:?}");
    }

    #[test]
    fn few_destinations_linger() {
        let mut shown = Vec::new();
        for number in 0..1000 {
            let latest = vec![(Locality::zone_only(&format!("z{number}")), 1e9)];
            shown = follow(&shown, latest, Duration::from_millis(100), TAU);
            assert!(shown.len() <= MAX_LINGERING + 1);
        }
    }

    #[test]
    fn a_report_without_requests_ends_shown_rates() {
        let before = sent(&[("a", 100.0), ("b", 50.0)]);
        for latest in [sent(&[]), sent(&[("a", 0.0)])] {
            assert_eq!(follow(&before, latest.clone(), INTERVAL, TAU), latest);
        }
    }
}
