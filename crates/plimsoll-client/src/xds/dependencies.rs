//! [`Dependencies`]: which resources to subscribe to, given those already received. Without IO.
//!
//! A target needs its listener, which needs routes, which need clusters, which need assignments.
//! The needed set is recomputed after every event and compared with the subscriptions. A resource
//! that the server removes stays in use, except for a cluster that no route needs. Routes are
//! published once all their clusters are known, so that no request finds a route without its
//! cluster; routes that replace others also wait for endpoints. Programs with their own listeners
//! subscribe to routes by name, which may refer to the program's own clusters ([`Subscriptions`]).

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_xds::ads::client::ClientEvent;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::ads_client::AdsCommand;
use plimsoll_xds::upstream::{ClusterEndpoints, UpstreamCluster};
use plimsoll_xds::wire::{ApiListener, RouteSource};

use super::Subscriptions;
use super::decode::{Content, Decoded, Routes};

const WILDCARD: &str = "*";
/// Problem of a resource that the server has not sent within `initial_fetch_timeout`.
pub(crate) const NOT_RECEIVED: &str = "was not received in time";

pub(crate) type Key = (Arc<str>, Arc<str>);

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Cluster(Arc<UpstreamCluster>),
    Removed(Arc<str>),
    Endpoints(Arc<str>, ClusterEndpoints),
    /// Endpoints of the fleet, the processes like this one.
    Fleet(ClusterLoadAssignment),
    Routes(RouteConsumer, Routes),
    /// The listeners of a program with its own listeners, after one has changed.
    Listeners(BTreeMap<Arc<str>, VersionedListener>),
    /// A resource became missing, with the reason, or available again (`None`).
    Problem(Key, Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteConsumer {
    /// The `TargetService` whose listener has this name.
    Target(Arc<str>),
    Subscription(Arc<str>),
}

/// A compiled listener and its resource version.
#[derive(Clone, Debug)]
pub(crate) struct VersionedListener {
    pub(crate) version: Arc<str>,
    pub(crate) compiled: Arc<dyn Any + Send + Sync>,
}

/// Roots of the dependency graph: subscriptions that do not follow from other resources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    pub(crate) subscriptions: Subscriptions,
    pub(crate) listeners: BTreeSet<Arc<str>>,
    pub(crate) clusters: BTreeSet<Arc<str>>,
    pub(crate) all_clusters: bool,
    pub(crate) all_listeners: bool,
    pub(crate) local_cluster_name: Arc<str>,
    pub(crate) fleet_needed: bool,
}

#[derive(Debug)]
pub(crate) struct Dependencies {
    roots: Roots,
    listeners: BTreeMap<Arc<str>, Arc<ApiListener>>,
    compiled_listeners: BTreeMap<Arc<str>, VersionedListener>,
    routes: BTreeMap<Arc<str>, Routes>,
    clusters: BTreeMap<Arc<str>, Arc<UpstreamCluster>>,
    assignments: BTreeMap<Arc<str>, ClusterEndpoints>,
    /// Clusters that the server does not have. Routes do not wait for them.
    missing: BTreeSet<Arc<str>>,
    unassigned: BTreeSet<Arc<str>>,
    routed: BTreeMap<RouteConsumer, Routes>,
    watched: BTreeSet<Key>,
    /// Resources that were removed or do not exist.
    absent: BTreeSet<Key>,
    /// Types with a wildcard subscription whose first response has arrived.
    complete: BTreeSet<Arc<str>>,
    commands: VecDeque<AdsCommand>,
    changes: VecDeque<Change>,
}

impl Dependencies {
    pub(crate) fn new(roots: Roots) -> Self {
        let mut new = Self {
            roots,
            listeners: BTreeMap::new(),
            compiled_listeners: BTreeMap::new(),
            routes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            assignments: BTreeMap::new(),
            missing: BTreeSet::new(),
            unassigned: BTreeSet::new(),
            routed: BTreeMap::new(),
            watched: BTreeSet::new(),
            absent: BTreeSet::new(),
            complete: BTreeSet::new(),
            commands: VecDeque::new(),
            changes: VecDeque::new(),
        };
        new.reconcile();
        new
    }

    pub(crate) fn add_listeners(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        self.roots.listeners.extend(names);
        self.reconcile();
    }

