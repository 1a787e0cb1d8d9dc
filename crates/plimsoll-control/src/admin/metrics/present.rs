//! Series that exist from the first scrape, so that "nothing happened" (0) differs from "not
//! measured", and `increase()` sees the first event.

use plimsoll_xds::driver::RequestLimit;

use super::Values;
use crate::counters;
use crate::fleet::OpenRefusal;
use crate::identity;

/// Discovery types that every control plane serves.
const TYPES: [&str; 4] = [
    "Cluster",
    "ClusterLoadAssignment",
    "Listener",
    "RouteConfiguration",
];

/// Limits that count in `limit_exceeded_total`, beside those of [`OpenRefusal`].
const LIMITS: [&str; 9] = [
    "queue_bytes",
    "what_if_zones",
    RequestLimit::NodeStringBytes.name(),
    RequestLimit::ClientFeatures.name(),
    RequestLimit::NameBytes.name(),
    RequestLimit::Names.name(),
    RequestLimit::ClustersPerReport.name(),
    RequestLimit::LocalitiesPerCluster.name(),
    RequestLimit::LocalitiesPerReport.name(),
];

/// Adds zero to every counter and gauge whose labels are known before anything happens.
pub(super) fn add_zeros(values: &mut Values) {
    let unlabeled = [
        "load_reports_total",
        "reporters_joined_total",
        "nodes_capped_total",
        "duplicate_nodes_total",
        "relay_streams_refused_total",
        "config_removals_refused_total",
    ];
    for name in unlabeled {
        values.add(name, &[], 0);
    }
    let discovery = [
        "discovery_responses_total",
        "discovery_acks_total",
        "discovery_nacks_total",
    ];
    for name in discovery {
        TYPES.iter().for_each(|kind| values.add(name, &[kind], 0));
    }
    let labeled: [(&str, &[&str]); 7] = [
        (
            "identity_mistakes_total",
            &["unknown_locality", "no_locality", "shared_id"],
        ),
        ("otlp_exports_total", &["ok", "failed"]),
        ("nodes_refused_total", &identity::FIELDS),
        ("load_reports_ignored_total", &counters::IGNORED),
        ("reporters_left_total", &counters::LEFT),
        ("plans_total", &counters::CAUSES),
        ("clusters", &["ENFORCE", "SHADOW", "OFF"]),
    ];
    for (name, labels) in labeled {
        labels
            .iter()
            .for_each(|label| values.add(name, &[label], 0));
    }
    for limit in LIMITS.iter().chain(&OpenRefusal::LIMITS) {
        values.add("limit_exceeded_total", &[limit], 0);
    }
}
