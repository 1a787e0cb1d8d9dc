//! LRS types: the reporter ([`Node`]), and its load as [`ClusterStats`] in the control plane and as
//! [`ClusterLoadStats`] in the data plane.
//!
//! `planner` aggregates reports; `host` and `balancer` count requests. A control plane keeps only
//! the fields it uses; a data plane reports all that apply.

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
    /// `node.cluster`: name of the fleet.
    pub cluster: Arc<str>,
    /// `node.locality`: where the demand arrives (decision 0022).
    pub locality: Locality,
}

/// Load of one node on one upstream cluster during one interval (`ClusterStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterStats {
    pub cluster_name: Arc<str>,
    pub upstream_locality_stats: Vec<UpstreamLocalityStats>,
    pub total_dropped_requests: u64,
    pub load_report_interval: Duration,
}

/// Requests sent to one upstream locality (`UpstreamLocalityStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamLocalityStats {
    /// Where the requests were *sent*. Never the key of demand (decision 0022).
    pub locality: Locality,
    pub priority: u32,
    pub total_issued_requests: u64,
    pub total_successful_requests: u64,
    pub total_error_requests: u64,
    pub total_requests_in_progress: u64,
    /// Requests that failed before they were issued, which no report has: the server's side counts
    /// them ([`Arrivals`](crate::planner::Arrivals)). `None` if it did not; then they are estimated
    /// from the other counters.
    pub total_unissued_requests: Option<u64>,
}

/// Load statistics that one balancer collected since the previous report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLoadStats {
    pub cluster_name: Arc<str>,
    /// EDS service name of the cluster, if any. A balancer does not know it and leaves it empty.
    pub cluster_service_name: Arc<str>,
    /// One entry per upstream locality and priority, without those that had no traffic.
    pub localities: Vec<LocalityLoadStats>,
    pub total_dropped_requests: u64,
    /// Drops by category of `drop_overloads`; included in `total_dropped_requests`.
    pub dropped_requests: BTreeMap<Arc<str>, u64>,
    pub load_report_interval: Duration,
}

/// Load on one upstream locality at one priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityLoadStats {
    pub stats: UpstreamLocalityStats,
    /// Backend metrics, under the names of `lrs_report_endpoint_metrics` (gRFC A85).
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
    /// Load per endpoint; empty unless endpoint granularity was requested.
    pub endpoints: Vec<UpstreamEndpointStats>,
}

/// A metric summed over requests (`EndpointLoadMetricStats` without the name).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricStats {
    /// Requests that finished with this metric; zero means the metric is absent.
    pub num_requests_finished_with_metric: u64,
    pub total_metric_value: f64,
}

/// Load on one endpoint (`UpstreamEndpointStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamEndpointStats {
    pub address: SocketAddr,
    pub total_successful_requests: u64,
    pub total_requests_in_progress: u64,
    pub total_error_requests: u64,
    pub total_issued_requests: u64,
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
}

/// What the report of a node says of single hosts of one upstream cluster, beside [`ClusterStats`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterHostStats {
    pub cluster_name: Arc<str>,
    pub load_report_interval: Duration,
    /// Load per endpoint, of clients that were asked for it and can tell.
    pub endpoints: Vec<UpstreamEndpointStats>,
    /// Backend metrics by upstream locality (gRFC A85), of clients that do not report endpoints.
    pub localities: Vec<(Locality, BTreeMap<Arc<str>, MetricStats>)>,
}

impl MetricStats {
    /// Adds count and total of another sum of the same metric.
    pub fn add(&mut self, other: Self) {
        self.num_requests_finished_with_metric = self
            .num_requests_finished_with_metric
            .saturating_add(other.num_requests_finished_with_metric);
        self.total_metric_value += other.total_metric_value;
    }
}

impl UpstreamLocalityStats {
    /// Returns the requests that arrived for this locality, whether or not they could be issued.
    pub const fn arrived_requests(&self) -> u64 {
        let unissued = self.unissued_requests();
        self.total_issued_requests.saturating_add(unissued)
    }

    /// Returns the requests that failed before they were issued.
    pub const fn unissued_requests(&self) -> u64 {
        match self.total_unissued_requests {
            Some(unissued) => unissued,
            // As if as many had been in progress before.
            None => self.unissued_since(self.total_requests_in_progress),
        }
    }

