//! [`Merge`]: what another server says and what the state wants, as the views of one receiver.
//! Without IO.
//!
//! A session calls [`Merge::want`], [`Merge::handle_overlay`] and [`Merge::handle_upstream`] when
//! something happened and then drains [`Merge::poll_event`] and [`Merge::poll_view`]. Only types
//! that changed are built again, and only resources that changed are improved again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_xds::ads::client::ClientEvent;
use plimsoll_xds::ads::server::WILDCARD;
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::driver::ads_client::AdsCommand;
use plimsoll_xds::error::DecodeError;

use super::improve::{self, ClusterSeen};
use super::{Improvement, Overlay, Relayed};
use crate::config::{Mode, Service};

/// What a receiver wants, by type; `*` stands for all.
pub(crate) type Wanted = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Something that the rest of the control plane is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MergeEvent {
    /// A cluster to be improved looks like this.
    Seen(Relayed),
    /// A resource that was to be improved could not be read and passes untouched.
    Unreadable {
        /// Its type.
        type_url: &'static str,
        /// Its name.
        name: Arc<str>,
        /// What was wrong.
        error: DecodeError,
    },
}

/// Everything that one receiver may see.
#[derive(Debug)]
pub(super) struct Merge {
    overlay: Arc<Overlay>,
    /// What the other server is asked for.
    asked: Wanted,
    upstream: BTreeMap<Arc<str>, Upstream>,
    clusters: BTreeMap<Arc<str>, Cluster>,
    /// Names of clusters by names of their assignments.
    cluster_of: BTreeMap<Arc<str>, Arc<str>>,
    assignments: BTreeMap<Arc<str>, Assignment>,
    shown: BTreeMap<Arc<str>, Arc<TypeResources>>,
    dirty: BTreeSet<Arc<str>>,
    generation: u64,
    events: VecDeque<MergeEvent>,
}

/// What the other server said of a type.
#[derive(Debug, Default)]
struct Upstream {
    resources: BTreeMap<Arc<str>, Resource>,
    absent: BTreeSet<Arc<str>>,
    /// All were asked for and listed.
    complete: bool,
}

/// A cluster to be improved, and what became of it.
#[derive(Debug)]
struct Cluster {
    original: Resource,
    generation: u64,
    shown: Resource,
    /// `None` = it could not be read.
    seen: Option<ClusterSeen>,
}

/// The same for an assignment.
#[derive(Debug)]
struct Assignment {
    original: Resource,
    generation: u64,
    service: Arc<Service>,
    /// `None` = nothing for now.
    shown: Option<Resource>,
}

impl Merge {
    /// A receiver that wants nothing yet.
    pub(super) fn new(overlay: Arc<Overlay>) -> Self {
        let mut merge = Self {
            overlay: Arc::clone(&overlay),
            asked: Wanted::new(),
            upstream: BTreeMap::new(),
            clusters: BTreeMap::new(),
            cluster_of: BTreeMap::new(),
            assignments: BTreeMap::new(),
            shown: BTreeMap::new(),
            dirty: BTreeSet::new(),
            generation: 0,
            events: VecDeque::new(),
        };
        merge.handle_overlay(overlay);
        merge
    }

    /// The state wants something else. Call [`Merge::want`] again: what is ours may have changed.
    pub(super) fn handle_overlay(&mut self, overlay: Arc<Overlay>) {
        self.dirty.extend(self.overlay.own.keys().cloned());
        self.dirty.extend(overlay.own.keys().cloned());
        self.dirty
            .extend([CLUSTER, CLUSTER_LOAD_ASSIGNMENT].map(Arc::from));
        self.overlay = overlay;
    }

    /// The receiver wants this and nothing else; how the other server is told.
    pub(super) fn want(&mut self, wanted: &Wanted) -> Vec<AdsCommand> {
        let overlay = Arc::clone(&self.overlay);
        let theirs = |(type_url, names): (&Arc<str>, &BTreeSet<Arc<str>>)| {
            let names = names.iter().filter(|name| !overlay.is_own(type_url, name));
            (Arc::clone(type_url), names.cloned().collect())
        };
        let next: Wanted = wanted.iter().map(theirs).collect();
        let mut commands = Vec::new();
        for (type_url, name) in pairs(&next) {
            if !contains(&self.asked, type_url, name) {
                let (type_url, name) = (Arc::clone(type_url), Arc::clone(name));
                commands.push(AdsCommand::Watch { type_url, name });
            }
        }
        let mut forgotten = BTreeSet::new();
        for (type_url, name) in pairs(&self.asked) {
            if !contains(&next, type_url, name) {
                let (type_url, name) = (Arc::clone(type_url), Arc::clone(name));
                forgotten.insert(Arc::clone(&type_url));
                commands.push(AdsCommand::Unwatch { type_url, name });
            }
        }
        self.asked = next;
        // A name that is new may be open, and then absence of others is not known either.
        self.dirty.extend(commands.iter().map(|command| {
            let (AdsCommand::Watch { type_url, .. } | AdsCommand::Unwatch { type_url, .. }) =
                command;
            Arc::clone(type_url)
        }));
        for type_url in forgotten {
            self.forget(&type_url);
        }
        commands
    }

