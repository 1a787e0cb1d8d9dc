//! Subscriptions, cached resources and pending ACK of one resource type on the client side.
//!
//! Shared by both protocol variants, which differ in how a request is written and how absence is
//! expressed. An unsubscribed resource stays cached until the request without its name is sent, so
//! that subscribing again in the meantime finds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use xxhash_rust::xxh64::{Xxh64, xxh64};

use super::{ClientEvent, ClientSettings};
use crate::ads;
use crate::ads::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, ErrorDetail,
};
use crate::ads::server::WILDCARD;
use crate::ads::view::Resource;
use crate::ads::{Request, Variant};
use crate::error::DecodeError;

/// gRPC status code INVALID_ARGUMENT, sent in every NACK.
const INVALID_ARGUMENT: i32 = 3;

/// Response of either variant, reduced to the common fields.
pub(super) struct ReceivedResponse {
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) resources: Vec<ReceivedResource>,
    pub(super) removed: Vec<Arc<str>>,
    /// The response carries the full state: resources it omits are deleted.
    pub(super) full_state: bool,
}

pub(super) struct ReceivedResource {
    /// `None` if the body has no readable name.
    pub(super) name: Option<Arc<str>>,
    /// Set in incremental responses only.
    pub(super) version: Option<Arc<str>>,
    /// Type URL of the `Any`, which may differ from that of the response.
    pub(super) type_url: Arc<str>,
    pub(super) content_hash: u64,
    pub(super) body: Bytes,
}

impl From<DeltaDiscoveryResponse> for ReceivedResponse {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        // A resource without a body is a heartbeat for its TTL.
        let resources = response.resources.into_iter().filter_map(|resource| {
            let any = resource.resource?;
            Some(ReceivedResource {
                name: Some(resource.name),
                version: Some(resource.version.into()),
                type_url: any.type_url,
                content_hash: xxh64(&any.value, 0),
                body: any.value,
            })
        });
        Self {
            version: response.system_version_info,
            nonce: response.nonce,
            resources: resources.collect(),
            removed: response.removed_resources,
            full_state: false,
        }
    }
}

#[derive(Debug, Default)]
struct NameState {
    deadline: Option<Instant>,
    nonexistent: bool,
}

#[derive(Debug)]
struct CachedResource<T> {
    resource: Resource<T>,
    content_hash: u64,
}

#[derive(Debug)]
struct PendingAck {
    nonce: String,
    error: Option<String>,
    not_before: Option<Instant>,
    /// Hash of the response, to detect a repeated NACK.
    content_hash: u64,
}

#[derive(Debug)]
struct LastNack {
    content_hash: u64,
    backoff: Duration,
}

#[derive(Debug)]
pub(super) struct TypeState<T> {
    type_url: Arc<str>,
    variant: Variant,
    wildcard: bool,
    names: BTreeMap<Arc<str>, NameState>,
    resources: BTreeMap<Arc<str>, CachedResource<T>>,
    /// Last accepted `version_info`, SotW only.
    version: String,
    last_nack: Option<LastNack>,
    /// Resource versions came from a different server, so they are not sent as initial versions.
    versions_outdated: bool,
    // State of the current stream:
    /// Names in the last request; `None` before the first request.
    sent_names: Option<BTreeSet<Arc<str>>>,
    /// Names in every request of this stream. The server may not have seen other names yet.
    in_all_requests: BTreeSet<Arc<str>>,
    /// A name was sent, so an empty list no longer means wildcard.
    sent_any_name: bool,
    nonce: String,
    pending_ack: Option<PendingAck>,
    complete: bool,
}

impl<T: Clone> TypeState<T> {
    pub(super) fn new(type_url: Arc<str>, variant: Variant) -> Self {
        Self {
            type_url,
            variant,
            wildcard: false,
            names: BTreeMap::new(),
            resources: BTreeMap::new(),
            version: String::new(),
            last_nack: None,
            versions_outdated: false,
            sent_names: None,
            in_all_requests: BTreeSet::new(),
            sent_any_name: false,
            nonce: String::new(),
            pending_ack: None,
            complete: false,
        }
    }

    /// If the resource is cached, `Updated` is emitted for the new subscriber.
    pub(super) fn subscribe(&mut self, name: &Arc<str>, events: &mut VecDeque<ClientEvent<T>>) {
        let new = if **name == *WILDCARD {
            !std::mem::replace(&mut self.wildcard, true)
        } else {
            let new = !self.names.contains_key(name);
            self.names.entry(Arc::clone(name)).or_default();
            new
        };
        let is_affected =
            |cached: &&CachedResource<T>| **name == *WILDCARD || cached.resource.name == *name;
        for cached in self.resources.values().filter(is_affected).filter(|_| new) {
            events.push_back(ClientEvent::Updated {
                type_url: Arc::clone(&self.type_url),
                resource: cached.resource.clone(),
            });
        }
    }

