//! Random numbers of the model: uniform, exponential and normal draws from the core's generator.
//!
//! Each use has its own stream, identified by a purpose and a number, so that all policies see the
//! same arrivals, and an added draw in one place does not affect another.

use plimsoll_core::rng::{Rng as _, Xoshiro256, splitmix64 as mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Arrivals = 1,
    Picks = 2,
    /// Start time of a proxy, and the phases of its timers.
    Start = 3,
    Service = 4,
    Reports = 5,
    /// Which requests to failing hosts fail.
    Failures = 6,
    /// Outlier detection of a proxy.
    Outliers = 7,
}

/// Creates the generator for one purpose and one number.
pub(crate) fn stream(seed: u64, purpose: Purpose, number: usize) -> Xoshiro256 {
    let mixed = mix(seed ^ mix((purpose as u64) << 56 ^ number as u64));
    Xoshiro256::from_seed(mixed)
}

/// Draws uniformly from 0.0..1.0.
pub(crate) fn uniform(rng: &mut Xoshiro256) -> f64 {
    // A double has 53 bits of precision.
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws from the exponential distribution with mean 1.
pub(crate) fn exponential(rng: &mut Xoshiro256) -> f64 {
    -(1.0 - uniform(rng)).ln()
}

/// Draws approximately from the standard normal distribution: the sum of twelve uniform draws. Its
/// tails end at 6, and it needs no function whose last bit depends on the platform.
pub(crate) fn normal(rng: &mut Xoshiro256) -> f64 {
    (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..100_000).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let square = values.iter().map(|value| (value - mean).powi(2));
        (mean, square.sum::<f64>() / 1e5)
    }

    fn assert_close(found: (f64, f64), expected: (f64, f64)) {
        let (mean, variance) = found;
        assert!((mean - expected.0).abs() < 0.02, "mean {mean}");
        assert!((variance - expected.1).abs() < 0.03, "variance {variance}");
    }

    #[test]
    fn draws_have_the_expected_moments() {
        let mut rng = stream(1, Purpose::Service, 0);
        assert_close(moments(|| uniform(&mut rng)), (0.5, 1.0 / 12.0));
        assert_close(moments(|| exponential(&mut rng)), (1.0, 1.0));
        assert_close(moments(|| normal(&mut rng)), (0.0, 1.0));
    }

    #[test]
    fn streams_are_independent_and_repeatable() {
        let first = |purpose, number| stream(7, purpose, number).next_u64();
        let draws = [
            first(Purpose::Arrivals, 0),
            first(Purpose::Arrivals, 1),
            first(Purpose::Picks, 0),
            stream(8, Purpose::Arrivals, 0).next_u64(),
        ];
        for (index, draw) in draws.iter().enumerate() {
            assert!(!draws[..index].contains(draw), "stream {index}");
        }
        assert_eq!(first(Purpose::Picks, 0), draws[2]);
    }
}
