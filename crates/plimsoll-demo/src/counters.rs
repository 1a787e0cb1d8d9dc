//! [`Counters`] of the demo's backends and clients, and [`Rates`] over a time window.
//!
//! Written by `backend` and `clients`, sampled a few times a second by `environment`. They count
//! the same traffic as the load reports, and work while the control plane is stopped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const N: usize = crate::setting::ZONES.len();
/// Number of latency buckets, four per power of two.
const BUCKETS: usize = 52;
const WINDOW: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Served,
    /// Rejected by an overloaded backend.
    Rejected,
    /// The client got any other status, or no response.
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests by zone of the backend, then zone of the client.
    received: [[AtomicU64; N]; N],
    /// Requests by zone of the client, then outcome.
    completed: [[AtomicU64; 3]; N],
    latencies: Latencies,
}

#[derive(Debug)]
struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) received: [[u64; N]; N],
    pub(crate) completed: [[u64; 3]; N],
    latencies: [u64; BUCKETS],
}

impl Counters {
    /// Counts a request of zone `from` that arrived at a backend of zone `to`.
    pub(crate) fn received(&self, from: usize, to: usize) {
        if let Some(counter) = self.received.get(to).and_then(|row| row.get(from)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn completed(&self, from: usize, outcome: Outcome, latency: Duration) {
        if let Some(row) = self.completed.get(from) {
            row[outcome as usize].fetch_add(1, Ordering::Relaxed);
        }
        if outcome == Outcome::Served {
            self.latencies.0[bucket(latency)].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn sample(&self) -> Sample {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sample {
            received: std::array::from_fn(|to| {
                std::array::from_fn(|from| load(&self.received[to][from]))
            }),
            completed: std::array::from_fn(|from| {
                std::array::from_fn(|i| load(&self.completed[from][i]))
            }),
            latencies: std::array::from_fn(|index| load(&self.latencies.0[index])),
        }
    }
}

impl Sample {
    pub(crate) fn total(&self, outcome: Outcome) -> u64 {
        self.completed.iter().map(|row| row[outcome as usize]).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Window {
    samples: VecDeque<(Sample, Duration)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Requests per second by zone of the backend, then zone of the client.
    pub(crate) received: [[f64; N]; N],
    /// Requests per second rejected by overloaded backends.
    pub(crate) rejected: f64,
    pub(crate) failed: f64,
    /// 99th percentile of the latency of served requests.
    pub(crate) p99: Option<Duration>,
}

impl Window {
    /// Adds a sample and removes samples that are older than the window.
    pub(crate) fn push(&mut self, sample: Sample, now: Duration) {
        self.samples.push_back((sample, now));
        while self
            .samples
            .get(1)
            .is_some_and(|(_, at)| now - *at >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the rates, all 0 until there are two samples.
    pub(crate) fn rates(&self) -> Rates {
        let (Some((first, since)), Some((last, until))) =
            (self.samples.front(), self.samples.back())
        else {
            return Rates::default();
        };
        let passed = (*until - *since).as_secs_f64();
        if passed <= 0.0 {
            return Rates::default();
        }
        let rate = |last: u64, first: u64| count(last - first) / passed;
        let of = |outcome| rate(last.total(outcome), first.total(outcome));
        Rates {
            received: std::array::from_fn(|to| {
                std::array::from_fn(|from| rate(last.received[to][from], first.received[to][from]))
            }),
            rejected: of(Outcome::Rejected),
            failed: of(Outcome::Failed),
            p99: p99(std::array::from_fn(|i| {
                last.latencies[i] - first.latencies[i]
            })),
        }
    }
}

impl Rates {
    /// Requests per second that arrive at backends of a zone.
    pub(crate) fn served(&self, zone: usize) -> f64 {
        self.received[zone].iter().sum()
    }

    /// Requests per second of a zone's clients that reach a backend.
    pub(crate) fn issued(&self, zone: usize) -> f64 {
        self.received.iter().map(|row| row[zone]).sum()
    }

    pub(crate) fn total(&self) -> f64 {
        self.received.iter().flatten().sum()
    }

    /// Share of a zone's requests that stay in the zone.
    pub(crate) fn kept_local(&self, zone: usize) -> Option<f64> {
        let issued = self.issued(zone);
        (issued > 0.0).then(|| self.received[zone][zone] / issued)
    }

    /// Share of all requests that go to another zone.
    pub(crate) fn crossing(&self) -> Option<f64> {
        let total = self.total();
        let kept: f64 = (0..N).map(|zone| self.received[zone][zone]).sum();
        (total > 0.0).then(|| 1.0 - kept / total)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a window are small")]
const fn count(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at least 0; the last bucket has no upper limit"
)]
fn bucket(latency: Duration) -> usize {
    let doublings = (latency.as_secs_f64() * 1000.0 + 1.0).log2();
    ((doublings * 4.0) as usize).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> Duration {
    let doublings = f64::from(u32::try_from(bucket + 1).unwrap_or(u32::MAX)) / 4.0;
    Duration::from_secs_f64((doublings.exp2() - 1.0) / 1000.0)
}

fn p99(latencies: [u64; BUCKETS]) -> Option<Duration> {
    let total: u64 = latencies.iter().sum();
    let mut left = total.div_ceil(100);
    if total == 0 {
        return None;
    }
    for (index, seen) in latencies.iter().enumerate().rev() {
        if *seen >= left {
            return Some(upper(index));
        }
        left -= seen;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_only_the_window() {
        let (counters, mut window) = (Counters::default(), Window::default());
        for second in 0..10 {
            window.push(counters.sample(), Duration::from_secs(second));
            let requests = if second < 5 { 100 } else { 10 };
            for _ in 0..requests {
                counters.received(0, 1);
                counters.received(0, 0);
                counters.completed(0, Outcome::Served, Duration::from_millis(10));
            }
            counters.completed(1, Outcome::Failed, Duration::ZERO);
        }
        let rates = window.rates();
        assert_eq!(rates.received[1][0], 10.0);
        assert_eq!(
            (rates.served(0), rates.issued(0), rates.total()),
            (10.0, 20.0, 20.0)
        );
        assert_eq!(
            (rates.kept_local(0), rates.kept_local(2)),
            (Some(0.5), None)
        );
        assert_eq!((rates.crossing(), rates.failed), (Some(0.5), 1.0));
        assert_eq!(Window::default().rates(), Rates::default());
    }

    #[test]
    fn one_slow_request_of_a_hundred_is_the_99th_percentile() {
        let (counters, mut window) = (Counters::default(), Window::default());
        window.push(counters.sample(), Duration::ZERO);
        assert_eq!(window.rates().p99, None);
        for _ in 0..99 {
            counters.completed(0, Outcome::Served, Duration::from_millis(5));
        }
        counters.completed(0, Outcome::Served, Duration::from_millis(300));
        window.push(counters.sample(), Duration::from_secs(1));
        let p99 = window.rates().p99.unwrap();
        assert!(
            p99 >= Duration::from_millis(300) && p99 < Duration::from_millis(360),
            "{p99:?}"
        );
        assert_eq!(
            bucket(Duration::from_secs(3600)),
            BUCKETS - 1,
            "the last bucket has no upper limit"
        );
    }
}
