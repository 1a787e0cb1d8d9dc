//! [`Catalog`]: encodes resources and assembles views.
//!
//! Resources that only depend on the configuration are encoded once, when it is activated;
//! resources that depend on demand once per fleet and zone, shared by all receivers there.
//! `delivery` selects how demand is sent, `fleet_plan` has the numbers, plimsoll-xds encodes.

pub(crate) mod assignment;
pub(crate) mod cluster;
mod route;
mod sent;

use std::collections::{BTreeMap, BTreeSet};
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
        let by_class = NodeClass::ALL.map(|class| {
            let services = config.services.values();
            let clusters = services.map(|service| encode_cluster(service, class, fleet_ramp));
            let catalog = ClassCatalog {
                clusters: Arc::new(TypeResources::new(clusters)),
                listeners: Arc::new(TypeResources::new(route::listeners(config, class))),
                routes: Arc::new(TypeResources::new(route::routes(config, class))),
            };
            (class, catalog)
        });
        let assignments = config.services.values().map(|service| {
            let resource = encode_as_written(service);
            (Arc::clone(&resource.name), resource)
        });
        Self {
            assignments: assignments.collect(),
            config: Arc::clone(config),
            fleet_ramp,
            by_class: by_class.into_iter().collect(),
        }
    }

    /// Whether the services of a configuration need another ramp on the fleets' assignments.
    pub(crate) fn has_other_ramp(&self, config: &ControlConfig) -> bool {
        let services = config.services.values().map(AsRef::as_ref);
        delivery::fleet_ramp(services) != self.fleet_ramp
    }

    /// Encodes the assignments of services whose endpoints changed, and nothing else.
    pub(crate) fn update_assignments<'a>(
        &mut self,
        config: &Arc<ControlConfig>,
        changed: impl Iterator<Item = &'a Arc<str>>,
    ) {
        self.config = Arc::clone(config);
        for name in changed {
            match config.services.get(name) {
                Some(service) => {
                    let resource = encode_as_written(service);
                    self.assignments.insert(Arc::clone(name), resource);
                }
                None => drop(self.assignments.remove(name)),
            }
        }
    }

    /// Encodes services that changed, with the same ramp on the fleets' assignments as before.
    pub(crate) fn update_services<'a>(
        &mut self,
        config: &Arc<ControlConfig>,
        changed: impl Iterator<Item = &'a Arc<str>> + Clone,
    ) {
        self.update_assignments(config, changed.clone());
        for (class, catalog) in &mut self.by_class {
            let clusters = changed.clone().map(|name| {
                let service = config.services.get(name);
                let ramp = self.fleet_ramp;
                let cluster = service.map(|service| encode_cluster(service, *class, ramp));
                (Arc::clone(name), cluster)
            });
            catalog.clusters = Arc::new(catalog.clusters.with_changes(clusters));
            catalog.listeners = Arc::new(TypeResources::new(route::listeners(config, *class)));
            catalog.routes = Arc::new(TypeResources::new(route::routes(config, *class)));
        }
    }

    /// Returns a view with the changed services, made from the view of before; `None` if receivers
    /// would get the same.
    pub(crate) fn updated_view(
        &self,
        before: &View,
        key: &ViewKey,
        plan: &FleetPlan,
        withheld: Withheld,
        changed: &BTreeSet<Arc<str>>,
        generation: u64,
    ) -> Option<View> {
        let Some(assignments) = before.get(CLUSTER_LOAD_ASSIGNMENT) else {
            return Some(self.view(key, plan, withheld, generation));
        };
        let mut differing = Vec::new();
        for name in changed {
            let service = self.config.services.get(name);
            let next =
                service.and_then(|service| self.service_assignment(service, key, plan, withheld));
            if next.as_ref() != assignments.get(name) {
                differing.push((Arc::clone(name), next));
            }
        }
        let has_changed = !differing.is_empty();
        let assignments = if has_changed {
            Arc::new(assignments.with_changes(differing))
        } else {
            Arc::clone(assignments)
        };
        let view = self.add_class(
            View::new(generation).with(CLUSTER_LOAD_ASSIGNMENT, assignments),
            key.class,
        );
        (has_changed || !view.has_same_content(before)).then_some(view)
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
        let view = View::new(generation).with(CLUSTER_LOAD_ASSIGNMENT, Arc::new(assignments));
        self.add_class(view, key.class)
    }

    /// Adds the resources that are the same for all nodes of a class.
    fn add_class(&self, view: View, class: NodeClass) -> View {
        let Some(catalog) = self.by_class.get(&class) else {
            return view;
        };
        view.with(CLUSTER, Arc::clone(&catalog.clusters))
            .with(LISTENER, Arc::clone(&catalog.listeners))
            .with(ROUTE_CONFIGURATION, Arc::clone(&catalog.routes))
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
        if matches!(key.class, NodeClass::Envoy | NodeClass::EnvoyModule) {
            for listener in route::listeners(&self.config, key.class) {
                overlay.add_own(LISTENER, listener);
            }
            for route in route::routes(&self.config, key.class) {
                overlay.add_own(ROUTE_CONFIGURATION, route);
            }
        }
        overlay
    }

    /// Returns the demand by service, for nodes of `class` that get it with LRS responses: Plimsoll
    /// data planes, and modules inside Envoys. It is more precise
    /// than the fleet's demand, so `AUTO` uses it too (decision 0022). A service without demand, or
    /// with another delivery, is listed without fractions, which withdraws earlier ones.
    pub(crate) fn traffic(
        &self,
        plan: &FleetPlan,
        class: NodeClass,
        unix_origin: Duration,
    ) -> LrsTraffic {
        let mut traffic = LrsTraffic::default();
        for (name, service) in &plan.services {
            let Some(written) = self.config.services.get(name) else {
                continue;
            };
            let demand = steering(written, class, self.fleet_ramp);
            let mut cluster = ClusterTraffic {
                cluster_name: Arc::clone(name),
                fractions: Vec::new(),
                observation_time: None,
            };
            if sends_lrs_traffic(written, class, demand) && !service.zones.is_empty() {
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
        let services = self.config.services.values();
        let assignment =
            |service: &Arc<Service>| self.service_assignment(service, key, plan, withheld);
        let mut resources: Vec<Resource> = services.filter_map(assignment).collect();
        if withheld == Withheld::Nothing {
            resources.extend(self.fleet_assignments(key, plan));
        }
        resources
    }

    /// Returns the assignment of a service; `None` if receivers keep the one that they have.
    fn service_assignment(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
        withheld: Withheld,
    ) -> Option<Resource> {
        let name = service.name();
        match self.receiver_weights(service, key, plan) {
            Some(_) if withheld == Withheld::Demand => None,
            Some(weights) => {
                let body = assignment::with_locality_weights(&service.assignment, weights);
                Some(Resource::new(Arc::clone(name), body))
            }
            None => self.assignments.get(name).cloned(),
        }
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

fn encode_cluster(service: &Service, class: NodeClass, fleet_ramp: u32) -> Resource {
    let steering = steering(service, class, fleet_ramp);
    let body = cluster::encode(service, class, steering);
    Resource::new(Arc::clone(service.name()), body)
}

/// Encodes an assignment with the weights of the configuration.
fn encode_as_written(service: &Service) -> Resource {
    let body = assignment::as_written(&service.assignment);
    Resource::new(Arc::clone(service.name()), body)
}

#[cfg(test)]
pub(crate) mod tests;
