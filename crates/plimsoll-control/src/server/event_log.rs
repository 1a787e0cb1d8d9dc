//! Writes events of the state and entries of the audit to the log. Fields are stable; localities
//! are written as everywhere else, `r1/zone-a`. Lines that peers cause are limited.

use plimsoll_core::log_line;
use plimsoll_core::planner::{PlanScope, PlannerEvent};
use plimsoll_core::time::Instant;

use super::throttle::Throttle;
use crate::audit::{AuditEntry, AuditKind, Delivered};
use crate::config::ControlConfig;
use crate::counters::{cause, ignored, left};
use crate::fleet::OpenRefusal;
use crate::log_lines;
use crate::state::ControlEvent;

/// Logs an entry of the audit: a line for each change.
pub(super) fn audited(entry: &AuditEntry) {
    let (number, by) = (entry.number, &*entry.by);
    for change in &entry.changes {
        let service = change.service.as_deref().unwrap_or("");
        let [before, after, source] = [&change.before, &change.after, &change.source]
            .map(|value| value.as_deref().unwrap_or(""));
        let field = change.field.as_str();
        if entry.kind == AuditKind::Changed {
            log_line!(
                log_lines::SETTING_CHANGED,
                number,
                by,
                service,
                field,
                before,
                after,
                source
            );
        } else {
            log_line!(
                log_lines::SETTING_READ,
                number,
                by,
                service,
                field,
                after,
                source
            );
        }
    }
    if let Some(reason) = &entry.reason {
        log_line!(log_lines::CHANGE_REFUSED, number, by, reason);
    }
}

/// Logs that proxies have answered a change.
pub(super) fn delivered(delivered: &Delivered) {
    let delivery = &delivered.delivery;
    let millis = |time: Option<std::time::Duration>| {
        time.map_or(0, |time| {
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
        })
    };
    log_line!(
        log_lines::CHANGE_DELIVERED,
        number = delivered.number,
        streams = delivery.streams,
        accepted = delivery.accepted,
        refused = delivery.refused,
        closed = delivery.closed,
        first_ack_ms = millis(delivery.first_ack),
        last_ack_ms = millis(delivery.last_ack)
    );
}

pub(super) fn event(
    event: &ControlEvent,
    config: &ControlConfig,
    throttle: &Throttle,
    now: Instant,
) {
    match event {
        ControlEvent::StreamRefused { .. }
        | ControlEvent::UnknownLocality { .. }
        | ControlEvent::SharedId { .. } => identity(event, throttle, now),
        ControlEvent::Planner(event) => planner(event, throttle, now),
        ControlEvent::HeartbeatShortened {
            cluster,
            staleness_threshold: threshold,
            written,
            heartbeat,
        } => {
            if config.heartbeat_error.is_some() {
                log_line!(
                    log_lines::HEARTBEAT_SHORTENED,
                    %cluster, ?threshold, ?written, ?heartbeat
                );
            } else {
                log_line!(log_lines::DEFAULT_HEARTBEAT_SHORTENED, %cluster, ?threshold, ?heartbeat);
            }
        }
        ControlEvent::DuplicateNode {
            fleet,
            node,
            replica,
        } => {
            if let Some(suppressed) = throttle.admit("duplicate_at_replicas", now) {
                log_line!(log_lines::DUPLICATE_AT_REPLICAS, %fleet, %node, %replica, suppressed);
            }
        }
        ControlEvent::StoreConnected { nodes } => log_line!(log_lines::STORE_CONNECTED, nodes),
        ControlEvent::StoreLost { reason } => log_line!(log_lines::STORE_LOST, reason),
        ControlEvent::ConfigApplied { services } => {
            log_line!(log_lines::CONFIG_APPLIED, services);
        }
        ControlEvent::FleetChanged { fleet, nodes } => {
            log_line!(log_lines::FLEET_CHANGED, %fleet, nodes);
        }
        ControlEvent::Planned(plan) => {
            let PlanScope {
                fleet,
                upstream_cluster,
            } = &plan.scope;
            let cluster = upstream_cluster.as_deref().unwrap_or("");
            let cause = cause(plan.cause);
            log_line!(log_lines::PLANNED, %fleet, cluster, cause);
        }
    }
}

/// Logs that a node may not be what it says.
fn identity(event: &ControlEvent, throttle: &Throttle, now: Instant) {
    match event {
        ControlEvent::StreamRefused {
            fleet,
            node,
            refusal,
        } => {
            let Some(suppressed) = throttle.admit(refusal.limit(), now) else {
                return;
            };
            let reason = refusal.to_string();
            if matches!(refusal, OpenRefusal::DuplicateId { .. }) {
                log_line!(log_lines::DUPLICATE_NODE, %fleet, %node, reason, suppressed);
            } else {
                log_line!(log_lines::STREAM_REFUSED, %fleet, %node, reason, suppressed);
            }
        }
        ControlEvent::UnknownLocality {
            fleet,
            node,
            locality,
            nearest,
        } => {
            if let Some(suppressed) = throttle.admit("unknown_locality", now) {
                let nearest = nearest.as_ref().map(ToString::to_string);
                let did_you_mean = nearest.unwrap_or_default();
                log_line!(
                    log_lines::UNKNOWN_LOCALITY,
                    %fleet, %node, %locality, did_you_mean, suppressed
                );
            }
        }
        ControlEvent::SharedId {
            fleet,
            node,
            streams,
        } => {
            if let Some(suppressed) = throttle.admit("shared_id", now) {
                log_line!(log_lines::SHARED_NODE_ID, %fleet, %node, streams, suppressed);
            }
        }
        _ => {}
    }
}

fn planner(event: &PlannerEvent, throttle: &Throttle, now: Instant) {
    let kind = match event {
        PlannerEvent::NodeCapped { .. } => "node_capped",
        PlannerEvent::ReportIgnored { .. } => "report_ignored",
        _ => "demand_changed",
    };
    let Some(suppressed) = throttle.admit(kind, now) else {
        return;
    };
    match event {
        PlannerEvent::NodeCapped {
            fleet,
            node,
            locality,
            reported_per_second,
            counted_per_second,
        } => {
            log_line!(
                log_lines::NODE_CAPPED,
                %fleet, %node, %locality, reported_per_second, counted_per_second, suppressed
            );
        }
        PlannerEvent::ReportIgnored {
            fleet,
            node,
            upstream_cluster: cluster,
            reason,
        } => {
            let reason = ignored(*reason);
            log_line!(log_lines::REPORT_IGNORED, %fleet, %node, %cluster, reason, suppressed);
        }
        PlannerEvent::NodeJoined {
            fleet,
            node,
            locality,
        } => {
            let what = "joined";
            log_line!(log_lines::DEMAND_CHANGED, what, %fleet, %node, %locality, suppressed);
        }
        PlannerEvent::NodeLeft {
            fleet,
            node,
            locality,
            reason,
        } => {
            let (what, reason) = ("left", left(*reason));
            log_line!(
                log_lines::DEMAND_CHANGED,
                what, %fleet, %node, %locality, reason, suppressed
            );
        }
        PlannerEvent::NodeMoved {
            fleet,
            node,
            from,
            to: locality,
        } => {
            let what = "moved";
            log_line!(log_lines::DEMAND_CHANGED, what, %fleet, %node, %from, %locality, suppressed);
        }
    }
}

#[cfg(test)]
mod tests;
