//! Memory that a load report takes while it waits for the writer.

use std::sync::Arc;

use plimsoll_core::model::load_report::{
    ClusterHostStats, ClusterStats, MetricStats, UpstreamEndpointStats, UpstreamLocalityStats,
};

/// Estimates the memory of a report, so that the queue is limited by bytes: a report of an Envoy
/// has a few hundred, one of a hostile peer as many as its message may have.
pub(super) fn report_size(stats: &[ClusterStats]) -> usize {
    let cluster = |stats: &ClusterStats| {
        let localities = stats.upstream_locality_stats.iter();
        let strings: usize = localities
            .map(|entry| {
                let locality = &entry.locality;
                locality.region().len() + locality.zone().len() + locality.sub_zone().len()
            })
            .sum();
        size_of::<ClusterStats>()
            + stats.cluster_name.len()
            + stats.upstream_locality_stats.len() * size_of::<UpstreamLocalityStats>()
            + strings
    };
    stats.iter().map(cluster).sum()
}

/// Estimates the memory of what a report says of hosts.
pub(super) fn host_report_size(stats: &[ClusterHostStats]) -> usize {
    const METRIC: usize = size_of::<(Arc<str>, MetricStats)>() + 32;
    let cluster = |stats: &ClusterHostStats| {
        let hosts = stats.endpoints.len() * size_of::<UpstreamEndpointStats>();
        let of_hosts = stats
            .endpoints
            .iter()
            .map(|host| host.load_metric_stats.len());
        let of_localities = stats
            .localities
            .iter()
            .map(|(_, metrics)| 1 + metrics.len());
        let metrics = of_hosts.sum::<usize>() + of_localities.sum::<usize>();
        size_of::<ClusterHostStats>() + hosts + metrics * METRIC
    };
    stats.iter().map(cluster).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::model::locality::Locality;

    use super::*;

    #[test]
    fn a_report_takes_the_memory_of_all_its_parts() {
        let stats = ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: vec![
                UpstreamLocalityStats {
                    locality: Locality::new("r", "zone", "part"),
                    ..Default::default()
                },
                UpstreamLocalityStats::default(),
            ],
            total_dropped_requests: 0,
            load_report_interval: Duration::ZERO,
        };
        let one = size_of::<ClusterStats>() + 6 + 2 * size_of::<UpstreamLocalityStats>() + 9;
        assert_eq!(report_size(&[]), 0);
        assert_eq!(report_size(&[stats.clone(), stats]), 2 * one);
    }
}
