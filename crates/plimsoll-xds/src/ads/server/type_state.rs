//! Server-side state of one resource type on one stream: subscription, accepted, sent and NACKed
//! resources.
//!
//! Shared by both variants: `sotw` and `delta` apply requests to it and compute drafts of
//! responses, the parent module decides the order. A version is a hash over all resources the
//! client has once it accepts a response, so it changes with content only.
//!
//! A NACKed response is never repeated. If it held several resources, each is retried alone once,
//! so that one invalid resource does not block the others; a resource that is NACKed alone waits
//! for new content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::time::Instant;

use super::event::{Nack, StreamEvent, TypeStatus};
use super::limits::NAME_OVERHEAD;
use super::look_up::look_up;
use super::subscription::Subscription;
use crate::ads;
use crate::ads::Variant;
use crate::ads::message::ErrorDetail;
use crate::ads::view::{Resource, TypeResources, View, set_version};

/// Epoch of a resource from an earlier stream; matches any current epoch.
pub(super) const EARLIER_STREAM: u64 = u64::MAX;

/// A view has two full states, with and without deleted resources; both must be remembered.
const MAX_NACKED_SETS: usize = 8;

#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    /// Only removals remain, and they are withheld.
    OnlyRemovals,
    Send(Draft),
}

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) removed: Vec<Arc<str>>,
    /// The response carries the full state: resources it omits are deleted.
    pub(super) full_state: bool,
}

#[derive(Debug)]
pub(super) struct InFlight {
    nonce: String,
    version: Arc<str>,
    draft: Draft,
    source: Arc<TypeResources>,
}

#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) type_url: Arc<str>,
    pub(super) subscription: Subscription,
    /// Resources the client accepted, within its subscription.
    pub(super) accepted: BTreeMap<Arc<str>, Arc<Resource>>,
    pub(super) known_absent: BTreeSet<Arc<str>>,
    /// Names to send regardless of what the client has.
    pub(super) resend: BTreeSet<Arc<str>>,
    /// A response is due even if it is empty or unchanged.
    pub(super) response_due: bool,
    /// Version the client claims to have from an earlier stream.
    pub(super) claimed_version: Option<String>,
    pub(super) in_flight: Option<InFlight>,
    pub(super) last_nonce: String,
    pub(super) removals_pending: bool,
    /// Versions of NACKed full states, newest last.
    nacked_sets: VecDeque<Arc<str>>,
    /// Version of the view when `nacked_sets` were NACKed; in another view, all may be sent again.
    nacked_content: Option<Arc<str>>,
    /// Current resources of the view, which may have changed while a response was in flight.
    pub(super) newest: Option<Arc<TypeResources>>,
    /// Resources that were NACKed alone, by name and version.
    nacked_alone: BTreeMap<Arc<str>, Arc<str>>,
    /// Resources that were NACKed together with others, by name and version.
    nacked_together: BTreeMap<Arc<str>, Arc<str>>,
    /// Resources of the view that need no response until another request arrives.
    checked: Option<Arc<TypeResources>>,
    /// Resources of an earlier stream may be in `accepted`.
    pub(super) has_earlier: bool,
    /// Memory of resources of an earlier stream that are in no view.
    earlier_bytes: usize,
    pub(super) status: Counters,
}

