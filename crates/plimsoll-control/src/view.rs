//! [`Catalog`]: encodes resources and assembles views.
//!
//! Resources that only depend on the configuration are encoded once, when it is activated;
//! resources that depend on demand once per fleet and zone, shared by all receivers there.
//! `delivery` selects how demand is sent, `fleet_plan` has the numbers, plimsoll-xds encodes.

pub(crate) mod assignment;
pub(crate) mod cluster;
mod route;
mod sent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::lrs::LrsTraffic;
use plimsoll_xds::lrs::message::ClusterTraffic;
use plimsoll_xds::wire::encode_assignment;

use crate::config::{ControlConfig, Delivery, Service};
use crate::delivery::{self, NodeClass, Steering, sends_lrs_traffic, steering};
use crate::fleet_plan::FleetPlan;
use crate::relay::{Improvement, Overlay};
use crate::state::ViewKey;

pub(crate) use sent::SentResources;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    Nothing,
    /// Resources that depend on demand are withheld: receivers keep the ones they have.
    Demand,
}

#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    config: Arc<ControlConfig>,
    fleet_ramp: u32,
    by_class: BTreeMap<NodeClass, ClassCatalog>,
    /// Assignments with the weights of the configuration file, by service.
    assignments: BTreeMap<Arc<str>, Resource>,
}

/// Resources that are the same for all nodes of a class.
#[derive(Clone, Debug)]
struct ClassCatalog {
    clusters: Arc<TypeResources>,
    listeners: Arc<TypeResources>,
    routes: Arc<TypeResources>,
}

impl Catalog {
    /// Encodes all resources that do not depend on demand.
    pub(crate) fn new(config: &Arc<ControlConfig>) -> Self {
        let fleet_ramp = delivery::fleet_ramp(config.services.values().map(AsRef::as_ref));
        if config.relay.is_some() {
            // With a relay, clusters and assignments come from the relayed server.
            return Self {
                config: Arc::clone(config),
                fleet_ramp,
                by_class: BTreeMap::new(),
                assignments: BTreeMap::new(),
            };
        }
        let by_class = [NodeClass::Plimsoll, NodeClass::Grpc, NodeClass::Envoy].map(|class| {
            let clusters = config.services.values().map(|service| {
                let steering = steering(service, class, fleet_ramp);
                let body = cluster::encode(service, class, steering);
                Resource::new(Arc::clone(service.name()), body)
            });
            let catalog = ClassCatalog {
                clusters: Arc::new(TypeResources::new(clusters)),
                listeners: Arc::new(TypeResources::new(route::listeners(config, class))),
                routes: Arc::new(TypeResources::new(route::routes(config, class))),
            };
            (class, catalog)
        });
        let assignments = config.services.values().map(|service| {
            let body = assignment::as_written(&service.assignment);
            let name = Arc::clone(service.name());
            (Arc::clone(&name), Resource::new(name, body))
        });
        Self {
            assignments: assignments.collect(),
            config: Arc::clone(config),
            fleet_ramp,
            by_class: by_class.into_iter().collect(),
        }
    }

    /// Whether nodes of a class get different resources in different zones.
    pub(crate) fn depends_on_zone(&self, class: NodeClass) -> bool {
        let uses_weights = |service: &Arc<Service>| {
            let steering = steering(service, class, self.fleet_ramp);
            steering == Steering::Demand(Delivery::LocalityWeights)
        };
        class == NodeClass::Grpc || self.config.services.values().any(uses_weights)
    }

    pub(crate) fn view(
        &self,
        key: &ViewKey,
        plan: &FleetPlan,
        withheld: Withheld,
        generation: u64,
    ) -> View {
        let assignments = self.assignments(key, plan, withheld);
        let assignments = match withheld {
            Withheld::Nothing => TypeResources::new(assignments),
            Withheld::Demand => TypeResources::partial(assignments, []),
        };
        let mut view = View::new(generation).with(CLUSTER_LOAD_ASSIGNMENT, Arc::new(assignments));
        if let Some(catalog) = self.by_class.get(&key.class) {
            view = view
                .with(CLUSTER, Arc::clone(&catalog.clusters))
                .with(LISTENER, Arc::clone(&catalog.listeners))
                .with(ROUTE_CONFIGURATION, Arc::clone(&catalog.routes));
        }
        view
    }