    /// The other server said something.
    pub(super) fn handle_upstream(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                if !wants(&self.asked, &type_url, &resource.name) {
                    return;
                }
                // Only assignments can expire; others need not be repeated when nothing changed.
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
            | ClientEvent::DoesNotExist { type_url, name } => {
                let wanted = wants(&self.asked, &type_url, &name);
                let upstream = self.upstream.entry(Arc::clone(&type_url)).or_default();
                upstream.resources.remove(&name);
                if wanted {
                    upstream.absent.insert(name);
                }
                self.dirty.insert(type_url);
            }
            ClientEvent::Complete { type_url } => {
                if contains(&self.asked, &type_url, WILDCARD) {
                    let upstream = self.upstream.entry(Arc::clone(&type_url)).or_default();
                    upstream.complete = true;
                    self.dirty.insert(type_url);
                }
            }
            // What was good stays.
            ClientEvent::Rejected { .. } => {}
        }
    }

    /// Something that others want to know.
    pub(super) fn poll_event(&mut self) -> Option<MergeEvent> {
        self.events.pop_front()
    }

    /// What the receiver is to see, if that may have changed.
    pub(super) fn poll_view(&mut self) -> Option<Arc<View>> {
        if self.dirty.is_empty() {
            return None;
        }
        // How an assignment is improved follows from its cluster.
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

    /// Drops what nobody wants any more of a type.
    fn forget(&mut self, type_url: &Arc<str>) {
        let Some(upstream) = self.upstream.get_mut(type_url) else {
            return;
        };
        let wanted = |name: &Arc<str>| wants(&self.asked, type_url, name);
        upstream.resources.retain(|name, _| wanted(name));
        upstream.absent.retain(wanted);
        upstream.complete &= contains(&self.asked, type_url, WILDCARD);
    }

    fn build(&mut self, type_url: &Arc<str>) {
        let mut upstream = self.upstream.remove(type_url).unwrap_or_default();
        let overlay = Arc::clone(&self.overlay);
        let mut resources = match &**type_url {
            CLUSTER => self.build_clusters(&upstream),
            CLUSTER_LOAD_ASSIGNMENT => self.build_assignments(&upstream),
            _ => upstream.resources.values().cloned().collect(),
        };
        resources.retain(|resource| !overlay.is_own(type_url, &resource.name));
        let assignments = &**type_url == CLUSTER_LOAD_ASSIGNMENT;
        let held = assignments && overlay.held;
        if !held {
            let own = overlay.own.get(type_url).into_iter();
            resources.extend(own.flat_map(BTreeMap::values).cloned());
            let fleet = overlay
                .fleet
                .iter()
                .filter(|fleet| assignments && upstream.absent.contains(&fleet.name));
            resources.extend(fleet.cloned());
        }
        let asked = self.asked.get(type_url);
        let open = |name: &Arc<str>| {
            let known = upstream.resources.contains_key(name) || upstream.absent.contains(name);
            **name != *WILDCARD && !known
        };
        let open = asked.is_some_and(|asked| asked.iter().any(open));
        let shown = if upstream.complete && !open && !held {
            // Names that were not asked for need not be remembered: all that is not there is gone.
            let asked = |name: &Arc<str>| asked.is_some_and(|asked| asked.contains(name));
            upstream.absent.retain(asked);
            TypeResources::new(resources)
        } else {
            let fleet = overlay.fleet.as_ref().filter(|_| held);
            let absent = upstream.absent.iter().filter(|name| {
                !overlay.is_own(type_url, name) && fleet.is_none_or(|fleet| fleet.name != **name)
            });
            TypeResources::partial(resources, absent.cloned())
        };
        self.shown.insert(Arc::clone(type_url), Arc::new(shown));
        self.upstream.insert(Arc::clone(type_url), upstream);
    }

    fn build_clusters(&mut self, upstream: &Upstream) -> Vec<Resource> {
        let overlay = Arc::clone(&self.overlay);
        let is_improved = |name: &Arc<str>| improvement(&overlay, name).is_some();
        self.clusters
            .retain(|name, _| upstream.resources.contains_key(name) && is_improved(name));
        let each = upstream.resources.values();
        let shown = each
            .map(|original| match improvement(&overlay, &original.name) {
                Some(improvement) => self.cluster(&overlay, improvement, original),
                None => original.clone(),
            })
            .collect();
        self.cluster_of.clear();
        for (cluster, known) in &self.clusters {
            let assignment = known.seen.as_ref().and_then(|seen| seen.assignment.clone());
            if let Some(assignment) = assignment {
                self.cluster_of.insert(assignment, Arc::clone(cluster));
            }
        }
        shown
    }

    fn cluster(
        &mut self,
        overlay: &Overlay,
        improvement: &Improvement,
        original: &Resource,
    ) -> Resource {
        let name = &original.name;
        let known = self.clusters.get(name);
        if let Some(known) = known
            && known.generation == overlay.generation
            && known.original == *original
        {
            return known.shown.clone();
        }
        let news = known.is_none_or(|known| known.original.body != original.body);
        let seen = improve::cluster(overlay, improvement, &original.body);
        if news {
            self.events.push_back(match &seen {
                Ok(seen) => MergeEvent::Seen(Relayed::Cluster {
                    cluster: Arc::clone(name),
                    config: Arc::clone(&seen.service.config),
                }),
                Err(error) => unreadable(CLUSTER, name, error),
            });
        }
        let seen = seen.ok();
        let shown = with_body(original, seen.as_ref().map(|seen| &seen.body));
        let known = Cluster {
            original: original.clone(),
            generation: overlay.generation,
            shown: shown.clone(),
            seen,
        };
        self.clusters.insert(Arc::clone(name), known);
        shown
    }

    fn build_assignments(&mut self, upstream: &Upstream) -> Vec<Resource> {
        let overlay = Arc::clone(&self.overlay);
        self.assignments
            .retain(|name, _| upstream.resources.contains_key(name));
        let each = upstream.resources.values();
        each.filter_map(|original| self.assignment(&overlay, original))
            .collect()
    }

    fn assignment(&mut self, overlay: &Overlay, original: &Resource) -> Option<Resource> {
        let name = &original.name;
        let Some((improvement, service)) = self.service_of(overlay, name) else {
            self.assignments.remove(name);
            return Some(original.clone());
        };
        let known = self.assignments.get(name);
        if let Some(known) = known
            && known.generation == overlay.generation
            && known.original == *original
            && Arc::ptr_eq(&known.service, &service)
        {
            return known.shown.clone();
        }
        let news = known.is_none_or(|known| known.original.body != original.body);
        let seen = improve::assignment(overlay, improvement, &service, &original.body);
        if news {
            self.events.push_back(match &seen {
                Ok(seen) => MergeEvent::Seen(Relayed::Assignment {
                    cluster: Arc::clone(service.name()),
                    assignment: Arc::clone(&seen.assignment),
                }),
                Err(error) => unreadable(CLUSTER_LOAD_ASSIGNMENT, name, error),
            });
        }
        let shown = match seen {
            Ok(seen) => seen.body.map(|body| with_body(original, Some(&body))),
            Err(_) => Some(original.clone()),
        };
        let known = Assignment {
            original: original.clone(),
            generation: overlay.generation,
            service,
            shown: shown.clone(),
        };
        self.assignments.insert(Arc::clone(name), known);
        shown
    }

    /// The service whose endpoints an assignment lists, if it is to be improved. A receiver that
    /// has its clusters from elsewhere is taken to use the same name for both.
    fn service_of<'a>(
        &self,
        overlay: &'a Overlay,
        assignment: &Arc<str>,
    ) -> Option<(&'a Improvement, Arc<Service>)> {
        let Some(cluster) = self.cluster_of.get(assignment) else {
            let improvement = improvement(overlay, assignment)?;
            let elsewhere = !self.clusters.contains_key(assignment);
            return elsewhere.then(|| (improvement, Arc::clone(&improvement.service)));
        };
        let seen = self.clusters.get(cluster)?.seen.as_ref()?;
        Some((improvement(overlay, cluster)?, Arc::clone(&seen.service)))
    }
}

fn improvement<'a>(overlay: &'a Overlay, cluster: &str) -> Option<&'a Improvement> {
    let improvement = overlay.services.get(cluster);
    improvement.filter(|improvement| improvement.service.mode != Mode::Off)
}

/// The original, if the body is the same: its version is then the other server's.
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

fn pairs(wanted: &Wanted) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
    let types = wanted.iter();
    types.flat_map(|(type_url, names)| names.iter().map(move |name| (type_url, name)))
}

fn contains(wanted: &Wanted, type_url: &str, name: &str) -> bool {
    wanted
        .get(type_url)
        .is_some_and(|names| names.contains(name))
}

fn wants(wanted: &Wanted, type_url: &str, name: &str) -> bool {
    contains(wanted, type_url, name) || contains(wanted, type_url, WILDCARD)
}

#[cfg(test)]
mod tests;