    pub(crate) fn subscribe(&mut self, subscriptions: Subscriptions) {
        let before = std::mem::replace(&mut self.roots.subscriptions, subscriptions);
        let subscriptions = &self.roots.subscriptions;
        for (cluster, eds_name) in &subscriptions.own_clusters {
            // The program's own cluster takes precedence over the server's.
            self.clusters.remove(cluster);
            let known = before.own_clusters.get(cluster) == Some(eds_name);
            let assigned = eds_name
                .as_ref()
                .and_then(|name| self.assignments.get(name));
            if let Some(assigned) = assigned.filter(|_| !known) {
                let change = Change::Endpoints(Arc::clone(cluster), assigned.clone());
                self.changes.push_back(change);
            }
        }
        self.routed.retain(|consumer, _| match consumer {
            RouteConsumer::Target(_) => true,
            RouteConsumer::Subscription(name) => subscriptions.routes.contains(name),
        });
        // The fleet's assignment may have been received already under its new name.
        if before.local_cluster_name != self.roots.subscriptions.local_cluster_name
            && let Some(assigned) = self.assignments.get(self.fleet_name())
        {
            let fleet = Change::Fleet(assigned.assignment.clone());
            self.changes.push_back(fleet);
        }
        self.reconcile();
    }

    /// Name of the fleet's assignment; empty if there is none to subscribe to.
    fn fleet_name(&self) -> &Arc<str> {
        let own = self.roots.subscriptions.local_cluster_name.as_ref();
        own.unwrap_or(&self.roots.local_cluster_name)
    }

    fn needs_fleet(&self) -> bool {
        let mut clusters = self.clusters.values();
        let needed = self.roots.fleet_needed || clusters.any(|one| one.config.uses_fleet());
        needed && !self.fleet_name().is_empty()
    }

    pub(crate) fn set_fleet_needed(&mut self, needed: bool) {
        self.roots.fleet_needed = needed;
        self.reconcile();
    }

