//! [`Outcomes`]: what became of the requests between zones, in the latest reports of all nodes.
//!
//! Sums follow the reports one by one, so that a look at them costs nothing per node. A sum that
//! overflowed would stay wrong when the report is gone, so counters are bounded by what a process
//! can do in an hour: 64 bits are enough for half a billion reports. `failing` judges the sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::PLAUSIBLE_INTERVAL;
use super::rate::{MAX_PLAUSIBLE_RATE, Rate};
use crate::model::load_report::ClusterStats;
use crate::model::locality::Locality;

/// What became of requests in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) arrived: u64,
    /// Requests that succeeded or failed; the others are in flight.
    pub(super) ended: u64,
    pub(super) failed: u64,
    /// Requests in flight at the end of the interval, also of earlier ones.
    pub(super) in_progress: u64,
}

impl Outcome {
    /// Returns the number of requests; those of earlier intervals that ended in this one count.
    pub(super) fn requests(self) -> u64 {
        self.arrived.max(self.ended)
    }

    fn add(&mut self, other: Self) {
        self.arrived = self.arrived.saturating_add(other.arrived);
        self.ended = self.ended.saturating_add(other.ended);
        self.failed = self.failed.saturating_add(other.failed);
        self.in_progress = self.in_progress.saturating_add(other.in_progress);
    }

    fn subtract(&mut self, other: Self) {
        self.arrived = self.arrived.saturating_sub(other.arrived);
        self.ended = self.ended.saturating_sub(other.ended);
        self.failed = self.failed.saturating_sub(other.failed);
        self.in_progress = self.in_progress.saturating_sub(other.in_progress);
    }

    fn scaled(self, factors: Factors) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "factors are between 0 and 1"
        )]
        let scale = |count: u64, factor: f64| (count as f64 * factor) as u64;
        Self {
            arrived: scale(self.arrived, factors.requests),
            ended: scale(self.ended, factors.requests),
            failed: scale(self.failed, factors.requests),
            in_progress: scale(self.in_progress, factors.in_progress),
        }
    }
}

/// The parts of a report's counters that count, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct Factors {
    requests: f64,
    in_progress: f64,
}

impl Factors {
    /// A node counts with at most `cap`, by the highest of its counters. Demand says nothing about
    /// the others: requests that were never issued may be said to have succeeded, and would hide
    /// the failures of other nodes.
    #[expect(clippy::cast_precision_loss, reason = "rates of counters")]
    fn of(stats: &ClusterStats, sums: &BTreeMap<&Locality, Outcome>, cap: Option<Rate>) -> Self {
        let seconds = stats.load_report_interval.as_secs_f64();
        let cap = cap
            .map_or(MAX_PLAUSIBLE_RATE, Rate::per_second)
            .min(MAX_PLAUSIBLE_RATE);
        // A report of a day counts like one of an hour, so that all counters are bounded.
        let plausible = PLAUSIBLE_INTERVAL.end().as_secs_f64() / seconds;
        let part = |rate: f64| (cap / rate).min(1.0) * plausible.min(1.0);
        let rate = |count: fn(&Outcome) -> u64| {
            let counts = sums.values().map(|sum| count(sum) as f64);
            counts.sum::<f64>() / seconds
        };
        let demand = stats.demand_per_second().unwrap_or_default();
        let requests = part(demand.max(rate(|sum| sum.ended)));
        Self {
            requests,
            in_progress: requests.min(part(rate(|sum| sum.in_progress))),
        }
    }
}

/// Returns the outcomes of one report by upstream locality, in its order. A node counts with at
/// most `cap`.
pub(super) fn outcomes(stats: &ClusterStats, cap: Option<Rate>) -> Vec<(Locality, Outcome)> {
    let mut sums: BTreeMap<&Locality, Outcome> = BTreeMap::new();
    for entry in &stats.upstream_locality_stats {
        let failed = entry.total_error_requests;
        let outcome = Outcome {
            arrived: entry.arrived_requests(),
            ended: entry.total_successful_requests.saturating_add(failed),
            failed,
            in_progress: entry.total_requests_in_progress,
        };
        if outcome != Outcome::default() {
            sums.entry(&entry.locality).or_default().add(outcome);
        }
    }
    let factors = Factors::of(stats, &sums, cap);
    let sums = sums.into_iter();
    sums.map(|(to, sum)| (to.clone(), sum.scaled(factors)))
        .filter(|(_, sum)| *sum != Outcome::default())
        .collect()
}