    /// Returns the requests that failed before they were issued, if `before` were in progress at
    /// the end of the previous report.
    ///
    /// Envoy counts a request whose connection failed or timed out as an error and never as issued.
    /// What ended or is in progress, and was neither issued nor in progress before, is such an
    /// error. Requests that ended without success or error (the client left) hide as many.
    pub(crate) const fn unissued_since(&self, before: u64) -> u64 {
        let seen = self
            .total_successful_requests
            .saturating_add(self.total_error_requests)
            .saturating_add(self.total_requests_in_progress);
        let issued = self.total_issued_requests.saturating_add(before);
        let unissued = seen.saturating_sub(issued);
        if unissued < self.total_error_requests {
            unissued
        } else {
            self.total_error_requests
        }
    }
}

impl ClusterStats {
    /// Returns the node's demand in requests per second: what arrived for any locality, plus
    /// dropped (0022). `None` if the interval is zero.
    pub fn demand_per_second(&self) -> Option<f64> {
        let seconds = self.load_report_interval.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let arrived: u128 = self
            .upstream_locality_stats
            .iter()
            .map(|stats| u128::from(stats.arrived_requests()))
            .sum();
        let requests = arrived + u128::from(self.total_dropped_requests);
        #[expect(
            clippy::cast_precision_loss,
            reason = "53 bits are precise enough for a rate"
        )]
        Some(requests as f64 / seconds)
    }

    /// Returns requests per second to each upstream locality with traffic, summed over priorities,
    /// in order of locality; a request whose connection failed counts.
    /// Where requests went is an outcome, never demand (decision 0022).
    pub fn sent_per_second(&self) -> Vec<(Locality, f64)> {
        let seconds = self.load_report_interval.as_secs_f64();
        let mut sent: BTreeMap<&Locality, f64> = BTreeMap::new();
        for stats in &self.upstream_locality_stats {
            let requests = stats.arrived_requests();
            if requests == 0 || seconds <= 0.0 {
                continue;
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "53 bits are precise enough for a rate"
            )]
            let rate = requests as f64 / seconds;
            *sent.entry(&stats.locality).or_default() += rate;
        }
        let sent = sent.into_iter();
        sent.map(|(to, rate)| (to.clone(), rate)).collect()
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

    /// Issued, successful and failed requests of one report, alone, and what arrived.
    #[test]
    fn failed_connections_arrived_although_they_were_not_issued() {
        let cases = [
            ("all answered", 100, 100, 0, 100),
            ("answered with errors", 100, 60, 40, 100),
            ("every connection refused", 0, 0, 70, 70),
            ("half of the hosts refuse", 50, 50, 50, 100),
            ("black hole: in flight, then timed out", 40, 0, 10, 40),
            ("requests of earlier intervals end", 10, 90, 0, 10),
            ("earlier requests end beside refused ones", 10, 90, 5, 15),
            ("idle", 0, 0, 0, 0),
        ];
        for (name, issued, successful, error, arrived) in cases {
            let stats = UpstreamLocalityStats {
                total_issued_requests: issued,
                total_successful_requests: successful,
                total_error_requests: error,
                ..Default::default()
            };
            assert_eq!(stats.arrived_requests(), arrived, "{name}");
        }
    }

    #[test]
    fn failed_connections_are_sent_and_demand() {
        let mut stats = stats(&[30, 0], 0, Duration::from_secs(10));
        for (stats, place) in stats.upstream_locality_stats.iter_mut().zip(["a", "b"]) {
            stats.locality = Locality::zone_only(place);
        }
        stats.upstream_locality_stats[0].total_successful_requests = 30;
        stats.upstream_locality_stats[1].total_error_requests = 70;
        let [a, b] = ["a", "b"].map(Locality::zone_only);
        assert_eq!(stats.demand_per_second(), Some(10.0));
        assert_eq!(stats.sent_per_second(), [(a, 3.0), (b, 7.0)]);
    }

    #[test]
    fn a_report_without_interval_has_no_rate() {
        assert_eq!(stats(&[5], 0, Duration::ZERO).demand_per_second(), None);
        assert_eq!(stats(&[5], 0, Duration::ZERO).sent_per_second(), []);
    }

    #[test]
    fn sent_rates_are_summed_over_priorities_without_drops() {
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
    fn huge_counts_do_not_wrap() {
        let rate = stats(&[u64::MAX, u64::MAX], u64::MAX, Duration::from_secs(1));
        assert!(rate.demand_per_second().unwrap() > 5e19);
    }
}