    pub(crate) fn handle(&mut self, event: ClientEvent<Decoded>) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                self.handle_updated(type_url, resource);
            }
            ClientEvent::Removed { type_url, name } => {
                self.handle_absent(type_url, name, "removed by the management server");
            }
            ClientEvent::DoesNotExist {
                type_url,
                name,
                timed_out,
            } => {
                let reason = if timed_out {
                    NOT_RECEIVED
                } else {
                    "does not exist on the management server"
                };
                self.handle_absent(type_url, name, reason);
            }
            // Names missing from a complete response also arrive as individual events.
            ClientEvent::Complete { type_url } => {
                self.complete.insert(type_url);
            }
            // The subscriber counts rejections.
            ClientEvent::Rejected { .. } => {}
        }
        self.reconcile();
    }

    pub(crate) fn poll_command(&mut self) -> Option<AdsCommand> {
        self.commands.pop_front()
    }

    /// Next change for the client, in the order in which changes must be applied.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Subscriptions that have neither arrived nor are known not to exist. Routes that do not exist
    /// are pending, as in Envoy: a listener without routes is of no use.
    pub(crate) fn pending(&self) -> BTreeSet<Key> {
        let is_pending = |key: &&Key| {
            let (type_url, name) = *key;
            let arrived = match &**type_url {
                _ if **name == *WILDCARD => self.complete.contains(type_url),
                LISTENER => self.listeners.contains_key(name),
                ROUTE_CONFIGURATION => self.routes.contains_key(name),
                CLUSTER => self.is_resolved(name),
                _ => self.assignments.contains_key(name),
            };
            let is_absent = **type_url != *ROUTE_CONFIGURATION && self.absent.contains(*key);
            !arrived && !is_absent
        };
        self.watched.iter().filter(is_pending).cloned().collect()
    }

    fn handle_updated(&mut self, type_url: Arc<str>, resource: Resource<Decoded>) {
        let name = resource.name;
        self.absent
            .remove(&(Arc::clone(&type_url), Arc::clone(&name)));
        match resource.body.content {
            Content::Compiled(listener) => {
                let listener = VersionedListener {
                    version: resource.version,
                    compiled: listener.compiled,
                };
                self.compiled_listeners.insert(Arc::clone(&name), listener);
                self.publish_listeners();
            }
            Content::Listener(listener) => {
                self.listeners.insert(Arc::clone(&name), listener);
            }
            Content::Routes(routes) => {
                self.routes.insert(Arc::clone(&name), routes);
            }
            Content::Cluster(cluster) => self.handle_cluster(&name, &cluster),
            Content::Endpoints(endpoints) => self.handle_endpoints(&name, endpoints),
        }
        let change = Change::Problem((type_url, name), None);
        self.changes.push_back(change);
    }

    fn handle_cluster(&mut self, name: &Arc<str>, cluster: &Arc<UpstreamCluster>) {
        if self.is_own(name) {
            return;
        }
        self.missing.remove(name);
        let known = self.clusters.get(name);
        if known.is_some_and(|known| Arc::ptr_eq(known, cluster) || known == cluster) {
            return;
        }
        let before = self.clusters.insert(Arc::clone(name), Arc::clone(cluster));
        self.changes.push_back(Change::Cluster(Arc::clone(cluster)));
        let same_endpoints = before.is_some_and(|before| before.eds_name() == cluster.eds_name());
        let assignment = cluster
            .eds_name()
            .and_then(|name| self.assignments.get(name));
        if let Some(assignment) = assignment.filter(|_| !same_endpoints) {
            let change = Change::Endpoints(Arc::clone(name), assignment.clone());
            self.changes.push_back(change);
        }
    }

    fn handle_endpoints(&mut self, name: &Arc<str>, assigned: ClusterEndpoints) {
        if name == self.fleet_name() {
            let fleet = assigned.assignment.clone();
            self.changes.push_back(Change::Fleet(fleet));
        }
        for (cluster_name, cluster) in &self.clusters {
            if cluster.eds_name() == Some(&**name) {
                let change = Change::Endpoints(Arc::clone(cluster_name), assigned.clone());
                self.changes.push_back(change);
            }
        }
        for (cluster_name, eds_name) in &self.roots.subscriptions.own_clusters {
            if eds_name.as_ref() == Some(name) {
                let change = Change::Endpoints(Arc::clone(cluster_name), assigned.clone());
                self.changes.push_back(change);
            }
        }
        self.unassigned.remove(name);
        self.assignments.insert(Arc::clone(name), assigned);
    }

    fn is_own(&self, cluster: &str) -> bool {
        self.roots.subscriptions.own_clusters.contains_key(cluster)
    }

    fn publish_listeners(&mut self) {
        let listeners = Change::Listeners(self.compiled_listeners.clone());
        self.changes.push_back(listeners);
    }

    fn handle_absent(&mut self, type_url: Arc<str>, name: Arc<str>, reason: &str) {
        self.absent
            .insert((Arc::clone(&type_url), Arc::clone(&name)));
        if &*type_url == LISTENER && self.compiled_listeners.remove(&name).is_some() {
            self.publish_listeners();
            return;
        }
        if &*type_url == CLUSTER_LOAD_ASSIGNMENT {
            self.unassigned.insert(Arc::clone(&name));
        }
        if &*type_url == CLUSTER && !self.is_own(&name) {
            self.missing.insert(Arc::clone(&name));
            let needed = self.needed_clusters();
            if self.clusters.contains_key(&name) && !needed.contains(&name) {
                self.clusters.remove(&name);
                self.changes.push_back(Change::Removed(Arc::clone(&name)));
            }
        }
        let is_fleet = name == *self.fleet_name();
        // A server without the fleet's assignment is not a problem.
        if !(is_fleet && &*type_url == CLUSTER_LOAD_ASSIGNMENT) {
            let problem = Change::Problem((type_url, name), Some(reason.to_owned()));
            self.changes.push_back(problem);
        }
    }

    /// Publishes complete routes, removes unneeded clusters and updates the subscriptions.
    fn reconcile(&mut self) {
        self.publish_routes();
        self.remove_unneeded_clusters();
        let needed = self.needed();
        let new = needed.difference(&self.watched).cloned();
        self.commands
            .extend(new.map(|(type_url, name)| AdsCommand::Subscribe { type_url, name }));
        let old = self.watched.difference(&needed).cloned();
        self.commands
            .extend(old.map(|(type_url, name)| AdsCommand::Unsubscribe { type_url, name }));
        self.watched = needed;
        let watched = |name: &Arc<str>| {
            let key = (CLUSTER_LOAD_ASSIGNMENT.into(), Arc::clone(name));
            self.watched.contains(&key)
        };
        self.assignments.retain(|name, _| watched(name));
        self.absent.retain(|key| self.watched.contains(key));
        self.unassigned.retain(watched);
    }

    fn publish_routes(&mut self) {
        let consumers: Vec<RouteConsumer> = self.route_consumers().collect();
        for consumer in consumers {
            let Some(routes) = self.routes_of(&consumer) else {
                continue;
            };
            let replaced = self.routed.get(&consumer);
            if replaced.is_some_and(|known| known.configuration == routes.configuration) {
                continue;
            }
            let ready = |name: &str| match replaced {
                None => self.is_resolved(name),
                Some(_) => self.is_resolved(name) && self.has_endpoints(name),
            };
            if routes.configuration.clusters().into_iter().all(ready) {
                let change = Change::Routes(consumer.clone(), routes.clone());
                self.changes.push_back(change);
                self.routed.insert(consumer, routes);
            }
        }
    }

    /// Whether a cluster is known, or known not to exist.
    fn is_resolved(&self, name: &str) -> bool {
        self.clusters.contains_key(name) || self.missing.contains(name) || self.is_own(name)
    }

    /// Whether the endpoints of a cluster are known, or known not to exist.
    fn has_endpoints(&self, name: &str) -> bool {
        let cluster = self.clusters.get(name);
        let eds_name = cluster.and_then(|cluster| cluster.eds_name());
        eds_name.is_none_or(|eds_name| {
            self.assignments.contains_key(eds_name) || self.unassigned.contains(eds_name)
        })
    }

    fn remove_unneeded_clusters(&mut self) {
        if self.roots.all_clusters {
            return;
        }
        let needed = self.needed_clusters();
        let names = self.clusters.keys().cloned();
        let unneeded: Vec<Arc<str>> = names.filter(|name| !needed.contains(name)).collect();
        for name in unneeded {
            self.clusters.remove(&name);
            self.changes.push_back(Change::Removed(name));
        }
        self.missing.retain(|name| needed.contains(name));
    }

    fn route_consumers(&self) -> impl Iterator<Item = RouteConsumer> {
        let targets = self
            .roots
            .listeners
            .iter()
            .cloned()
            .map(RouteConsumer::Target);
        let followed = self.roots.subscriptions.routes.iter().cloned();
        targets.chain(followed.map(RouteConsumer::Subscription))
    }

    fn routes_of(&self, consumer: &RouteConsumer) -> Option<Routes> {
        let target = match consumer {
            RouteConsumer::Subscription(name) => return self.routes.get(name).cloned(),
            RouteConsumer::Target(target) => target,
        };
        let listener = self.listeners.get(target)?;
        let routes = match &listener.routes {
            RouteSource::Inline(routes) => routes,
            RouteSource::Rds(name) => &self.routes.get(name)?.configuration,
        };
        let routes = match listener.max_stream_duration {
            Some(limit) => Arc::new(routes.with_max_stream_duration(limit)),
            None => Arc::clone(routes),
        };
        Some(routes.into())
    }

    fn needed_clusters(&self) -> BTreeSet<Arc<str>> {
        let mut needed = self.roots.clusters.clone();
        for consumer in self.route_consumers() {
            let pending = self.routes_of(&consumer);
            let routes = pending.iter().chain(self.routed.get(&consumer));
            let names = routes.flat_map(|routes| routes.configuration.clusters());
            needed.extend(names.filter(|name| !self.is_own(name)).map(Arc::from));
        }
        needed
    }

    fn needed(&self) -> BTreeSet<Key> {
        let key = |type_url: &str, name: &Arc<str>| (Arc::from(type_url), Arc::clone(name));
        let mut needed_keys = BTreeSet::new();
        for target in &self.roots.listeners {
            needed_keys.insert(key(LISTENER, target));
            let listener = self.listeners.get(target);
            if let Some(RouteSource::Rds(name)) = listener.map(|listener| &listener.routes) {
                needed_keys.insert(key(ROUTE_CONFIGURATION, name));
            }
        }
        let subscriptions = &self.roots.subscriptions;
        for name in &subscriptions.routes {
            needed_keys.insert(key(ROUTE_CONFIGURATION, name));
        }
        for eds_name in subscriptions.own_clusters.values().flatten() {
            needed_keys.insert(key(CLUSTER_LOAD_ASSIGNMENT, eds_name));
        }
        if self.roots.all_listeners {
            needed_keys.insert(key(LISTENER, &WILDCARD.into()));
        }
        if self.roots.all_clusters {
            needed_keys.insert(key(CLUSTER, &WILDCARD.into()));
        }
        let needed = self.needed_clusters();
        needed_keys.extend(needed.iter().map(|name| key(CLUSTER, name)));
        for cluster in self.clusters.values() {
            let eds_name = cluster.eds_name().map(Arc::from);
            needed_keys.extend(eds_name.map(|name| key(CLUSTER_LOAD_ASSIGNMENT, &name)));
        }
        if self.needs_fleet() {
            needed_keys.insert(key(CLUSTER_LOAD_ASSIGNMENT, self.fleet_name()));
        }
        needed_keys
    }
}

#[cfg(test)]
mod tests;
