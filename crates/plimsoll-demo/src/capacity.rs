//! Capacity model of a backend, without a clock. [`Queue`] is a single-server FIFO queue: latency
//! rises with utilization because requests wait, and requests that would wait too long are
//! rejected. [`Meter`] computes the requested share of the capacity, which may exceed 1.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum time in the queue; requests that would wait longer are rejected.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(500);

/// FIFO queue of one server. `now` is the time since any fixed moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    busy_until: Duration,
}

impl Queue {
    /// Enqueues `work` and returns the time until it is done; `None` if it is rejected.
    pub(crate) fn offer(&mut self, work: Duration, now: Duration) -> Option<Duration> {
        let start = self.busy_until.max(now);
        if start - now > MAX_WAIT {
            return None;
        }
        self.busy_until = start + work;
        Some(self.busy_until - now)
    }
}

pub(crate) const SAMPLES: usize = 10;

/// Requested work during the last samples, as a share of the backend's capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    totals: VecDeque<(f64, Duration)>,
}

impl Meter {
    /// Adds a sample of the total work so far, in seconds; returns the share over the window.
    pub(crate) fn sample(&mut self, total: f64, now: Duration) -> f64 {
        if self.totals.len() > SAMPLES {
            self.totals.pop_front();
        }
        self.totals.push_back((total, now));
        let Some((first, since)) = self.totals.front() else {
            return 0.0;
        };
        let passed = (now - *since).as_secs_f64();
        if passed > 0.0 {
            (total - first) / passed
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn work_waits_for_the_work_before_it() {
        let mut queue = Queue::default();
        assert_eq!(queue.offer(20 * MS, 100 * MS), Some(20 * MS));
        assert_eq!(queue.offer(20 * MS, 110 * MS), Some(30 * MS));
        assert_eq!(
            queue.offer(20 * MS, 200 * MS),
            Some(20 * MS),
            "idle in between"
        );
    }

    #[test]
    fn work_that_would_wait_too_long_is_rejected() {
        let mut queue = Queue::default();
        let taken = (0..100)
            .filter(|_| queue.offer(20 * MS, MS).is_some())
            .count();
        assert_eq!(taken, 26);
        let later = 1 * MS + 40 * MS;
        assert_eq!(queue.offer(20 * MS, later), Some(500 * MS));
    }

    #[test]
    fn a_meter_averages_over_its_window_and_may_exceed_one() {
        let mut meter = Meter::default();
        assert_eq!(meter.sample(0.0, Duration::ZERO), 0.0);
        for step in 1..=30_u32 {
            let shown = meter.sample(0.06 * f64::from(step), 100 * step * MS);
            assert!((shown - 0.6).abs() < 1e-9, "{shown}");
        }
        let mut last = 0.0;
        for step in 31..=45_u32 {
            let total = 1.8 + 0.12 * f64::from(step - 30);
            last = meter.sample(total, 100 * step * MS);
        }
        assert!((last - 1.2).abs() < 1e-9, "{last}");
    }
}
