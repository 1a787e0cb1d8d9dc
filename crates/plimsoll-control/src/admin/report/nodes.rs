//! Response of `/api/v1/nodes`: identity, delivery of demand, ACKs and NACKs of each node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_admin::api::rounded;
use plimsoll_core::planner::{FleetView, NodeView};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::server::TypeStatus;

use super::super::responses::{self, Nack, Node, Nodes, ServiceDelivery, Stream};
use super::{ListQuery, class_name, delivery, millis};
use crate::delivery::NodeClass;
use crate::fleet::{Member, MemberKey};
use crate::server::StreamRecord;
use crate::state::State;
use crate::unreported::{Subscriptions, Unreported};

type Streams<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a StreamRecord>>;

/// The nodes of a page.
pub(in crate::admin) struct NodePage {
    /// Nodes that match the query, on all pages.
    total: usize,
    offset: usize,
    pub(in crate::admin) keys: BTreeSet<MemberKey>,
}

/// Selects the nodes that match the query, sorted by fleet and id.
pub(in crate::admin) fn node_page(state: &State, query: &ListQuery) -> NodePage {
    let mut page = NodePage {
        total: 0,
        offset: query.offset,
        keys: BTreeSet::new(),
    };
    for (fleet, members) in state.fleets().iter() {
        if query.fleet.as_deref().is_some_and(|f| f != fleet.as_ref()) {
            continue;
        }
        let matching =
            |id: &&Arc<str>| query.name.as_deref().is_none_or(|name| name == id.as_ref());
        for id in members.keys().filter(matching) {
            page.total += 1;
            if page.total > query.offset && page.keys.len() < query.limit {
                page.keys.insert((Arc::clone(fleet), Arc::clone(id)));
            }
        }
    }
    page
}

/// Lists the nodes of a page; `records` has their streams.
pub(in crate::admin) fn nodes(
    state: &State,
    page: &NodePage,
    records: &[StreamRecord],
    now: Instant,
) -> Nodes {
    let streams = by_node(records);
    let unreported = Unreported::new(state, &Subscriptions::of_streams(records), now);
    let mut known: BTreeMap<(&Arc<str>, NodeClass), Vec<ServiceDelivery>> = BTreeMap::new();
    let fleets: BTreeSet<&Arc<str>> = page.keys.iter().map(|(fleet, _)| fleet).collect();
    let mut reports = BTreeMap::new();
    for fleet in fleets {
        let view = state.planner().fleet(fleet, now);
        for node in view.iter().flat_map(FleetView::nodes) {
            let key = (Arc::clone(fleet), Arc::clone(node.id));
            if page.keys.contains(&key) {
                reports.insert(key, node);
            }
        }
    }
    let mut nodes = Vec::with_capacity(page.keys.len());
    for key in &page.keys {
        let (fleet, id) = key;
        // It may have left since the page was made.
        let Some(member) = state.fleets().member(fleet, id) else {
            continue;
        };
        let class = NodeClass::of(&member.info);
        let own = streams
            .get(&(fleet.as_ref(), id.as_ref()))
            .into_iter()
            .flatten();
        let delivery = known
            .entry((fleet, class))
            .or_insert_with(|| deliveries(state, fleet, class));
        nodes.push(Node {
            unreported: unreported.of(fleet, id).to_vec(),
            delivery: delivery.clone(),
            discovery: own.map(|record| stream(record, now)).collect(),
            replica: state
                .replicas()
                .and_then(|all| all.owner(fleet, id))
                .cloned(),
            ..node(member, reports.get(key), now)
        });
    }
    Nodes {
        total: page.total,
        offset: page.offset,
        nodes,
    }
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

fn node(member: &Member, report: Option<&NodeView<'_>>, now: Instant) -> Node {
    let info = &member.info;
    let since = |at| millis(now.saturating_duration_since(at));
    Node {
        id: Arc::clone(&info.node.id),
        fleet: Arc::clone(&info.node.cluster),
        locality: info.node.locality.clone(),
        class: class_name(NodeClass::of(info)),
        user_agent_name: info.user_agent_name.clone(),
        user_agent_version: info.user_agent_version.clone(),
        known_for_ms: since(member.since),
        discovery_streams: member.ads_streams,
        load_reporting_streams: member.lrs_streams,
        module_streams: member.module_streams,
        without_stream_for_ms: member.disconnected_since.map(since),
        replica: None,
        last_report_age_ms: report.map(|report| millis(report.last_report_age)),
        report_interval_ms: report.map(|report| millis(report.report_interval)),
        requests_per_second: report.map(|report| rounded(report.rate_per_second)),
        unreported: Vec::new(),
        delivery: Vec::new(),
        discovery: Vec::new(),
    }
}

/// How demand for each service is delivered to the nodes of a class in a fleet.
fn deliveries(state: &State, fleet: &str, class: NodeClass) -> Vec<ServiceDelivery> {
    let services = state.config().services.values();
    let each = services.map(|service| {
        let (delivery, reason) = delivery(state.steering(service, class, Some(fleet)));
        ServiceDelivery {
            cluster: Arc::clone(service.name()),
            delivery,
            reason,
        }
    });
    each.collect()
}

fn stream(record: &StreamRecord, now: Instant) -> Stream {
    let types = record.types.iter().map(|kind| type_status(kind, now));
    Stream {
        variant: match record.variant {
            Variant::Sotw => "sotw",
            Variant::Delta => "delta",
        },
        peer: record.peer,
        open_for_ms: millis(now.saturating_duration_since(record.since)),
        types: types.collect(),
    }
}

fn type_status(status: &TypeStatus, now: Instant) -> responses::TypeStatus {
    let nacked = status.nacked.as_ref().map(|refusal| Nack {
        version: Arc::clone(&refusal.version),
        resources: refusal.names.clone(),
        message: refusal.detail.message.clone(),
    });
    let answered = status.answered_at;
    responses::TypeStatus {
        type_url: Arc::clone(&status.type_url),
        wildcard: status.wildcard,
        subscribed_names: status.names,
        sent_version: status.sent.clone(),
        acked_version: status.acked.clone(),
        nacked,
        awaiting_answer: status.in_flight,
        last_answer_age_ms: answered.map(|at| millis(now.saturating_duration_since(at))),
        responses: status.responses,
        acks: status.acks,
        nacks: status.nacks,
        stale_answers: status.stale,
    }
}
