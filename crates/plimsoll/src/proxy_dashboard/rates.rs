//! Request rates per locality, computed from the counters of hosts. Counters are sampled when a
//! dashboard document is built: every second while a page is open, else every few for its history.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

const WINDOW: Duration = Duration::from_secs(5);
/// Minimum time between the two samples of a rate.
const MIN_AGE: Duration = Duration::from_millis(200);

/// Requests per second that the proxy sent, by locality of the host.
pub(super) type Sent = BTreeMap<Locality, f64>;

#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<Arc<str>, VecDeque<Sample>>);

/// Number of requests issued to each host.
#[derive(Debug)]
struct Sample {
    at: Instant,
    issued: BTreeMap<(Locality, SocketAddr), u64>,
}

impl Rates {
    /// Adds a sample and returns the rates; `None` if there is no earlier sample to compare with.
    pub(super) fn sent(
        &mut self,
        cluster: &Arc<str>,
        snapshot: &RoutingSnapshot,
        now: Instant,
    ) -> Option<Sent> {
        let counters = snapshot.hosts().map(|host| {
            let (issued, ..) = host.totals();
            ((host.locality().clone(), host.address()), issued)
        });
        let sample = Sample {
            at: now,
            issued: counters.collect(),
        };
        self.add(cluster, sample)
    }

    fn add(&mut self, cluster: &Arc<str>, sample: Sample) -> Option<Sent> {
        let samples = self.0.entry(Arc::clone(cluster)).or_default();
        let age = |one: &Sample| sample.at.saturating_duration_since(one.at);
        // Keep one sample that is older than the window, to compare with.
        while samples.len() > 1 && samples.get(1).is_some_and(|next| age(next) >= WINDOW) {
            samples.pop_front();
        }
        if samples.front().is_some_and(|first| age(first) > 2 * WINDOW) {
            // The samples are too old: no document was built for a while.
            samples.clear();
        }
        let first = samples.front().filter(|first| age(first) >= MIN_AGE);
        let sent = first.map(|first| {
            let seconds = age(first).as_secs_f64();
            let mut sent = Sent::new();
            for (key, issued) in &sample.issued {
                // A host that was added after the first sample started at 0.
                let before = first.issued.get(key).copied().unwrap_or(0);
                #[expect(clippy::cast_precision_loss, reason = "requests of seconds")]
                let more = issued.saturating_sub(before) as f64;
                *sent.entry(key.0.clone()).or_default() += more / seconds;
            }
            sent
        });
        samples.push_back(sample);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64, issued: &[(&str, u64)]) -> Sample {
        let entry = |(port, (zone, issued)): (u16, &(&str, u64))| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            ((Locality::new("", zone, ""), address), *issued)
        };
        Sample {
            at: Instant::from_nanos(millis * 1_000_000),
            issued: (1..).zip(issued).map(entry).collect(),
        }
    }

    fn rate(sent: Option<&Sent>, zone: &str) -> Option<f64> {
        sent?.get(&Locality::new("", zone, "")).copied()
    }

    #[test]
    fn rates_cover_the_window() {
        let mut rates = Rates::default();
        let cluster: Arc<str> = "orders".into();
        assert_eq!(
            rates.add(&cluster, sample(0, &[("a", 100), ("b", 0)])),
            None
        );
        let sent = rates.add(&cluster, sample(1000, &[("a", 150), ("b", 10)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(50.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(10.0));
        for second in 2..=10 {
            rates.add(&cluster, sample(second * 1000, &[("a", 150), ("b", 10)]));
        }
        let sent = rates.add(&cluster, sample(11_000, &[("a", 150), ("b", 15)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(0.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(1.0));
    }

    #[test]
    fn samples_that_are_too_old_or_too_close_give_no_rate() {
        let mut rates = Rates::default();
        let cluster: Arc<str> = "orders".into();
        rates.add(&cluster, sample(0, &[("a", 0)]));
        assert_eq!(rates.add(&cluster, sample(1, &[("a", 1)])), None);
        assert_eq!(rates.add(&cluster, sample(60_000, &[("a", 9)])), None);
        let sent = rates.add(&cluster, sample(61_000, &[("a", 10), ("b", 4)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(1.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(4.0));
    }
}
