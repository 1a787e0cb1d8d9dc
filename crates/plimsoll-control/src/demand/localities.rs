//! Clusters and upstream localities of a load report: bounds, repetitions, and what localities say
//! about a cluster.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterStats, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;

use super::Demand;
use crate::config::Service;

impl Demand {
    /// Returns the part of a load report that counts, with every cluster and locality once: it is
    /// stored by the planner, by all replicas and in their store.
    pub(crate) fn counted(&self, fleet: &str, stats: &[ClusterStats]) -> Vec<ClusterStats> {
        let all = self.config.wants_all_reports();
        let stats = distinct_clusters(stats);
        let mut counted = Vec::with_capacity(stats.len());
        for stats in &*stats {
            let service = self.config.services.get(&stats.cluster_name);
            let counts = if all {
                has_localities(stats)
            } else {
                service.is_some_and(|service| service.is_visible_to(fleet))
            };
            if counts {
                let limit = self.config.operation.limits.fleets.zones_per_fleet;
                counted.push(known_localities(stats, service, limit).into_owned());
            }
        }
        counted
    }
}

/// Returns a load report in which every cluster occurs once. gRPC clients report a cluster once
/// per EDS service name. A report that repeats a cluster a thousand times must not be stored so.
fn distinct_clusters(stats: &[ClusterStats]) -> Cow<'_, [ClusterStats]> {
    let names: BTreeSet<&Arc<str>> = stats.iter().map(|one| &one.cluster_name).collect();
    if names.len() == stats.len() {
        return Cow::Borrowed(stats);
    }
    let mut positions = BTreeMap::new();
    let mut merged: Vec<ClusterStats> = Vec::with_capacity(names.len());
    for one in stats {
        let position = *positions.entry(&one.cluster_name).or_insert(merged.len());
        let Some(sum) = merged.get_mut(position) else {
            merged.push(one.clone());
            continue;
        };
        let localities = one.upstream_locality_stats.iter().cloned();
        sum.upstream_locality_stats.extend(localities);
        let dropped = &mut sum.total_dropped_requests;
        *dropped = dropped.saturating_add(one.total_dropped_requests);
        sum.load_report_interval = sum.load_report_interval.max(one.load_report_interval);
    }
    Cow::Owned(merged)
}

/// Returns statistics in which every locality occurs once. Localities that the service does not
/// have, or, if its endpoints are not known, more than `limit` localities, are merged into one
/// without a name. Demand is counted where it arrives; where it goes is only shown, so the sum is
/// all that matters.
fn known_localities<'a>(
    stats: &'a ClusterStats,
    service: Option<&Arc<Service>>,
    limit: usize,
) -> Cow<'a, ClusterStats> {
    let entries = &stats.upstream_locality_stats;
    let reported: BTreeSet<&Locality> = entries.iter().map(|entry| &entry.locality).collect();
    let endpoints = service.map_or(&[][..], |service| service.assignment.endpoints());
    let mut known: BTreeSet<&Locality> = endpoints.iter().map(|entry| &entry.locality).collect();
    if known.is_empty() {
        known = reported.iter().copied().take(limit).collect();
    }
    if reported.len() == entries.len() && reported.is_subset(&known) {
        return Cow::Borrowed(stats);
    }
    let mut positions = BTreeMap::new();
    let mut kept: Vec<UpstreamLocalityStats> = Vec::new();
    let mut others: Option<UpstreamLocalityStats> = None;
    for entry in entries {
        if !known.contains(&entry.locality) {
            add(others.get_or_insert_default(), entry);
            continue;
        }
        let position = *positions.entry(&entry.locality).or_insert(kept.len());
        match kept.get_mut(position) {
            Some(sum) => add(sum, entry),
            None => kept.push(entry.clone()),
        }
    }
    kept.extend(others);
    Cow::Owned(ClusterStats {
        cluster_name: Arc::clone(&stats.cluster_name),
        upstream_locality_stats: kept,
        total_dropped_requests: stats.total_dropped_requests,
        load_report_interval: stats.load_report_interval,
    })
}

