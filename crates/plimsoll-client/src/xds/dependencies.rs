//! [`Dependencies`]: which resources are needed, given those that are there. Without IO.
//!
//! A target needs its listener, that its routes, they their clusters, they their assignments. What
//! is needed is computed anew after every event and compared with what is watched. A resource that
//! the server takes away is no longer updated, but stays in use, except for clusters: a cluster
//! that is gone and that no route needs is removed. Routes are handed on when every cluster they
//! name is there, so that no request meets a name without a cluster; those that replace others also
//! wait for endpoints. Whoever has listeners of its own follows routes by name, and may have
//! clusters of its own that such routes name ([`Following`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_xds::ads::client::ClientEvent;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::ads_client::AdsCommand;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::upstream::{EndpointExtras, UpstreamCluster};
use plimsoll_xds::wire::{self, RouteSource};

use super::Following;

/// All resources of a type.
const WILDCARD: &str = "*";

/// A resource: type and name.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// What a client is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A cluster is new or has changed.
    Cluster(Arc<UpstreamCluster>),
    /// A cluster is gone.
    Removed(Arc<str>),
    /// Endpoints of a cluster.
    Assignment(Arc<str>, Assigned),
    /// The processes that are like this one.
    Fleet(ClusterLoadAssignment),
    /// Routes of a target, or routes that are followed by name.
    Routes(RouteUser, Arc<RouteConfiguration>),
    /// Something is wrong with a resource, or no longer.
    Problem(Key, Option<String>),
}

/// Endpoints, and what is said about connections to them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assigned {
    pub(crate) assignment: ClusterLoadAssignment,
    pub(crate) extras: Arc<BTreeMap<SocketAddr, EndpointExtras>>,
}

/// For whom routes are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteUser {
    /// The target of a listener with this name.
    Target(Arc<str>),
    /// Whoever follows routes by this name.
    Follower(Arc<str>),
}

/// What is wanted from the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    pub(crate) following: Following,
    pub(crate) listeners: BTreeSet<Arc<str>>,
    pub(crate) clusters: BTreeSet<Arc<str>>,
    pub(crate) all_clusters: bool,
    pub(crate) local_cluster_name: Arc<str>,
    /// Clusters that the program added can use the fleet.
    pub(crate) fleet_wanted: bool,
}

/// Where the routes of a listener are.
#[derive(Clone, Debug)]
enum Routes {
    Rds(Arc<str>),
    Inline(Arc<RouteConfiguration>),
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Dependencies {
    roots: Roots,
    listeners: BTreeMap<Arc<str>, Routes>,
    /// How long requests may take where routes do not say, by listener.
    limits: BTreeMap<Arc<str>, Duration>,
    routes: BTreeMap<Arc<str>, Arc<RouteConfiguration>>,
    clusters: BTreeMap<Arc<str>, Arc<UpstreamCluster>>,
    assignments: BTreeMap<Arc<str>, Assigned>,
    /// Clusters that the server does not have: routes do not wait for them.
    missing: BTreeSet<Arc<str>>,
    /// Assignments that the server does not have.
    unassigned: BTreeSet<Arc<str>>,
    /// Routes that were handed on.
    routed: BTreeMap<RouteUser, Arc<RouteConfiguration>>,
    watched: BTreeSet<Key>,
    commands: VecDeque<AdsCommand>,
    changes: VecDeque<Change>,
}

/// Says what is wrong with a resource, beginning with the path to the field: its words are sent to
/// the server, behind the name.
pub(crate) fn check(type_url: &str, name: &str, body: &Bytes) -> Result<(), String> {
    let read = match type_url {
        LISTENER => wire::decode_listener(body).map(drop),
        ROUTE_CONFIGURATION => wire::decode_route_configuration(body).map(drop),
        CLUSTER => wire::decode_upstream_cluster(body).map(drop),
        CLUSTER_LOAD_ASSIGNMENT => assigned(body).map(drop),
        _ => return Err(format!("resources of type {type_url} were not asked for")),
    };
    read.map_err(|error| error.to_string())?;
    // Under another name it would replace something else.
    let own = wire::resource_name(type_url, body).unwrap_or_default();
    match own == name {
        true => Ok(()),
        false => Err(format!("name: is {own:?} inside")),
    }
}

fn assigned(body: &Bytes) -> Result<Assigned, DecodeError> {
    Ok(Assigned {
        assignment: wire::decode_assignment(body)?,
        extras: Arc::new(wire::decode_endpoint_extras(body)?),
    })
}

impl Dependencies {
    /// Nothing is known yet; commands for the roots are due.
    pub(crate) fn new(roots: Roots) -> Self {
        let mut new = Self {
            roots,
            listeners: BTreeMap::new(),
            limits: BTreeMap::new(),
            routes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            assignments: BTreeMap::new(),
            missing: BTreeSet::new(),
            unassigned: BTreeSet::new(),
            routed: BTreeMap::new(),
            watched: BTreeSet::new(),
            commands: VecDeque::new(),
            changes: VecDeque::new(),
        };
        new.settle();
        new
    }

