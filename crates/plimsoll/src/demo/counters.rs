//! [`Counters`]: what backends and clients of the demo have seen, and [`Rates`] over a window.
//!
//! Written by `backend` and `load`, read a few times a second by `stage`. These are the demo's own
//! eyes: they see the same traffic as the load reports, and also while nobody takes reports.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Zones.
const N: usize = super::setting::ZONES.len();
/// Buckets of latencies, four for each doubling.
const BUCKETS: usize = 52;
/// Time over which rates are taken.
const WINDOW: Duration = Duration::from_secs(4);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered.
    Served,
    /// Turned away by a backend that had too much to do.
    TurnedAway,
    /// Anything else.
    Failed,
}

/// What has been seen since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// By zone of the backend, then of the client.
    taken: [[AtomicU64; N]; N],
    /// By zone of the client, then outcome.
    ended: [[AtomicU64; 3]; N],
    latencies: Latencies,
}

#[derive(Debug)]
struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The counters at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) taken: [[u64; N]; N],
    pub(crate) ended: [[u64; 3]; N],
    latencies: [u64; BUCKETS],
}

impl Counters {
    /// A backend of zone `to` took a request of zone `from`.
    pub(crate) fn taken(&self, from: usize, to: usize) {
        if let Some(counter) = self.taken.get(to).and_then(|row| row.get(from)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request of zone `from` ended.
    pub(crate) fn ended(&self, from: usize, outcome: Outcome, latency: Duration) {
        if let Some(row) = self.ended.get(from) {
            row[outcome as usize].fetch_add(1, Ordering::Relaxed);
        }
        if outcome == Outcome::Served {
            self.latencies.0[bucket(latency)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters now.
    pub(crate) fn sample(&self) -> Sample {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sample {
            taken: std::array::from_fn(|to| {
                std::array::from_fn(|from| load(&self.taken[to][from]))
            }),
            ended: std::array::from_fn(|from| std::array::from_fn(|i| load(&self.ended[from][i]))),
            latencies: std::array::from_fn(|index| load(&self.latencies.0[index])),
        }
    }
}

impl Sample {
    /// Requests that ended so, of all zones.
    pub(crate) fn total(&self, outcome: Outcome) -> u64 {
        self.ended.iter().map(|row| row[outcome as usize]).sum()
    }
}

/// Samples of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Window {
    samples: VecDeque<(Sample, Duration)>,
}

/// What happened per second over a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Requests per second by zone of the backend, then of the client.
    pub(crate) taken: [[f64; N]; N],
    /// Requests per second turned away.
    pub(crate) turned_away: f64,
    /// Requests per second failed.
    pub(crate) failed: f64,
    /// 99 of 100 requests take at most this long.
    pub(crate) p99: Option<Duration>,
}

impl Window {
    /// Takes one more sample.
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

    /// What happened per second; nothing before there are two samples.
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
            taken: std::array::from_fn(|to| {
                std::array::from_fn(|from| rate(last.taken[to][from], first.taken[to][from]))
            }),
            turned_away: of(Outcome::TurnedAway),
            failed: of(Outcome::Failed),
            p99: p99(std::array::from_fn(|i| {
                last.latencies[i] - first.latencies[i]
            })),
        }
    }
}

impl Rates {
    /// Requests per second that backends of a zone take.
    pub(crate) fn served(&self, zone: usize) -> f64 {
        self.taken[zone].iter().sum()
    }

    /// Requests per second that arrive in a zone, as far as backends see them.
    pub(crate) fn issued(&self, zone: usize) -> f64 {
        self.taken.iter().map(|row| row[zone]).sum()
    }

    /// All of them.
    pub(crate) fn total(&self) -> f64 {
        self.taken.iter().flatten().sum()
    }

    /// Share of a zone's requests that stay.
    pub(crate) fn kept_local(&self, zone: usize) -> Option<f64> {
        let issued = self.issued(zone);
        (issued > 0.0).then(|| self.taken[zone][zone] / issued)
    }

    /// Share of all requests that leave their zone.
    pub(crate) fn crossing(&self) -> Option<f64> {
        let total = self.total();
        let kept: f64 = (0..N).map(|zone| self.taken[zone][zone]).sum();
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
    reason = "at least 0, and the last bucket takes the rest"
)]
fn bucket(latency: Duration) -> usize {
    let doublings = (latency.as_secs_f64() * 1000.0 + 1.0).log2();
    ((doublings * 4.0) as usize).min(BUCKETS - 1)
}

/// The upper end of a bucket.
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
    fn rates_are_taken_over_the_window_and_forget_what_is_older() {
        let (counters, mut window) = (Counters::default(), Window::default());
        for second in 0..10 {
            window.push(counters.sample(), Duration::from_secs(second));
            let requests = if second < 5 { 100 } else { 10 };
            for _ in 0..requests {
                counters.taken(0, 1);
                counters.taken(0, 0);
                counters.ended(0, Outcome::Served, Duration::from_millis(10));
            }
            counters.ended(1, Outcome::Failed, Duration::ZERO);
        }
        let rates = window.rates();
        assert_eq!(rates.taken[1][0], 10.0);
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
            counters.ended(0, Outcome::Served, Duration::from_millis(5));
        }
        counters.ended(0, Outcome::Served, Duration::from_millis(300));
        window.push(counters.sample(), Duration::from_secs(1));
        let p99 = window.rates().p99.unwrap();
        assert!(
            p99 >= Duration::from_millis(300) && p99 < Duration::from_millis(360),
            "{p99:?}"
        );
        assert_eq!(
            bucket(Duration::from_secs(3600)),
            BUCKETS - 1,
            "the last takes the rest"
        );
    }
}
