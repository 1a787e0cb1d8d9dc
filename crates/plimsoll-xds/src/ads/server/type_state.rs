//! [`TypeState`]: what one client wants, has, was sent and refused of one type.
//!
//! Common to both variants: `sotw` and `delta` read requests into it and draw drafts from it, the
//! parent decides the order. Versions are hashes over all that the client has once it accepts, so
//! they change with content and with nothing else.
//!
//! A refused response is never repeated. If it held several resources, each is tried once alone, so
//! that one bad resource does not hold up the others; what is refused alone waits for new content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::time::Instant;

use super::event::{Refusal, StreamEvent, TypeStatus};
use super::subscription::Subscription;
use crate::ads;
use crate::ads::Variant;
use crate::ads::message::ErrorDetail;
use crate::ads::view::{Resource, TypeResources, View, set_version};

/// Epoch of a resource that the client brought from an earlier stream: whatever is current.
pub(super) const EARLIER: u64 = u64::MAX;

/// How many refused sets are remembered. One view makes two, with and without what is gone; with
/// fewer the two would take turns for ever.
const REFUSED_SETS: usize = 8;

/// What to do for a type.
#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    /// Nothing but removals, which were not allowed.
    Kept,
    Send(Draft),
}

/// Content of a response.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) resources: Vec<Resource>,
    pub(super) removed: Vec<Arc<str>>,
    /// What is not in it is gone.
    pub(super) whole: bool,
}

/// A response without answer.
#[derive(Debug)]
pub(super) struct InFlight {
    nonce: String,
    version: Arc<str>,
    draft: Draft,
    source: Arc<TypeResources>,
}

/// One type of one stream.
#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) type_url: Arc<str>,
    pub(super) subscription: Subscription,
    /// What the client accepted; only what it is subscribed to.
    pub(super) held: BTreeMap<Arc<str>, Resource>,
    /// Names whose absence the client was told.
    pub(super) told_absent: BTreeSet<Arc<str>>,
    /// Names to send whatever the client has.
    pub(super) forced: BTreeSet<Arc<str>>,
    /// A response is due even if it is empty or says nothing new.
    pub(super) owed: bool,
    /// Version the client says it has from an earlier stream.
    pub(super) claimed: Option<String>,
    pub(super) in_flight: Option<InFlight>,
    pub(super) last_nonce: String,
    /// Removals wait.
    pub(super) keeps: bool,
    /// Versions of refused whole sets, newest last.
    refused_sets: VecDeque<Arc<str>>,
    /// The content of the view when they were refused; of another content all may be tried again.
    refused_content: Option<Arc<str>>,
    /// What the view has now: it may have changed while a response was under way.
    pub(super) newest: Option<Arc<TypeResources>>,
    /// Refused alone, by name and version.
    refused: BTreeMap<Arc<str>, Arc<str>>,
    /// Refused together with others, by name and version.
    suspects: BTreeMap<Arc<str>, Arc<str>>,
    /// Nothing is to be sent while this is the view and no request comes.
    checked: Option<Arc<TypeResources>>,
    pub(super) status: Counters,
}

/// The part of [`TypeStatus`] that is only counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sent: Option<Arc<str>>,
    pub(super) acked: Option<Arc<str>>,
    nacked: Option<Refusal>,
    answered_at: Option<Instant>,
    responses: u64,
    acks: u64,
    nacks: u64,
    pub(super) stale: u64,
}

impl TypeState {
    pub(super) fn new(type_url: Arc<str>) -> Self {
        Self {
            type_url,
            subscription: Subscription::default(),
            held: BTreeMap::new(),
            told_absent: BTreeSet::new(),
            forced: BTreeSet::new(),
            owed: false,
            claimed: None,
            in_flight: None,
            last_nonce: String::new(),
            keeps: false,
            refused_sets: VecDeque::new(),
            refused_content: None,
            newest: None,
            refused: BTreeMap::new(),
            suspects: BTreeMap::new(),
            checked: None,
            status: Counters::default(),
        }
    }

    pub(super) fn status(&self) -> TypeStatus {
        let counters = &self.status;
        TypeStatus {
            type_url: Arc::clone(&self.type_url),
            wildcard: self.subscription.is_wildcard(),
            names: self.subscription.names().len(),
            sent: counters.sent.clone(),
            acked: counters.acked.clone(),
            nacked: counters.nacked.clone(),
            in_flight: self.in_flight.is_some(),
            answered_at: counters.answered_at,
            responses: counters.responses,
            acks: counters.acks,
            nacks: counters.nacks,
            stale: counters.stale,
        }
    }

    /// Whether these were looked at since the last request and gave nothing to send.
    pub(super) fn is_checked(&self, resources: &Arc<TypeResources>) -> bool {
        let checked = self.checked.as_ref();
        checked.is_some_and(|checked| Arc::ptr_eq(checked, resources))
    }

    pub(super) fn set_checked(&mut self, resources: &Arc<TypeResources>) {
        self.checked = Some(Arc::clone(resources));
    }

