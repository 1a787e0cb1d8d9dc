//! What a client wants, has and owes of one type.
//!
//! Both variants share it: they differ in how a request is written and in how absence is said.
//! A resource that is not wanted any more is kept until the server has been told, so that wanting
//! it again in the meantime finds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use xxhash_rust::xxh64::Xxh64;

use super::{ClientEvent, ClientSettings};
use crate::ads;
use crate::ads::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, ErrorDetail,
};
use crate::ads::server::WILDCARD;
use crate::ads::view::Resource;
use crate::ads::{Request, Variant};

/// INVALID_ARGUMENT, the code of every refusal.
const INVALID_ARGUMENT: i32 = 3;

/// A response of either variant, read as far as is common.
pub(super) struct Received {
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) resources: Vec<ReceivedResource>,
    pub(super) removed: Vec<Arc<str>>,
    /// What is not in it is gone.
    pub(super) whole: bool,
}

/// One resource of it.
pub(super) struct ReceivedResource {
    /// If one was found.
    pub(super) name: Option<Arc<str>>,
    /// If it has its own.
    pub(super) version: Option<Arc<str>>,
    /// What it says it is.
    pub(super) type_url: Arc<str>,
    pub(super) body: Bytes,
}

impl From<DeltaDiscoveryResponse> for Received {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        // One without a body only says that its resource lives on.
        let resources = response.resources.into_iter().filter_map(|resource| {
            let any = resource.resource?;
            Some(ReceivedResource {
                name: Some(resource.name),
                version: Some(resource.version.into()),
                type_url: any.type_url,
                body: any.value,
            })
        });
        Self {
            version: response.system_version_info,
            nonce: response.nonce,
            resources: resources.collect(),
            removed: response.removed_resources,
            whole: false,
        }
    }
}

/// A name that is wanted.
#[derive(Debug, Default)]
struct Watch {
    /// When it counts as missing.
    deadline: Option<Instant>,
    missing: bool,
}

/// What the last response is owed.
#[derive(Debug)]
struct Answer {
    nonce: String,
    error: Option<String>,
    not_before: Option<Instant>,
    /// Tells one content from another.
    content: u64,
}

/// The last refusal.
#[derive(Debug)]
struct Refusal {
    content: u64,
    backoff: Duration,
}

/// One type of a client.
#[derive(Debug)]
pub(super) struct TypeState {
    type_url: Arc<str>,
    variant: Variant,
    wildcard: bool,
    names: BTreeMap<Arc<str>, Watch>,
    resources: BTreeMap<Arc<str>, Resource>,
    /// Version accepted last, state of the world only.
    version: String,
    refusal: Option<Refusal>,
    /// Versions of resources are another server's.
    foreign: bool,
    // Of the present stream:
    /// What the server knows to be wanted; `None` before the first request.
    told: Option<BTreeSet<Arc<str>>>,
    /// What every request so far named. A list that lacks something else may have been on its way
    /// before the server knew that it is wanted.
    always_asked: BTreeSet<Arc<str>>,
    /// A name was sent, so that an empty list does not mean all any more.
    named: bool,
    nonce: String,
    answer: Option<Answer>,
    complete: bool,
}

impl TypeState {
    pub(super) fn new(type_url: Arc<str>, variant: Variant) -> Self {
        Self {
            type_url,
            variant,
            wildcard: false,
            names: BTreeMap::new(),
            resources: BTreeMap::new(),
            version: String::new(),
            refusal: None,
            foreign: false,
            told: None,
            always_asked: BTreeSet::new(),
            named: false,
            nonce: String::new(),
            answer: None,
            complete: false,
        }
    }

    /// Wants a name. What is there already is told again, to whoever began to wait for it.
    pub(super) fn watch(&mut self, name: &Arc<str>, events: &mut VecDeque<ClientEvent>) {
        let new = if **name == *WILDCARD {
            !std::mem::replace(&mut self.wildcard, true)
        } else {
            let new = !self.names.contains_key(name);
            self.names.entry(Arc::clone(name)).or_default();
            new
        };
        let is_meant = |resource: &&Resource| **name == *WILDCARD || resource.name == *name;
        for resource in self.resources.values().filter(is_meant).filter(|_| new) {
            events.push_back(ClientEvent::Updated {
                type_url: Arc::clone(&self.type_url),
                resource: resource.clone(),
            });
        }
    }

