//! [`Arrivals`]: counts the requests that arrived, whatever became of them, from the counters that
//! a data plane reports.
//!
//! The server's side of a load reporting stream completes every report with it, before the planner
//! gets it. What each data plane counts in which case was read from its bytes: the suite
//! `demand_under_failure` of the vectors, and decision 0022.
//!
//! Requests in progress at the end of the previous report tell a request that ends now from one
//! whose connection failed. A request that Envoy's breaker `max_requests` refuses is an error of a
//! host and a drop; it counts once, as a drop: the host is not to blame.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::model::load_report::{ClusterStats, UpstreamLocalityStats};

/// Most localities whose requests in progress are remembered, over all clusters of a stream. A
/// hostile report could name millions.
const MAX_IN_PROGRESS: usize = 10_000;

/// What the previous report of one stream says about the next.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Requests in progress at the end of the previous report, by hash of cluster, locality and
    /// priority, in order; without zeros. `None` before the first report.
    in_progress: Option<Vec<(u64, u64)>>,
}

impl Arrivals {
    /// Completes the next report of the stream: sets `total_unissued_requests`. `refused` has the
    /// drops without a category of each cluster in `stats`; those are of circuit breakers.
    pub fn complete(&mut self, stats: &mut [ClusterStats], refused: &[u64]) {
        if stats.is_empty() && self.in_progress.is_none() {
            // The first message of a stream says who reports, and nothing about requests.
            return;
        }
        let before = self.in_progress.replace(in_progress(stats));
        let refused = refused.iter().copied().chain(std::iter::repeat(0));
        for (cluster, refused) in stats.iter_mut().zip(refused) {
            // What a report omits has nothing in progress.
            let at_start = |entry: &UpstreamLocalityStats| match &before {
                Some(before) if before.is_empty() => 0,
                Some(before) => of(before, key(&cluster.cluster_name, entry)),
                None => entry.total_requests_in_progress,
            };
            let mut refused = refused.min(cluster.total_dropped_requests);
            for entry in &mut cluster.upstream_locality_stats {
                let at_start = at_start(entry);
                let unissued = entry.unissued_since(at_start);
                // Only requests in progress make `max_requests` refuse another.
                let is_active = at_start > 0
                    || entry.total_issued_requests > 0
                    || entry.total_successful_requests > 0
                    || entry.total_requests_in_progress > 0;
                let repeated = if is_active { unissued.min(refused) } else { 0 };
                refused -= repeated;
                entry.total_error_requests -= repeated;
                entry.total_unissued_requests = Some(unissued - repeated);
            }
        }
    }
}

/// Returns the requests in progress of a report, in order of their keys.
fn in_progress(stats: &[ClusterStats]) -> Vec<(u64, u64)> {
    let entries = stats.iter().flat_map(|cluster| {
        let entries = cluster.upstream_locality_stats.iter();
        entries.map(|entry| (&cluster.cluster_name, entry))
    });
    let mut found: Vec<(u64, u64)> = entries
        .filter(|(_, entry)| entry.total_requests_in_progress > 0)
        .take(MAX_IN_PROGRESS)
        .map(|(cluster, entry)| (key(cluster, entry), entry.total_requests_in_progress))
        .collect();
    found.sort_unstable();
    found
}

fn of(in_progress: &[(u64, u64)], key: u64) -> u64 {
    let found = in_progress.binary_search_by_key(&key, |(key, _)| *key);
    found.map_or(0, |at| in_progress[at].1)
}