/// Sums of one upstream cluster by zone of the reporters and upstream zone.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcomes(BTreeMap<Locality, BTreeMap<Locality, Outcome>>);

impl Outcomes {
    fn add(&mut self, from: &Locality, report: &[(Locality, Outcome)]) {
        if report.is_empty() {
            return;
        }
        if !self.0.contains_key(from) {
            self.0.insert(from.clone(), BTreeMap::new());
        }
        let Some(sums) = self.0.get_mut(from) else {
            return;
        };
        for (to, outcome) in report {
            match sums.get_mut(to) {
                Some(sum) => sum.add(*outcome),
                None => drop(sums.insert(to.clone(), *outcome)),
            }
        }
    }

    fn subtract(&mut self, from: &Locality, report: &[(Locality, Outcome)]) {
        let Some(sums) = self.0.get_mut(from) else {
            return;
        };
        for (to, outcome) in report {
            if let Some(sum) = sums.get_mut(to) {
                sum.subtract(*outcome);
                if *sum == Outcome::default() {
                    sums.remove(to);
                }
            }
        }
        if sums.is_empty() {
            self.0.remove(from);
        }
    }

    /// Returns the sums by zone of the reporters.
    pub(super) fn by_source(
        &self,
    ) -> impl Iterator<Item = (&Locality, &BTreeMap<Locality, Outcome>)> {
        self.0.iter()
    }

    /// Returns the sums of all reporters by upstream zone.
    pub(super) fn totals(&self) -> BTreeMap<&Locality, Outcome> {
        let mut totals: BTreeMap<&Locality, Outcome> = BTreeMap::new();
        for (to, outcome) in self.0.values().flatten() {
            totals.entry(to).or_default().add(*outcome);
        }
        totals
    }

    /// Returns the share of requests that failed, by upstream zone, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
    pub(super) fn failed_shares(&self) -> impl Iterator<Item = (&Locality, f64)> {
        let totals = self.totals().into_iter();
        totals.map(|(to, sum)| {
            let share = sum.failed as f64 / sum.requests().max(1) as f64;
            (to, share)
        })
    }
}

/// The sums of every upstream cluster of a fleet; `None` is the sum over all of them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FleetOutcomes(BTreeMap<Option<Arc<str>>, Outcomes>);

impl FleetOutcomes {
    pub(super) fn get(&self, cluster: &Option<Arc<str>>) -> Option<&Outcomes> {
        self.0.get(cluster)
    }