    pub(super) fn unwatch(&mut self, name: &str) {
        if name == WILDCARD {
            self.wildcard = false;
        } else {
            self.names.remove(name);
        }
    }

    pub(super) fn connect(&mut self) {
        self.told = None;
        self.always_asked.clear();
        self.named = false;
        self.nonce.clear();
        self.answer = None;
        self.complete = false;
    }

    pub(super) fn disconnect(&mut self) {
        self.connect();
        for watch in self.names.values_mut() {
            watch.deadline = None;
        }
    }

    pub(super) fn forget_versions(&mut self) {
        self.version.clear();
        self.refusal = None;
        self.foreign = true;
    }

    pub(super) fn lacks(&self) -> bool {
        let unknown = |(name, watch): (&Arc<str>, &Watch)| {
            !watch.missing && !self.resources.contains_key(name)
        };
        (self.wildcard && self.resources.is_empty()) || self.names.iter().any(unknown)
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = &Resource> {
        let resources = self.resources.values();
        resources.filter(|resource| self.wants(&resource.name))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let answer = self.answer.as_ref().and_then(|answer| answer.not_before);
        let names = self.names.values().filter_map(|watch| watch.deadline);
        names.chain(answer).min()
    }

    pub(super) fn expire(&mut self, events: &mut VecDeque<ClientEvent>, now: Instant) {
        for (name, watch) in &mut self.names {
            if watch.deadline.is_some_and(|deadline| deadline <= now) {
                watch.deadline = None;
                watch.missing = true;
                events.push_back(ClientEvent::DoesNotExist {
                    type_url: Arc::clone(&self.type_url),
                    name: Arc::clone(name),
                });
            }
        }
    }

    /// Takes what is good of a response and notes the answer it gets.
    pub(super) fn receive(
        &mut self,
        received: Received,
        mut check: impl FnMut(&str, &Bytes) -> Result<(), String>,
        events: &mut VecDeque<ClientEvent>,
    ) {
        let content = content(&received);
        let ambiguous = ambiguous(&received);
        let (mut faults, mut listed) = (Vec::new(), BTreeSet::new());
        let twice = |name: &Arc<str>| format!("{name}: is listed more than once");
        faults.extend(ambiguous.iter().map(twice));
        let mut nameless = false;
        for (index, resource) in received.resources.into_iter().enumerate() {
            let Some(name) = resource.name else {
                nameless = true;
                faults.push(format!("resources[{index}]: has no name that can be read"));
                continue;
            };
            listed.insert(Arc::clone(&name));
            if ambiguous.contains(&name) {
                continue;
            }
            if resource.type_url != self.type_url {
                let (found, wanted) = (resource.type_url, &self.type_url);
                faults.push(format!("{name}: type_url: is {found}, not {wanted}"));
                continue;
            }
            match check(&name, &resource.body) {
                Ok(()) => self.update(name, resource.version, resource.body, events),
                Err(reason) => faults.push(format!("{name}: {reason}")),
            }
        }
        // Whatever cannot be named may be any of those that are not listed.
        if received.whole && !nameless {
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
        let error = (!faults.is_empty()).then(|| faults.join("; "));
        match &error {
            None => self.version = received.version,
            Some(reason) => events.push_back(ClientEvent::Rejected {
                type_url: Arc::clone(&self.type_url),
                version: received.version,
                reason: reason.clone(),
            }),
        }
        self.answer = Some(Answer {
            nonce: received.nonce,
            error,
            not_before: None,
            content,
        });
    }

    /// Holds back a refusal of what was refused before.
    pub(super) fn pace(&mut self, settings: &ClientSettings, now: Instant) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        if answer.error.is_none() {
            self.refusal = None;
            return;
        }
        let before = self.refusal.as_ref();
        let before = before.filter(|refusal| refusal.content == answer.content);
        let pause = before.map(|refusal| refusal.backoff);
        answer.not_before = pause.map(|pause| now.saturating_add(pause));
        let next = pause.map_or(settings.nack_backoff, |pause| pause.saturating_mul(2));
        self.refusal = Some(Refusal {
            content: answer.content,
            backoff: next.min(settings.nack_backoff_max),
        });
    }

    /// The next request of this type.
    pub(super) fn request(&mut self, settings: &ClientSettings, now: Instant) -> Option<Request> {
        let wanted = self.wanted();
        let first = self.told.is_none();
        if first && wanted.is_empty() {
            return None;
        }
        let changed = self.told.as_ref() != Some(&wanted) && !self.cannot_say(&wanted);
        // Names cannot be changed without answering first, so a change does not wait.
        let due = |answer: &mut Answer| changed || answer.not_before.is_none_or(|at| at <= now);
        let answer = self.answer.take_if(due);
        if !first && !changed && answer.is_none() {
            return None;
        }
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(self.sotw(&wanted, answer)),
            Variant::Delta => Request::Delta(self.delta(&wanted, answer)),
        };
        self.named |= !wanted.is_empty() && !is_legacy(&self.type_url, &wanted);
        self.resources.retain(|name, _| covers(&wanted, name));
        let deadline = now.saturating_add(settings.does_not_exist_after);
        for (name, watch) in &mut self.names {
            let told = self.told.as_ref().is_some_and(|told| told.contains(name));
            if !told && !watch.missing && !self.resources.contains_key(name) {
                watch.deadline = Some(deadline);
            }
        }
        match first {
            true => self.always_asked.clone_from(&wanted),
            false => self.always_asked.retain(|name| wanted.contains(name)),
        }
        self.told = Some(wanted);
        self.foreign = false;
        Some(request)
    }

