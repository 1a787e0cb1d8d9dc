//! [`Rates`]: requests per second to each locality, from what hosts have counted.
//!
//! A rate is taken over the last few seconds of looking; while nobody looks nothing is kept.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

/// Long enough to be calm, short enough to follow.
const WINDOW: Duration = Duration::from_secs(5);
/// Two looks that are closer together say nothing about a rate.
const LEAST: Duration = Duration::from_millis(200);

/// Requests per second by locality.
pub(super) type Sent = BTreeMap<Locality, f64>;

/// What was counted at the last looks, by cluster.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<Arc<str>, VecDeque<Look>>);

/// Requests issued to each host so far.
#[derive(Debug)]
struct Look {
    at: Instant,
    issued: BTreeMap<(Locality, SocketAddr), u64>,
}

impl Rates {
    /// What was sent where during the last seconds; `None` at the first look.
    pub(super) fn sent(
        &mut self,
        cluster: &Arc<str>,
        snapshot: &RoutingSnapshot,
        now: Instant,
    ) -> Option<Sent> {
        let hosts = snapshot.hosts();
        let counted = hosts.map(|host| {
            let (issued, ..) = host.totals();
            ((host.locality().clone(), host.address()), issued)
        });
        let look = Look {
            at: now,
            issued: counted.collect(),
        };
        self.add(cluster, look)
    }

    fn add(&mut self, cluster: &Arc<str>, look: Look) -> Option<Sent> {
        let looks = self.0.entry(Arc::clone(cluster)).or_default();
        let age = |one: &Look| look.at.saturating_duration_since(one.at);
        // One that is older stays as long as the next is too young to stand for the window.
        while looks.len() > 1 && looks.get(1).is_some_and(|next| age(next) >= WINDOW) {
            looks.pop_front();
        }
        if looks.front().is_some_and(|first| age(first) > 2 * WINDOW) {
            // Nobody has looked for a while.
            looks.clear();
        }
        let first = looks.front().filter(|first| age(first) >= LEAST);
        let sent = first.map(|first| {
            let seconds = age(first).as_secs_f64();
            let mut sent = Sent::new();
            for (key, issued) in &look.issued {
                // A host that is new since then began at nothing.
                let before = first.issued.get(key).copied().unwrap_or(0);
                #[expect(clippy::cast_precision_loss, reason = "requests of seconds")]
                let more = issued.saturating_sub(before) as f64;
                *sent.entry(key.0.clone()).or_default() += more / seconds;
            }
            sent
        });
        looks.push_back(look);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(millis: u64, issued: &[(&str, u64)]) -> Look {
        let entry = |(port, (zone, issued)): (u16, &(&str, u64))| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            ((Locality::new("", zone, ""), address), *issued)
        };
        Look {
            at: Instant::from_nanos(millis * 1_000_000),
            issued: (1..).zip(issued).map(entry).collect(),
        }
    }

    fn rate(sent: Option<&Sent>, zone: &str) -> Option<f64> {
        sent?.get(&Locality::new("", zone, "")).copied()
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut rates = Rates::default();
        let cluster: Arc<str> = "orders".into();
        assert_eq!(rates.add(&cluster, look(0, &[("a", 100), ("b", 0)])), None);
        let sent = rates.add(&cluster, look(1000, &[("a", 150), ("b", 10)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(50.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(10.0));
        for second in 2..=10 {
            rates.add(&cluster, look(second * 1000, &[("a", 150), ("b", 10)]));
        }
        let sent = rates.add(&cluster, look(11_000, &[("a", 150), ("b", 15)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(0.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(1.0));
    }

    #[test]
    fn looks_of_long_ago_and_of_this_moment_say_nothing() {
        let mut rates = Rates::default();
        let cluster: Arc<str> = "orders".into();
        rates.add(&cluster, look(0, &[("a", 0)]));
        assert_eq!(rates.add(&cluster, look(1, &[("a", 1)])), None);
        assert_eq!(rates.add(&cluster, look(60_000, &[("a", 9)])), None);
        let sent = rates.add(&cluster, look(61_000, &[("a", 10), ("b", 4)]));
        assert_eq!(rate(sent.as_ref(), "a"), Some(1.0));
        assert_eq!(rate(sent.as_ref(), "b"), Some(4.0));
    }
}
