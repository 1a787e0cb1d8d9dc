//! [`Merge`]: combines the relayed server's resources and the patch to the views of one receiver.
//! It does no IO.
//!
//! A session calls [`Merge::subscribe`], [`Merge::handle_patch`] and [`Merge::handle_upstream`]
//! for inputs and then drains [`Merge::poll_event`] and [`Merge::poll_view`]. Only resource types
//! with changes are rebuilt, and only resources that changed are rewritten again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_xds::ads::client::ClientEvent;
use plimsoll_xds::ads::server::WILDCARD;
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::driver::ads_client::AdsCommand;
use plimsoll_xds::error::DecodeError;

use super::improve::{self, ImprovedCluster, User};
use super::observe::Observer;
use super::users::AssignmentUsers;
use super::{Patch, RelayedResource, Rewrite};
use crate::config::Service;
use crate::delivery::steering;

/// Resource names that a receiver subscribes to, by type; `*` is a wildcard.
pub(crate) type ResourceSubscriptions = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum MergeEvent {
    Learned(RelayedResource),
    /// A resource to rewrite could not be decoded and is passed on unchanged.
    Unreadable {
        type_url: &'static str,
        name: Arc<str>,
        error: DecodeError,
    },
}

#[derive(Debug)]
pub(super) struct Merge {
    patch: Arc<Patch>,
    /// Resources that this session subscribes to at the relayed server.
    subscribed: ResourceSubscriptions,
    upstream: BTreeMap<Arc<str>, UpstreamResources>,
    clusters: BTreeMap<Arc<str>, MergedCluster>,
    /// Assignments of all EDS clusters of the relayed server, if there are services.
    users: AssignmentUsers,
    assignments: BTreeMap<Arc<str>, MergedAssignment>,
    /// Reads resources that nothing steers, if the patch asks for it.
    observer: Observer,
    shown: BTreeMap<Arc<str>, Arc<TypeResources>>,
    dirty: BTreeSet<Arc<str>>,
    generation: u64,
    events: VecDeque<MergeEvent>,
}

/// Resources of one type that the relayed server has sent.
#[derive(Debug, Default)]
struct UpstreamResources {
    resources: BTreeMap<Arc<str>, Resource>,
    absent: BTreeSet<Arc<str>>,
    /// Whether the relayed server has sent all resources of a wildcard subscription.
    complete: bool,
}

#[derive(Debug)]
struct MergedCluster {
    original: Resource,
    generation: u64,
    shares_endpoints: bool,
    shown: Resource,
    /// The rewritten cluster; `None` if the cluster could not be decoded.
    improved: Option<ImprovedCluster>,
}

#[derive(Debug)]
struct MergedAssignment {
    original: Resource,
    generation: u64,
    services: Vec<Arc<Service>>,
    /// The assignment for the receiver; `None` while it is withheld.
    shown: Option<Resource>,
}

impl Merge {
    pub(super) fn new(patch: Arc<Patch>) -> Self {
        let mut merge = Self {
            patch: Arc::clone(&patch),
            subscribed: ResourceSubscriptions::new(),
            upstream: BTreeMap::new(),
            clusters: BTreeMap::new(),
            users: AssignmentUsers::default(),
            assignments: BTreeMap::new(),
            observer: Observer::default(),
            shown: BTreeMap::new(),
            dirty: BTreeSet::new(),
            generation: 0,
            events: VecDeque::new(),
        };
        merge.handle_patch(patch);
        merge
    }

    /// Replaces the patch. Call [`Merge::subscribe`] again: its own resources may have changed.
    pub(super) fn handle_patch(&mut self, patch: Arc<Patch>) {
        self.dirty.extend(self.patch.own.keys().cloned());
        self.dirty.extend(patch.own.keys().cloned());
        self.dirty
            .extend([CLUSTER, CLUSTER_LOAD_ASSIGNMENT].map(Arc::from));
        self.patch = patch;
    }

