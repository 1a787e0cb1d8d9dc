//! State of the world: requests that list all names, responses that list resources.
//!
//! Of listeners, clusters and scoped routes a response lists everything, and what is missing is
//! gone; of other types it lists what changed or was newly asked for, and nothing can be taken away
//! (the cluster or listener that refers to it is). Resources of those types that do not exist are
//! not answered: a client has a timer for that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plimsoll_core::time::Instant;

use super::event::StreamEvent;
use super::limits::{Limits, ProtocolError};
use super::type_state::{Draft, Next, TypeState, differs};
use crate::ads;
use crate::ads::message::{Any, DiscoveryRequest, DiscoveryResponse};
use crate::ads::view::{Resource, TypeResources, set_version};

/// Reads a request.
pub(super) fn handle_request(
    state: &mut TypeState,
    request: &DiscoveryRequest,
    limits: &Limits,
    now: Instant,
    events: &mut VecDeque<StreamEvent>,
) -> Result<(), ProtocolError> {
    limits.check_names(&state.type_url, &request.resource_names)?;
    let nonce = &request.response_nonce;
    let first = !state.subscription.has_begun();
    if first || (nonce.is_empty() && state.in_flight.is_none()) {
        begin(state, request);
    } else if *nonce == state.last_nonce {
        events.extend(state.answer(nonce, request.error_detail.as_ref(), now));
    } else {
        // The client wrote this before it saw the last response: no answer, and none is due. What
        // it wants is news all the same. If it drops a name and takes it up again while a response
        // is under way, only these requests tell.
        state.status.stale += 1;
    }
    subscribe(state, request, events);
    Ok(())
}

/// What a client with this state is to be sent. With `keep`, clusters that are gone stay listed.
pub(super) fn next(state: &mut TypeState, resources: &TypeResources, keep: bool) -> Next {
    if ads::has_wildcard(&state.type_url) {
        return next_whole(state, resources, keep);
    }
    let changed = state.changed(resources);
    if changed.is_empty() {
        return Next::Nothing;
    }
    Next::Send(Draft {
        resources: changed,
        removed: Vec::new(),
        whole: false,
    })
}

/// The message.
pub(super) fn response(
    type_url: &Arc<str>,
    draft: Draft,
    version: Arc<str>,
    nonce: String,
) -> DiscoveryResponse {
    let any = |resource: Resource| Any {
        type_url: Arc::clone(type_url),
        value: resource.body,
    };
    DiscoveryResponse {
        type_url: Arc::clone(type_url),
        version_info: version.to_string(),
        nonce,
        resources: draft.resources.into_iter().map(any).collect(),
    }
}

/// A client that starts, perhaps with what it has from an earlier stream.
///
/// If that is exactly the whole set it is not sent again, which is what keeps a restarted server
/// from being flooded. Types that come one by one are always answered: after a change of its
/// cluster, Envoy has the assignment's version but waits for the assignment.
fn begin(state: &mut TypeState, request: &DiscoveryRequest) {
    state.held.clear();
    state.owed = ads::has_wildcard(&state.type_url);
    state.claimed = Some(request.version_info.clone()).filter(|version| !version.is_empty());
}

fn subscribe(
    state: &mut TypeState,
    request: &DiscoveryRequest,
    events: &mut VecDeque<StreamEvent>,
) {
    let change = state
        .subscription
        .replace(&state.type_url, &request.resource_names);
    state.touch();
    state.forget(&change.removed);
    let added = change.names_added();
    if !added.is_empty() {
        // The answer may be that there is no such resource, if the type can say so.
        state.owed = ads::has_wildcard(&state.type_url);
        // A set may have been refused while the client did not want this part of it: it has to be
        // sent once more, because there is no other way to hand it over.
        state.forget_refused_sets();
        state.forced.extend(change.added.iter().cloned());
    }
    StreamEvent::push_change(events, &state.type_url, added, change.names_removed());
}

fn next_whole(state: &mut TypeState, resources: &TypeResources, keep: bool) -> Next {
    if is_unresolved(state, resources) {
        return Next::Nothing;
    }
    let (set, kept) = whole_set(state, resources, keep);
    let nothing = if kept { Next::Kept } else { Next::Nothing };
    let version = if state.subscription.is_wildcard() && set.len() == resources.len() {
        Arc::clone(resources.version())
    } else {
        set_version(set.values().map(|r| (&*r.name, &*r.version)))
    };
    // A name without resource is answered in any case: the client waits to hear that.
    let all_there = |set: &BTreeMap<_, _>| {
        let mut names = state.subscription.names().iter();
        names.all(|name| set.contains_key(name))
    };
    if state.claimed.take().as_deref() == Some(&*version) && all_there(&set) {
        state.held = set;
        state.forced.clear();
        state.owed = false;
        state.status.acked = Some(version);
        return nothing;
    }
    let mut new = set.values();
    let changed = new.any(|new| differs(state.held.get(&new.name), new));
    let due = state.owed || changed || set.len() != state.held.len();
    if !due || state.is_refused(&version, resources) {
        return nothing;
    }
    Next::Send(Draft {
        resources: set.into_values().collect(),
        removed: Vec::new(),
        whole: true,
    })
}

/// All that the client is to have, and whether some of it is gone but kept.
fn whole_set(
    state: &TypeState,
    resources: &TypeResources,
    keep: bool,
) -> (BTreeMap<Arc<str>, Resource>, bool) {
    let wanted = state.wanted(resources).into_iter();
    let mut set: BTreeMap<_, _> = wanted
        .map(|resource| (Arc::clone(&resource.name), resource.clone()))
        .collect();
    let mut kept = false;
    for (name, held) in &state.held {
        let absent = resources.is_absent(name);
        if !set.contains_key(name) && (keep || !absent) {
            kept |= absent;
            set.insert(Arc::clone(name), held.clone());
        }
    }
    (set, kept)
}

/// Whether a whole set cannot be listed yet, because what it would leave out may exist.
fn is_unresolved(state: &TypeState, resources: &TypeResources) -> bool {
    let unknown = |name: &Arc<str>| {
        let known = resources.get(name).is_some() || resources.is_absent(name);
        !known && !state.held.contains_key(name)
    };
    let subscription = &state.subscription;
    let never_whole = subscription.is_wildcard() && state.held.is_empty();
    !resources.is_complete() && (never_whole || subscription.names().iter().any(unknown))
}
