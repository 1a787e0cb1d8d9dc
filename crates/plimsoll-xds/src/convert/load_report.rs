//! Decoding and encoding of `envoy.service.load_stats.v3`.
//!
//! Decoding keeps the counters that the planner needs and skips the rest without allocating;
//! encoding writes every field. Called through `wire`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::load_report::{
    ClusterLoadStats, ClusterStats, LocalityLoadStats, MetricStats, UpstreamEndpointStats,
    UpstreamLocalityStats,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::{BasisPoints, FieldError};
use prost::Message;

use super::node::{decode_node, encode_node};
use crate::lrs::message::{ClusterTraffic, LoadReport, LoadStatsRequest, LoadStatsResponse};
use crate::node::NodeInfo;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::duration;
use plimsoll_schema::pb::load_stats::{
    ClusterStatsCounts, ClusterStatsFields, ClusterTrafficMessage, DroppedRequestsMessage,
    EndpointStatsFields, LoadStatsRequestCounts, LoadStatsRequestMessage, LoadStatsResponseMessage,
    LocalityFractionMessage, LocalityStatsCounts, LocalityStatsFields, NamedMetricMessage,
    TimestampMessage, UnnamedMetricMessage,
};

/// Decodes a load report, as far as a server needs it, but what it says of single hosts:
/// [`decode_host_stats`](super::host_stats::decode_host_stats).
pub fn decode_load_stats_request(bytes: Bytes) -> Result<LoadStatsRequest, DecodeError> {
    let message = LoadStatsRequestCounts::decode(bytes)?;
    let node = message.node.map(|raw| decode_node(&raw)).transpose();
    let mut cluster_stats = Vec::with_capacity(message.cluster_stats.len());
    let refused = message.cluster_stats.iter().map(refused_requests);
    let refused_requests = refused.collect();
    for (index, counts) in message.cluster_stats.into_iter().enumerate() {
        let stats = cluster_counts(counts);
        cluster_stats.push(stats.map_err(|error| error.under(&format!("cluster_stats[{index}]")))?);
    }
    Ok(LoadStatsRequest {
        node: node.map_err(|error| error.under("node"))?,
        cluster_stats,
        refused_requests,
        host_stats: Vec::new(),
    })
}

/// Encodes the fields that [`decode_load_stats_request`] reads.
pub fn encode_load_stats_request(request: &LoadStatsRequest) -> Vec<u8> {
    let stats = request
        .cluster_stats
        .iter()
        .map(|stats| ClusterStatsFields {
            cluster_name: stats.cluster_name.as_ref().to_owned(),
            upstream_locality_stats: stats
                .upstream_locality_stats
                .iter()
                .map(locality_fields)
                .collect(),
            total_dropped_requests: stats.total_dropped_requests,
            load_report_interval: Some(stats.load_report_interval.into()),
            ..Default::default()
        });
    encode_stats(request.node.as_ref(), stats.collect())
}

/// Encodes a load report with all fields.
pub fn encode_load_report(report: &LoadReport) -> Vec<u8> {
    let stats = report.cluster_stats.iter().map(cluster_fields);
    encode_stats(report.node.as_ref(), stats.collect())
}

/// Decodes the reporting settings sent by a server.
pub fn decode_load_stats_response(bytes: &[u8]) -> Result<LoadStatsResponse, DecodeError> {
    let message = LoadStatsResponseMessage::decode(bytes)?;
    let interval = duration(message.load_reporting_interval, "load_reporting_interval")?;
    let mut observed_traffic = Vec::with_capacity(message.observed_traffic.len());
    for (index, traffic) in message.observed_traffic.into_iter().enumerate() {
        let traffic = cluster_traffic(traffic);
        let place = || format!("observed_traffic[{index}]");
        observed_traffic.push(traffic.map_err(|error| error.under(&place()))?);
    }
    Ok(LoadStatsResponse {
        clusters: message.clusters.into_iter().map(Into::into).collect(),
        send_all_clusters: message.send_all_clusters,
        load_reporting_interval: interval.unwrap_or_default(),
        report_endpoint_granularity: message.report_endpoint_granularity,
        observed_traffic,
    })
}

