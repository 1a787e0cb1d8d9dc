//! Decoding what a load report says of single hosts: `upstream_endpoint_stats`, and backend metrics
//! by locality (gRFC A85).
//!
//! Read apart from the counters, and only of clients that were asked for it: most servers never
//! are. Entries are read one by one, so that a report needs no more memory than what is kept of
//! it, and what cannot be read is left out: capacity is learned from what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterHostStats, MetricStats, UpstreamEndpointStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_schema::pb::load_stats::{
    EndpointStatsFields, NamedMetricMessage, UnnamedMetricMessage,
};
use plimsoll_schema::pb::{DurationMessage, LocalityMessage, duration};
use prost::Message;

use super::assignment::socket_address;
use crate::protobuf::{Value, fields};

/// Endpoints of a report that are read. Others are not learned from.
const MAX_ENDPOINTS: usize = 20_000;
/// Metrics of an endpoint or a locality that are read.
const MAX_METRICS: usize = 16;

/// Decodes what a load report says of hosts, by cluster; clusters that say nothing are left out.
pub fn decode_host_stats(request: &[u8]) -> Vec<ClusterHostStats> {
    let mut room = MAX_ENDPOINTS;
    let clusters = parts(request, 2).filter_map(|stats| cluster(stats, &mut room));
    clusters.collect()
}

fn cluster(stats: &[u8], room: &mut usize) -> Option<ClusterHostStats> {
    let mut decoded = ClusterHostStats {
        cluster_name: "".into(),
        load_report_interval: Duration::ZERO,
        endpoints: Vec::new(),
        localities: Vec::new(),
    };
    for (number, value) in fields(stats).flatten() {
        let Value::Bytes(bytes) = value else { continue };
        match number {
            1 => decoded.cluster_name = std::str::from_utf8(bytes).ok()?.into(),
            2 => locality(bytes, &mut decoded, room),
            4 => {
                let interval = DurationMessage::decode(bytes).ok();
                decoded.load_report_interval = duration(interval, "load_report_interval")
                    .ok()?
                    .unwrap_or_default();
            }
            _ => {}
        }
    }
    let says_something = !decoded.endpoints.is_empty() || !decoded.localities.is_empty();
    says_something.then_some(decoded)
}

/// Adds the endpoints of a locality, or, if it has none, its own metrics.
fn locality(stats: &[u8], cluster: &mut ClusterHostStats, room: &mut usize) {
    let mut locality = Locality::default();
    let mut metrics: BTreeMap<Arc<str>, MetricStats> = BTreeMap::new();
    let mut has_endpoints = false;
    for (number, value) in fields(stats).flatten() {
        let Value::Bytes(bytes) = value else { continue };
        match number {
            1 => locality = LocalityMessage::decode(bytes).unwrap_or_default().into(),
            5 => {
                if let Ok(metric) = NamedMetricMessage::decode(bytes) {
                    add(&mut metrics, &metric.metric_name, named(&metric));
                }
            }
            7 => {
                has_endpoints = true;
                if let Some(left) = room.checked_sub(1)
                    && let Some(endpoint) = endpoint(bytes)
                {
                    *room = left;
                    cluster.endpoints.push(endpoint);
                }
            }
            12 => unnamed(&mut metrics, "cpu_utilization", bytes),
            13 => unnamed(&mut metrics, "mem_utilization", bytes),
            14 => unnamed(&mut metrics, "application_utilization", bytes),
            _ => {}
        }
    }
    if !has_endpoints && !metrics.is_empty() {
        cluster.localities.push((locality, metrics));
    }
}

/// `None` for an endpoint without an IP address.
fn endpoint(bytes: &[u8]) -> Option<UpstreamEndpointStats> {
    let fields = EndpointStatsFields::decode(bytes).ok()?;
    let mut metrics = BTreeMap::new();
    for metric in &fields.load_metric_stats {
        add(&mut metrics, &metric.metric_name, named(metric));
    }
    Some(UpstreamEndpointStats {
        address: socket_address(fields.address?).ok()?,
        total_successful_requests: fields.total_successful_requests,
        total_requests_in_progress: fields.total_requests_in_progress,
        total_error_requests: fields.total_error_requests,
        total_issued_requests: fields.total_issued_requests,
        load_metric_stats: metrics,
    })
}

fn unnamed(metrics: &mut BTreeMap<Arc<str>, MetricStats>, name: &str, bytes: &[u8]) {
    if let Ok(metric) = UnnamedMetricMessage::decode(bytes) {
        let stats = MetricStats {
            num_requests_finished_with_metric: metric.num_requests_finished_with_metric,
            total_metric_value: metric.total_metric_value,
        };
        // Our own data planes send both forms of one sum.
        metrics.entry(name.into()).or_insert(stats);
    }
}

