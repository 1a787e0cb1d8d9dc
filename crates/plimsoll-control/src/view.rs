//! [`Catalog`]: encodes resources and assembles views.
//!
//! Resources that only depend on the configuration are encoded once, when it is activated;
//! resources that depend on demand once per fleet and zone, shared by all receivers there.
//! `delivery` selects how demand is sent, `fleet_plan` has the numbers, plimsoll-xds encodes.

pub(crate) mod assignment;
pub(crate) mod cluster;
mod route;
mod sent;

use std::borrow::Cow;
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
use crate::delivery::{self, NodeClass, Steering, sends_lrs_traffic, steering, while_a_zone_fails};
use crate::fleet_plan::FleetPlan;
use crate::output::Output;
use crate::relay::{Patch, Rewrite};
use crate::state::ViewKey;

pub(crate) use sent::{SentResources, before_ramp};

#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    config: Arc<ControlConfig>,
    /// Whether the fleets' own assignments have demand.
    delivers_to_fleets: bool,
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
        let delivers_to_fleets = delivery::delivers_to_fleets(config);
        if config.relay.is_some() {
            // With a relay, clusters and assignments come from the relayed server.
            return Self {
                config: Arc::clone(config),
                delivers_to_fleets,
                by_class: BTreeMap::new(),
                assignments: BTreeMap::new(),
            };
        }
        let by_class = NodeClass::ALL.map(|class| {
            let services = config.services.values();
            let clusters =
                services.map(|service| encode_cluster(service, class, steering(service, class)));
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
            delivers_to_fleets,
            by_class: by_class.into_iter().collect(),
        }
    }

    /// Whether the services of a configuration need other demand on the fleets' assignments.
    pub(crate) fn has_other_demand_of_fleets(&self, config: &ControlConfig) -> bool {
        delivery::delivers_to_fleets(config) != self.delivers_to_fleets
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

    /// Encodes services that changed, and nothing of the others.
    pub(crate) fn update_services<'a>(
        &mut self,
        config: &Arc<ControlConfig>,
        changed: impl Iterator<Item = &'a Arc<str>> + Clone,
    ) {
        let is_known = |name: &Arc<str>| self.config.services.contains_key(name);
        let has_same_names = changed
            .clone()
            .all(|name| is_known(name) == config.services.contains_key(name));
        self.update_assignments(config, changed.clone());
        for (class, catalog) in &mut self.by_class {
            let clusters = changed.clone().map(|name| {
                let service = config.services.get(name);
                let cluster = service
                    .map(|service| encode_cluster(service, *class, steering(service, *class)));
                (Arc::clone(name), cluster)
            });
            catalog.clusters = Arc::new(catalog.clusters.with_changes(clusters));
            // They depend on the names of services only.
            if !has_same_names {
                catalog.listeners = Arc::new(TypeResources::new(route::listeners(config, *class)));
                catalog.routes = Arc::new(TypeResources::new(route::routes(config, *class)));
            }
        }
    }

    /// Builds what receivers with `key` are sent. If `held`, resources that depend on demand are
    /// left out: receivers keep the ones they have.
    pub(crate) fn output(
        &self,
        key: &ViewKey,
        plan: &FleetPlan,
        held: bool,
        generation: u64,
    ) -> Output {
        if self.config.relay.is_some() {
            return Output::Patch(Arc::new(self.patch(key, plan, held, generation)));
        }
        Output::Complete(Arc::new(self.view(key, plan, held, generation)))
    }

    /// Returns an output with the changed services, made from the previous one; `None` if receivers
    /// would get the same.
    pub(crate) fn updated_output(
        &self,
        before: &Output,
        key: &ViewKey,
        plan: &FleetPlan,
        held: bool,
        changed: &BTreeSet<Arc<str>>,
        generation: u64,
    ) -> Option<Output> {
        if let (Output::Complete(before), None) = (before, &self.config.relay) {
            let view = self.updated_view(before, key, plan, held, changed, generation)?;
            return Some(Output::Complete(Arc::new(view)));
        }
        let next = self.output(key, plan, held, generation);
        (!next.has_same_content(before)).then_some(next)
    }

    fn updated_view(
        &self,
        before: &View,
        key: &ViewKey,
        plan: &FleetPlan,
        held: bool,
        changed: &BTreeSet<Arc<str>>,
        generation: u64,
    ) -> Option<View> {
        let Some(assignments) = before.get(CLUSTER_LOAD_ASSIGNMENT) else {
            return Some(self.view(key, plan, held, generation));
        };
        let mut differing = Vec::new();
        for name in changed {
            let service = self.config.services.get(name);
            let next =
                service.and_then(|service| self.service_assignment(service, key, plan, held));
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
        let view = View::new(generation).with(CLUSTER_LOAD_ASSIGNMENT, assignments);
        let view = self.add_class(view, key, plan);
        (has_changed || !view.has_same_content(before)).then_some(view)
    }

    /// Whether nodes of a class in the fleet of `plan` get different resources in different zones.
    pub(crate) fn depends_on_zone(&self, class: NodeClass, plan: &FleetPlan) -> bool {
        let uses_weights = |service: &Arc<Service>| {
            let steering = self.steering(service, class, plan);
            steering == Steering::Demand(Delivery::LocalityWeights)
        };
        // Patches have the weights of every service, whatever uses them.
        class == NodeClass::Grpc
            || self.config.relay.is_some()
            || self.config.services.values().any(uses_weights)
    }

    fn view(&self, key: &ViewKey, plan: &FleetPlan, held: bool, generation: u64) -> View {
        let assignments = self.assignments(key, plan, held);
        let assignments = if held {
            TypeResources::partial(assignments, [])
        } else {
            TypeResources::new(assignments)
        };
        let view = View::new(generation).with(CLUSTER_LOAD_ASSIGNMENT, Arc::new(assignments));
        self.add_class(view, key, plan)
    }

    /// Adds the resources that are the same for all nodes of a class, apart from clusters of
    /// services with a zone that fails for this fleet, or that is tried, and from services that the
    /// fleet does not get.
    fn add_class(&self, view: View, key: &ViewKey, plan: &FleetPlan) -> View {
        let class = key.class;
        let Some(catalog) = self.by_class.get(&class) else {
            return view;
        };
        let planned = plan.services.keys();
        let changed = planned
            .filter_map(|name| self.config.services.get(name))
            .filter_map(|service| self.changed_cluster(service, class, plan));
        let hidden: BTreeSet<&Arc<str>> = self.hidden(&key.fleet).collect();
        let without = hidden.iter().map(|name| (Arc::clone(name), None));
        let mut changed = changed.chain(without).peekable();
        let clusters = if changed.peek().is_some() {
            Arc::new(catalog.clusters.with_changes(changed))
        } else {
            Arc::clone(&catalog.clusters)
        };
        // gRPC clients ask for the listener and the route with the name of a service.
        let visible = |resources: &Arc<TypeResources>| {
            if hidden.is_empty() {
                return Arc::clone(resources);
            }
            Arc::new(resources.retain(|name| !hidden.contains(&Arc::from(name))))
        };
        view.with(CLUSTER, clusters)
            .with(LISTENER, visible(&catalog.listeners))
            .with(ROUTE_CONFIGURATION, visible(&catalog.routes))
    }

    /// Iterates over the services that a fleet does not get.
    fn hidden<'a>(&'a self, fleet: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        let services = self.config.services.iter();
        let hidden = services.filter(move |(_, service)| !service.is_visible_to(fleet));
        hidden.map(|(name, _)| name)
    }

    /// Returns the cluster of a service for the fleet of `plan`, if it is another than for fleets
    /// that none of its zones fails.
    fn changed_cluster(
        &self,
        service: &Service,
        class: NodeClass,
        plan: &FleetPlan,
    ) -> Option<(Arc<str>, Option<Resource>)> {
        let own = plan.services.get(service.name())?;
        if own.failing.is_empty() && own.is_as_written(service) {
            return None;
        }
        let in_force = self.steering(service, class, plan);
        // Feed-forward has its ramp in the cluster.
        let is_ramped = matches!(in_force, Steering::FeedForward(_)) && own.ramp != service.ramp;
        (is_ramped || in_force != steering(service, class)).then(|| {
            let cluster = encode_cluster(&own.delivered(service), class, in_force);
            (Arc::clone(service.name()), Some(cluster))
        })
    }

    /// Returns how a service is steered at nodes of a class in the fleet of `plan`.
    pub(crate) fn steering(
        &self,
        service: &Service,
        class: NodeClass,
        plan: &FleetPlan,
    ) -> Steering {
        let Some(own) = plan.services.get(service.name()) else {
            return steering(service, class);
        };
        let regular = steering(&own.delivered(service), class);
        if own.failing.is_empty() {
            regular
        } else {
            while_a_zone_fails(regular, class)
        }
    }

    /// Builds the changes to the relayed server's resources for receivers with `key`.
    fn patch(&self, key: &ViewKey, plan: &FleetPlan, held: bool, generation: u64) -> Patch {
        let rewrite = |(name, service): (&Arc<str>, &Arc<Service>)| {
            let plan = plan.services.get(name);
            let delivered = plan.map(|plan| plan.delivered(service));
            let rewrite = Rewrite {
                service: match delivered {
                    Some(Cow::Owned(delivered)) => Arc::new(delivered),
                    Some(Cow::Borrowed(_)) | None => Arc::clone(service),
                },
                weights: plan
                    .and_then(|plan| plan.weights_at(&key.locality, key.class))
                    .cloned(),
                zone_fails: plan.is_some_and(|plan| !plan.failing.is_empty()),
            };
            (Arc::clone(name), rewrite)
        };
        let mut patch = Patch {
            generation,
            class: key.class,
            held,
            observes: self.config.services.is_empty(),
            services: self.config.services.iter().map(rewrite).collect(),
            ..Patch::default()
        };
        for resource in self.fleet_assignments(key, plan) {
            if self
                .config
                .fleets
                .local_cluster_names
                .contains(&resource.name)
            {
                patch.add_own(CLUSTER_LOAD_ASSIGNMENT, resource);
            } else {
                patch.fleet = Some(resource);
            }
        }
        // Listeners of the file are sent in addition to those of the relayed server.
        if matches!(key.class, NodeClass::Envoy | NodeClass::EnvoyModule) {
            for listener in route::listeners(&self.config, key.class) {
                patch.add_own(LISTENER, listener);
            }
            for route in route::routes(&self.config, key.class) {
                patch.add_own(ROUTE_CONFIGURATION, route);
            }
        }
        patch
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
            let demand = steering(&service.delivered(written), class);
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

    fn assignments(&self, key: &ViewKey, plan: &FleetPlan, held: bool) -> Vec<Resource> {
        let services = self.config.services.values();
        let assignment = |service: &Arc<Service>| self.service_assignment(service, key, plan, held);
        let mut resources: Vec<Resource> = services.filter_map(assignment).collect();
        if !held {
            resources.extend(self.fleet_assignments(key, plan));
        }
        resources
    }

    /// Returns the assignment of a service; `None` if receivers keep the one that they have, or do
    /// not get the service.
    fn service_assignment(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
        held: bool,
    ) -> Option<Resource> {
        if !service.is_visible_to(&key.fleet) {
            return None;
        }
        let name = service.name();
        match receiver_weights(service, key, plan, self.steering(service, key.class, plan)) {
            Some(_) if held => None,
            Some(weights) => {
                let body = assignment::with_locality_weights(service, weights, key.class);
                Some(Resource::new(Arc::clone(name), body))
            }
            None => self.assignments.get(name).cloned(),
        }
    }

    /// Encodes the fleet's own assignment under each name that the fleet's proxies may request.
    fn fleet_assignments(&self, key: &ViewKey, plan: &FleetPlan) -> Vec<Resource> {
        let own = Some(&key.fleet);
        let names = self.config.fleets.local_cluster_names.iter().chain(own);
        let free = names.filter(|name| !self.config.services.contains_key(*name));
        let repeats =
            key.class == NodeClass::Plimsoll || self.config.fleets.endpoint_stale_after.is_some();
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

/// Returns the locality weights to send on a service's assignment, if receivers use weights:
/// `Some(None)` if their zone has none. `None` if the assignment is sent as configured.
fn receiver_weights<'a>(
    service: &Service,
    key: &ViewKey,
    plan: &'a FleetPlan,
    steering: Steering,
) -> Option<Option<&'a ReceiverWeights>> {
    let uses_weights = steering == Steering::Demand(Delivery::LocalityWeights);
    let measured = plan.services.get(service.name())?;
    (uses_weights || key.class == NodeClass::Grpc).then(|| match steering {
        Steering::AsConfigured(_) | Steering::HostCounts => None,
        _ => measured.weights_at(&key.locality, key.class),
    })
}

fn encode_cluster(service: &Service, class: NodeClass, steering: Steering) -> Resource {
    let body = cluster::encode(service, class, steering);
    Resource::new(Arc::clone(service.name()), body)
}

/// Encodes an assignment with the weights of the configuration.
fn encode_as_written(service: &Service) -> Resource {
    let body = assignment::as_written(service);
    Resource::new(Arc::clone(service.name()), body)
}

#[cfg(test)]
pub(crate) mod tests;
