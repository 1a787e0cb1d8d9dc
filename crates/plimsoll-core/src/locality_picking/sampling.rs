//! Locality sampling: independent draws (Envoy) or an even sequence (decision 0012).
//!
//! Independent draws cost several percent of evenness at a few hundred requests per second. The
//! even sampler walks a golden-ratio sequence from a random start: any share of requests lands in
//! any interval in proportion, with an error of one request instead of the square root of their
//! number, and without a period. Each worker has its own sampler.

use crate::model::cluster::LocalitySampling;
use crate::rng::{GOLDEN_STEP, Rng};

/// Turns draws into localities for one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalitySampler {
    /// One independent draw per decision.
    Random,
    /// One position of the golden-ratio sequence per request.
    LowDiscrepancy {
        /// The last position, as a fraction of 2^64.
        position: u64,
    },
}

impl LocalitySampler {
    /// Creates a sampler. The even one starts at a random position, so that workers do not run in
    /// step.
    pub fn new(kind: LocalitySampling, rng: &mut impl Rng) -> Self {
        match kind {
            LocalitySampling::Random => Self::Random,
            LocalitySampling::LowDiscrepancy => Self::LowDiscrepancy {
                position: rng.next_u64(),
            },
        }
    }

    /// Whether this sampler is of `kind`.
    pub const fn is(&self, kind: LocalitySampling) -> bool {
        matches!(
            (self, kind),
            (Self::Random, LocalitySampling::Random)
                | (
                    Self::LowDiscrepancy { .. },
                    LocalitySampling::LowDiscrepancy
                )
        )
    }

    /// Returns the next position of the even sequence.
    #[inline]
    pub(crate) fn advance(position: &mut u64) -> u64 {
        *position = position.wrapping_add(GOLDEN_STEP);
        *position
    }
}

/// Scales a fraction of 2^64 to `0..range`.
#[inline]
pub(crate) fn scale(fraction: u64, range: u64) -> u64 {
    ((u128::from(fraction) * u128::from(range)) >> 64) as u64
}

/// Stretches the part of `fraction` (of 2^64) above `threshold` of `range` to a fraction of 2^64:
/// the rest of a position after a first split at `threshold`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a remainder below 2^64 by construction"
)]
pub(crate) fn remainder(fraction: u64, threshold: u64, range: u64) -> u64 {
    debug_assert!(threshold < range, "the threshold must leave a remainder");
    let above = u128::from(fraction) * u128::from(range) - (u128::from(threshold) << 64);
    (above / u128::from(range - threshold)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Xoshiro256;

    #[test]
    fn the_even_sequence_keeps_any_share_to_one_request() {
        let mut position = 12_345_678_901_234_567;
        let mut local = 0_i64;
        for request in 1..=10_000_i64 {
            local += i64::from(scale(LocalitySampler::advance(&mut position), 10_000) < 6_250);
            let error = (local * 10_000 - request * 6_250).abs();
            assert!(
                error <= 3 * 10_000,
                "after {request} requests: off by {error} bp·requests"
            );
        }
    }

    #[test]
    fn the_even_sequence_has_no_small_period() {
        let mut position = 0;
        let choices: Vec<bool> = (0..4_096)
            .map(|_| scale(LocalitySampler::advance(&mut position), 10_000) < 5_000)
            .collect();
        for period in 1..=64 {
            let repeats = choices.iter().zip(&choices[period..]).all(|(a, b)| a == b);
            assert!(!repeats, "period {period}");
        }
    }

    #[test]
    fn a_split_position_spreads_over_what_is_left() {
        assert_eq!(remainder(u64::MAX, 0, 10_000) >> 60, 15);
        let just_above = (u64::MAX / 10_000) * 6_000 + 10_000;
        assert!(remainder(just_above, 6_000, 10_000) < u64::MAX / 1_000);
        assert!(remainder(u64::MAX, 6_000, 10_000) > u64::MAX - u64::MAX / 1_000);
    }

    #[test]
    fn workers_start_apart() {
        let mut rng = Xoshiro256::from_seed(3);
        let one = LocalitySampler::new(LocalitySampling::LowDiscrepancy, &mut rng);
        let other = LocalitySampler::new(LocalitySampling::LowDiscrepancy, &mut rng);
        assert_ne!(one, other);
        assert!(one.is(LocalitySampling::LowDiscrepancy) && !one.is(LocalitySampling::Random));
    }
}