    /// Replaces the subscriptions of the receiver; returns the commands for the relayed server.
    pub(super) fn subscribe(&mut self, subscriptions: &ResourceSubscriptions) -> Vec<AdsCommand> {
        let patch = Arc::clone(&self.patch);
        let upstream_names = |(type_url, names): (&Arc<str>, &BTreeSet<Arc<str>>)| {
            let names = names.iter().filter(|name| !patch.is_own(type_url, name));
            (Arc::clone(type_url), names.cloned().collect())
        };
        let next: ResourceSubscriptions = subscriptions.iter().map(upstream_names).collect();
        let mut commands = Vec::new();
        for (type_url, name) in pairs(&next) {
            if !contains(&self.subscribed, type_url, name) {
                let (type_url, name) = (Arc::clone(type_url), Arc::clone(name));
                commands.push(AdsCommand::Subscribe { type_url, name });
            }
        }
        let mut unsubscribed = BTreeSet::new();
        for (type_url, name) in pairs(&self.subscribed) {
            if !contains(&next, type_url, name) {
                let (type_url, name) = (Arc::clone(type_url), Arc::clone(name));
                unsubscribed.insert(Arc::clone(&type_url));
                commands.push(AdsCommand::Unsubscribe { type_url, name });
            }
        }
        self.subscribed = next;
        // After a new subscription the list of resources is incomplete until the server answers.
        self.dirty.extend(
            commands.iter().map(|command| {
                let (AdsCommand::Subscribe { type_url, .. }
                | AdsCommand::Unsubscribe { type_url, .. }) = command;
                Arc::clone(type_url)
            }),
        );
        for type_url in unsubscribed {
            self.prune(&type_url);
        }
        commands
    }

    pub(super) fn handle_upstream(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                if !is_subscribed(&self.subscribed, &type_url, &resource.name) {
                    return;
                }
                // Only assignments can expire; other resources are not repeated without change.
                let resource = match &*type_url {
                    CLUSTER_LOAD_ASSIGNMENT => resource,
                    _ => resource.with_epoch(0),
                };
                let upstream = self.upstream.entry(Arc::clone(&type_url)).or_default();
                upstream.absent.remove(&resource.name);
                let name = Arc::clone(&resource.name);
                let before = upstream.resources.insert(name, resource.clone());
                if before.as_ref() != Some(&resource) {
                    self.dirty.insert(type_url);
                }
            }
            ClientEvent::Removed { type_url, name }
            | ClientEvent::DoesNotExist { type_url, name, .. } => {
                let subscribed = is_subscribed(&self.subscribed, &type_url, &name);
                let upstream = self.upstream.entry(Arc::clone(&type_url)).or_default();
                upstream.resources.remove(&name);
                if subscribed {
                    upstream.absent.insert(name);
                }
                self.dirty.insert(type_url);
            }
            ClientEvent::Complete { type_url } => {
                if contains(&self.subscribed, &type_url, WILDCARD) {
                    let upstream = self.upstream.entry(Arc::clone(&type_url)).or_default();
                    upstream.complete = true;
                    self.dirty.insert(type_url);
                }
            }
            // The last valid version of the resource stays in use.
            ClientEvent::Rejected { .. } => {}
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<MergeEvent> {
        self.events.pop_front()
    }

    /// Returns the view of the receiver if it may have changed.
    pub(super) fn poll_view(&mut self) -> Option<Arc<View>> {
        if self.dirty.is_empty() {
            return None;
        }
        // How an assignment is rewritten depends on its cluster.
        if self.dirty.remove(CLUSTER) {
            self.dirty.insert(CLUSTER_LOAD_ASSIGNMENT.into());
            self.build(&Arc::from(CLUSTER));
        }
        while let Some(type_url) = self.dirty.pop_first() {
            self.build(&type_url);
        }
        self.generation += 1;
        let mut view = View::new(self.generation);
        for (type_url, resources) in &self.shown {
            view = view.with(Arc::clone(type_url), Arc::clone(resources));
        }
        Some(Arc::new(view))
    }

    /// Drops resources of a type that are no longer subscribed to.
    fn prune(&mut self, type_url: &Arc<str>) {
        let Some(upstream) = self.upstream.get_mut(type_url) else {
            return;
        };
        let retained = |name: &Arc<str>| is_subscribed(&self.subscribed, type_url, name);
        upstream.resources.retain(|name, _| retained(name));
        upstream.absent.retain(retained);
        upstream.complete &= contains(&self.subscribed, type_url, WILDCARD);
    }