/// Encodes the reporting settings of a server. The caller must leave `observed_traffic` empty for
/// clients that have not announced support for it (decision 0028).
pub fn encode_load_stats_response(response: &LoadStatsResponse) -> Bytes {
    let traffic = response.observed_traffic.iter();
    let message = LoadStatsResponseMessage {
        clusters: response.clusters.iter().map(string).collect(),
        load_reporting_interval: Some(response.load_reporting_interval.into()),
        report_endpoint_granularity: response.report_endpoint_granularity,
        send_all_clusters: response.send_all_clusters,
        observed_traffic: traffic.map(traffic_fields).collect(),
    };
    message.encode_to_vec().into()
}

fn cluster_counts(counts: ClusterStatsCounts) -> Result<ClusterStats, DecodeError> {
    let localities = counts.upstream_locality_stats.into_iter();
    let interval = duration(counts.load_report_interval, "load_report_interval")?;
    Ok(ClusterStats {
        cluster_name: counts.cluster_name.into(),
        upstream_locality_stats: localities.map(locality_counts).collect(),
        total_dropped_requests: counts.total_dropped_requests,
        load_report_interval: interval.unwrap_or(Duration::ZERO),
    })
}

/// Returns the drops without a category.
fn refused_requests(counts: &ClusterStatsCounts) -> u64 {
    let drops = counts.dropped_requests.iter();
    let counted = drops.fold(0, |sum: u64, drop| sum.saturating_add(drop.dropped_count));
    counts.total_dropped_requests.saturating_sub(counted)
}

fn locality_counts(counts: LocalityStatsCounts) -> UpstreamLocalityStats {
    UpstreamLocalityStats {
        locality: counts.locality.map(Into::into).unwrap_or_default(),
        priority: counts.priority,
        total_issued_requests: counts.total_issued_requests,
        total_successful_requests: counts.total_successful_requests,
        total_error_requests: counts.total_error_requests,
        total_requests_in_progress: counts.total_requests_in_progress,
        total_unissued_requests: counts.total_unissued_requests,
    }
}

fn cluster_traffic(message: ClusterTrafficMessage) -> Result<ClusterTraffic, DecodeError> {
    let mut fractions: Vec<(Locality, BasisPoints)> = Vec::with_capacity(message.fractions.len());
    for (index, fraction) in message.fractions.into_iter().enumerate() {
        let path = format!("fractions[{index}].observed_traffic_fraction");
        let share = BasisPoints::new(u64::from(fraction.observed_traffic_fraction), &path)?;
        let locality = fraction.locality.map(Into::into).unwrap_or_default();
        // As in an assignment, a locality may occur twice only with the same fraction.
        match fractions.iter().find(|(known, _)| *known == locality) {
            Some((_, known)) if *known == share => {}
            Some(_) => return Err(DecodeError::new(path, "contradicts an earlier entry")),
            None => fractions.push((locality, share)),
        }
    }
    Ok(ClusterTraffic {
        cluster_name: message.cluster_name.into(),
        fractions,
        observation_time: message.observation_time.map(since_epoch).transpose()?,
    })
}

fn since_epoch(time: TimestampMessage) -> Result<Duration, DecodeError> {
    let outside = || FieldError::new("observation_time", "is not a time after 1970");
    let seconds = u64::try_from(time.seconds).map_err(|_| outside())?;
    let nanos = u32::try_from(time.nanos).map_err(|_| outside())?;
    if nanos >= 1_000_000_000 {
        return Err(outside().into());
    }
    Ok(Duration::new(seconds, nanos))
}

fn timestamp(since_epoch: Duration) -> TimestampMessage {
    TimestampMessage {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        // Always below 10^9.
        nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
    }
}