    fn sotw(&self, wanted: &BTreeSet<Arc<str>>, answer: Option<Answer>) -> DiscoveryRequest {
        // A server that knows the version might think that nothing is missing.
        let lacks = self
            .names
            .keys()
            .any(|name| !self.resources.contains_key(name));
        let version = if self.told.is_none() && lacks {
            ""
        } else {
            &self.version
        };
        let legacy = !self.named && is_legacy(&self.type_url, wanted);
        DiscoveryRequest {
            node: None,
            type_url: Arc::clone(&self.type_url),
            version_info: version.to_owned(),
            response_nonce: self.nonce.clone(),
            resource_names: wanted.iter().filter(|_| !legacy).cloned().collect(),
            error_detail: answer.and_then(|answer| answer.error).map(detail),
        }
    }

    fn delta(&self, wanted: &BTreeSet<Arc<str>>, answer: Option<Answer>) -> DeltaDiscoveryRequest {
        let nothing = BTreeSet::new();
        let told = self.told.as_ref().unwrap_or(&nothing);
        let first = self.told.is_none();
        let legacy = first && is_legacy(&self.type_url, wanted);
        let has = self
            .resources
            .values()
            .filter(|resource| covers(wanted, &resource.name));
        let has = has.map(|has| (Arc::clone(&has.name), has.version.to_string()));
        let (nonce, error) = answer.map_or_else(Default::default, |answer| {
            (answer.nonce, answer.error.map(detail))
        });
        DeltaDiscoveryRequest {
            node: None,
            type_url: Arc::clone(&self.type_url),
            resource_names_subscribe: wanted
                .difference(told)
                .filter(|_| !legacy)
                .cloned()
                .collect(),
            resource_names_unsubscribe: told.difference(wanted).cloned().collect(),
            initial_resource_versions: has.filter(|_| first && !self.foreign).collect(),
            response_nonce: nonce,
            error_detail: error,
        }
    }

