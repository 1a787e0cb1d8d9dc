//! [`SmoothedRate`]: one zone's demand, followed with a time constant (decisions D1).
//!
//! What is smoothed is always the sum over a zone. Reports of different proxies never meet in an
//! average: that yields some mean per proxy that depends on who reports last (envoy-semantics §10,
//! problem 3). Sums are made in `aggregate`; what follows from them is decided in `grain`.

use std::time::Duration;

use crate::time::Instant;

/// Below this many requests per second a zone that went silent counts as a zero. An exponential
/// never gets there by itself, and the shares of a demand that is long gone would last for ever.
pub(super) const NEGLIGIBLE: f64 = 1e-3;

/// A value that approaches its target: `target + (value − target)·exp(−dt/tau)`, which is the step
/// `alpha = 1 − exp(−dt/tau)` however the time is cut into pieces.
///
/// The target holds from the moment it is set until the next one. So the value depends on reports
/// and their times alone, not on how often or how punctually somebody asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SmoothedRate {
    target: f64,
    value: f64,
    at: Instant,
    /// Until then the target is taken as it is; see [`SmoothedRate::new`].
    raw_until: Instant,
}

impl SmoothedRate {
    /// Begins with the first report of a zone, raw until one reporting `interval` has passed.
    ///
    /// The sum of a zone is complete only when each of its proxies has reported once. Proxies
    /// report at their own phase, so the sum climbs during the first interval from one proxy's rate
    /// to that of all. A smoothed value would start at the first proxy's rate and need several
    /// `tau` to forget it.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            target: 0.0,
            value: 0.0,
            at: now,
            raw_until: now.saturating_add(interval),
        }
    }

    /// Another proxy turned up that reports at `interval`: the first round ends when it has
    /// reported, unless the round is over.
    pub(super) fn extend(&mut self, first_report: Instant, interval: Duration, now: Instant) {
        if self.is_raw(now) {
            self.raw_until = self.raw_until.max(first_report.saturating_add(interval));
        }
    }

    /// The sum is `target` from now on.
    pub(super) fn set(&mut self, target: f64, tau: Duration, now: Instant) {
        self.value = self.at(tau, now);
        self.at = self.at.max(now);
        self.target = target;
    }

    /// The smoothed value at `now`.
    pub(super) fn at(&self, tau: Duration, now: Instant) -> f64 {
        if self.is_raw(self.at) {
            // Raw when last looked at, and nothing has changed since: there is nothing to approach.
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

    /// Where the value is going.
    pub(super) const fn target(&self) -> f64 {
        self.target
    }

    fn is_raw(&self, now: Instant) -> bool {
        now < self.raw_until
    }
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

    fn settled(rate: f64) -> SmoothedRate {
        let mut smoothed = SmoothedRate::new(INTERVAL, at(0));
        smoothed.set(rate, TAU, at(0));
        smoothed.set(rate, TAU, at(100));
        smoothed
    }

    #[test]
    fn the_first_value_is_raw_and_so_is_the_first_interval() {
        let mut smoothed = SmoothedRate::new(INTERVAL, at(0));
        smoothed.set(10.0, TAU, at(0));
        assert_eq!(smoothed.at(TAU, at(0)), 10.0);
        smoothed.set(30.0, TAU, at(4));
        assert_eq!(smoothed.at(TAU, at(4)), 30.0, "the second proxy of three");
        smoothed.set(60.0, TAU, at(9));
        assert_eq!(smoothed.at(TAU, at(9)), 60.0);
        assert_eq!(smoothed.at(TAU, at(50)), 60.0);
        smoothed.set(160.0, TAU, at(50));
        assert_eq!(smoothed.at(TAU, at(50)), 60.0, "from now on it is smoothed");
    }

    #[test]
    fn a_step_is_followed_as_the_exponential_says() {
        let mut smoothed = settled(100.0);
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
    fn how_often_one_looks_changes_nothing() {
        let mut rarely = settled(100.0);
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
        let mut smoothed = settled(100.0);
        smoothed.set(0.0, TAU, at(100));
        assert!(smoothed.at(TAU, at(200)) > NEGLIGIBLE);
        // 20 s · ln(100 / 0.001) = 230 s.
        assert_eq!(smoothed.at(TAU, at(331)), 0.0);
        let mut trickle = settled(100.0);
        trickle.set(1e-4, TAU, at(100));
        assert!(trickle.at(TAU, at(10_000)) > 0.0, "little is not nothing");
    }

    #[test]
    fn slower_proxies_prolong_the_first_round_only_while_it_lasts() {
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
    fn time_that_stands_still_moves_nothing() {
        let mut smoothed = settled(100.0);
        smoothed.set(500.0, TAU, at(100));
        smoothed.set(900.0, TAU, at(100));
        assert_eq!(smoothed.at(TAU, at(100)), 100.0);
        assert_eq!(smoothed.at(TAU, at(40)), 100.0);
    }
}
