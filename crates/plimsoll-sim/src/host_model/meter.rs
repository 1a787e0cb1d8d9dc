//! [`Meter`]: how a host measures its own rate, over a sliding window.

use crate::num;

/// Parts of a window; a rate is exact to a part of this size.
const PARTS: u64 = 16;
/// The window and one part more.
const LENGTH: usize = 17;

/// Requests of the last window.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// Length of one part.
    part: u64,
    /// Requests per part, by part number modulo the length: the window and one part more.
    counts: [u32; LENGTH],
    /// Newest part seen.
    newest: u64,
}

impl Meter {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            part: (window / PARTS).max(1),
            counts: [0; LENGTH],
            newest: 0,
        }
    }

    /// Counts a request that arrived at a moment.
    pub(crate) fn add(&mut self, at: u64) {
        let part = at / self.part;
        self.advance(part);
        if self.newest - part <= PARTS {
            self.counts[Self::place(part)] += 1;
        }
    }

    /// Requests per second over the window that ends at a moment. Before the first window is over,
    /// the time before the start counts as idle, as a real meter's would.
    pub(crate) fn rate(&mut self, at: u64) -> f64 {
        self.advance(at / self.part);
        // The window begins inside its oldest part; what is outside is taken to be evenly spread.
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
    fn a_steady_rate_is_measured_whatever_the_window() {
        for window in [SECOND * 3 / 10, SECOND, 10 * SECOND] {
            let mut meter = Meter::new(window);
            for request in 0..20_000_u64 {
                meter.add(request * SECOND / 1_000);
            }
            let rate = meter.rate(20 * SECOND);
            assert!((rate - 1_000.0).abs() < 5.0, "{rate} over {window} ns");
        }
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut meter = Meter::new(SECOND);
        (0..100).for_each(|_| meter.add(SECOND / 2));
        assert_eq!(meter.rate(SECOND / 2), 100.0);
        assert_eq!(meter.rate(SECOND), 100.0);
        assert_eq!(meter.rate(2 * SECOND), 0.0);
        assert_eq!(meter.rate(1_000 * SECOND), 0.0);
    }

    #[test]
    fn a_step_arrives_after_one_window() {
        let mut meter = Meter::new(2 * SECOND);
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
    fn a_request_from_the_recent_past_still_counts() {
        let mut meter = Meter::new(SECOND);
        meter.add(5 * SECOND);
        meter.add(5 * SECOND - SECOND / 4);
        meter.add(2 * SECOND);
        assert_eq!(meter.rate(5 * SECOND), 2.0);
    }
}