    /// What is wanted, `*` included.
    fn wanted(&self) -> BTreeSet<Arc<str>> {
        let wildcard = self.wildcard.then(|| Arc::from(WILDCARD));
        self.names.keys().cloned().chain(wildcard).collect()
    }

    /// Whether an empty list, which is what there is to say, would still mean all.
    fn cannot_say(&self, wanted: &BTreeSet<Arc<str>>) -> bool {
        let empty = wanted.is_empty() && !self.named && ads::has_wildcard(&self.type_url);
        empty && self.variant == Variant::Sotw
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains_key(name)
    }

    fn update(
        &mut self,
        name: Arc<str>,
        version: Option<Arc<str>>,
        body: Bytes,
        events: &mut VecDeque<ClientEvent>,
    ) {
        let told = self.told.as_ref().is_some_and(|told| covers(told, &name));
        if !told && !self.wants(&name) {
            return;
        }
        let before = self.resources.get(&name);
        let epoch = before.map_or(0, |before| before.epoch.wrapping_add(1));
        let mut resource = Resource::new(Arc::clone(&name), body).with_epoch(epoch);
        if let Some(version) = version {
            resource.version = version;
        }
        if let Some(watch) = self.names.get_mut(&name) {
            *watch = Watch::default();
        }
        if self.wants(&name) {
            events.push_back(ClientEvent::Updated {
                type_url: Arc::clone(&self.type_url),
                resource: resource.clone(),
            });
        }
        self.resources.insert(name, resource);
    }

    fn remove_unlisted(&mut self, listed: &BTreeSet<Arc<str>>, events: &mut VecDeque<ClientEvent>) {
        let asked = self.names.keys();
        // Of the others it is known when their time is up.
        let asked = asked.filter(|name| self.always_asked.contains(*name));
        let known = self.resources.keys().chain(asked);
        let unlisted = known.filter(|name| !listed.contains(*name));
        let unlisted: BTreeSet<_> = unlisted.cloned().collect();
        for name in unlisted {
            self.remove(&name, events);
        }
    }

    /// The server does not have this.
    fn remove(&mut self, name: &Arc<str>, events: &mut VecDeque<ClientEvent>) {
        let (type_url, wants) = (Arc::clone(&self.type_url), self.wants(name));
        let told = self.told.as_ref().is_some_and(|told| covers(told, name));
        let had = self.resources.remove(name).is_some();
        let mut was_missing = false;
        // A name the server has not been told yet cannot be missing.
        if told && let Some(watch) = self.names.get_mut(name) {
            was_missing = watch.missing;
            watch.deadline = None;
            watch.missing = true;
        }
        let name = Arc::clone(name);
        if had && wants {
            events.push_back(ClientEvent::Removed { type_url, name });
        } else if wants && told && !was_missing {
            events.push_back(ClientEvent::DoesNotExist { type_url, name });
        }
    }
}

/// Whether all and nothing else is wanted, of a type that has a short form for it.
fn is_legacy(type_url: &str, wanted: &BTreeSet<Arc<str>>) -> bool {
    wanted.len() == 1 && wanted.contains(WILDCARD) && ads::has_wildcard(type_url)
}

fn covers(wanted: &BTreeSet<Arc<str>>, name: &str) -> bool {
    wanted.contains(WILDCARD) || wanted.contains(name)
}

fn detail(message: String) -> ErrorDetail {
    ErrorDetail {
        code: INVALID_ARGUMENT,
        message,
    }
}

/// Names that are there more than once, or there and gone: which of them is meant nobody knows.
fn ambiguous(received: &Received) -> BTreeSet<Arc<str>> {
    let mut seen: BTreeSet<&Arc<str>> = received.removed.iter().collect();
    let named = received.resources.iter();
    let named = named.filter_map(|resource| resource.name.as_ref());
    named.filter(|name| !seen.insert(name)).cloned().collect()
}

fn content(received: &Received) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(received.version.as_bytes());
    for resource in &received.resources {
        let name = resource.name.as_deref().unwrap_or_default();
        hash.update(name.as_bytes());
        hash.update(&resource.body);
    }
    hash.digest()
}
