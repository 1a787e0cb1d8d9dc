//! Services: what is asked for, what is delivered, and to whom how.

use std::sync::Arc;

use plimsoll_core::planner::{FleetView, Flow};
use plimsoll_core::time::Instant;
use serde_json::{Value, json};

use super::{
    Page, basis, class_name, delivery, delivery_name, fractions, millis, mode_name, place, rounded,
};
use crate::config::Service;
use crate::delivery::{Class, fleet_ramp, steering};
use crate::fleet_plan::ServicePlan;
use crate::state::State;

/// A part of the services.
pub(in crate::admin) fn clusters(state: &State, page: &Page, now: Instant) -> Value {
    let services = &state.config().services;
    let ramp = fleet_ramp(services.values().map(AsRef::as_ref));
    let wanted = |service: &&Arc<Service>| {
        let name = service.name().as_ref();
        page.name.as_deref().is_none_or(|wanted| wanted == name)
    };
    let matching = || services.values().filter(wanted);
    let shown = matching().skip(page.offset).take(page.limit);
    let clusters = shown.map(|service| {
        let classes = [Class::Plimsoll, Class::Grpc, Class::Envoy].map(|class| {
            let (delivery, reason) = delivery(steering(service, class, ramp));
            let mut of_class =
                json!({ "class": class_name(class), "delivery": delivery, "reason": reason });
            if let Some(subsets) = subsets(service, class) {
                of_class["subsets"] = json!(subsets);
            }
            of_class
        });
        json!({
            "cluster": service.name(),
            "mode": mode_name(service.mode),
            "ramp_percent": service.ramp,
            "asked_delivery": delivery_name(service.delivery),
            "locality_policy": service.config.locality_policy().name(),
            "endpoint_policy": service.config.endpoint_policy().name(),
            "localities": endpoints(service),
            "delivery": classes,
            "fleets": fleets(state, service, page, now),
        })
    });
    json!({
        "total": matching().count(),
        "offset": page.offset,
        "clusters": clusters.collect::<Vec<_>>(),
    })
}

/// What becomes of the subsets of a service; `None` where it has none.
fn subsets(service: &Service, class: Class) -> Option<&'static str> {
    service.config.lb_subset_config()?;
    Some(match class {
        Class::Grpc => "ignored",
        Class::Plimsoll | Class::Envoy => "delivered",
    })
}

fn fleets(state: &State, service: &Service, page: &Page, now: Instant) -> Vec<Value> {
    let names = state.fleets().iter().map(|(fleet, _)| fleet);
    let names = names.filter(|name| page.fleet.as_deref().is_none_or(|f| f == name.as_ref()));
    let fleet = |fleet: &Arc<str>| {
        let plan = state.fleet_plan(fleet)?.services.get(service.name())?;
        let age = state.delivered_age(fleet, Some(service.name()), now);
        Some(json!({
            "fleet": fleet,
            "basis": basis(&plan.zones),
            "delivered": fractions(&plan.zones),
            "delivered_age_ms": age.map(millis),
            "traffic": traffic(state, fleet, service, now),
            "locality_weights": weights(plan),
        }))
    };
    names.filter_map(fleet).collect()
}

/// Who sends how much to whom, as last reported.
fn traffic(state: &State, fleet: &str, service: &Service, now: Instant) -> Vec<Value> {
    let view = state.planner().fleet(fleet, now);
    let grains = view.iter().flat_map(FleetView::grains);
    let mut own = grains.filter(|grain| grain.upstream_cluster() == Some(service.name()));
    let flows = own.next().into_iter().flat_map(|grain| grain.flows());
    let flow = |flow: Flow<'_>| {
        json!({
            "from": place(flow.from),
            "to": place(flow.to),
            "requests_per_second": rounded(flow.rate_per_second),
        })
    };
    flows.map(flow).collect()
}

/// Where proxies of each zone send, for those that are steered by locality weights.
fn weights(plan: &ServicePlan) -> Vec<Value> {
    let receivers = plan.weights.iter().map(|receiver| {
        let weight = |(locality, weight): &(_, Option<u32>)| {
            json!({ "locality": place(locality), "weight": weight })
        };
        json!({
            "receiver": place(&receiver.receiver),
            "weights": receiver.weights.iter().map(weight).collect::<Vec<_>>(),
            "off": receiver.off,
        })
    });
    receivers.collect()
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
