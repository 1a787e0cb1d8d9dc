//! The messages of the load reporting service, in our own words.
//!
//! A server reads [`LoadStatsRequest`], which keeps only what decides something; a client writes
//! [`LoadReport`], which has every field that applies. `convert::load_report` turns them into bytes
//! and back; `lrs::server` and `lrs::client` speak in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{
    ClusterLoadStats, ClusterStats, LocalityLoadStats, UpstreamLocalityStats,
};
pub use plimsoll_core::model::load_report::{MetricStats, UpstreamEndpointStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;

use crate::node::NodeInfo;

/// What a server reads of a `LoadStatsRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadStatsRequest {
    /// On every message of Envoy, on the first one of gRPC.
    pub node: Option<NodeInfo>,
    /// One per upstream cluster.
    pub cluster_stats: Vec<ClusterStats>,
}

/// A `LoadStatsRequest` as a client writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// On the first message of a stream.
    pub node: Option<NodeInfo>,
    /// One per upstream cluster.
    pub cluster_stats: Vec<ClusterStatsMessage>,
}

/// `ClusterStats` with every field that applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStatsMessage {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Its name in EDS when that differs; empty otherwise.
    pub cluster_service_name: Arc<str>,
    /// Per upstream locality and priority.
    pub upstream_locality_stats: Vec<UpstreamLocalityStatsMessage>,
    /// Requests dropped before they were issued, for whatever reason.
    pub total_dropped_requests: u64,
    /// The part of them that has a category.
    pub dropped_requests: BTreeMap<Arc<str>, u64>,
    /// The interval the counts cover.
    pub load_report_interval: Duration,
}

/// `UpstreamLocalityStats` with every field that applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamLocalityStatsMessage {
    /// Locality, priority and counts.
    pub stats: UpstreamLocalityStats,
    /// Custom metrics by name.
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
    /// `cpu_utilization` (field 12), where gRPC puts it.
    pub cpu_utilization: MetricStats,
    /// `mem_utilization` (field 13).
    pub mem_utilization: MetricStats,
    /// `application_utilization` (field 14).
    pub application_utilization: MetricStats,
    /// Per endpoint; empty unless the server asked for it.
    pub upstream_endpoint_stats: Vec<UpstreamEndpointStats>,
}

/// What a server asks for, and what it tells plimsoll data planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStatsResponse {
    /// Names of the wanted clusters.
    pub clusters: Vec<Arc<str>>,
    /// All clusters are wanted, whatever `clusters` says.
    pub send_all_clusters: bool,
    /// Time between two reports.
    pub load_reporting_interval: Duration,
    /// Whether endpoints are reported one by one.
    pub report_endpoint_granularity: bool,
    /// Field 5, for plimsoll data planes only (decisions D9).
    pub observed_traffic: Vec<ClusterTraffic>,
}

/// How the demand for one upstream cluster is spread over the reporters' localities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTraffic {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Share of each locality. None withdraws what was said before.
    pub fractions: Vec<(Locality, BasisPoints)>,
    /// When the control plane observed it, since the Unix epoch, by its clock. Receivers compare it
    /// with other times of the same sender only, never with a clock of their own.
    pub observation_time: Option<Duration>,
}

impl ClusterStatsMessage {
    /// What a server would keep of it.
    pub fn stats(&self) -> ClusterStats {
        let localities = self.upstream_locality_stats.iter();
        ClusterStats {
            cluster_name: Arc::clone(&self.cluster_name),
            upstream_locality_stats: localities.map(|message| message.stats.clone()).collect(),
            total_dropped_requests: self.total_dropped_requests,
            load_report_interval: self.load_report_interval,
        }
    }
}

impl From<ClusterLoadStats> for ClusterStatsMessage {
    /// What a balancer counted, ready to be sent. The name in EDS is not known to a balancer and
    /// stays empty.
    fn from(load: ClusterLoadStats) -> Self {
        Self {
            cluster_name: load.cluster_name,
            cluster_service_name: Arc::default(),
            upstream_locality_stats: load.localities.into_iter().map(Into::into).collect(),
            total_dropped_requests: load.total_dropped_requests,
            dropped_requests: load.dropped_requests,
            load_report_interval: load.load_report_interval,
        }
    }
}

impl From<LocalityLoadStats> for UpstreamLocalityStatsMessage {
    /// The three utilizations are in their own fields, where gRFC A85 puts them, and among the
    /// named metrics, where Envoy puts them: a server of either kind finds them.
    fn from(load: LocalityLoadStats) -> Self {
        let metric = |name: &str| load.load_metric_stats.get(name).copied();
        Self {
            cpu_utilization: metric("cpu_utilization").unwrap_or_default(),
            mem_utilization: metric("mem_utilization").unwrap_or_default(),
            application_utilization: metric("application_utilization").unwrap_or_default(),
            stats: load.stats,
            load_metric_stats: load.load_metric_stats,
            upstream_endpoint_stats: load.endpoints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_balancer_counted_is_sent_whole() {
        let metric = |count, total| MetricStats {
            num_requests_finished_with_metric: count,
            total_metric_value: total,
        };
        let metrics = [
            ("cpu_utilization", metric(2, 0.5)),
            ("application_utilization", metric(3, 1.5)),
            ("named_metrics.queue", metric(4, 8.0)),
        ];
        let metrics: BTreeMap<Arc<str>, MetricStats> = metrics
            .into_iter()
            .map(|(name, stats)| (name.into(), stats))
            .collect();
        let endpoint = UpstreamEndpointStats {
            address: ([10, 0, 0, 1], 80).into(),
            total_successful_requests: 1,
            total_requests_in_progress: 2,
            total_error_requests: 3,
            total_issued_requests: 6,
            load_metric_stats: metrics.clone(),
        };
        let locality = LocalityLoadStats {
            stats: UpstreamLocalityStats {
                locality: Locality::zone_only("a"),
                priority: 1,
                total_issued_requests: 6,
                ..Default::default()
            },
            load_metric_stats: metrics.clone(),
            endpoints: vec![endpoint.clone()],
        };
        let load = ClusterLoadStats {
            cluster_name: "orders".into(),
            localities: vec![locality.clone()],
            total_dropped_requests: 9,
            dropped_requests: [(Arc::from("throttle"), 5)].into(),
            load_report_interval: Duration::from_secs(10),
        };
        let message = ClusterStatsMessage::from(load.clone());
        assert_eq!(message.dropped_requests, load.dropped_requests);
        assert_eq!(message.stats().total_dropped_requests, 9);
        assert_eq!(message.load_report_interval, Duration::from_secs(10));
        let [sent] = &message.upstream_locality_stats[..] else {
            panic!("one locality: {message:?}");
        };
        assert_eq!(
            (&sent.stats, &sent.load_metric_stats),
            (&locality.stats, &metrics)
        );
        assert_eq!(sent.upstream_endpoint_stats, [endpoint]);
        assert_eq!(sent.cpu_utilization, metric(2, 0.5));
        assert_eq!(sent.application_utilization, metric(3, 1.5));
        assert_eq!(sent.mem_utilization, MetricStats::default(), "absent");
    }
}