    /// One more target.
    pub(crate) fn add_listener(&mut self, name: Arc<str>) {
        self.roots.listeners.insert(name);
        self.settle();
    }

    /// Other routes and clusters of our own, instead of those before.
    pub(crate) fn follow(&mut self, following: Following) {
        let before = std::mem::replace(&mut self.roots.following, following);
        let following = &self.roots.following;
        for (cluster, eds_name) in &following.own_clusters {
            // What the server says about a cluster of that name does not count any more.
            self.clusters.remove(cluster);
            let known = before.own_clusters.get(cluster) == Some(eds_name);
            let assigned = eds_name
                .as_ref()
                .and_then(|name| self.assignments.get(name));
            if let Some(assigned) = assigned.filter(|_| !known) {
                let change = Change::Assignment(Arc::clone(cluster), assigned.clone());
                self.changes.push_back(change);
            }
        }
        self.routed.retain(|user, _| match user {
            RouteUser::Target(_) => true,
            RouteUser::Follower(name) => following.routes.contains(name),
        });
        // An assignment that is there already under the new name.
        if before.local_cluster_name != self.roots.following.local_cluster_name
            && let Some(assigned) = self.assignments.get(self.fleet_name())
        {
            let fleet = Change::Fleet(assigned.assignment.clone());
            self.changes.push_back(fleet);
        }
        self.settle();
    }

    /// Name of the fleet's assignment; empty if there is none to ask for.
    fn fleet_name(&self) -> &Arc<str> {
        let own = self.roots.following.local_cluster_name.as_ref();
        own.unwrap_or(&self.roots.local_cluster_name)
    }

    /// Whether a cluster can use the fleet, so that its assignment is asked for.
    fn fleet_is_wanted(&self) -> bool {
        let mut clusters = self.clusters.values();
        let wanted = self.roots.fleet_wanted || clusters.any(|one| one.config.uses_fleet());
        wanted && !self.fleet_name().is_empty()
    }

    /// Whether clusters that the program added can use the fleet.
    pub(crate) fn want_fleet(&mut self, wanted: bool) {
        self.roots.fleet_wanted = wanted;
        self.settle();
    }