fn key(cluster: &Arc<str>, entry: &UpstreamLocalityStats) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cluster, &entry.locality, entry.priority).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::locality::Locality;

    /// Issued, successful, error, in progress.
    type Counts = [u64; 4];

    /// Returns a report about zones `z0`, `z1` and so on.
    fn report(zones: &[Counts], dropped: u64) -> ClusterStats {
        let zones = zones.iter().enumerate();
        let entries = zones.map(|(index, counts)| UpstreamLocalityStats {
            locality: Locality::zone_only(&format!("z{index}")),
            total_issued_requests: counts[0],
            total_successful_requests: counts[1],
            total_error_requests: counts[2],
            total_requests_in_progress: counts[3],
            ..Default::default()
        });
        ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: entries.collect(),
            total_dropped_requests: dropped,
            load_report_interval: Duration::from_secs(1),
        }
    }

    /// Returns the demand that a stream's last report shows, and arrived and failed requests of
    /// each zone.
    fn last(reports: &[ClusterStats], refused: u64) -> (f64, Vec<(u64, u64)>) {
        let mut arrivals = Arrivals::default();
        let mut demand = None;
        for report in reports {
            let mut stats = [report.clone()];
            arrivals.complete(&mut stats, &[refused]);
            let [stats] = stats;
            let entries = stats.upstream_locality_stats.iter();
            let zones = entries
                .map(|entry| (entry.arrived_requests(), entry.total_error_requests))
                .collect();
            demand = Some((stats.demand_per_second().unwrap(), zones));
        }
        demand.unwrap()
    }

    #[test]
    fn requests_of_earlier_reports_that_fail_now_do_not_count_again() {
        let waiting = report(&[[20, 0, 0, 20]], 0);
        let failed = report(&[[0, 0, 20, 0]], 0);
        assert_eq!(last(&[waiting.clone(), failed], 0), (0.0, vec![(0, 20)]));
        // 20 connections failed as well, in the first report or in the second.
        let both = report(&[[20, 0, 20, 20]], 0);
        let idle = report(&[[0, 0, 0, 0]], 0);
        assert_eq!(last(&[idle, both], 0), (40.0, vec![(40, 20)]));
        let both = report(&[[0, 0, 40, 0]], 0);
        assert_eq!(last(&[waiting, both], 0), (20.0, vec![(20, 40)]));
    }

    #[test]
    fn the_first_report_is_estimated() {
        let first = report(&[[10, 5, 15, 30]], 0);
        assert_eq!(last(&[first], 0), (20.0, vec![(20, 15)]));
    }

    #[test]
    fn requests_that_a_breaker_refuses_count_once_and_blame_no_host() {
        let max_requests = report(&[[5, 5, 15, 0]], 15);
        assert_eq!(last(&[max_requests], 15), (20.0, vec![(5, 0)]));
        // Without requests in progress, a breaker of connections refused them.
        let no_connection = report(&[[0, 0, 2, 0]], 18);
        assert_eq!(last(&[no_connection], 18), (20.0, vec![(2, 2)]));
        // Drops of another kind are not errors.
        let shed = report(&[[5, 5, 15, 0]], 15);
        assert_eq!(last(&[shed], 0), (35.0, vec![(20, 15)]));
        // More than were dropped cannot have been refused.
        let lie = report(&[[5, 5, 15, 0]], 3);
        assert_eq!(last(&[lie], 99), (20.0, vec![(17, 12)]));
    }

    #[test]
    fn zones_and_clusters_are_told_apart() {
        let waiting = report(&[[20, 0, 0, 20], [0, 0, 0, 0]], 0);
        let failed = report(&[[0, 0, 20, 0], [0, 0, 7, 0]], 0);
        let zones = vec![(0, 20), (7, 7)];
        assert_eq!(last(&[waiting.clone(), failed.clone()], 0), (7.0, zones));
        let other = ClusterStats {
            cluster_name: "search".into(),
            ..failed
        };
        assert_eq!(last(&[waiting, other], 0).0, 27.0);
    }

    #[test]
    fn what_a_report_omits_has_nothing_in_progress() {
        let waiting = report(&[[20, 0, 0, 20]], 0);
        let failed = report(&[[0, 0, 20, 0]], 0);
        let reports = [waiting, report(&[], 0), failed];
        assert_eq!(last(&reports, 0), (20.0, vec![(20, 20)]));
    }

    #[test]
    fn a_message_without_reports_is_no_first_report() {
        let mut arrivals = Arrivals::default();
        arrivals.complete(&mut [], &[]);
        assert!(arrivals.in_progress.is_none());
    }

    #[test]
    fn counters_of_any_size_are_no_error() {
        let huge = report(&[[u64::MAX, u64::MAX, u64::MAX, u64::MAX]; 2], u64::MAX);
        let (demand, _) = last(&[huge.clone(), huge], u64::MAX);
        assert!(demand > 5e19);
    }

    #[test]
    fn memory_is_limited() {
        let zones = vec![[1, 0, 0, 1]; MAX_IN_PROGRESS + 1];
        let mut arrivals = Arrivals::default();
        arrivals.complete(&mut [report(&zones, 0)], &[]);
        assert_eq!(arrivals.in_progress.unwrap().len(), MAX_IN_PROGRESS);
    }
}
