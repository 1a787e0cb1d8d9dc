//! Upstream localities of a load report: bounds, and what they say about a cluster.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterStats, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;

use crate::config::Service;

/// Returns statistics in which localities that the service does not have, or, if its endpoints are
/// not known, more than `limit` localities, are merged into one without a name. Demand is counted
/// where it arrives; where it goes is only shown, so the sum is all that matters.
pub(super) fn known_localities<'a>(
    stats: &'a ClusterStats,
    service: Option<&Arc<Service>>,
    limit: usize,
) -> Cow<'a, ClusterStats> {
    let endpoints = service.map_or(&[][..], |service| service.assignment.endpoints());
    let mut known: BTreeSet<&Locality> = endpoints.iter().map(|entry| &entry.locality).collect();
    if known.is_empty() {
        let reported = stats.upstream_locality_stats.iter();
        known.extend(reported.map(|entry| &entry.locality));
        known = known.into_iter().take(limit).collect();
    }
    let entries = stats.upstream_locality_stats.iter();
    if entries.clone().all(|entry| known.contains(&entry.locality)) {
        return Cow::Borrowed(stats);
    }
    let (mut kept, others): (Vec<_>, Vec<_>) = entries
        .cloned()
        .partition(|entry| known.contains(&entry.locality));
    let sum = others
        .into_iter()
        .fold(UpstreamLocalityStats::default(), |mut sum, entry| {
            let issued = &mut sum.total_issued_requests;
            *issued = issued.saturating_add(entry.total_issued_requests);
            sum
        });
    kept.push(sum);
    Cow::Owned(ClusterStats {
        upstream_locality_stats: kept,
        ..stats.clone()
    })
}

/// Whether a reported cluster that is not configured can belong to the relayed server. With
/// `send_all_clusters`, Envoy also reports the clusters of its management servers, whose hosts have
/// no locality; Envoy's `xds` cluster always has a stream in progress.
pub(super) fn has_localities(stats: &ClusterStats) -> bool {
    let localities = &stats.upstream_locality_stats;
    localities.is_empty() || localities.iter().any(|entry| !entry.locality.is_unset())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::tests::driver::config;

    fn stats(zones: &[(&str, u64)]) -> ClusterStats {
        let entry = |&(zone, issued): &(&str, u64)| UpstreamLocalityStats {
            locality: Locality::zone_only(zone),
            total_issued_requests: issued,
            ..Default::default()
        };
        ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: zones.iter().map(entry).collect(),
            total_dropped_requests: 7,
            load_report_interval: Duration::from_secs(1),
        }
    }

    fn rows(stats: &ClusterStats) -> Vec<(&str, u64)> {
        let entries = stats.upstream_locality_stats.iter();
        entries
            .map(|entry| (entry.locality.zone(), entry.total_issued_requests))
            .collect()
    }

    #[test]
    fn localities_of_the_service_are_kept_and_others_merged() {
        let config = config("");
        let service = config.services.get("orders");
        let known = stats(&[("a", 1), ("b", 2), ("c", 3), ("a", 4)]);
        let kept = known_localities(&known, service, 1);
        assert!(matches!(kept, Cow::Borrowed(_)), "nothing is copied");
        let mixed = stats(&[("a", 1), ("x", 2), ("c", 3), ("y", u64::MAX)]);
        let kept = known_localities(&mixed, service, 1);
        assert_eq!(rows(&kept), [("a", 1), ("c", 3), ("", u64::MAX)]);
        assert_eq!(kept.total_dropped_requests, 7);
    }

    #[test]
    fn of_unknown_endpoints_a_number_of_localities_is_kept() {
        let some = stats(&[("c", 1), ("a", 2), ("b", 3), ("a", 4)]);
        assert!(matches!(known_localities(&some, None, 3), Cow::Borrowed(_)));
        let kept = known_localities(&some, None, 2);
        assert_eq!(rows(&kept), [("a", 2), ("b", 3), ("a", 4), ("", 1)]);
    }
}
