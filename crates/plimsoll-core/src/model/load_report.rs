//! The LRS nouns: who reports ([`Node`]) and what: [`ClusterStats`] as a control plane keeps it,
//! [`ClusterLoadStats`] as a data plane makes it.
//!
//! Aggregation does not live here but in `planner`, counting in `host` and `balancer`. A control
//! plane keeps only the fields that decide something, and a converter may drop the rest of a report
//! without building it; a data plane reports all that apply.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::locality::Locality;

/// The reporter of a load report (`envoy.config.core.v3.Node`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// `node.id`: unique in its fleet.
    pub id: Arc<str>,
    /// `node.cluster`: the fleet.
    pub cluster: Arc<str>,
    /// `node.locality`: where the demand arrives (decisions D1).
    pub locality: Locality,
}

/// What one node did to one upstream cluster during one interval (`ClusterStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterStats {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Per upstream locality and priority.
    pub upstream_locality_stats: Vec<UpstreamLocalityStats>,
    /// Requests dropped before they were issued.
    pub total_dropped_requests: u64,
    /// The interval the counts cover.
    pub load_report_interval: Duration,
}

/// Requests sent to one upstream locality (`UpstreamLocalityStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamLocalityStats {
    /// Where the requests were *sent*. Never the key of demand (decisions D1).
    pub locality: Locality,
    /// At which priority.
    pub priority: u32,
    /// Issued in the interval.
    pub total_issued_requests: u64,
    /// Completed without error.
    pub total_successful_requests: u64,
    /// Completed with an error.
    pub total_error_requests: u64,
    /// In flight when the report was made.
    pub total_requests_in_progress: u64,
}

/// Everything one balancer did since it was last asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLoadStats {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Per upstream locality and priority; those without any traffic are left out.
    pub localities: Vec<LocalityLoadStats>,
    /// Requests dropped before they were issued, for whatever reason.
    pub total_dropped_requests: u64,
    /// The part of them that has a category: `drop_overloads` of the assignment.
    pub dropped_requests: BTreeMap<Arc<str>, u64>,
    /// The interval the counts cover.
    pub load_report_interval: Duration,
}

/// Everything sent to one upstream locality at one priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityLoadStats {
    /// Locality, priority and counts.
    pub stats: UpstreamLocalityStats,
    /// Metrics of backends, under the names of `lrs_report_endpoint_metrics` (gRFC A85).
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
    /// Per endpoint; empty unless asked for.
    pub endpoints: Vec<UpstreamEndpointStats>,
}

/// A metric summed over requests (`EndpointLoadMetricStats` without the name).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricStats {
    /// Requests that finished with this metric; zero means the metric is absent.
    pub num_requests_finished_with_metric: u64,
    /// Sum of its values.
    pub total_metric_value: f64,
}

/// What one endpoint got (`UpstreamEndpointStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamEndpointStats {
    /// Which one.
    pub address: SocketAddr,
    /// Completed without error.
    pub total_successful_requests: u64,
    /// In flight when the report was made.
    pub total_requests_in_progress: u64,
    /// Completed with an error.
    pub total_error_requests: u64,
    /// Issued in the interval.
    pub total_issued_requests: u64,
    /// Custom metrics by name.
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
}

impl MetricStats {
    /// Adds the requests of another sum.
    pub fn add(&mut self, other: Self) {
        self.num_requests_finished_with_metric = self
            .num_requests_finished_with_metric
            .saturating_add(other.num_requests_finished_with_metric);
        self.total_metric_value += other.total_metric_value;
    }
}

impl ClusterStats {
    /// Requests this node wanted to make per second: issued to anywhere, plus dropped (D1).
    /// `None` when the interval is zero: such a report has no rate.
    pub fn demand_per_second(&self) -> Option<f64> {
        let seconds = self.load_report_interval.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let issued: u128 = self
            .upstream_locality_stats
            .iter()
            .map(|stats| u128::from(stats.total_issued_requests))
            .sum();
        let requests = issued + u128::from(self.total_dropped_requests);
        #[expect(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
        Some(requests as f64 / seconds)
    }

    /// Requests per second to each upstream locality, all priorities together; those that got none
    /// are left out. Where requests went is an outcome, never demand (D1).
    pub fn sent_per_second(&self) -> Vec<(Locality, f64)> {
        let seconds = self.load_report_interval.as_secs_f64();
        let mut sent: Vec<(Locality, f64)> = Vec::new();
        for stats in &self.upstream_locality_stats {
            if stats.total_issued_requests == 0 || seconds <= 0.0 {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            let rate = stats.total_issued_requests as f64 / seconds;
            match sent.iter_mut().find(|(to, _)| *to == stats.locality) {
                Some((_, sum)) => *sum += rate,
                None => sent.push((stats.locality.clone(), rate)),
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(issued: &[u64], dropped: u64, interval: Duration) -> ClusterStats {
        let stats = |&total_issued_requests| UpstreamLocalityStats {
            total_issued_requests,
            ..Default::default()
        };
        ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: issued.iter().map(stats).collect(),
            total_dropped_requests: dropped,
            load_report_interval: interval,
        }
    }

    #[test]
    fn demand_counts_every_destination_and_the_drops() {
        let rate = stats(&[60, 30], 10, Duration::from_secs(10)).demand_per_second();
        assert_eq!(rate, Some(10.0));
        let half = stats(&[5], 0, Duration::from_millis(500)).demand_per_second();
        assert_eq!(half, Some(10.0));
    }

    #[test]
    fn a_report_without_interval_has_no_rate() {
        assert_eq!(stats(&[5], 0, Duration::ZERO).demand_per_second(), None);
        assert_eq!(stats(&[5], 0, Duration::ZERO).sent_per_second(), []);
    }

    #[test]
    fn what_was_sent_is_summed_over_priorities_and_drops_went_nowhere() {
        let mut stats = stats(&[60, 0, 20, 10], 500, Duration::from_secs(10));
        let places = ["a", "b", "a", "c"].map(Locality::zone_only);
        for (stats, place) in stats.upstream_locality_stats.iter_mut().zip(places) {
            stats.locality = place;
        }
        stats.upstream_locality_stats[2].priority = 1;
        let [a, _, _, c] = ["a", "b", "a", "c"].map(Locality::zone_only);
        assert_eq!(stats.sent_per_second(), [(a, 8.0), (c, 1.0)]);
    }

    #[test]
    fn absurd_counts_do_not_wrap() {
        let rate = stats(&[u64::MAX, u64::MAX], u64::MAX, Duration::from_secs(1));
        assert!(rate.demand_per_second().unwrap() > 5e19);
    }
}