fn traffic_fields(traffic: &ClusterTraffic) -> ClusterTrafficMessage {
    let fractions = traffic.fractions.iter();
    ClusterTrafficMessage {
        cluster_name: string(&traffic.cluster_name),
        fractions: fractions
            .map(|(locality, share)| LocalityFractionMessage {
                locality: Some(locality.into()),
                // Always at most 10,000.
                observed_traffic_fraction: u32::try_from(share.get()).unwrap_or_default(),
            })
            .collect(),
        observation_time: traffic.observation_time.map(timestamp),
    }
}

fn encode_stats(node: Option<&NodeInfo>, cluster_stats: Vec<ClusterStatsFields>) -> Vec<u8> {
    let message = LoadStatsRequestMessage {
        node: node.map(encode_node),
        cluster_stats,
    };
    message.encode_to_vec()
}

fn cluster_fields(stats: &ClusterLoadStats) -> ClusterStatsFields {
    let localities = stats.localities.iter();
    let dropped = stats.dropped_requests.iter();
    ClusterStatsFields {
        cluster_name: string(&stats.cluster_name),
        upstream_locality_stats: localities.map(locality_load_fields).collect(),
        total_dropped_requests: stats.total_dropped_requests,
        load_report_interval: Some(stats.load_report_interval.into()),
        dropped_requests: dropped
            .map(|(category, &dropped_count)| DroppedRequestsMessage {
                category: string(category),
                dropped_count,
            })
            .collect(),
        cluster_service_name: string(&stats.cluster_service_name),
    }
}

fn locality_fields(stats: &UpstreamLocalityStats) -> LocalityStatsFields {
    LocalityStatsFields {
        locality: Some((&stats.locality).into()),
        total_successful_requests: stats.total_successful_requests,
        total_requests_in_progress: stats.total_requests_in_progress,
        total_error_requests: stats.total_error_requests,
        priority: stats.priority,
        total_issued_requests: stats.total_issued_requests,
        total_unissued_requests: stats.total_unissued_requests,
        ..Default::default()
    }
}

/// Encodes utilizations as fields (gRFC A85) and as named metrics (Envoy).
fn locality_load_fields(load: &LocalityLoadStats) -> LocalityStatsFields {
    let metric = |name: &str| load.load_metric_stats.get(name).and_then(unnamed);
    LocalityStatsFields {
        load_metric_stats: named(&load.load_metric_stats),
        upstream_endpoint_stats: load.endpoints.iter().map(endpoint_fields).collect(),
        cpu_utilization: metric("cpu_utilization"),
        mem_utilization: metric("mem_utilization"),
        application_utilization: metric("application_utilization"),
        ..locality_fields(&load.stats)
    }
}

fn endpoint_fields(stats: &UpstreamEndpointStats) -> EndpointStatsFields {
    EndpointStatsFields {
        address: Some(stats.address.into()),
        total_successful_requests: stats.total_successful_requests,
        total_requests_in_progress: stats.total_requests_in_progress,
        total_error_requests: stats.total_error_requests,
        load_metric_stats: named(&stats.load_metric_stats),
        total_issued_requests: stats.total_issued_requests,
    }
}

fn named(metrics: &BTreeMap<Arc<str>, MetricStats>) -> Vec<NamedMetricMessage> {
    let metrics = metrics.iter();
    metrics
        .map(|(name, stats)| NamedMetricMessage {
            metric_name: string(name),
            num_requests_finished_with_metric: stats.num_requests_finished_with_metric,
            total_metric_value: stats.total_metric_value,
        })
        .collect()
}

fn unnamed(stats: &MetricStats) -> Option<UnnamedMetricMessage> {
    let count = stats.num_requests_finished_with_metric;
    (count != 0).then_some(UnnamedMetricMessage {
        num_requests_finished_with_metric: count,
        total_metric_value: stats.total_metric_value,
    })
}

fn string(text: &Arc<str>) -> String {
    text.as_ref().to_owned()
}

#[cfg(test)]
mod tests;
