//! Response of `/api/v1/clusters`: configuration, delivery of demand and traffic of each service.

use std::sync::Arc;

use plimsoll_admin::api::rounded;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{FleetView, Flow};
use plimsoll_core::time::Instant;

use super::super::responses::{
    ClassDelivery, Cluster, ClusterFleet, Clusters, Endpoints, Traffic, Weight, Weights,
};
use super::{ListQuery, class_name, delivery, delivery_name, fractions, millis, mode_name};
use crate::config::Service;
use crate::delivery::NodeClass;
use crate::fleet_plan::ServicePlan;
use crate::state::State;

pub(in crate::admin) fn clusters(state: &State, query: &ListQuery, now: Instant) -> Clusters {
    let services = &state.config().services;
    let matches = |service: &&Arc<Service>| {
        let name = service.name().as_ref();
        query
            .name
            .as_deref()
            .is_none_or(|requested| requested == name)
    };
    let matching = || services.values().filter(matches);
    let shown = matching().skip(query.offset).take(query.limit);
    let clusters = shown.map(|service| {
        let classes = NodeClass::ALL.map(|class| class_delivery(state, service, class, None));
        Cluster {
            cluster: Arc::clone(service.name()),
            mode: mode_name(service.mode),
            ramp_percent: service.ramp,
            asked_delivery: delivery_name(service.delivery),
            locality_policy: service.config.locality_policy().name(),
            endpoint_policy: service.config.endpoint_policy().name(),
            localities: endpoints(service),
            delivery: classes,
            fleets: fleets(state, service, query, now),
        }
    });
    Clusters {
        total: matching().count(),
        offset: query.offset,
        clusters: clusters.collect(),
    }
}

/// Returns how demand for a service reaches nodes of a class, in a fleet, or as long as no zone
/// fails.
fn class_delivery(
    state: &State,
    service: &Service,
    class: NodeClass,
    fleet: Option<&str>,
) -> ClassDelivery {
    let (delivery, reason) = delivery(state.steering(service, class, fleet));
    ClassDelivery {
        class: class_name(class),
        delivery,
        reason,
        subsets: subsets(service, class),
    }
}

/// Returns whether nodes of `class` get the subsets of a service; `None` if it has no subsets.
fn subsets(service: &Service, class: NodeClass) -> Option<&'static str> {
    service.config.lb_subset_config()?;
    Some(match class {
        NodeClass::Grpc => "ignored",
        NodeClass::Plimsoll | NodeClass::EnvoyModule | NodeClass::Envoy => "delivered",
    })
}

fn fleets(state: &State, service: &Service, query: &ListQuery, now: Instant) -> Vec<ClusterFleet> {
    let names = state
        .fleets()
        .iter()
        .map(|(fleet, _)| fleet)
        .filter(|name| query.fleet.as_deref().is_none_or(|f| f == name.as_ref()));
    let fleet = |fleet: &Arc<str>| {
        let plan = state.fleet_plan(fleet)?.services.get(service.name())?;
        let age = state.delivered_age(fleet, Some(service.name()), now);
        let of_class = |class| class_delivery(state, service, class, Some(fleet));
        Some(ClusterFleet {
            fleet: Arc::clone(fleet),
            delivery: state.fleets().classes(fleet).map(of_class).collect(),
            basis: state.basis(fleet, service),
            warming_up: state.is_warming_up(fleet, service.name(), now),
            delivered: fractions(state.delivered_for(fleet, service)),
            delivered_age_ms: age.map(millis),
            traffic: traffic(state, fleet, service, now),
            locality_weights: weights(plan),
        })
    };
    names.filter_map(fleet).collect()
}

/// Requests per second between zones, from the latest load reports.
fn traffic(state: &State, fleet: &str, service: &Service, now: Instant) -> Vec<Traffic> {
    let view = state.planner().fleet(fleet, now);
    let scopes = view.iter().flat_map(FleetView::scopes);
    let mut own = scopes.filter(|scope| scope.upstream_cluster() == Some(service.name()));
    let flows = own.next().into_iter().flat_map(|scope| scope.flows());
    let flow = |flow: Flow<'_>| Traffic {
        from: flow.from.clone(),
        to: flow.to.clone(),
        requests_per_second: rounded(flow.rate_per_second),
    };
    flows.map(flow).collect()
}

/// Locality weights of Envoys by receiving zone, computed for every service whatever its `delivery`
/// is.
fn weights(plan: &ServicePlan) -> Vec<Weights> {
    let weight = |(locality, weight): &(Locality, Option<u32>)| Weight {
        locality: locality.clone(),
        weight: *weight,
    };
    let receivers = plan
        .weights(NodeClass::Envoy)
        .iter()
        .map(|receiver| Weights {
            receiver: receiver.receiver.clone(),
            weights: receiver.weights.iter().map(weight).collect(),
            off: receiver.off,
        });
    receivers.collect()
}

fn endpoints(service: &Service) -> Vec<Endpoints> {
    let localities = service.assignment.endpoints().iter();
    localities
        .map(|entry| Endpoints {
            locality: entry.locality.clone(),
            priority: entry.priority,
            endpoints: entry.lb_endpoints.len(),
        })
        .collect()
}