    pub(super) fn unsubscribe(&mut self, name: &str) {
        if name == WILDCARD {
            self.wildcard = false;
        } else {
            self.names.remove(name);
        }
    }

    pub(super) fn connect(&mut self) {
        self.sent_names = None;
        self.in_all_requests.clear();
        self.sent_any_name = false;
        self.nonce.clear();
        self.pending_ack = None;
        self.complete = false;
    }

    pub(super) fn disconnect(&mut self) {
        self.connect();
        for state in self.names.values_mut() {
            state.deadline = None;
        }
    }

    pub(super) fn forget_versions(&mut self) {
        self.version.clear();
        self.last_nack = None;
        self.versions_outdated = true;
    }

    pub(super) fn has_unresolved(&self) -> bool {
        let unknown = |(name, state): (&Arc<str>, &NameState)| {
            !state.nonexistent && !self.resources.contains_key(name)
        };
        (self.wildcard && self.resources.is_empty()) || self.names.iter().any(unknown)
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = &Resource<T>> {
        let resources = self.resources.values().map(|cached| &cached.resource);
        resources.filter(|resource| self.is_subscribed(&resource.name))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let ack = self.pending_ack.as_ref().and_then(|ack| ack.not_before);
        let names = self.names.values().filter_map(|state| state.deadline);
        names.chain(ack).min()
    }

    pub(super) fn handle_timeout(&mut self, events: &mut VecDeque<ClientEvent<T>>, now: Instant) {
        for (name, state) in &mut self.names {
            if state.deadline.is_some_and(|deadline| deadline <= now) {
                state.deadline = None;
                state.nonexistent = true;
                events.push_back(ClientEvent::DoesNotExist {
                    type_url: Arc::clone(&self.type_url),
                    name: Arc::clone(name),
                    timed_out: true,
                });
            }
        }
    }

    pub(super) fn receive(
        &mut self,
        received: ReceivedResponse,
        mut decode: impl FnMut(&str, &Bytes) -> Result<T, DecodeError>,
        events: &mut VecDeque<ClientEvent<T>>,
    ) {
        let content_hash = content_hash(&received);
        let ambiguous = ambiguous(&received);
        let (mut errors, mut listed) = (Vec::new(), BTreeSet::new());
        let duplicate = |name: &Arc<str>| format!("{name}: is listed more than once");
        errors.extend(ambiguous.iter().map(duplicate));
        let mut has_unnamed = false;
        for (index, resource) in received.resources.into_iter().enumerate() {
            let Some(name) = resource.name.clone() else {
                has_unnamed = true;
                errors.push(format!("resources[{index}]: has no name that can be read"));
                continue;
            };
            listed.insert(Arc::clone(&name));
            if ambiguous.contains(&name) {
                continue;
            }
            if resource.type_url != self.type_url {
                let (found, expected) = (resource.type_url, &self.type_url);
                errors.push(format!("{name}: type_url: is {found}, not {expected}"));
                continue;
            }
            if let Err(error) = self.update(&name, resource, &mut decode, events) {
                errors.push(format!("{name}: {error}"));
            }
        }
        // A resource without a readable name may be any of the omitted ones, so none is deleted.
        if received.full_state && !has_unnamed {
            self.remove_unlisted(&listed, events);
        }
        let removed = received.removed.into_iter();
        for name in removed.filter(|name| !ambiguous.contains(name)) {
            self.remove(&name, events);
        }
        if self.wildcard && !self.complete {
            self.complete = true;
            let type_url = Arc::clone(&self.type_url);
            events.push_back(ClientEvent::Complete { type_url });
        }
        self.nonce.clone_from(&received.nonce);
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        match &error {
            None => self.version = received.version,
            Some(reason) => events.push_back(ClientEvent::Rejected {
                type_url: Arc::clone(&self.type_url),
                version: received.version,
                reason: reason.clone(),
            }),
        }
        self.pending_ack = Some(PendingAck {
            nonce: received.nonce,
            error,
            not_before: None,
            content_hash,
        });
    }

    pub(super) fn delay_repeated_nack(&mut self, settings: &ClientSettings, now: Instant) {
        let Some(ack) = &mut self.pending_ack else {
            return;
        };
        if ack.error.is_none() {
            self.last_nack = None;
            return;
        }
        let repeated = |nack: &&LastNack| nack.content_hash == ack.content_hash;
        let delay = self
            .last_nack
            .as_ref()
            .filter(repeated)
            .map(|nack| nack.backoff);
        ack.not_before = delay.map(|delay| now.saturating_add(delay));
        let next = delay.map_or(settings.nack_backoff, |delay| delay.saturating_mul(2));
        self.last_nack = Some(LastNack {
            content_hash: ack.content_hash,
            backoff: next.min(settings.nack_backoff_max),
        });
    }

    pub(super) fn request(&mut self, settings: &ClientSettings, now: Instant) -> Option<Request> {
        let mut subscribed = self.subscribed();
        let first = self.sent_names.is_none();
        if first && subscribed.is_empty() {
            return None;
        }
        if self.would_mean_wildcard(&subscribed) {
            // The server goes on sending changes, and nothing again that it has sent: the next
            // subscriber needs what is cached.
            subscribed.insert(WILDCARD.into());
        }
        let changed = self.sent_names.as_ref() != Some(&subscribed);
        // A request with changed names also answers the response, so it ends the delay of a NACK.
        let due = |ack: &mut PendingAck| changed || ack.not_before.is_none_or(|at| at <= now);
        let ack = self.pending_ack.take_if(due);
        if !first && !changed && ack.is_none() {
            return None;
        }
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(self.sotw_request(&subscribed, ack)),
            Variant::Delta => Request::Delta(self.delta_request(&subscribed, ack)),
        };
        self.sent_any_name |=
            !subscribed.is_empty() && !is_legacy_wildcard(&self.type_url, &subscribed);
        self.resources.retain(|name, _| covers(&subscribed, name));
        let deadline = now.saturating_add(settings.does_not_exist_after);
        for (name, state) in &mut self.names {
            let was_sent = self
                .sent_names
                .as_ref()
                .is_some_and(|names| names.contains(name));
            if !was_sent && !state.nonexistent && !self.resources.contains_key(name) {
                state.deadline = Some(deadline);
            }
        }
        if first {
            self.in_all_requests.clone_from(&subscribed);
        } else {
            self.in_all_requests
                .retain(|name| subscribed.contains(name));
        }
        self.sent_names = Some(subscribed);
        self.versions_outdated = false;
        Some(request)
    }