fn add(sum: &mut UpstreamLocalityStats, entry: &UpstreamLocalityStats) {
    let unissued = sum.unissued_requests();
    sum.total_unissued_requests = Some(unissued.saturating_add(entry.unissued_requests()));
    let sums = [
        (&mut sum.total_issued_requests, entry.total_issued_requests),
        (
            &mut sum.total_successful_requests,
            entry.total_successful_requests,
        ),
        (&mut sum.total_error_requests, entry.total_error_requests),
        (
            &mut sum.total_requests_in_progress,
            entry.total_requests_in_progress,
        ),
    ];
    for (sum, added) in sums {
        *sum = sum.saturating_add(added);
    }
}

/// Whether a reported cluster that is not configured can belong to the relayed server. With
/// `send_all_clusters`, Envoy also reports the clusters of its management servers, whose hosts have
/// no locality; Envoy's `xds` cluster always has a stream in progress.
fn has_localities(stats: &ClusterStats) -> bool {
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
        let known = stats(&[("a", 1), ("c", 3), ("b", 2)]);
        let kept = known_localities(&known, service, 1);
        assert!(matches!(kept, Cow::Borrowed(_)), "nothing is copied");
        let mixed = stats(&[("a", 1), ("x", 2), ("c", 3), ("y", u64::MAX)]);
        let kept = known_localities(&mixed, service, 1);
        assert_eq!(rows(&kept), [("a", 1), ("c", 3), ("", u64::MAX)]);
        assert_eq!(kept.total_dropped_requests, 7);
    }

    #[test]
    fn of_unknown_endpoints_a_number_of_localities_is_kept() {
        let some = stats(&[("c", 1), ("a", 2), ("b", 3)]);
        assert!(matches!(known_localities(&some, None, 3), Cow::Borrowed(_)));
        let kept = known_localities(&some, None, 2);
        assert_eq!(rows(&kept), [("a", 2), ("b", 3), ("", 1)]);
    }

    #[test]
    fn a_locality_that_is_repeated_is_kept_once() {
        let config = config("");
        let repeated = stats(&[("b", 1), ("a", 2), ("x", 3), ("b", u64::MAX), ("x", 4)]);
        let kept = known_localities(&repeated, config.services.get("orders"), 1);
        assert_eq!(rows(&kept), [("b", u64::MAX), ("a", 2), ("", 7)]);
        let kept = known_localities(&repeated, None, 3);
        assert_eq!(rows(&kept), [("b", u64::MAX), ("a", 2), ("x", 7)]);
        let mut entry = repeated.upstream_locality_stats[0].clone();
        entry.total_successful_requests = 2;
        entry.total_error_requests = 3;
        entry.total_requests_in_progress = 4;
        entry.total_unissued_requests = Some(5);
        let twice = ClusterStats {
            upstream_locality_stats: vec![entry; 2],
            ..repeated
        };
        let [sum] = &known_localities(&twice, None, 3)
            .into_owned()
            .upstream_locality_stats[..]
        else {
            panic!("one locality");
        };
        let counts = [
            sum.total_issued_requests,
            sum.total_successful_requests,
            sum.total_error_requests,
            sum.total_requests_in_progress,
        ];
        assert_eq!(counts, [2, 4, 6, 8]);
        assert_eq!((sum.unissued_requests(), sum.arrived_requests()), (10, 12));
    }

    #[test]
    fn a_cluster_that_is_repeated_is_kept_once() {
        let named = |name: &str, zones: &[(&str, u64)], seconds: u64| ClusterStats {
            cluster_name: name.into(),
            load_report_interval: Duration::from_secs(seconds),
            ..stats(zones)
        };
        let distinct = [named("x", &[("a", 1)], 1), named("y", &[("a", 1)], 1)];
        assert!(matches!(distinct_clusters(&distinct), Cow::Borrowed(_)));
        let mut repeated = vec![
            named("y", &[("a", 1)], 2),
            named("x", &[("a", 2)], 1),
            named("y", &[("a", 3), ("b", 4)], 5),
        ];
        repeated[2].total_dropped_requests = u64::MAX;
        let merged = distinct_clusters(&repeated);
        let names: Vec<&str> = merged.iter().map(|one| &*one.cluster_name).collect();
        assert_eq!(names, ["y", "x"]);
        assert_eq!(rows(&merged[0]), [("a", 1), ("a", 3), ("b", 4)]);
        assert_eq!(merged[0].total_dropped_requests, u64::MAX);
        assert_eq!(merged[0].load_report_interval, Duration::from_secs(5));
        assert_eq!(merged[1], repeated[1]);
    }
}
