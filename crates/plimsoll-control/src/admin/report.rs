//! Pages of the admin API, made from the state. Field names are stable and documented in
//! `docs/admin-api.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::server::TypeStatus;
use serde_json::{Value, json};

use super::reloads::Counts;
use crate::config::Service;
use crate::delivery::{Class, fleet_ramp, steering};
use crate::fleet::Member;
use crate::relay::RelayStatus;
use crate::run::Bound;
use crate::server::StreamRecord;
use crate::state::State;

/// Which nodes to show.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) fleet: Option<String>,
    pub(super) id: Option<String>,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// The whole at a glance.
pub(super) fn status(
    state: &State,
    reloads: &Counts,
    (streams, upstreams): (usize, &RelayStatus),
    bound: Bound,
) -> Value {
    let nodes: usize = state
        .fleets()
        .iter()
        .map(|(_, members)| members.len())
        .sum();
    let relay = state.config().relay.as_ref().map(|relay| {
        json!({
            "address": relay.address,
            "api_type": if relay.delta { "DELTA_GRPC" } else { "GRPC" },
            "upstream": upstreams,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "relay": relay,
        "listen": bound.xds,
        "admin": bound.admin,
        "fleets": state.fleets().iter().count(),
        "nodes": nodes,
        "clusters": state.config().services.len(),
        "discovery_streams": streams,
        "load_reporting_interval_ms": millis(state.config().load_reporting_interval),
        "reloads": reloads,
    })
}

/// Fleets, their zones and the demand that arrives there.
pub(super) fn fleets(state: &State, now: Instant) -> Value {
    let fleets = state.fleets().iter().map(|(name, members)| {
        let plan = state.fleet_plan(name);
        let mut zones: BTreeMap<&Locality, u64> = BTreeMap::new();
        for member in members.values() {
            *zones.entry(&member.info.node.locality).or_default() += 1;
        }
        let zones = zones
            .into_iter()
            .map(|(locality, nodes)| json!({ "locality": place(locality), "nodes": nodes }));
        let view = state.planner().fleet(name, now);
        let demand = view
            .iter()
            .flat_map(plimsoll_core::planner::FleetView::grains)
            .map(|grain| {
                let zones = grain.demand().map(|zone| {
                    json!({
                        "locality": place(zone.locality),
                        "reporters": zone.reporters,
                        "requests_per_second": zone.raw_per_second,
                        "smoothed_requests_per_second": zone.smoothed_per_second,
                    })
                });
                json!({
                    "cluster": grain.upstream_cluster(),
                    "warming_up": grain.is_warming_up(),
                    "zones": zones.collect::<Vec<_>>(),
                    "measured": grain.plan().map(|plan| fractions(&plan.zones)),
                    "measured_age_ms": grain.plan_age().map(millis),
                    "generation": grain.plan().map(|plan| plan.generation),
                })
            });
        json!({
            "fleet": name,
            "nodes": members.len(),
            "zones": zones.collect::<Vec<_>>(),
            "delivered": plan.map(|plan| fractions(&plan.zones)),
            "demand": demand.collect::<Vec<_>>(),
        })
    });
    json!({ "fleets": fleets.collect::<Vec<_>>() })
}

/// Nodes: what they are, what they get, what they answered.
pub(super) fn nodes(state: &State, records: &[StreamRecord], page: &Page, now: Instant) -> Value {
    let mut streams: BTreeMap<(&str, &str), Vec<&StreamRecord>> = BTreeMap::new();
    for record in records {
        let node = &record.node.node;
        streams
            .entry((&node.cluster, &node.id))
            .or_default()
            .push(record);
    }
    let wanted = |fleet: &str, id: &str| {
        page.fleet.as_deref().is_none_or(|wanted| wanted == fleet)
            && page.id.as_deref().is_none_or(|wanted| wanted == id)
    };
    let mut total = 0;
    let mut nodes = Vec::new();
    for (fleet, members) in state.fleets().iter() {
        let reports: BTreeMap<_, _> = state
            .planner()
            .fleet(fleet, now)
            .iter()
            .flat_map(plimsoll_core::planner::FleetView::nodes)
            .map(|node| (node.id.as_ref(), node))
            .collect();
        for (id, member) in members.iter().filter(|(id, _)| wanted(fleet, id)) {
            total += 1;
            if total <= page.offset || nodes.len() >= page.limit {
                continue;
            }
            let mut json = node(member, now);
            let report = reports.get(id.as_ref());
            json["last_report_age_ms"] = json!(report.map(|r| millis(r.last_report_age)));
            json["requests_per_second"] = json!(report.map(|r| r.rate_per_second));
            json["delivery"] = deliveries(state, Class::of(&member.info));
            let own = streams.get(&(fleet.as_ref(), id.as_ref()));
            let own = own.into_iter().flatten().map(|record| stream(record, now));
            json["discovery"] = own.collect();
            nodes.push(json);
        }
    }
    json!({ "total": total, "offset": page.offset, "nodes": nodes })
}

/// Services: what is asked for, what is delivered, and to whom how.
pub(super) fn clusters(state: &State, _now: Instant) -> Value {
    let ramp = fleet_ramp(state.config().services.values().map(AsRef::as_ref));
    let clusters = state.config().services.values().map(|service| {
        let delivery: BTreeMap<_, _> = [Class::Plimsoll, Class::Grpc, Class::Envoy]
            .into_iter()
            .map(|class| (class, steering(service, class, ramp)))
            .collect();
        let fleets = state.fleets().iter().filter_map(|(fleet, _)| {
            let plan = state.fleet_plan(fleet)?.services.get(service.name())?;
            let weights = plan.weights.iter().map(|receiver| {
                let to = receiver.weights.iter().map(
                    |(locality, weight)| json!({ "locality": place(locality), "weight": weight }),
                );
                json!({
                    "receiver": place(&receiver.receiver),
                    "weights": to.collect::<Vec<_>>(),
                    "off": receiver.off,
                })
            });
            Some(json!({
                "fleet": fleet,
                "delivered": fractions(&plan.zones),
                "locality_weights": weights.collect::<Vec<_>>(),
            }))
        });
        json!({
            "cluster": service.name(),
            "mode": service.mode,
            "ramp": service.ramp,
            "locality_policy": service.config.locality_policy().name(),
            "endpoint_policy": service.config.endpoint_policy().name(),
            "localities": endpoints(service),
            "delivery": delivery,
            "fleets": fleets.collect::<Vec<_>>(),
        })
    });
    json!({ "clusters": clusters.collect::<Vec<_>>() })
}

/// Two explanations side by side, in short.
pub(super) fn what_if(before: &Explanation, after: &Explanation) -> Value {
    let short = |explanation: &Explanation| {
        let zones = explanation.localities.iter().map(|locality| {
            json!({
                "region": locality.region,
                "zone": locality.zone,
                "sub_zone": locality.sub_zone,
                "hosts": locality.healthy,
                "demand_share": locality.demand_share,
                "capacity_share": locality.capacity_share,
                "traffic_share": locality.traffic_share,
                "load_factor": locality.load_factor,
            })
        });
        let from = explanation.zones.iter().map(|zone| {
            json!({
                "locality": place(&zone.locality),
                "state": zone.state,
                "kept_local": zone.kept_local,
                "shares": zone.shares,
            })
        });
        json!({
            "localities": zones.collect::<Vec<_>>(),
            "zones": from.collect::<Vec<_>>(),
            "notes": explanation.notes,
        })
    };
    json!({ "cluster": before.cluster, "before": short(before), "after": short(after) })
}

fn node(member: &Member, now: Instant) -> Value {
    let info = &member.info;
    json!({
        "id": info.node.id,
        "fleet": info.node.cluster,
        "locality": place(&info.node.locality),
        "class": Class::of(info),
        "user_agent": info.user_agent_name,
        "version": info.user_agent_version,
        "known_ms": millis(now.saturating_duration_since(member.since)),
        "discovery_streams": member.ads_streams,
        "load_reporting_streams": member.lrs_streams,
        "silent_ms": member
            .silent_since
            .map(|since| millis(now.saturating_duration_since(since))),
    })
}

fn deliveries(state: &State, class: Class) -> Value {
    let services = &state.config().services;
    let ramp = fleet_ramp(services.values().map(AsRef::as_ref));
    let each = services
        .iter()
        .map(|(name, service)| (name.to_string(), json!(steering(service, class, ramp))));
    Value::Object(each.collect())
}

fn stream(record: &StreamRecord, now: Instant) -> Value {
    let types = record.types.iter().map(|kind| type_status(kind, now));
    json!({
        "variant": match record.variant {
            Variant::Sotw => "sotw",
            Variant::Delta => "delta",
        },
        "peer": record.peer,
        "open_ms": millis(now.saturating_duration_since(record.since)),
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
    json!({
        "type_url": status.type_url,
        "wildcard": status.wildcard,
        "names": status.names,
        "sent": status.sent,
        "acked": status.acked,
        "nacked": nacked,
        "answer_due": status.in_flight,
        "answered_ms_ago": status
            .answered_at
            .map(|at| millis(now.saturating_duration_since(at))),
        "responses": status.responses,
        "acks": status.acks,
        "nacks": status.nacks,
    })
}

fn endpoints(service: &Service) -> Vec<Value> {
    let localities = service.assignment.endpoints().iter();
    localities
        .map(|entry| {
            json!({
                "locality": place(&entry.locality),
                "priority": entry.priority,
                "endpoints": entry.lb_endpoints.len(),
            })
        })
        .collect()
}

fn fractions(zones: &[ZoneFraction]) -> Vec<Value> {
    let zone = |zone: &ZoneFraction| {
        json!({
            "locality": place(&zone.locality),
            "fraction_bp": zone.fraction.get(),
            "requests_per_second": zone.rate_per_second,
            "reporters": zone.reporters,
            "estimated": zone.estimated,
        })
    };
    zones.iter().map(zone).collect()
}

fn place(locality: &Locality) -> Value {
    json!({
        "region": locality.region(),
        "zone": locality.zone(),
        "sub_zone": locality.sub_zone(),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