    fn sotw_request(
        &self,
        subscribed: &BTreeSet<Arc<str>>,
        ack: Option<PendingAck>,
    ) -> DiscoveryRequest {
        // No version while resources are missing: a server with that version might send nothing.
        let has_unresolved = self
            .names
            .keys()
            .any(|name| !self.resources.contains_key(name));
        let version = if self.sent_names.is_none() && has_unresolved {
            ""
        } else {
            &self.version
        };
        let legacy = !self.sent_any_name && is_legacy_wildcard(&self.type_url, subscribed);
        DiscoveryRequest {
            node: None,
            type_url: Arc::clone(&self.type_url),
            version_info: version.to_owned(),
            response_nonce: self.nonce.clone(),
            resource_names: subscribed.iter().filter(|_| !legacy).cloned().collect(),
            error_detail: ack.and_then(|ack| ack.error).map(nack_detail),
        }
    }

    fn delta_request(
        &self,
        subscribed: &BTreeSet<Arc<str>>,
        ack: Option<PendingAck>,
    ) -> DeltaDiscoveryRequest {
        let nothing = BTreeSet::new();
        let sent_names = self.sent_names.as_ref().unwrap_or(&nothing);
        let first = self.sent_names.is_none();
        let legacy = first && is_legacy_wildcard(&self.type_url, subscribed);
        let cached = self.resources.values().map(|cached| &cached.resource);
        let versions = cached
            .filter(|resource| covers(subscribed, &resource.name))
            .map(|resource| (Arc::clone(&resource.name), resource.version.to_string()));
        let (nonce, error) = ack.map_or_else(Default::default, |ack| {
            (ack.nonce, ack.error.map(nack_detail))
        });
        DeltaDiscoveryRequest {
            node: None,
            type_url: Arc::clone(&self.type_url),
            resource_names_subscribe: subscribed
                .difference(sent_names)
                .filter(|_| !legacy)
                .cloned()
                .collect(),
            resource_names_unsubscribe: sent_names.difference(subscribed).cloned().collect(),
            initial_resource_versions: versions
                .filter(|_| first && !self.versions_outdated)
                .collect(),
            response_nonce: nonce,
            error_detail: error,
        }
    }

    /// Returns the subscribed names, including `*`.
    fn subscribed(&self) -> BTreeSet<Arc<str>> {
        let wildcard = self.wildcard.then(|| Arc::from(WILDCARD));
        self.names.keys().cloned().chain(wildcard).collect()
    }

