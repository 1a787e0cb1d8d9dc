//! [`Histogram`] of latencies in logarithmic buckets of about 9 %, so that percentiles of millions
//! of requests fit in half a kilobyte.

use crate::num;

/// Buckets per doubling of latency.
const STEPS: u64 = 8;
/// Logarithm of the lowest bucket: 2^16 ns, 66 µs. Shorter latencies are counted there.
const LOWEST: u32 = 16;
/// Logarithm of the highest bucket: 2^36 ns, 69 s. Longer latencies are counted there.
const HIGHEST: u32 = 36;
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const LENGTH: usize = (HIGHEST - LOWEST) as usize * STEPS as usize;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram {
    counts: Box<[u32; LENGTH]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; LENGTH]),
        }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, nanos: u64) {
        let clamped = nanos.clamp(1 << LOWEST, (1 << HIGHEST) - 1);
        let octave = clamped.ilog2();
        // The three bits below the leading one.
        let step = (clamped >> (octave - 3)) % STEPS;
        let place = u64::from(octave - LOWEST) * STEPS + step;
        self.counts[num::slot(place, 1)] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts.iter()) {
            *sum += count;
        }
    }

    /// Returns the latency in nanoseconds at a quantile; `None` if the histogram is empty.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        if total == 0 {
            return None;
        }
        let wanted = (share * total as f64).max(1.0);
        let mut seen = 0.0;
        for (place, &count) in self.counts.iter().enumerate() {
            seen += f64::from(count);
            if seen >= wanted {
                return Some(middle(place));
            }
        }
        Some(middle(LENGTH - 1))
    }
}

/// Returns the middle of a bucket, in nanoseconds.
fn middle(place: usize) -> f64 {
    let (octave, step) = (place as u64 / STEPS, place as u64 % STEPS);
    let base = (1_u64 << (u64::from(LOWEST) + octave)) as f64;
    base * (1.0 + (step as f64 + 0.5) / STEPS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut histogram = Histogram::default();
        for millis in 1..=1000_u64 {
            histogram.add(millis * 1_000_000);
        }
        for (share, millis) in [(0.5, 500.0), (0.99, 990.0), (0.01, 10.0)] {
            let found = histogram.quantile(share).unwrap() / 1e6;
            assert!((found / millis - 1.0).abs() < 0.07, "{share}: {found} ms");
        }
    }

    #[test]
    fn extremes_are_clamped_and_an_empty_histogram_has_no_quantile() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(0);
        histogram.add(u64::MAX);
        assert!(histogram.quantile(0.5).unwrap() < 1e5);
        assert!(histogram.quantile(1.0).unwrap() > 6e10);
    }

    #[test]
    fn merging_adds_up() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        (0..99).for_each(|_| one.add(1_000_000));
        two.add(1_000_000_000);
        one.merge(&two);
        assert!(one.quantile(0.98).unwrap() < 1.1e6);
        assert!(one.quantile(1.0).unwrap() > 9e8);
    }
}