    /// Replaces what a node in `from` reported about a cluster.
    pub(super) fn replace(
        &mut self,
        cluster: &Arc<str>,
        from: &Locality,
        before: &[(Locality, Outcome)],
        after: &[(Locality, Outcome)],
    ) {
        if before.is_empty() && after.is_empty() {
            return;
        }
        for key in [None, Some(Arc::clone(cluster))] {
            let sums = self.0.entry(key.clone()).or_default();
            // First what is added: a sum that stays is not removed in between.
            sums.add(from, after);
            sums.subtract(from, before);
            if sums.0.is_empty() {
                self.0.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::load_report::UpstreamLocalityStats;

    fn zone(name: &str) -> Locality {
        Locality::zone_only(name)
    }

    fn report(counts: &[(&str, u64, u64)]) -> Vec<(Locality, Outcome)> {
        let outcome = |&(to, arrived, failed): &(&str, u64, u64)| {
            let ended = arrived;
            let outcome = Outcome {
                arrived,
                ended,
                failed,
                in_progress: 0,
            };
            (zone(to), outcome)
        };
        counts.iter().map(outcome).collect()
    }

    #[test]
    fn sums_follow_the_latest_reports_and_end_empty() {
        let cluster: Arc<str> = "orders".into();
        let mut sums = FleetOutcomes::default();
        let first = report(&[("a", 10, 1), ("b", 5, 5)]);
        let second = report(&[("a", 20, 0)]);
        let other = report(&[("b", 7, 7)]);
        sums.replace(&cluster, &zone("a"), &[], &first);
        sums.replace(&cluster, &zone("b"), &[], &other);
        for key in [None, Some(Arc::clone(&cluster))] {
            let totals = sums.get(&key).unwrap().totals();
            assert_eq!(
                (totals[&zone("a")].arrived, totals[&zone("b")].failed),
                (10, 12)
            );
        }
        sums.replace(&cluster, &zone("a"), &first, &second);
        let shares: Vec<_> = sums.get(&None).unwrap().failed_shares().collect();
        assert_eq!(shares, [(&zone("a"), 0.0), (&zone("b"), 1.0)]);
        sums.replace(&cluster, &zone("a"), &second, &[]);
        sums.replace(&cluster, &zone("b"), &other, &[]);
        assert!(sums.0.is_empty());
    }

    /// Returns the outcomes of a report over 10 s from a node that counts with at most 10 requests
    /// per second.
    fn capped(entry: UpstreamLocalityStats) -> Vec<(Locality, Outcome)> {
        let stats = ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: vec![UpstreamLocalityStats {
                locality: zone("a"),
                ..entry
            }],
            total_dropped_requests: 0,
            load_report_interval: Duration::from_secs(10),
        };
        outcomes(&stats, Some(Rate::MILLIONTH.times(10_000_000)))
    }

    #[test]
    fn a_node_above_the_cap_counts_with_a_part_of_its_outcomes() {
        let failed = UpstreamLocalityStats {
            total_error_requests: 1000,
            ..Default::default()
        };
        assert_eq!(capped(failed), report(&[("a", 100, 100)]));
    }

    #[test]
    fn a_node_cannot_hide_failures_by_successes_without_requests() {
        let successes = UpstreamLocalityStats {
            total_successful_requests: 1_000_000_000_000,
            total_requests_in_progress: 1_000_000_000_000,
            ..Default::default()
        };
        let counted = Outcome {
            arrived: 0,
            ended: 100,
            failed: 0,
            in_progress: 100,
        };
        assert_eq!(capped(successes), [(zone("a"), counted)]);
        // Streams that last are no reason to count the node's requests with less.
        let streams = UpstreamLocalityStats {
            total_issued_requests: 50,
            total_successful_requests: 40,
            total_error_requests: 10,
            total_requests_in_progress: 9000,
            ..Default::default()
        };
        let counted = Outcome {
            arrived: 50,
            ended: 50,
            failed: 10,
            in_progress: 100,
        };
        assert_eq!(capped(streams), [(zone("a"), counted)]);
    }

    #[test]
    fn counters_of_any_size_leave_no_trace() {
        let cluster: Arc<str> = "orders".into();
        let huge = |seconds| ClusterStats {
            cluster_name: Arc::clone(&cluster),
            upstream_locality_stats: vec![UpstreamLocalityStats {
                locality: zone("a"),
                total_issued_requests: u64::MAX,
                total_successful_requests: u64::MAX,
                total_error_requests: u64::MAX,
                total_requests_in_progress: u64::MAX,
                ..Default::default()
            }],
            total_dropped_requests: 0,
            load_report_interval: Duration::from_secs(seconds),
        };
        let honest = report(&[("a", 10, 3)]);
        let mut sums = FleetOutcomes::default();
        sums.replace(&cluster, &zone("a"), &[], &honest);
        for seconds in [1, 10, 1_000_000_000_000] {
            let lies = [(); 3].map(|()| outcomes(&huge(seconds), None));
            for lie in &lies {
                sums.replace(&cluster, &zone("a"), &[], lie);
            }
            for lie in &lies {
                sums.replace(&cluster, &zone("a"), lie, &[]);
            }
            let left = sums.get(&None).unwrap().totals()[&zone("a")];
            assert_eq!(left, honest[0].1, "{seconds} s");
        }
    }
}