const fn named(metric: &NamedMetricMessage) -> MetricStats {
    MetricStats {
        num_requests_finished_with_metric: metric.num_requests_finished_with_metric,
        total_metric_value: metric.total_metric_value,
    }
}

fn add(metrics: &mut BTreeMap<Arc<str>, MetricStats>, name: &str, stats: MetricStats) {
    if metrics.len() < MAX_METRICS || metrics.contains_key(name) {
        metrics.entry(name.into()).or_default().add(stats);
    }
}

/// Returns the messages of a repeated field.
fn parts(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .flatten()
        .filter_map(move |field| match field {
            (found, Value::Bytes(bytes)) if found == number => Some(bytes),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use plimsoll_core::model::load_report::{
        ClusterLoadStats, LocalityLoadStats, UpstreamLocalityStats,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::convert::load_report::encode_load_report;
    use crate::lrs::message::LoadReport;

    fn metric(requests: u64, total: f64) -> MetricStats {
        MetricStats {
            num_requests_finished_with_metric: requests,
            total_metric_value: total,
        }
    }

    fn host(port: u16, metrics: &[(&str, MetricStats)]) -> UpstreamEndpointStats {
        let metrics = metrics.iter();
        UpstreamEndpointStats {
            address: SocketAddr::from(([10, 0, 0, 1], port)),
            total_successful_requests: 90,
            total_requests_in_progress: 1,
            total_error_requests: 2,
            total_issued_requests: 93,
            load_metric_stats: metrics.map(|(name, one)| ((*name).into(), *one)).collect(),
        }
    }

    fn locality(
        zone: &str,
        endpoints: Vec<UpstreamEndpointStats>,
        metrics: &[(&str, MetricStats)],
    ) -> LocalityLoadStats {
        LocalityLoadStats {
            stats: UpstreamLocalityStats {
                locality: Locality::zone_only(zone),
                total_issued_requests: 93,
                ..Default::default()
            },
            load_metric_stats: metrics
                .iter()
                .map(|(name, one)| ((*name).into(), *one))
                .collect(),
            endpoints,
        }
    }

    fn report(localities: Vec<LocalityLoadStats>) -> Vec<u8> {
        let stats = |name: &str, localities| ClusterLoadStats {
            cluster_name: name.into(),
            localities,
            load_report_interval: Duration::from_secs(2),
            ..Default::default()
        };
        encode_load_report(&LoadReport {
            node: None,
            cluster_stats: vec![stats("quiet", Vec::new()), stats("orders", localities)],
        })
    }

    /// As Envoy and our own data planes send them: names under `load_metric_stats`.
    #[test]
    fn endpoints_are_read_with_their_metrics() {
        let cpu = [("cpu_utilization", metric(92, 46.0))];
        let hosts = vec![host(80, &cpu), host(81, &[])];
        let read = decode_host_stats(&report(vec![locality("a", hosts.clone(), &cpu)]));
        let expected = ClusterHostStats {
            cluster_name: "orders".into(),
            load_report_interval: Duration::from_secs(2),
            endpoints: hosts,
            localities: Vec::new(),
        };
        assert_eq!(read, [expected]);
    }

    /// gRPC clients: fields without a name, by locality only. Ours send both forms of one sum.
    #[test]
    fn metrics_by_locality_count_once() {
        let metrics = [
            ("cpu_utilization", metric(92, 46.0)),
            ("named_metrics.queue", metric(92, 9.2)),
        ];
        let read = decode_host_stats(&report(vec![locality("a", Vec::new(), &metrics)]));
        let metrics = metrics.map(|(name, one)| (name.into(), one)).into();
        assert_eq!(read[0].localities, [(Locality::zone_only("a"), metrics)]);
        assert_eq!(read[0].endpoints, []);
    }

    #[test]
    fn a_hostile_report_is_read_in_part() {
        let hosts = (0..=u16::MAX).map(|port| host(port, &[])).collect();
        let read = decode_host_stats(&report(vec![locality("a", hosts, &[])]));
        assert_eq!(read[0].endpoints.len(), MAX_ENDPOINTS);
        let names: Vec<String> = (0..1000)
            .map(|name| format!("named_metrics.{name}"))
            .collect();
        let metrics: Vec<_> = names.iter().map(|name| (&**name, metric(1, 0.5))).collect();
        let read = decode_host_stats(&report(vec![locality("a", vec![host(80, &metrics)], &[])]));
        assert_eq!(read[0].endpoints[0].load_metric_stats.len(), MAX_METRICS);
    }

    proptest! {
        #[test]
        fn noise_is_no_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_host_stats(&noise);
        }
    }
}
