//! [`RateMeter`]: sliding-window request rate of a host.

use crate::num;

/// Number of buckets in a window, which determines the precision of the rate.
const PARTS: u64 = 16;
/// Number of stored buckets: the window and one more.
const LENGTH: usize = 17;

#[derive(Clone, Debug)]
pub(crate) struct RateMeter {
    /// Length of one bucket.
    part: u64,
    /// Requests per bucket, indexed by bucket number modulo the length.
    counts: [u32; LENGTH],
    newest: u64,
}

impl RateMeter {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            part: (window / PARTS).max(1),
            counts: [0; LENGTH],
            newest: 0,
        }
    }

    pub(crate) fn add(&mut self, at: u64) {
        let part = at / self.part;
        self.advance(part);
        if self.newest - part <= PARTS {
            self.counts[Self::place(part)] += 1;
        }
    }

    /// Returns the requests per second over the window that ends at `at`. Before the first window
    /// is complete, the time before the start counts as idle, as with a real meter.
    pub(crate) fn rate(&mut self, at: u64) -> f64 {
        self.advance(at / self.part);
        // The window starts inside its oldest bucket, whose requests are assumed to be evenly
        // spread.
        let oldest = f64::from(self.counts[Self::place(self.newest + 1)]);
        let all: u32 = self.counts.iter().sum();
        let into = (at.max(self.newest * self.part) % self.part) as f64 / self.part as f64;
        let requests = f64::from(all) - oldest * into;
        requests / num::seconds(self.part * PARTS)
    }

    fn advance(&mut self, part: u64) {
        let gone = part.saturating_sub(self.newest).min(PARTS + 1);
        for step in 1..=gone {
            self.counts[Self::place(part - gone + step)] = 0;
        }
        self.newest = self.newest.max(part);
    }

    fn place(part: u64) -> usize {
        num::slot(part % (PARTS + 1), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = num::SECOND;

    #[test]
    fn a_steady_rate_is_measured_with_any_window() {
        for window in [SECOND * 3 / 10, SECOND, 10 * SECOND] {
            let mut meter = RateMeter::new(window);
            for request in 0..20_000_u64 {
                meter.add(request * SECOND / 1_000);
            }
            let rate = meter.rate(20 * SECOND);
            assert!((rate - 1_000.0).abs() < 5.0, "{rate} over {window} ns");
        }
    }

    #[test]
    fn requests_older_than_the_window_do_not_count() {
        let mut meter = RateMeter::new(SECOND);
        (0..100).for_each(|_| meter.add(SECOND / 2));
        assert_eq!(meter.rate(SECOND / 2), 100.0);
        assert_eq!(meter.rate(SECOND), 100.0);
        assert_eq!(meter.rate(2 * SECOND), 0.0);
        assert_eq!(meter.rate(1_000 * SECOND), 0.0);
    }

    #[test]
    fn a_step_is_fully_visible_after_one_window() {
        let mut meter = RateMeter::new(2 * SECOND);
        let mut rates = Vec::new();
        for request in 0..400_u64 {
            let at = 10 * SECOND + request * SECOND / 100;
            meter.add(at);
            if request % 100 == 99 {
                rates.push(meter.rate(at));
            }
        }
        for (rate, expected) in rates.iter().zip([50.0, 100.0, 100.0, 100.0]) {
            assert!((rate - expected).abs() < 4.0, "{rates:?}");
        }
    }

    #[test]
    fn a_late_request_within_the_window_counts() {
        let mut meter = RateMeter::new(SECOND);
        meter.add(5 * SECOND);
        meter.add(5 * SECOND - SECOND / 4);
        meter.add(2 * SECOND);
        assert_eq!(meter.rate(5 * SECOND), 2.0);
    }
}
