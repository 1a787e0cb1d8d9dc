//! Nodes of the dashboard document: identity, load reports, delivery of demand, ACKs and NACKs.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_admin::api::rounded;
use plimsoll_admin::state::{AckStatus, NodeState};
use plimsoll_control::admin::{class_name, delivery, millis};
use plimsoll_control::delivery::NodeClass;
use plimsoll_control::fleet::Member;
use plimsoll_control::server::StreamRecord;
use plimsoll_control::state::State;
use plimsoll_core::planner::{FleetView, NodeView};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;

use super::Observations;

/// Maximum length of a NACK's error message; some are pages long.
const MAX_NACK_CHARS: usize = 2000;

/// Returns all nodes, sorted by fleet and id.
pub(super) fn nodes(state: &State, observed: &Observations, now: Instant) -> Vec<NodeState> {
    let mut streams: BTreeMap<(&str, &str), Vec<&StreamRecord>> = BTreeMap::new();
    for record in &observed.records {
        let node = &record.node.node;
        let own = streams.entry((&node.cluster, &node.id)).or_default();
        own.push(record);
    }
    let mut nodes = Vec::new();
    for (fleet, members) in state.fleets().iter() {
        let view = state.planner().fleet(fleet, now);
        let classes = state.fleets().classes(fleet);
        let deliveries: BTreeMap<NodeClass, String> = classes
            .map(|class| (class, deliveries(state, fleet, class)))
            .collect();
        let reports = view.iter().flat_map(FleetView::nodes);
        let reports: BTreeMap<&Arc<str>, NodeView<'_>> =
            reports.map(|node| (node.id, node)).collect();
        for (id, member) in members {
            let mut node = node(member);
            let class = NodeClass::of(&member.info);
            node.delivery = deliveries.get(&class).cloned().unwrap_or_default();
            if let Some(report) = reports.get(id) {
                node.reported_unix_ms = Some(observed.wall_clock.ago(now, report.last_report_age));
                node.report_interval_ms = Some(millis(report.report_interval));
                node.requests_per_second = Some(rounded(report.rate_per_second));
            }
            let own = streams.get(&(fleet.as_ref(), id.as_ref()));
            answer(&mut node, own.map_or(&[][..], Vec::as_slice), observed);
            nodes.push(node);
        }
    }
    nodes
}

fn node(member: &Member) -> NodeState {
    let info = &member.info;
    let mut software = format!("{} {}", info.user_agent_name, info.user_agent_version);
    if member.module_streams > 0 || info.is_envoy_module() {
        software.truncate(software.trim_end().len());
        software.push_str(" with module");
    }
    NodeState {
        id: info.node.id.to_string(),
        fleet: info.node.cluster.to_string(),
        locality: info.node.locality.clone(),
        software: software.trim().to_owned(),
        class: class_name(NodeClass::of(info)).to_owned(),
        connected: member.disconnected_since.is_none(),
        ..NodeState::default()
    }
}

/// Sets the last ACK or NACK over all types and streams of a node; a NACK takes precedence.
fn answer(node: &mut NodeState, streams: &[&StreamRecord], observed: &Observations) {
    let types = || streams.iter().flat_map(|stream| &stream.types);
    let refusal = types().find_map(|kind| kind.nacked.as_ref());
    node.answer = match refusal {
        Some(_) => AckStatus::Refused,
        None if types().any(|kind| kind.in_flight) => AckStatus::Waiting,
        None if types().any(|kind| kind.acked.is_some()) => AckStatus::Accepted,
        None => AckStatus::None,
    };
    node.refusal = refusal.map(|refusal| {
        let text = format!("{}: {}", refusal.names.join(", "), refusal.detail.message);
        text.chars().take(MAX_NACK_CHARS).collect()
    });
    let answered = types().filter_map(|kind| kind.answered_at).max();
    node.answered_unix_ms = answered.map(|at| observed.wall_clock.at(at));
    let mut assignments = types().filter(|kind| &*kind.type_url == CLUSTER_LOAD_ASSIGNMENT);
    let acked = assignments.find_map(|kind| kind.acked.as_ref());
    node.accepted_version = acked.map(ToString::to_string);
}

/// Returns how demand is delivered to nodes of a class in a fleet: one word if all services agree.
fn deliveries(state: &State, fleet: &str, class: NodeClass) -> String {
    let services = state.config().services.values();
    let mut words: Vec<&str> = services
        .map(|service| delivery(state.steering(service, class, Some(fleet))).0)
        .collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}