    fn build(&mut self, type_url: &Arc<str>) {
        let mut upstream = self.upstream.remove(type_url).unwrap_or_default();
        let patch = Arc::clone(&self.patch);
        if patch.observes {
            self.observe(type_url, &upstream);
        }
        let mut resources = match &**type_url {
            CLUSTER => self.build_clusters(&upstream),
            CLUSTER_LOAD_ASSIGNMENT => self.build_assignments(&upstream),
            _ => upstream.resources.values().cloned().collect(),
        };
        resources.retain(|resource| !patch.is_own(type_url, &resource.name));
        let assignments = &**type_url == CLUSTER_LOAD_ASSIGNMENT;
        let held = assignments && patch.held;
        if !held {
            let own = patch.own.get(type_url).into_iter();
            resources.extend(own.flat_map(BTreeMap::values).cloned());
            let fleet = patch
                .fleet
                .iter()
                .filter(|fleet| assignments && upstream.absent.contains(&fleet.name));
            resources.extend(fleet.cloned());
        }
        let subscribed = self.subscribed.get(type_url);
        let open = |name: &Arc<str>| {
            let answered = upstream.resources.contains_key(name) || upstream.absent.contains(name);
            **name != *WILDCARD && !answered
        };
        let open = subscribed.is_some_and(|subscribed| subscribed.iter().any(open));
        let shown = if upstream.complete && !open && !held {
            // A complete list implies that other names do not exist: keep only subscribed names.
            let subscribed =
                |name: &Arc<str>| subscribed.is_some_and(|subscribed| subscribed.contains(name));
            upstream.absent.retain(subscribed);
            TypeResources::new(resources)
        } else {
            let fleet = patch.fleet.as_ref().filter(|_| held);
            let absent = upstream.absent.iter().filter(|name| {
                !patch.is_own(type_url, name) && fleet.is_none_or(|fleet| fleet.name != **name)
            });
            TypeResources::partial(resources, absent.cloned())
        };
        self.shown.insert(Arc::clone(type_url), Arc::new(shown));
        self.upstream.insert(Arc::clone(type_url), upstream);
    }

    fn observe(&mut self, type_url: &str, upstream: &UpstreamResources) {
        let resources = upstream.resources.values();
        let learned = match type_url {
            CLUSTER => self.observer.clusters(resources),
            CLUSTER_LOAD_ASSIGNMENT => self.observer.assignments(resources),
            _ => return,
        };
        self.events
            .extend(learned.into_iter().map(MergeEvent::Learned));
    }

    fn build_clusters(&mut self, upstream: &UpstreamResources) -> Vec<Resource> {
        let patch = Arc::clone(&self.patch);
        let is_improved = |name: &Arc<str>| patch.services.contains_key(name);
        self.clusters
            .retain(|name, _| upstream.resources.contains_key(name) && is_improved(name));
        if !patch.services.is_empty() {
            self.users.handle_clusters(&upstream.resources);
        }
        let each = upstream.resources.values();
        each.map(|original| match patch.services.get(&original.name) {
            Some(rewrite) => self.cluster(&patch, rewrite, original),
            None => original.clone(),
        })
        .collect()
    }

    fn cluster(&mut self, patch: &Patch, rewrite: &Rewrite, original: &Resource) -> Resource {
        let name = &original.name;
        let shares_endpoints = self.users.shares_endpoints(name);
        let cached = self.clusters.get(name);
        if let Some(cached) = cached
            && cached.generation == patch.generation
            && cached.original == *original
            && cached.shares_endpoints == shares_endpoints
        {
            return cached.shown.clone();
        }
        let changed = cached.is_none_or(|cached| {
            cached.original.body != original.body || cached.shares_endpoints != shares_endpoints
        });
        let improved = improve::cluster(
            &rewrite.service,
            patch.class,
            rewrite.zone_fails,
            shares_endpoints,
            &original.body,
        );
        if changed {
            self.events.push_back(match &improved {
                Ok(improved) => MergeEvent::Learned(RelayedResource::Cluster {
                    cluster: Arc::clone(name),
                    version: Arc::clone(&original.version),
                    config: Arc::clone(&improved.service.config),
                    shares_endpoints,
                    body: original.body.clone(),
                }),
                Err(error) => unreadable(CLUSTER, name, error),
            });
        }
        let improved = improved.ok();
        let shown = with_body(original, improved.as_ref().map(|improved| &improved.body));
        let cached = MergedCluster {
            original: original.clone(),
            generation: patch.generation,
            shares_endpoints,
            shown: shown.clone(),
            improved,
        };
        self.clusters.insert(Arc::clone(name), cached);
        shown
    }