    /// Something became of a resource.
    pub(crate) fn handle(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                self.handle_updated(&type_url, &resource);
            }
            ClientEvent::Removed { type_url, name } => {
                self.handle_absent(type_url, name, "the server took it away");
            }
            ClientEvent::DoesNotExist { type_url, name } => {
                self.handle_absent(type_url, name, "the server does not have it");
            }
            // Refusals are counted by the subscriber; names that a complete list leaves out are
            // told one by one.
            ClientEvent::Rejected { .. } | ClientEvent::Complete { .. } => {}
        }
        self.settle();
    }

    /// What is to be asked for, or no longer.
    pub(crate) fn poll_command(&mut self) -> Option<AdsCommand> {
        self.commands.pop_front()
    }

    /// What is new, in the order in which it may be used.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn handle_updated(&mut self, type_url: &Arc<str>, resource: &Resource) {
        let name = Arc::clone(&resource.name);
        let body = &resource.body;
        // What does not decode was refused before it came here.
        match &**type_url {
            LISTENER => {
                if let Ok(listener) = wire::decode_listener(body) {
                    match listener.max_stream_duration {
                        Some(limit) => self.limits.insert(Arc::clone(&name), limit),
                        None => self.limits.remove(&name),
                    };
                    let routes = match listener.routes {
                        RouteSource::Rds(name) => Routes::Rds(name.into()),
                        RouteSource::Inline(routes) => Routes::Inline(Arc::from(routes)),
                    };
                    self.listeners.insert(Arc::clone(&name), routes);
                }
            }
            ROUTE_CONFIGURATION => {
                if let Ok(routes) = wire::decode_route_configuration(body) {
                    self.routes.insert(Arc::clone(&name), Arc::new(routes));
                }
            }
            CLUSTER => {
                if let Ok(cluster) = wire::decode_upstream_cluster(body) {
                    self.handle_cluster(&name, cluster);
                }
            }
            CLUSTER_LOAD_ASSIGNMENT => {
                if let Ok(assigned) = assigned(body) {
                    self.handle_assignment(&name, assigned);
                }
            }
            _ => {}
        }
        let key = (Arc::clone(type_url), name);
        self.changes.push_back(Change::Problem(key, None));
    }

    fn handle_cluster(&mut self, name: &Arc<str>, cluster: UpstreamCluster) {
        if self.is_own(name) {
            return;
        }
        self.missing.remove(name);
        if self
            .clusters
            .get(name)
            .is_some_and(|known| **known == cluster)
        {
            return;
        }
        let cluster = Arc::new(cluster);
        let before = self.clusters.insert(Arc::clone(name), Arc::clone(&cluster));
        self.changes
            .push_back(Change::Cluster(Arc::clone(&cluster)));
        let same_endpoints = before.is_some_and(|before| before.eds_name() == cluster.eds_name());
        let assignment = cluster
            .eds_name()
            .and_then(|name| self.assignments.get(name));
        if let Some(assignment) = assignment.filter(|_| !same_endpoints) {
            let change = Change::Assignment(Arc::clone(name), assignment.clone());
            self.changes.push_back(change);
        }
    }

    fn handle_assignment(&mut self, name: &Arc<str>, assigned: Assigned) {
        if name == self.fleet_name() {
            let fleet = assigned.assignment.clone();
            self.changes.push_back(Change::Fleet(fleet));
        }
        for (cluster_name, cluster) in &self.clusters {
            if cluster.eds_name() == Some(&**name) {
                let change = Change::Assignment(Arc::clone(cluster_name), assigned.clone());
                self.changes.push_back(change);
            }
        }
        for (cluster_name, eds_name) in &self.roots.following.own_clusters {
            if eds_name.as_ref() == Some(name) {
                let change = Change::Assignment(Arc::clone(cluster_name), assigned.clone());
                self.changes.push_back(change);
            }
        }
        self.unassigned.remove(name);
        self.assignments.insert(Arc::clone(name), assigned);
    }

    fn is_own(&self, cluster: &str) -> bool {
        self.roots.following.own_clusters.contains_key(cluster)
    }

    fn handle_absent(&mut self, type_url: Arc<str>, name: Arc<str>, reason: &str) {
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
        // A server that knows nothing of fleets is nothing unusual.
        if !(is_fleet && &*type_url == CLUSTER_LOAD_ASSIGNMENT) {
            let problem = Change::Problem((type_url, name), Some(reason.to_owned()));
            self.changes.push_back(problem);
        }
    }

    /// Brings what is watched and what is handed on in line with what is known.
    fn settle(&mut self) {
        self.hand_routes_on();
        self.forget_clusters();
        let wanted = self.wanted();
        let command = |(type_url, name): &Key, watch: bool| {
            let (type_url, name) = (Arc::clone(type_url), Arc::clone(name));
            match watch {
                true => AdsCommand::Watch { type_url, name },
                false => AdsCommand::Unwatch { type_url, name },
            }
        };
        let new = wanted.difference(&self.watched);
        self.commands.extend(new.map(|key| command(key, true)));
        let old = self.watched.difference(&wanted);
        self.commands.extend(old.map(|key| command(key, false)));
        self.watched = wanted;
        let watched = |name: &Arc<str>| {
            let key = (CLUSTER_LOAD_ASSIGNMENT.into(), Arc::clone(name));
            self.watched.contains(&key)
        };
        self.assignments.retain(|name, _| watched(name));
        self.unassigned.retain(watched);
    }

    fn hand_routes_on(&mut self) {
        let users: Vec<RouteUser> = self.route_users().collect();
        for user in users {
            let Some(routes) = self.routes_of(&user) else {
                continue;
            };
            let replaced = self.routed.get(&user);
            if replaced == Some(&routes) {
                continue;
            }
            let ready = |name: &str| match replaced {
                None => self.is_there(name),
                Some(_) => self.is_there(name) && self.has_endpoints(name),
            };
            if routes.clusters().into_iter().all(ready) {
                let change = Change::Routes(user.clone(), Arc::clone(&routes));
                self.changes.push_back(change);
                self.routed.insert(user, routes);
            }
        }
    }

    /// Whether a cluster is known, or known not to be.
    fn is_there(&self, name: &str) -> bool {
        self.clusters.contains_key(name) || self.missing.contains(name) || self.is_own(name)
    }

    /// Whether nothing is to be waited for: there are endpoints, or there will be none.
    fn has_endpoints(&self, name: &str) -> bool {
        let cluster = self.clusters.get(name);
        let eds_name = cluster.and_then(|cluster| cluster.eds_name());
        eds_name.is_none_or(|eds_name| {
            self.assignments.contains_key(eds_name) || self.unassigned.contains(eds_name)
        })
    }

    /// Clusters that nobody needs any more, now that routes changed.
    fn forget_clusters(&mut self) {
        if self.roots.all_clusters {
            return;
        }
        let needed = self.needed_clusters();
        let unneeded = self.clusters.keys().filter(|name| !needed.contains(*name));
        let unneeded: Vec<Arc<str>> = unneeded.cloned().collect();
        for name in unneeded {
            self.clusters.remove(&name);
            self.changes.push_back(Change::Removed(name));
        }
        self.missing.retain(|name| needed.contains(name));
    }

    fn route_users(&self) -> impl Iterator<Item = RouteUser> {
        let targets = self.roots.listeners.iter().cloned().map(RouteUser::Target);
        let followed = self.roots.following.routes.iter().cloned();
        targets.chain(followed.map(RouteUser::Follower))
    }

    fn routes_of(&self, user: &RouteUser) -> Option<Arc<RouteConfiguration>> {
        let target = match user {
            RouteUser::Follower(name) => return self.routes.get(name).cloned(),
            RouteUser::Target(target) => target,
        };
        let routes = match self.listeners.get(target)? {
            Routes::Inline(routes) => routes,
            Routes::Rds(name) => self.routes.get(name)?,
        };
        Some(match self.limits.get(target) {
            None => Arc::clone(routes),
            Some(limit) => Arc::new(routes.with_max_stream_duration(*limit)),
        })
    }

    /// Clusters that routes in force, or about to be, name, and those wanted from the start.
    fn needed_clusters(&self) -> BTreeSet<Arc<str>> {
        let mut needed = self.roots.clusters.clone();
        for user in self.route_users() {
            let coming = self.routes_of(&user);
            let routes = coming.iter().chain(self.routed.get(&user));
            let names = routes.flat_map(|routes| routes.clusters());
            needed.extend(names.filter(|name| !self.is_own(name)).map(Arc::from));
        }
        needed
    }

    fn wanted(&self) -> BTreeSet<Key> {
        let key = |type_url: &str, name: &Arc<str>| (Arc::from(type_url), Arc::clone(name));
        let mut wanted = BTreeSet::new();
        for target in &self.roots.listeners {
            wanted.insert(key(LISTENER, target));
            if let Some(Routes::Rds(name)) = self.listeners.get(target) {
                wanted.insert(key(ROUTE_CONFIGURATION, name));
            }
        }
        let following = &self.roots.following;
        for name in &following.routes {
            wanted.insert(key(ROUTE_CONFIGURATION, name));
        }
        for eds_name in following.own_clusters.values().flatten() {
            wanted.insert(key(CLUSTER_LOAD_ASSIGNMENT, eds_name));
        }
        if self.roots.all_clusters {
            wanted.insert(key(CLUSTER, &WILDCARD.into()));
        }
        let needed = self.needed_clusters();
        wanted.extend(needed.iter().map(|name| key(CLUSTER, name)));
        for cluster in self.clusters.values() {
            let eds_name = cluster.eds_name().map(Arc::from);
            wanted.extend(eds_name.map(|name| key(CLUSTER_LOAD_ASSIGNMENT, &name)));
        }
        if self.fleet_is_wanted() {
            wanted.insert(key(CLUSTER_LOAD_ASSIGNMENT, self.fleet_name()));
        }
        wanted
    }
}

#[cfg(test)]
mod tests;