/// The part of [`TypeStatus`] that is not derived from other state.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sent: Option<Arc<str>>,
    pub(super) acked: Option<Arc<str>>,
    nacked: Option<Nack>,
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
            accepted: BTreeMap::new(),
            known_absent: BTreeSet::new(),
            resend: BTreeSet::new(),
            response_due: false,
            claimed_version: None,
            in_flight: None,
            last_nonce: String::new(),
            removals_pending: false,
            nacked_sets: VecDeque::new(),
            nacked_content: None,
            newest: None,
            nacked_alone: BTreeMap::new(),
            nacked_together: BTreeMap::new(),
            checked: None,
            has_earlier: false,
            earlier_bytes: 0,
            status: Counters::default(),
        }
    }

    /// Returns the memory of names that the client sent and that are in no view.
    pub(super) const fn subscription_bytes(&self) -> usize {
        self.subscription.unknown_bytes() + self.earlier_bytes
    }

    /// Counts what the client claims to have from an earlier stream.
    pub(super) fn count_earlier(&mut self) {
        if !self.has_earlier {
            return;
        }
        let is_known = |name| {
            self.newest
                .as_ref()
                .is_some_and(|all| all.get(name).is_some())
        };
        let earlier = self.accepted.values();
        let mut earlier = earlier.filter(|it| it.epoch == EARLIER_STREAM).peekable();
        self.has_earlier = earlier.peek().is_some();
        self.earlier_bytes = earlier
            .map(|it| {
                let name = if is_known(&it.name) {
                    0
                } else {
                    it.name.len() + NAME_OVERHEAD
                };
                name + it.version.len()
            })
            .sum();
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

    /// Returns whether these resources were checked since the last request, with nothing to send.
    pub(super) fn is_checked(&self, resources: &Arc<TypeResources>) -> bool {
        let checked = self.checked.as_ref();
        checked.is_some_and(|checked| Arc::ptr_eq(checked, resources))
    }

    pub(super) fn set_checked(&mut self, resources: &Arc<TypeResources>) {
        self.checked = Some(Arc::clone(resources));
    }

    /// Makes the next `poll_transmit` look for something to send; called after a request.
    pub(super) fn invalidate(&mut self) {
        self.checked = None;
    }

    /// Returns whether the response in flight was made from an older view of this type.
    pub(super) fn has_newer(&self, view: &View) -> bool {
        match (&self.in_flight, view.get(&self.type_url)) {
            (Some(in_flight), Some(resources)) => !Arc::ptr_eq(&in_flight.source, resources),
            _ => false,
        }
    }

    /// Returns whether a response is in flight and the client lacks a resource that it never had.
    pub(super) fn has_new_in_flight(&self, view: &View) -> bool {
        let is_new = |resource: &Arc<Resource>| {
            let nacked_alone = self.nacked_alone.get(&resource.name) == Some(&resource.version);
            !nacked_alone && !self.accepted.contains_key(&resource.name)
        };
        let resources = view.get(&self.type_url);
        let mut subscribed = resources.into_iter().flat_map(|all| self.subscribed(all));
        self.in_flight.is_some() && subscribed.any(is_new)
    }

    pub(super) fn subscribed<'a>(&self, resources: &'a TypeResources) -> Vec<&'a Arc<Resource>> {
        if self.subscription.is_wildcard() {
            return resources.by_name().values().collect();
        }
        let names = self.subscription.names().iter();
        let found = look_up(names, resources.by_name());
        found.filter_map(|(_, resource)| resource).collect()
    }

    /// Returns whether the client uses the view's resources of this type, and no deleted ones.
    pub(super) fn is_up_to_date(&self, variant: Variant, view: &View) -> bool {
        let Some(resources) = view.get(&self.type_url) else {
            return true;
        };
        let has = |resource: &Arc<Resource>| {
            let accepted = self.accepted.get(&resource.name);
            let same = accepted.is_some_and(|accepted| accepted.version == resource.version);
            same && !self.resend.contains(&resource.name)
        };
        let says_gone = variant == Variant::Delta || ads::has_wildcard(&self.type_url);
        let gone = || self.accepted.keys().any(|name| resources.is_absent(name));
        self.in_flight.is_none()
            && !self.response_due
            && self.subscribed(resources).into_iter().all(has)
            && !(says_gone && gone())
    }

    pub(super) fn is_change(&self, draft: &Draft) -> bool {
        let is_new = |resource: &Arc<Resource>| {
            let accepted = self.accepted.get(&resource.name);
            accepted.is_none_or(|accepted| accepted.version != resource.version)
        };
        draft.resources.iter().any(is_new)
    }

    /// Returns whether a full state of this version was NACKed while the view had these resources.
    pub(super) fn is_nacked(&self, version: &Arc<str>, resources: &TypeResources) -> bool {
        self.nacked_content.as_ref() == Some(resources.version())
            && self.nacked_sets.contains(version)
    }

    pub(super) fn clear_nacked_sets(&mut self) {
        self.nacked_sets.clear();
    }

    pub(super) fn names_in_flight(&self) -> Vec<Arc<str>> {
        let sent = self.in_flight.as_ref().map(|sent| &sent.draft.resources);
        sent.into_iter()
            .flat_map(|sent| names(sent))
            .cloned()
            .collect()
    }

    /// Marks every resource that the client has, or that is in flight to it, for resending.
    pub(super) fn resend_all(&mut self) {
        self.resend.extend(self.accepted.keys().cloned());
        if let Some(in_flight) = &self.in_flight {
            let sent = names(&in_flight.draft.resources);
            self.resend.extend(sent.cloned());
        }
        self.invalidate();
    }

    /// Returns new, changed or marked resources, for types without full-state responses. Resources
    /// that were NACKed together are returned one at a time, those NACKed alone not at all.
    pub(super) fn changed(&mut self, resources: &TypeResources) -> Vec<Arc<Resource>> {
        self.adopt_epochs(resources);
        self.clear_outdated_nacks(resources);
        let subscribed = self.subscribed(resources);
        let names = subscribed.iter().map(|resource| &resource.name);
        let accepted = look_up(names, &self.accepted).map(|(_, accepted)| accepted);
        let open = subscribed
            .iter()
            .copied()
            .zip(accepted)
            .filter(|(resource, accepted)| {
                needs_sending(accepted.map(AsRef::as_ref), resource)
                    || self.resend.contains(&resource.name)
            })
            .map(|(resource, _)| resource)
            .filter(|resource| self.nacked_alone.get(&resource.name) != Some(&resource.version));
        let (suspects, mut sound): (Vec<_>, Vec<_>) = open.partition(|resource| {
            self.nacked_together.get(&resource.name) == Some(&resource.version)
        });
        if sound.is_empty() {
            sound.extend(suspects.first());
        }
        sound.into_iter().cloned().collect()
    }

    pub(super) fn record_sent(
        &mut self,
        draft: &Draft,
        nonce: &str,
        source: &Arc<TypeResources>,
    ) -> Arc<str> {
        self.response_due = false;
        if draft.full_state {
            self.resend.clear();
        }
        for name in names(&draft.resources).chain(&draft.removed) {
            self.resend.remove(name);
        }
        let version = self.version_after(draft);
        let draft = Draft {
            resources: draft.resources.clone(),
            removed: draft.removed.clone(),
            full_state: draft.full_state,
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

    pub(super) fn handle_answer(
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
            self.handle_ack(answered);
            return Some(StreamEvent::Acked { type_url, version });
        };
        let nack = Nack {
            version,
            names: names(&answered.draft.resources).cloned().collect(),
            detail: detail.clone(),
        };
        self.handle_nack(answered, nack.clone());
        Some(StreamEvent::Nacked { type_url, nack })
    }

    pub(super) fn drop_unsubscribed(&mut self, removed: &[Arc<str>]) {
        let subscription = &self.subscription;
        self.accepted.retain(|name, _| subscription.covers(name));
        for name in removed {
            self.resend.remove(name);
            self.known_absent.remove(name);
            self.nacked_alone.remove(name);
            self.nacked_together.remove(name);
        }
    }

    fn handle_ack(&mut self, answered: InFlight) {
        if answered.draft.full_state {
            self.accepted.clear();
            self.nacked_sets.clear();
        }
        for resource in answered.draft.resources {
            if self.subscription.covers(&resource.name) {
                self.known_absent.remove(&resource.name);
                self.nacked_alone.remove(&resource.name);
                self.nacked_together.remove(&resource.name);
                self.subscription.set_known(&resource.name);
                self.accepted.insert(Arc::clone(&resource.name), resource);
            }
        }
        self.remove(answered.draft.removed);
        self.status.acks += 1;
        self.status.acked = Some(answered.version);
        if self.nacked_alone.is_empty() && self.nacked_together.is_empty() {
            self.status.nacked = None;
        }
    }

    fn handle_nack(&mut self, answered: InFlight, nack: Nack) {
        let Draft {
            resources,
            removed,
            full_state,
        } = answered.draft;
        // The client may have applied the valid resources (gRPC does, gRFC A46, and Envoy does for
        // clusters): what it has is unknown until it accepts a response.
        self.response_due |= full_state;
        self.resend.extend(names(&resources).cloned());
        let version =
            |resource: Arc<Resource>| (Arc::clone(&resource.name), Arc::clone(&resource.version));
        if full_state {
            let current = self.newest.as_ref().unwrap_or(&answered.source);
            let content = Some(current.version());
            if self.nacked_content.as_ref() != content {
                self.nacked_sets.clear();
                self.nacked_content = content.cloned();
            }
            self.nacked_sets.push_back(answered.version);
            if self.nacked_sets.len() > MAX_NACKED_SETS {
                self.nacked_sets.pop_front();
            }
        } else if resources.len() == 1 {
            self.nacked_alone.extend(resources.into_iter().map(version));
        } else {
            self.nacked_together
                .extend(resources.into_iter().map(version));
        }
        // Removals are not repeated: a client that NACKs them again would cause a loop.
        self.remove(removed);
        self.status.nacks += 1;
        self.status.nacked = Some(nack);
    }

    fn remove(&mut self, removed: Vec<Arc<str>>) {
        for name in removed {
            self.accepted.remove(&name);
            self.nacked_alone.remove(&name);
            self.nacked_together.remove(&name);
            if self.subscription.names().contains(&name) {
                self.known_absent.insert(name);
            }
        }
    }

    /// Returns the version of everything that the client has once it accepts `draft`.
    fn version_after(&self, draft: &Draft) -> Arc<str> {
        let sent = draft.resources.iter();
        let mut after: BTreeMap<&str, &str> = BTreeMap::new();
        if !draft.full_state {
            let kept = self.accepted.values();
            after.extend(kept.map(|accepted| (&*accepted.name, &*accepted.version)));
        }
        after.extend(sent.map(|resource| (&*resource.name, &*resource.version)));
        for name in &draft.removed {
            after.remove(&**name);
        }
        set_version(after.into_iter())
    }

    fn clear_outdated_nacks(&mut self, resources: &TypeResources) {
        let is_current = |name: &Arc<str>, version: &mut Arc<str>| {
            let resource = resources.get(name);
            resource.is_some_and(|resource| resource.version == *version)
        };
        self.nacked_alone.retain(is_current);
        self.nacked_together.retain(is_current);
    }

    /// Treats resources that the client kept from an earlier stream as sent, if they are current.
    fn adopt_epochs(&mut self, resources: &TypeResources) {
        for accepted in self
            .accepted
            .values_mut()
            .filter(|accepted| accepted.epoch == EARLIER_STREAM)
        {
            if let Some(resource) = resources.by_name().get(&accepted.name)
                && resource.version == accepted.version
            {
                *accepted = Arc::clone(resource);
            }
        }
    }
}

pub(super) fn needs_sending(accepted: Option<&Resource>, resource: &Resource) -> bool {
    accepted.is_none_or(|accepted| {
        accepted.version != resource.version || accepted.epoch != resource.epoch
    })
}

fn names(resources: &[Arc<Resource>]) -> impl Iterator<Item = &Arc<str>> {
    resources.iter().map(|resource| &resource.name)
}