    fn build_assignments(&mut self, upstream: &UpstreamResources) -> Vec<Resource> {
        let patch = Arc::clone(&self.patch);
        self.assignments
            .retain(|name, _| upstream.resources.contains_key(name));
        let each = upstream.resources.values();
        each.filter_map(|original| self.assignment(&patch, original))
            .collect()
    }

    fn assignment(&mut self, patch: &Patch, original: &Resource) -> Option<Resource> {
        let name = &original.name;
        let users = self.users_of(patch, name);
        if users.is_empty() {
            self.assignments.remove(name);
            return Some(original.clone());
        }
        let services = || users.iter().map(|user| &user.service);
        let cached = self.assignments.get(name);
        if let Some(cached) = cached
            && cached.generation == patch.generation
            && cached.original == *original
            && cached.services.len() == users.len()
            && cached
                .services
                .iter()
                .zip(services())
                .all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return cached.shown.clone();
        }
        let same = cached.filter(|cached| cached.original.body == original.body);
        let is_known = |service: &Arc<Service>| {
            let mut known = same.into_iter().flat_map(|cached| &cached.services);
            known.any(|known| known.name() == service.name())
        };
        let improved = improve::assignment(patch, &users, &original.body);
        match &improved {
            Ok(improved) => {
                let learned = services().filter(|service| !is_known(service));
                self.events.extend(learned.map(|service| {
                    MergeEvent::Learned(RelayedResource::Assignment {
                        cluster: Arc::clone(service.name()),
                        name: Arc::clone(name),
                        version: Arc::clone(&original.version),
                        assignment: Arc::clone(&improved.assignment),
                    })
                }));
            }
            Err(error) if same.is_none() => {
                let event = unreadable(CLUSTER_LOAD_ASSIGNMENT, name, error);
                self.events.push_back(event);
            }
            Err(_) => {}
        }
        let shown = match improved {
            Ok(improved) => improved.body.map(|body| with_body(original, Some(&body))),
            Err(_) => Some(original.clone()),
        };
        let cached = MergedAssignment {
            original: original.clone(),
            generation: patch.generation,
            services: services().cloned().collect(),
            shown: shown.clone(),
        };
        self.assignments.insert(Arc::clone(name), cached);
        shown
    }

    /// Returns the services of the file whose endpoints an assignment has. If the receiver gets its
    /// clusters elsewhere, the assignment is assumed to have its cluster's name.
    fn users_of<'a>(&self, patch: &'a Patch, assignment: &Arc<str>) -> Vec<User<'a>> {
        let Some(clusters) = self.users.of(assignment) else {
            let rewrite = patch.services.get(assignment);
            let elsewhere = rewrite.filter(|_| !self.clusters.contains_key(assignment));
            let user = elsewhere.map(|rewrite| User {
                rewrite,
                service: Arc::clone(&rewrite.service),
                steering: steering(&rewrite.service, patch.class),
            });
            return user.into_iter().collect();
        };
        let user = |cluster: &Arc<str>| {
            let improved = self.clusters.get(cluster)?.improved.as_ref()?;
            Some(User {
                rewrite: patch.services.get(cluster)?,
                service: Arc::clone(&improved.service),
                steering: improved.steering,
            })
        };
        clusters.iter().filter_map(user).collect()
    }
}

/// Returns the original, with the relayed server's version, if the body is unchanged.
fn with_body(original: &Resource, body: Option<&bytes::Bytes>) -> Resource {
    match body {
        Some(body) if *body != original.body => {
            Resource::new(Arc::clone(&original.name), body.clone()).with_epoch(original.epoch)
        }
        _ => original.clone(),
    }
}

fn unreadable(type_url: &'static str, name: &Arc<str>, error: &DecodeError) -> MergeEvent {
    MergeEvent::Unreadable {
        type_url,
        name: Arc::clone(name),
        error: error.clone(),
    }
}

fn pairs(subscriptions: &ResourceSubscriptions) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
    let types = subscriptions.iter();
    types.flat_map(|(type_url, names)| names.iter().map(move |name| (type_url, name)))
}

fn contains(subscriptions: &ResourceSubscriptions, type_url: &str, name: &str) -> bool {
    subscriptions
        .get(type_url)
        .is_some_and(|names| names.contains(name))
}

fn is_subscribed(subscriptions: &ResourceSubscriptions, type_url: &str, name: &str) -> bool {
    contains(subscriptions, type_url, name) || contains(subscriptions, type_url, WILDCARD)
}

#[cfg(test)]
mod tests;