    /// Returns whether an empty name list in a SotW request would still be read as a wildcard.
    fn would_mean_wildcard(&self, subscribed: &BTreeSet<Arc<str>>) -> bool {
        let empty =
            subscribed.is_empty() && !self.sent_any_name && ads::has_wildcard(&self.type_url);
        empty && self.variant == Variant::Sotw
    }

    fn is_subscribed(&self, name: &str) -> bool {
        self.wildcard || self.names.contains_key(name)
    }

    /// Stores a resource, decoding it unless the body is unchanged.
    fn update(
        &mut self,
        name: &Arc<str>,
        received: ReceivedResource,
        decode: &mut impl FnMut(&str, &Bytes) -> Result<T, DecodeError>,
        events: &mut VecDeque<ClientEvent<T>>,
    ) -> Result<(), DecodeError> {
        let content_hash = received.content_hash;
        let previous = self.resources.get(name);
        let body = match previous.filter(|previous| previous.content_hash == content_hash) {
            Some(same) => same.resource.body.clone(),
            None => decode(name, &received.body)?,
        };
        let was_sent = self
            .sent_names
            .as_ref()
            .is_some_and(|names| covers(names, name));
        if !was_sent && !self.is_subscribed(name) {
            return Ok(());
        }
        let version = received.version;
        let resource = Resource {
            name: Arc::clone(name),
            version: version.unwrap_or_else(|| format!("{content_hash:016x}").into()),
            body,
            epoch: previous.map_or(0, |previous| previous.resource.epoch.wrapping_add(1)),
        };
        if let Some(state) = self.names.get_mut(name) {
            *state = NameState::default();
        }
        if self.is_subscribed(name) {
            events.push_back(ClientEvent::Updated {
                type_url: Arc::clone(&self.type_url),
                resource: resource.clone(),
            });
        }
        let cached = CachedResource {
            resource,
            content_hash,
        };
        self.resources.insert(Arc::clone(name), cached);
        Ok(())
    }

    fn remove_unlisted(
        &mut self,
        listed: &BTreeSet<Arc<str>>,
        events: &mut VecDeque<ClientEvent<T>>,
    ) {
        // Names subscribed later are left to the does-not-exist timer.
        let requested = self
            .names
            .keys()
            .filter(|name| self.in_all_requests.contains(*name));
        let unlisted: BTreeSet<_> = self
            .resources
            .keys()
            .chain(requested)
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        for name in unlisted {
            self.remove(&name, events);
        }
    }

    fn remove(&mut self, name: &Arc<str>, events: &mut VecDeque<ClientEvent<T>>) {
        let (type_url, is_subscribed) = (Arc::clone(&self.type_url), self.is_subscribed(name));
        let was_sent = self
            .sent_names
            .as_ref()
            .is_some_and(|names| covers(names, name));
        let had = self.resources.remove(name).is_some();
        let mut was_nonexistent = false;
        // A name the server has not seen yet cannot be missing.
        if was_sent && let Some(state) = self.names.get_mut(name) {
            was_nonexistent = state.nonexistent;
            state.deadline = None;
            state.nonexistent = true;
        }
        let name = Arc::clone(name);
        if had && is_subscribed {
            events.push_back(ClientEvent::Removed { type_url, name });
        } else if is_subscribed && was_sent && !was_nonexistent {
            events.push_back(ClientEvent::DoesNotExist {
                type_url,
                name,
                timed_out: false,
            });
        }
    }
}

/// Returns whether the subscription is exactly `*`, for a type with the legacy wildcard.
fn is_legacy_wildcard(type_url: &str, subscribed: &BTreeSet<Arc<str>>) -> bool {
    subscribed.len() == 1 && subscribed.contains(WILDCARD) && ads::has_wildcard(type_url)
}

fn covers(subscribed: &BTreeSet<Arc<str>>, name: &str) -> bool {
    subscribed.contains(WILDCARD) || subscribed.contains(name)
}

fn nack_detail(message: String) -> ErrorDetail {
    ErrorDetail {
        code: INVALID_ARGUMENT,
        message,
    }
}

/// Returns names listed more than once, or both as resource and as removed.
fn ambiguous(received: &ReceivedResponse) -> BTreeSet<Arc<str>> {
    let mut seen: BTreeSet<&Arc<str>> = received.removed.iter().collect();
    let names = received
        .resources
        .iter()
        .filter_map(|resource| resource.name.as_ref());
    names.filter(|name| !seen.insert(name)).cloned().collect()
}

fn content_hash(received: &ReceivedResponse) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(received.version.as_bytes());
    for resource in &received.resources {
        let name = resource.name.as_deref().unwrap_or_default();
        hash.update(name.as_bytes());
        hash.update(&resource.content_hash.to_le_bytes());
    }
    hash.digest()
}
