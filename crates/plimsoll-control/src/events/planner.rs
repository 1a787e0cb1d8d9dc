//! Events of the planner: which nodes count, and which zones fail.

use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{IgnoreReason, LeaveReason, PlannerEvent};

use super::Description;
use super::reasons::Reason as _;
use crate::fleet::Suspicion;
use crate::load_line::link_fails;
use crate::log_lines;

/// Lines about nodes that join, leave or move are limited together.
const DEMAND_CHANGED: &str = "demand_changed";

pub(super) fn describe(event: &PlannerEvent) -> Description<'_> {
    match event {
        PlannerEvent::NodeJoined {
            fleet,
            node,
            locality,
        } => Description::logged(move |suppressed| {
            let what = "joined";
            log_line!(log_lines::DEMAND_CHANGED, what, %fleet, %node, %locality, suppressed);
        })
        .limited(DEMAND_CHANGED)
        .info(format!("{node} reports load from {locality}"))
        .counted("reporters_joined_total", ""),
        PlannerEvent::NodeLeft {
            fleet,
            node,
            locality,
            reason,
        } => left(fleet, node, locality, *reason),
        PlannerEvent::NodeMoved {
            fleet,
            node,
            from,
            to: locality,
        } => Description::logged(move |suppressed| {
            let what = "moved";
            log_line!(log_lines::DEMAND_CHANGED, what, %fleet, %node, %from, %locality, suppressed);
        })
        .limited(DEMAND_CHANGED)
        .info(format!("{node} moved from {from} to {locality}")),
        PlannerEvent::NodeCapped {
            fleet,
            node,
            locality,
            reported_per_second,
            counted_per_second,
        } => capped(
            fleet,
            node,
            locality,
            *reported_per_second,
            *counted_per_second,
        ),
        PlannerEvent::ReportIgnored {
            fleet,
            node,
            upstream_cluster,
            reason,
        } => ignored(fleet, node, upstream_cluster, *reason),
        PlannerEvent::ZoneFails {
            fleet,
            upstream_cluster: cluster,
            locality,
            failed_share,
            from,
        } => zone_fails(fleet, cluster, locality, *failed_share, from),
        PlannerEvent::ZoneRecovered {
            fleet,
            upstream_cluster: cluster,
            locality,
        } => Description::logged(move |suppressed| {
            log_line!(log_lines::ZONE_RECOVERED, %fleet, %cluster, %locality, suppressed);
        })
        .limited("zone_recovered")
        .info(format!(
            "requests to {cluster} in {locality} no longer fail"
        )),
    }
}

fn left<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    locality: &'a Locality,
    reason: LeaveReason,
) -> Description<'a> {
    let (label, why) = (reason.label(), reason.text());
    Description::logged(move |suppressed| {
        let (what, reason) = ("left", label);
        log_line!(log_lines::DEMAND_CHANGED, what, %fleet, %node, %locality, reason, suppressed);
    })
    .limited(DEMAND_CHANGED)
    .warning(format!(
        "demand of {node} in {locality} is no longer counted: {why}"
    ))
    .counted("reporters_left_total", label)
}

fn capped<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    locality: &'a Locality,
    reported_per_second: f64,
    counted_per_second: f64,
) -> Description<'a> {
    Description::logged(move |suppressed| {
        log_line!(
            log_lines::NODE_CAPPED,
            %fleet, %node, %locality, reported_per_second, counted_per_second, suppressed
        );
    })
    .limited("node_capped")
    .warning(format!(
        "{node} in {locality} reports {reported_per_second:.0} requests/s, many times the median \
         of its fleet; {counted_per_second:.0} count"
    ))
    .counted("nodes_capped_total", "")
    .suspect(Suspicion::Capped, fleet, node)
}

fn ignored<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    cluster: &'a Arc<str>,
    reason: IgnoreReason,
) -> Description<'a> {
    let (label, why) = (reason.label(), reason.text());
    let event = Description::logged(move |suppressed| {
        let reason = label;
        log_line!(log_lines::REPORT_IGNORED, %fleet, %node, %cluster, reason, suppressed);
    })
    .limited("report_ignored")
    .warning(format!(
        "load report of {node:?} about {cluster} is ignored: {why}"
    ))
    .counted("load_reports_ignored_total", label);
    if reason == IgnoreReason::UnknownZone {
        return event.suspect(Suspicion::UnknownLocality, fleet, node);
    }
    event
}

fn zone_fails<'a>(
    fleet: &'a Arc<str>,
    cluster: &'a Arc<str>,
    locality: &'a Locality,
    failed_share: f64,
    from: &'a [Locality],
) -> Description<'a> {
    let percent = failed_share * 100.0;
    let text = if from.is_empty() {
        format!(
            "{percent:.0} % of the requests to {cluster} in {locality} fail: no spare capacity is \
             there"
        )
    } else {
        let what = link_fails(from, locality);
        format!("of {cluster}, {what}: no spare capacity is there for them")
    };
    Description::logged(move |suppressed| {
        let from: Vec<String> = from.iter().map(ToString::to_string).collect();
        let from = from.join(",");
        log_line!(
            log_lines::ZONE_FAILS,
            %fleet, %cluster, %locality, failed_share, from, suppressed
        );
    })
    .limited("zone_fails")
    .error(text)
    .counted("zone_failures_total", "")
}
