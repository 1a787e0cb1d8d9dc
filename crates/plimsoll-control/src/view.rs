//! [`Catalog`]: resources as bytes, and the views made of them.
//!
//! What depends only on the configuration is encoded once, when it is applied; what depends on
//! demand is encoded once per fleet and zone and shared by all receivers there. The choice of
//! delivery is `delivery`'s, the numbers are `fleet_plan`'s; the encoding itself is plimsoll-xds.

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
use crate::delivery::{self, Class, Steering, steering, takes_lrs};
use crate::fleet_plan::FleetPlan;
use crate::relay::{Improvement, Overlay};
use crate::state::ViewKey;

pub(crate) use sent::Sent;

/// What a view leaves out for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Everything is there.
    Nothing,
    /// What depends on demand is held back: receivers keep what they have.
    Demand,
}

/// Resources that depend on the configuration only.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    config: Arc<ControlConfig>,
    fleet_ramp: u32,
    by_class: BTreeMap<Class, ClassCatalog>,
    /// Assignments as they are written, by service.
    assignments: BTreeMap<Arc<str>, Resource>,
}

/// The same for every receiver of a class.
#[derive(Clone, Debug)]
struct ClassCatalog {
    clusters: Arc<TypeResources>,
    listeners: Arc<TypeResources>,
    routes: Arc<TypeResources>,
}

impl Catalog {
    /// Encodes everything that does not depend on demand.
    pub(crate) fn new(config: &Arc<ControlConfig>) -> Self {
        let fleet_ramp = delivery::fleet_ramp(config.services.values().map(AsRef::as_ref));
        if config.relay.is_some() {
            // Clusters and assignments are those of somebody else.
            return Self {
                config: Arc::clone(config),
                fleet_ramp,
                by_class: BTreeMap::new(),
                assignments: BTreeMap::new(),
            };
        }
        let by_class = [Class::Plimsoll, Class::Grpc, Class::Envoy].map(|class| {
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

    /// What receivers of `key` see.
    pub(crate) fn view(
        &self,
        key: &ViewKey,
        plan: &FleetPlan,
        held: Held,
        generation: u64,
    ) -> View {
        let assignments = self.assignments(key, plan, held);
        let assignments = match held {
            Held::Nothing => TypeResources::new(assignments),
            Held::Demand => TypeResources::partial(assignments, []),
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

    /// What is done to the resources of another server for receivers of `key`.
    pub(crate) fn overlay(
        &self,
        key: &ViewKey,
        plan: &FleetPlan,
        held: Held,
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
            held: held == Held::Demand,
            services: self.config.services.iter().map(improvement).collect(),
            ..Overlay::default()
        };
        for resource in self.fleet_assignments(key, plan) {
            if self.config.local_cluster_names.contains(&resource.name) {
                overlay.put(CLUSTER_LOAD_ASSIGNMENT, resource);
            } else {
                overlay.fleet = Some(resource);
            }
        }
        // Those of the file, beside those of the other server.
        if key.class == Class::Envoy {
            for listener in route::listeners(&self.config, key.class) {
                overlay.put(LISTENER, listener);
            }
            for route in route::routes(&self.config, key.class) {
                overlay.put(ROUTE_CONFIGURATION, route);
            }
        }
        overlay
    }

    /// Demand by service, for nodes that take it with the LRS response. It is the finer grain, so
    /// `AUTO` has it too (decisions D1). A service without demand, or that is told it another way,
    /// is listed without fractions: that withdraws what a receiver was told before.
    pub(crate) fn traffic(&self, plan: &FleetPlan, unix_origin: Duration) -> LrsTraffic {
        let mut traffic = LrsTraffic::default();
        for (name, service) in &plan.services {
            let Some(written) = self.config.services.get(name) else {
                continue;
            };
            let demand = steering(written, Class::Plimsoll, self.fleet_ramp);
            let mut told = ClusterTraffic {
                cluster_name: Arc::clone(name),
                fractions: Vec::new(),
                observation_time: None,
            };
            if takes_lrs(written, demand) && !service.zones.is_empty() {
                traffic.epoch = traffic.epoch.max(service.epoch);
                let zones = service.zones.iter();
                let pair = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
                told.fractions = zones.map(pair).collect();
                let since_origin = |at: Instant| Duration::from_nanos(at.as_nanos());
                let observed = service.observed_at.map(since_origin);
                told.observation_time = observed.map(|since| unix_origin + since);
            }
            traffic.clusters.push(told);
        }
        traffic
    }

    fn assignments(&self, key: &ViewKey, plan: &FleetPlan, held: Held) -> Vec<Resource> {
        let mut resources = Vec::new();
        for (name, service) in &self.config.services {
            match self.weighted(service, key, plan) {
                Some(_) if held == Held::Demand => {}
                Some(weights) => {
                    let body = assignment::with_locality_weights(&service.assignment, weights);
                    resources.push(Resource::new(Arc::clone(name), body));
                }
                None => resources.extend(self.assignments.get(name).cloned()),
            }
        }
        if held == Held::Nothing {
            resources.extend(self.fleet_assignments(key, plan));
        }
        resources
    }

    /// Weights that a receiver finds on the assignment of a service, where it goes by weights: its
    /// own, or none of its own. `None` where the assignment is sent as it is written.
    fn weighted<'a>(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &'a FleetPlan,
    ) -> Option<Option<&'a ReceiverWeights>> {
        let steering = steering(service, key.class, self.fleet_ramp);
        let by_weights = steering == Steering::Demand(Delivery::LocalityWeights);
        let measured = plan.services.get(service.name())?;
        (by_weights || key.class == Class::Grpc).then(|| match steering {
            Steering::AsConfigured(_) => None,
            _ => measured.weights_at(&key.locality),
        })
    }

    /// The fleet's own assignment under each name that its proxies may ask for.
    fn fleet_assignments(&self, key: &ViewKey, plan: &FleetPlan) -> Vec<Resource> {
        let own = Some(&key.fleet);
        let names = self.config.local_cluster_names.iter().chain(own);
        let free = names.filter(|name| !self.config.services.contains_key(*name));
        let repeats = key.class == Class::Plimsoll || self.config.endpoint_stale_after.is_some();
        let mut assignment = assignment::of_fleet(plan, key.class, &self.config);
        free.map(|name| {
            assignment.cluster_name = Arc::clone(name);
            let resource = Resource::new(Arc::clone(name), encode_assignment(&assignment));
            match repeats {
                true => resource.with_epoch(plan.epoch),
                false => resource,
            }
        })
        .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