    /// Builds the changes to the relayed server's resources for receivers with `key`.
    pub(crate) fn overlay(
        &self,
        key: &ViewKey,
        plan: &FleetPlan,
        withheld: Withheld,
        generation: u64,
    ) -> Overlay {
        let improvement = |(name, service): (&Arc<str>, &Arc<Service>)| {
            let plan = plan.services.get(name);
            let improvement = Improvement {
                service: Arc::clone(service),
                weights: plan
                    .and_then(|plan| plan.weights_at(&key.locality))
                    .cloned(),
            };
            (Arc::clone(name), improvement)
        };
        let mut overlay = Overlay {
            generation,
            class: key.class,
            fleet_ramp: self.fleet_ramp,
            held: withheld == Withheld::Demand,
            observes: self.config.services.is_empty(),
            services: self.config.services.iter().map(improvement).collect(),
            ..Overlay::default()
        };
        for resource in self.fleet_assignments(key, plan) {
            if self.config.local_cluster_names.contains(&resource.name) {
                overlay.add_own(CLUSTER_LOAD_ASSIGNMENT, resource);
            } else {
                overlay.fleet = Some(resource);
            }
        }
        // Listeners of the file are sent in addition to those of the relayed server.
        if key.class == NodeClass::Envoy {
            for listener in route::listeners(&self.config, key.class) {
                overlay.add_own(LISTENER, listener);
            }
            for route in route::routes(&self.config, key.class) {
                overlay.add_own(ROUTE_CONFIGURATION, route);
            }
        }
        overlay
    }

    /// Returns the demand by service, for nodes that get it with LRS responses. It is more precise
    /// than the fleet's demand, so `AUTO` uses it too (decision 0022). A service without demand, or
    /// with another delivery, is listed without fractions, which withdraws earlier ones.
    pub(crate) fn traffic(&self, plan: &FleetPlan, unix_origin: Duration) -> LrsTraffic {
        let mut traffic = LrsTraffic::default();
        for (name, service) in &plan.services {
            let Some(written) = self.config.services.get(name) else {
                continue;
            };
            let demand = steering(written, NodeClass::Plimsoll, self.fleet_ramp);
            let mut cluster = ClusterTraffic {
                cluster_name: Arc::clone(name),
                fractions: Vec::new(),
                observation_time: None,
            };
            if sends_lrs_traffic(written, demand) && !service.zones.is_empty() {
                traffic.epoch = traffic.epoch.max(service.epoch);
                let zones = service.zones.iter();
                let pair = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
                cluster.fractions = zones.map(pair).collect();
                let since_origin = |at: Instant| Duration::from_nanos(at.as_nanos());
                let observed = service.observed_at.map(since_origin);
                cluster.observation_time = observed.map(|since| unix_origin + since);
            }
            traffic.clusters.push(cluster);
        }
        traffic
    }

    fn assignments(&self, key: &ViewKey, plan: &FleetPlan, withheld: Withheld) -> Vec<Resource> {
        let mut resources = Vec::new();
        for (name, service) in &self.config.services {
            match self.receiver_weights(service, key, plan) {
                Some(_) if withheld == Withheld::Demand => {}
                Some(weights) => {
                    let body = assignment::with_locality_weights(&service.assignment, weights);
                    resources.push(Resource::new(Arc::clone(name), body));
                }
                None => resources.extend(self.assignments.get(name).cloned()),
            }
        }
        if withheld == Withheld::Nothing {
            resources.extend(self.fleet_assignments(key, plan));
        }
        resources
    }

    /// Returns the locality weights to send on a service's assignment, if receivers use weights:
    /// `Some(None)` if their zone has none. `None` if the assignment is sent as configured.
    fn receiver_weights<'a>(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &'a FleetPlan,
    ) -> Option<Option<&'a ReceiverWeights>> {
        let steering = steering(service, key.class, self.fleet_ramp);
        let uses_weights = steering == Steering::Demand(Delivery::LocalityWeights);
        let measured = plan.services.get(service.name())?;
        (uses_weights || key.class == NodeClass::Grpc).then(|| match steering {
            Steering::AsConfigured(_) => None,
            _ => measured.weights_at(&key.locality),
        })
    }

    /// Encodes the fleet's own assignment under each name that the fleet's proxies may request.
    fn fleet_assignments(&self, key: &ViewKey, plan: &FleetPlan) -> Vec<Resource> {
        let own = Some(&key.fleet);
        let names = self.config.local_cluster_names.iter().chain(own);
        let free = names.filter(|name| !self.config.services.contains_key(*name));
        let repeats =
            key.class == NodeClass::Plimsoll || self.config.endpoint_stale_after.is_some();
        let mut assignment = assignment::of_fleet(plan, key.class, &self.config);
        free.map(|name| {
            assignment.cluster_name = Arc::clone(name);
            let resource = Resource::new(Arc::clone(name), encode_assignment(&assignment));
            if repeats {
                resource.with_epoch(plan.epoch)
            } else {
                resource
            }
        })
        .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
