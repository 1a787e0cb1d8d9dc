//! The LRS nouns: who reports ([`Node`]) and what ([`ClusterStats`]).
//!
//! Aggregation does not live here but in `planner`. Only the fields that decide something are kept;
//! a converter may drop the rest of a report without building it.

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
    }

    #[test]
    fn absurd_counts_do_not_wrap() {
        let rate = stats(&[u64::MAX, u64::MAX], u64::MAX, Duration::from_secs(1));
        assert!(rate.demand_per_second().unwrap() > 5e19);
    }
}
