//! Series that exist from the first scrape, so that "nothing happened" (0) differs from "not
//! measured", and `increase()` sees the first event.

use plimsoll_core::planner::{IgnoreReason, LeaveReason, UpdateCause};
use plimsoll_kubernetes::budget::NamespaceLimits;
use plimsoll_xds::driver::RequestLimit;

use super::Values;
use crate::events::reasons::Reason as _;
use crate::events::streams::NOT_READABLE;
use crate::fleet::OpenRefusal;
use crate::identity;

/// Discovery types that every control plane serves.
const TYPES: [&str; 4] = [
    "Cluster",
    "ClusterLoadAssignment",
    "Listener",
    "RouteConfiguration",
];

/// Limits that count in `limit_exceeded_total`, beside those of [`OpenRefusal`] and
/// [`RequestLimit`].
const LIMITS: [&str; 6] = [
    "queue_bytes",
    "report_rate",
    "what_if_zones",
    "store_record",
    "store_plan",
    "store_writes",
];

/// Returns the labels of `limit_exceeded_total`.
fn limits() -> impl Iterator<Item = &'static str> {
    let requests = RequestLimit::ALL.map(RequestLimit::name);
    LIMITS
        .into_iter()
        .chain(OpenRefusal::LIMITS)
        .chain(requests)
        .chain(NamespaceLimits::NAMES)
}

/// Adds zero to every counter and gauge whose labels are known before anything happens.
pub(super) fn add_zeros(values: &mut Values) {
    let unlabeled = [
        "load_reports_total",
        "reporters_joined_total",
        "nodes_capped_total",
        "zone_failures_total",
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
    let labeled: [(&str, &[&str]); 8] = [
        (
            "identity_mistakes_total",
            &["unknown_locality", "no_locality", "shared_id"],
        ),
        ("otlp_exports_total", &["ok", "failed"]),
        ("nodes_refused_total", &identity::FIELDS),
        ("load_reports_ignored_total", IgnoreReason::LABELS),
        (
            "load_reports_ignored_total",
            &["unknown_cluster", NOT_READABLE],
        ),
        ("reporters_left_total", LeaveReason::LABELS),
        ("plans_total", UpdateCause::LABELS),
        ("clusters", &["ENFORCE", "SHADOW", "OFF"]),
    ];
    for (name, labels) in labeled {
        labels
            .iter()
            .for_each(|label| values.add(name, &[label], 0));
    }
    for limit in limits() {
        values.add("limit_exceeded_total", &[limit], 0);
    }
}

#[cfg(test)]
#[cfg(feature = "schema")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::config::limit_fields;

    /// Fields of `limits` that count elsewhere: the metric with its label.
    const COUNTED_ELSEWHERE: [(&str, &str); 3] = [
        (
            "connections",
            "plimsoll_control_connections_refused_total{reason=\"limit\"}",
        ),
        (
            "connections_per_peer",
            "plimsoll_control_connections_refused_total{reason=\"peer_limit\"}",
        ),
        (
            "handshake_timeout",
            "plimsoll_control_connections_refused_total{reason=\"handshake_timeout\"}",
        ),
    ];
    /// Fields beyond which a text is cut or a connection ends in order, and nothing refused.
    const CUT: [&str; 2] = ["connection_age", "text_bytes"];

    /// Rows of the tables of docs/control.md, by the names in backticks.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control.md");
        let page = fs::read_to_string(path).unwrap();
        let (_, section) = page.split_once("\n## Limits\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| "));
        rows.flat_map(|row| row.split('`').skip(1).step_by(2))
            .map(ToOwned::to_owned)
            .collect()
    }

    #[test]
    fn every_limit_has_a_counter_and_a_row_in_the_docs() {
        let counted: BTreeSet<_> = limits().collect();
        let documented = documented();
        let refused = plimsoll_serve::ConnectionStats::default().refused();
        for field in limit_fields() {
            let field = field.as_str();
            assert!(documented.contains(field), "{field} has no row");
            let elsewhere = COUNTED_ELSEWHERE.iter().find(|(name, _)| *name == field);
            if let Some((_, metric)) = elsewhere {
                let has_label = |label| metric.ends_with(&format!("{{reason=\"{label}\"}}"));
                assert!(
                    refused.iter().any(|(label, _)| has_label(label)),
                    "{metric}"
                );
            } else if !CUT.contains(&field) {
                assert!(counted.contains(field), "{field} has no counter");
            }
        }
        for limit in counted {
            assert!(documented.contains(limit), "{limit} has no row");
        }
    }
}