    /// A request came: look again.
    pub(super) fn touch(&mut self) {
        self.checked = None;
    }

    /// Whether the response under way was made from another view of this type.
    pub(super) fn has_newer(&self, view: &View) -> bool {
        match (&self.in_flight, view.get(&self.type_url)) {
            (Some(in_flight), Some(resources)) => !Arc::ptr_eq(&in_flight.source, resources),
            _ => false,
        }
    }

    /// Whether the response under way, or one that waits for its answer, brings something that the
    /// client never had.
    pub(super) fn has_news_under_way(&self, view: &View) -> bool {
        let is_news = |resource: &Resource| {
            let refused = self.refused.get(&resource.name) == Some(&resource.version);
            !refused && !self.held.contains_key(&resource.name)
        };
        let resources = view.get(&self.type_url);
        let mut wanted = resources.into_iter().flat_map(|all| self.wanted(all));
        self.in_flight.is_some() && wanted.any(is_news)
    }

    /// The resources of a view that the client wants.
    pub(super) fn wanted<'a>(&self, resources: &'a TypeResources) -> Vec<&'a Resource> {
        if self.subscription.is_wildcard() {
            return resources.iter().collect();
        }
        let names = self.subscription.names().iter();
        names.filter_map(|name| resources.get(name)).collect()
    }

    /// Whether the client uses the view's resources of this type: all of them, and none that are
    /// gone.
    pub(super) fn is_settled(&self, variant: Variant, view: &View) -> bool {
        let Some(resources) = view.get(&self.type_url) else {
            return true;
        };
        let has = |resource: &Resource| {
            let held = self.held.get(&resource.name);
            let same = held.is_some_and(|held| held.version == resource.version);
            same && !self.forced.contains(&resource.name)
        };
        let says_gone = variant == Variant::Delta || ads::has_wildcard(&self.type_url);
        let gone = || self.held.keys().any(|name| resources.is_absent(name));
        self.in_flight.is_none()
            && !self.owed
            && self.wanted(resources).into_iter().all(has)
            && !(says_gone && gone())
    }

    /// Whether a draft holds content that the client does not have.
    pub(super) fn is_change(&self, draft: &Draft) -> bool {
        let news = |resource: &Resource| {
            let held = self.held.get(&resource.name);
            held.is_none_or(|held| held.version != resource.version)
        };
        draft.resources.iter().any(news)
    }

    /// Whether a whole set of this version was refused while these were current.
    pub(super) fn is_refused(&self, version: &Arc<str>, resources: &TypeResources) -> bool {
        self.refused_content.as_ref() == Some(resources.version())
            && self.refused_sets.contains(version)
    }

    /// Whole sets that were refused may be sent again.
    pub(super) fn forget_refused_sets(&mut self) {
        self.refused_sets.clear();
    }

    /// Names of what the response under way brings.
    pub(super) fn names_under_way(&self) -> Vec<Arc<str>> {
        let sent = self.in_flight.as_ref().map(|sent| &sent.draft.resources);
        sent.into_iter()
            .flat_map(|sent| names(sent))
            .cloned()
            .collect()
    }

    /// Everything the client has or is about to have is to be sent again.
    pub(super) fn force_all(&mut self) {
        self.forced.extend(self.held.keys().cloned());
        if let Some(in_flight) = &self.in_flight {
            let sent = names(&in_flight.draft.resources);
            self.forced.extend(sent.cloned());
        }
        self.touch();
    }

    /// What to send of resources that may come one by one: new, changed, due again. Of those that
    /// were refused together, one; of those refused alone, none.
    pub(super) fn changed(&mut self, resources: &TypeResources) -> Vec<Resource> {
        self.adopt_epochs(resources);
        self.forgive(resources);
        let due = |resource: &&Resource| {
            self.forced.contains(&resource.name) || differs(self.held.get(&resource.name), resource)
        };
        let wanted = self.wanted(resources).into_iter();
        let open = wanted
            .filter(due)
            .filter(|resource| self.refused.get(&resource.name) != Some(&resource.version));
        let (suspects, mut sound): (Vec<_>, Vec<_>) =
            open.partition(|resource| self.suspects.get(&resource.name) == Some(&resource.version));
        if sound.is_empty() {
            sound.extend(suspects.first());
        }
        sound.into_iter().cloned().collect()
    }

    /// A response goes out; its version.
    pub(super) fn start(
        &mut self,
        draft: &Draft,
        nonce: &str,
        source: &Arc<TypeResources>,
    ) -> Arc<str> {
        self.owed = false;
        if draft.whole {
            self.forced.clear();
        }
        for name in names(&draft.resources).chain(&draft.removed) {
            self.forced.remove(name);
        }
        let version = self.version_after(draft);
        let draft = Draft {
            resources: draft.resources.clone(),
            removed: draft.removed.clone(),
            whole: draft.whole,
        };
        self.in_flight = Some(InFlight {
            nonce: nonce.to_owned(),
            version: Arc::clone(&version),
            draft,
            source: Arc::clone(source),
        });
        self.last_nonce = nonce.to_owned();
        self.status.responses += 1;
        self.status.sent = Some(Arc::clone(&version));
        version
    }

    /// The client answered the response under way.
    pub(super) fn answer(
        &mut self,
        nonce: &str,
        error: Option<&ErrorDetail>,
        now: Instant,
    ) -> Option<StreamEvent> {
        let answered = self.in_flight.take_if(|sent| sent.nonce == nonce)?;
        self.status.answered_at = Some(now);
        let type_url = Arc::clone(&self.type_url);
        let version = Arc::clone(&answered.version);
        let Some(detail) = error else {
            self.accept(answered);
            return Some(StreamEvent::Acked { type_url, version });
        };
        let refusal = Refusal {
            version,
            names: names(&answered.draft.resources).cloned().collect(),
            detail: detail.clone(),
        };
        self.refuse(answered, refusal.clone());
        Some(StreamEvent::Nacked { type_url, refusal })
    }

    /// The client does not want these any more.
    pub(super) fn forget(&mut self, removed: &[Arc<str>]) {
        let subscription = &self.subscription;
        self.held.retain(|name, _| subscription.covers(name));
        for name in removed {
            self.forced.remove(name);
            self.told_absent.remove(name);
            self.refused.remove(name);
            self.suspects.remove(name);
        }
    }

    fn accept(&mut self, answered: InFlight) {
        if answered.draft.whole {
            self.held.clear();
            self.refused_sets.clear();
        }
        for resource in answered.draft.resources {
            if self.subscription.covers(&resource.name) {
                self.told_absent.remove(&resource.name);
                self.refused.remove(&resource.name);
                self.suspects.remove(&resource.name);
                self.held.insert(Arc::clone(&resource.name), resource);
            }
        }
        self.remove(answered.draft.removed);
        self.status.acks += 1;
        self.status.acked = Some(answered.version);
        if self.refused.is_empty() && self.suspects.is_empty() {
            self.status.nacked = None;
        }
    }

    fn refuse(&mut self, answered: InFlight, refusal: Refusal) {
        let Draft {
            resources,
            removed,
            whole,
        } = answered.draft;
        // The client may have taken the good ones of them (gRPC does, gRFC A46, and Envoy with
        // clusters): what it has is not known until it accepts something.
        self.owed |= whole;
        self.forced.extend(names(&resources).cloned());
        let version = |resource: Resource| (resource.name, resource.version);
        if whole {
            let current = self.newest.as_ref().unwrap_or(&answered.source);
            let content = Some(current.version());
            if self.refused_content.as_ref() != content {
                self.refused_sets.clear();
                self.refused_content = content.cloned();
            }
            self.refused_sets.push_back(answered.version);
            if self.refused_sets.len() > REFUSED_SETS {
                self.refused_sets.pop_front();
            }
        } else if resources.len() == 1 {
            self.refused.extend(resources.into_iter().map(version));
        } else {
            self.suspects.extend(resources.into_iter().map(version));
        }
        // To repeat a removal until it is liked would be a loop.
        self.remove(removed);
        self.status.nacks += 1;
        self.status.nacked = Some(refusal);
    }

    fn remove(&mut self, removed: Vec<Arc<str>>) {
        for name in removed {
            self.held.remove(&name);
            self.refused.remove(&name);
            self.suspects.remove(&name);
            if self.subscription.names().contains(&name) {
                self.told_absent.insert(name);
            }
        }
    }

    /// Version of all the client has when it accepts.
    fn version_after(&self, draft: &Draft) -> Arc<str> {
        let sent = draft.resources.iter();
        let mut after: BTreeMap<&str, &str> = BTreeMap::new();
        if !draft.whole {
            let kept = self.held.values();
            after.extend(kept.map(|held| (&*held.name, &*held.version)));
        }
        after.extend(sent.map(|resource| (&*resource.name, &*resource.version)));
        for name in &draft.removed {
            after.remove(&**name);
        }
        set_version(after.into_iter())
    }

    /// What was refused counts until there is other content.
    fn forgive(&mut self, resources: &TypeResources) {
        let is_current = |name: &Arc<str>, version: &mut Arc<str>| {
            let resource = resources.get(name);
            resource.is_some_and(|resource| resource.version == *version)
        };
        self.refused.retain(is_current);
        self.suspects.retain(is_current);
    }

    /// What was brought from an earlier stream counts as sent now, if it is the same.
    fn adopt_epochs(&mut self, resources: &TypeResources) {
        for held in self.held.values_mut().filter(|held| held.epoch == EARLIER) {
            if let Some(resource) = resources.get(&held.name)
                && resource.version == held.version
            {
                held.epoch = resource.epoch;
            }
        }
    }
}

/// Whether a resource is to be sent to a client that has `held`.
pub(super) fn differs(held: Option<&Resource>, resource: &Resource) -> bool {
    held.is_none_or(|held| held.version != resource.version || held.epoch != resource.epoch)
}

fn names(resources: &[Resource]) -> impl Iterator<Item = &Arc<str>> {
    resources.iter().map(|resource| &resource.name)
}
