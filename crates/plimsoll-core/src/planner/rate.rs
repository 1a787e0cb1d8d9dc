//! [`Rate`]: the request rate of one report, as an exact number.

use super::config::PLAUSIBLE_INTERVAL;
use super::event::IgnoreReason;
use crate::model::load_report::ClusterStats;

/// Highest request rate that a single process can plausibly report, in requests per second. The
/// fastest proxies reach a few million.
pub(super) const MAX_PLAUSIBLE_RATE: f64 = 1e7;

/// Millionths of a request per second. An integer, so that sums kept for months stay exact, and a
/// zone whose proxies are all idle is exactly zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate(u128);

impl Rate {
    pub(super) const ZERO: Self = Self(0);
    #[cfg(test)]
    pub(super) const MILLIONTH: Self = Self(1);
    const PER_UNIT: f64 = 1e6;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and MAX_PLAUSIBLE_RATE"
    )]
    pub(super) fn from_stats(stats: &ClusterStats) -> Result<Self, IgnoreReason> {
        if stats.load_report_interval < *PLAUSIBLE_INTERVAL.start() {
            return Err(IgnoreReason::ImplausibleInterval);
        }
        match stats.demand_per_second() {
            Some(rate) if (0.0..=MAX_PLAUSIBLE_RATE).contains(&rate) => {
                Ok(Self((rate * Self::PER_UNIT).round() as u128))
            }
            _ => Err(IgnoreReason::ImplausibleRate),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are precise enough for a rate"
    )]
    pub(super) fn per_second(self) -> f64 {
        self.0 as f64 / Self::PER_UNIT
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 += other.0;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        // Cannot underflow: each change subtracts what an earlier one added.
        self.0 = self.0.saturating_sub(other.0);
    }

    pub(super) const fn times(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor as u128))
    }

    /// Returns `self · part / whole`, rounded down. Rates are below 2^64 and so is the product of
    /// two of them below 2^128: a node reports at most [`MAX_PLAUSIBLE_RATE`] for each of a few
    /// thousand clusters.
    pub(super) fn scaled(self, part: Self, whole: Self) -> Self {
        match self.0.saturating_mul(part.0).checked_div(whole.0) {
            Some(scaled) => Self(scaled),
            None => Self::ZERO,
        }
    }

    /// Rounds up to five significant bits, by at most a sixteenth.
    pub(super) const fn rounded_up(self) -> Self {
        let dropped = (u128::BITS - self.0.leading_zeros()).saturating_sub(5);
        let step = (1_u128 << dropped) - 1;
        Self(self.0.saturating_add(step) & !step)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stats(dropped: u64, seconds: u64) -> ClusterStats {
        ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: Vec::new(),
            total_dropped_requests: dropped,
            load_report_interval: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn ten_million_requests_a_second_are_plausible_and_more_are_not() {
        let rate = Rate::from_stats(&stats(10_000_000, 1)).unwrap();
        assert!((rate.per_second() - 1e7).abs() < 1e-6);
        let more = Rate::from_stats(&stats(10_000_001, 1));
        assert_eq!(more, Err(IgnoreReason::ImplausibleRate));
    }

    #[test]
    fn sums_stay_exact() {
        let mut sum = Rate::default();
        let third = Rate::from_stats(&stats(1, 3)).unwrap();
        let tenth = Rate::from_stats(&stats(1, 10)).unwrap();
        for _ in 0..1000 {
            sum.add(third);
            sum.add(tenth);
            sum.subtract(third);
        }
        assert_eq!(sum, Rate(100_000_000));
        (0..1000).for_each(|_| sum.subtract(tenth));
        assert_eq!(sum, Rate::default());
    }

    #[test]
    fn scaling_rounds_down_and_nothing_is_scaled_to_nothing() {
        assert_eq!(Rate(10).scaled(Rate(1), Rate(3)), Rate(3));
        assert_eq!(Rate(10).scaled(Rate(3), Rate(3)), Rate(10));
        assert_eq!(Rate(0).scaled(Rate(3), Rate(0)), Rate::ZERO);
        assert_eq!(Rate(7).times(3), Rate(21));
    }

    #[test]
    fn rounding_up_keeps_five_bits() {
        for exact in [0, 1, 16, 31, 32, 34, 1 << 40] {
            assert_eq!(Rate(exact).rounded_up(), Rate(exact));
        }
        assert_eq!(Rate(33).rounded_up(), Rate(34));
        assert_eq!(Rate(63).rounded_up(), Rate(64));
        assert_eq!(Rate(1001).rounded_up(), Rate(1024));
        for rate in 1..100_000 {
            let rounded = Rate(rate).rounded_up().0;
            assert!(
                rounded >= rate && rounded <= rate + rate / 16,
                "{rate}: {rounded}"
            );
        }
    }
}
