//! Nodes: what they are, what they get, what they answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::planner::{FleetView, NodeView};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::server::TypeStatus;
use serde_json::{Value, json};

use super::{Page, class_name, delivery, millis, place, rounded};
use crate::delivery::{Class, fleet_ramp, steering};
use crate::fleet::Member;
use crate::server::StreamRecord;
use crate::state::State;
use crate::unreported::Unreported;

/// Streams of each node.
type Streams<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a StreamRecord>>;

/// A part of the nodes, in order of fleet and id.
pub(in crate::admin) fn nodes(
    state: &State,
    (records, unreported): (&[StreamRecord], &Unreported),
    page: &Page,
    now: Instant,
) -> Value {
    let streams = by_node(records);
    let deliveries: BTreeMap<Class, Value> = [Class::Plimsoll, Class::Grpc, Class::Envoy]
        .into_iter()
        .map(|class| (class, deliveries(state, class)))
        .collect();
    let mut total = 0;
    let mut nodes = Vec::new();
    for (fleet, members) in state.fleets().iter() {
        if page.fleet.as_deref().is_some_and(|f| f != fleet.as_ref()) {
            continue;
        }
        let matching = |(id, _): &(&Arc<str>, &Member)| {
            page.name.as_deref().is_none_or(|name| name == id.as_ref())
        };
        let view = state.planner().fleet(fleet, now);
        let reports = view.iter().flat_map(FleetView::nodes);
        let reports: BTreeMap<_, _> = reports.map(|node| (Arc::clone(node.id), node)).collect();
        for (id, member) in members.iter().filter(matching) {
            total += 1;
            if total <= page.offset || nodes.len() >= page.limit {
                continue;
            }
            let mut json = node(member, reports.get(id), now);
            let class = Class::of(&member.info);
            json["unreported"] = json!(unreported.of(fleet, id));
            json["delivery"] = deliveries.get(&class).cloned().unwrap_or_default();
            let own = streams.get(&(fleet.as_ref(), id.as_ref()));
            let own = own.into_iter().flatten().map(|record| stream(record, now));
            json["discovery"] = own.collect();
            nodes.push(json);
        }
    }
    json!({ "total": total, "offset": page.offset, "nodes": nodes })
}

fn by_node(records: &[StreamRecord]) -> Streams<'_> {
    let mut streams = Streams::new();
    for record in records {
        let node = &record.node.node;
        let own = streams.entry((&node.cluster, &node.id)).or_default();
        own.push(record);
    }
    streams
}

fn node(member: &Member, report: Option<&NodeView<'_>>, now: Instant) -> Value {
    let info = &member.info;
    let since = |at| millis(now.saturating_duration_since(at));
    json!({
        "id": info.node.id,
        "fleet": info.node.cluster,
        "locality": place(&info.node.locality),
        "class": class_name(Class::of(info)),
        "user_agent_name": info.user_agent_name,
        "user_agent_version": info.user_agent_version,
        "known_for_ms": since(member.since),
        "discovery_streams": member.ads_streams,
        "load_reporting_streams": member.lrs_streams,
        "without_stream_for_ms": member.silent_since.map(since),
        "last_report_age_ms": report.map(|report| millis(report.last_report_age)),
        "report_interval_ms": report.map(|report| millis(report.report_interval)),
        "requests_per_second": report.map(|report| rounded(report.rate_per_second)),
    })
}

/// The same for all nodes of a class.
fn deliveries(state: &State, class: Class) -> Value {
    let services = state.config().services.values();
    let ramp = fleet_ramp(services.clone().map(AsRef::as_ref));
    let each = services.map(|service| {
        let (delivery, reason) = delivery(steering(service, class, ramp));
        json!({ "cluster": service.name(), "delivery": delivery, "reason": reason })
    });
    each.collect()
}

fn stream(record: &StreamRecord, now: Instant) -> Value {
    let types = record.types.iter().map(|kind| type_status(kind, now));
    json!({
        "variant": match record.variant {
            Variant::Sotw => "sotw",
            Variant::Delta => "delta",
        },
        "peer": record.peer,
        "open_for_ms": millis(now.saturating_duration_since(record.since)),
        "types": types.collect::<Vec<_>>(),
    })
}

fn type_status(status: &TypeStatus, now: Instant) -> Value {
    let nacked = status.nacked.as_ref().map(|refusal| {
        json!({
            "version": refusal.version,
            "resources": refusal.names,
            "message": refusal.detail.message,
        })
    });
    let answered = status.answered_at;
    json!({
        "type_url": status.type_url,
        "wildcard": status.wildcard,
        "subscribed_names": status.names,
        "sent_version": status.sent,
        "acked_version": status.acked,
        "nacked": nacked,
        "awaiting_answer": status.in_flight,
        "last_answer_age_ms": answered.map(|at| millis(now.saturating_duration_since(at))),
        "responses": status.responses,
        "acks": status.acks,
        "nacks": status.nacks,
        "stale_answers": status.stale,
    })
}
