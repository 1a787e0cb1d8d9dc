//! Merges load reports, so that a report that could not be sent is not lost.
//!
//! Counters and intervals add up; requests in progress are a gauge, of which the later value
//! counts. Called by `lrs::client` only.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::load_report::{
    ClusterLoadStats, LocalityLoadStats, MetricStats, UpstreamEndpointStats,
};

/// Adds later counters to earlier ones, cluster by cluster.
pub(super) fn merge(earlier: &mut Vec<ClusterLoadStats>, later: Vec<ClusterLoadStats>) {
    if earlier.is_empty() {
        *earlier = later;
        return;
    }
    for stats in later {
        let same = |known: &&mut ClusterLoadStats| {
            known.cluster_name == stats.cluster_name
                && known.cluster_service_name == stats.cluster_service_name
        };
        match earlier.iter_mut().find(same) {
            Some(known) => add_cluster(known, stats),
            None => earlier.push(stats),
        }
    }
}

fn add_cluster(known: &mut ClusterLoadStats, later: ClusterLoadStats) {
    add(
        &mut known.total_dropped_requests,
        later.total_dropped_requests,
    );
    for (category, count) in later.dropped_requests {
        add(known.dropped_requests.entry(category).or_default(), count);
    }
    known.load_report_interval = known
        .load_report_interval
        .saturating_add(later.load_report_interval);
    // A locality that is missing from the later report has nothing in progress.
    for locality in &mut known.localities {
        locality.stats.total_requests_in_progress = 0;
        for endpoint in &mut locality.endpoints {
            endpoint.total_requests_in_progress = 0;
        }
    }
    for stats in later.localities {
        let same = |known: &&mut LocalityLoadStats| {
            known.stats.locality == stats.stats.locality
                && known.stats.priority == stats.stats.priority
        };
        match known.localities.iter_mut().find(same) {
            Some(known) => add_locality(known, stats),
            None => known.localities.push(stats),
        }
    }
}

fn add_locality(known: &mut LocalityLoadStats, later: LocalityLoadStats) {
    let (counts, more) = (&mut known.stats, &later.stats);
    add(
        &mut counts.total_issued_requests,
        more.total_issued_requests,
    );
    add(
        &mut counts.total_successful_requests,
        more.total_successful_requests,
    );
    add(&mut counts.total_error_requests, more.total_error_requests);
    counts.total_requests_in_progress = more.total_requests_in_progress;
    add_metrics(&mut known.load_metric_stats, later.load_metric_stats);
    for stats in later.endpoints {
        let mut endpoints = known.endpoints.iter_mut();
        match endpoints.find(|known| known.address == stats.address) {
            Some(known) => add_endpoint(known, stats),
            None => known.endpoints.push(stats),
        }
    }
}

fn add_endpoint(known: &mut UpstreamEndpointStats, later: UpstreamEndpointStats) {
    add(
        &mut known.total_issued_requests,
        later.total_issued_requests,
    );
    add(
        &mut known.total_successful_requests,
        later.total_successful_requests,
    );
    add(&mut known.total_error_requests, later.total_error_requests);
    known.total_requests_in_progress = later.total_requests_in_progress;
    add_metrics(&mut known.load_metric_stats, later.load_metric_stats);
}

fn add_metrics(
    known: &mut BTreeMap<Arc<str>, MetricStats>,
    later: BTreeMap<Arc<str>, MetricStats>,
) {
    for (name, metric) in later {
        known.entry(name).or_default().add(metric);
    }
}

fn add(known: &mut u64, later: u64) {
    *known = known.saturating_add(later);
}

#[cfg(test)]
mod tests;
