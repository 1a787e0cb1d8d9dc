//! SotW variant: requests that list all names, responses that list resources.
//!
//! For listeners, clusters and scoped routes a response carries the full state and omission means
//! deletion. For other types it carries changed and newly requested resources, and nothing can be
//! deleted except through the cluster or listener that refers to it. Nonexistent resources of those
//! types get no response: clients have a timer for that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plimsoll_core::time::Instant;

use super::event::StreamEvent;
use super::limits::{Limits, ProtocolError};
use super::type_state::{Draft, Next, TypeState, needs_sending};
use crate::ads;
use crate::ads::message::{Any, DiscoveryRequest, DiscoveryResponse};
use crate::ads::view::{Resource, TypeResources, set_version};

pub(super) fn handle_request(
    state: &mut TypeState,
    request: &DiscoveryRequest,
    limits: &Limits,
    now: Instant,
    events: &mut VecDeque<StreamEvent>,
) -> Result<(), ProtocolError> {
    limits.check_names(&state.type_url, &request.resource_names)?;
    let nonce = &request.response_nonce;
    let first = !state.subscription.is_started();
    if first || (nonce.is_empty() && state.in_flight.is_none()) {
        start_subscription(state, request);
    } else if *nonce == state.last_nonce {
        events.extend(state.handle_answer(nonce, request.error_detail.as_ref(), now));
    } else {
        // The client sent this request before it saw the last response, so it answers nothing. Its
        // names still count: if the client drops a name and adds it back while a response is in
        // flight, only such requests show that.
        state.status.stale += 1;
    }
    subscribe(state, request, events);
    Ok(())
}

/// Computes the next response. With `keep_removed`, deleted clusters stay listed.
pub(super) fn next(state: &mut TypeState, resources: &TypeResources, keep_removed: bool) -> Next {
    if ads::has_wildcard(&state.type_url) {
        return next_full_state(state, resources, keep_removed);
    }
    let changed = state.changed(resources);
    if changed.is_empty() {
        return Next::Nothing;
    }
    Next::Send(Draft {
        resources: changed,
        removed: Vec::new(),
        full_state: false,
    })
}

pub(super) fn response(
    type_url: &Arc<str>,
    draft: Draft,
    version: Arc<str>,
    nonce: String,
) -> DiscoveryResponse {
    let any = |resource: Arc<Resource>| Any {
        type_url: Arc::clone(type_url),
        value: resource.body.clone(),
    };
    DiscoveryResponse {
        type_url: Arc::clone(type_url),
        version_info: version.to_string(),
        nonce,
        resources: draft.resources.into_iter().map(any).collect(),
    }
}

/// If the client claims the current full state's version from an earlier stream, nothing is sent:
/// no flood after a server restart. Types without full-state responses are always answered: after a
/// change of its cluster, Envoy has the assignment's version but waits for the assignment.
fn start_subscription(state: &mut TypeState, request: &DiscoveryRequest) {
    state.accepted.clear();
    state.response_due = ads::has_wildcard(&state.type_url);
    state.claimed_version =
        Some(request.version_info.clone()).filter(|version| !version.is_empty());
}

fn subscribe(
    state: &mut TypeState,
    request: &DiscoveryRequest,
    events: &mut VecDeque<StreamEvent>,
) {
    let resources = state.newest.as_deref();
    let names = &request.resource_names;
    let change = state
        .subscription
        .replace(&state.type_url, names, resources);
    state.invalidate();
    state.drop_unsubscribed(&change.removed);
    let added = change.names_added();
    if !added.is_empty() {
        // Only types with full-state responses can answer that a resource does not exist.
        state.response_due = ads::has_wildcard(&state.type_url);
        // A full state with the added names may have been NACKed while they were not subscribed. It
        // must be sent again, because only a full state can carry their resources.
        state.clear_nacked_sets();
        state.resend.extend(change.added.iter().cloned());
    }
    StreamEvent::push_change(events, &state.type_url, added, change.names_removed());
}

fn next_full_state(state: &mut TypeState, resources: &TypeResources, keep_removed: bool) -> Next {
    if is_unresolved(state, resources) {
        return Next::Nothing;
    }
    let (set, kept) = full_state_for(state, resources, keep_removed);
    let nothing = if kept {
        Next::OnlyRemovals
    } else {
        Next::Nothing
    };
    let version = if state.subscription.is_wildcard() && set.len() == resources.len() {
        Arc::clone(resources.version())
    } else {
        set_version(set.values().map(|r| (&*r.name, &*r.version)))
    };
    // A name without a resource is always answered: the client waits to learn that it is absent.
    let all_there = |set: &BTreeMap<_, _>| {
        let mut names = state.subscription.names().iter();
        names.all(|name| set.contains_key(name))
    };
    if state.claimed_version.take().as_deref() == Some(&*version) && all_there(&set) {
        state.accepted = set;
        state.resend.clear();
        state.response_due = false;
        state.status.acked = Some(version);
        return nothing;
    }
    let mut new = set.values();
    let changed =
        new.any(|new| needs_sending(state.accepted.get(&new.name).map(AsRef::as_ref), new));
    let due = state.response_due || changed || set.len() != state.accepted.len();
    if !due || state.is_nacked(&version, resources) {
        return nothing;
    }
    Next::Send(Draft {
        resources: set.into_values().collect(),
        removed: Vec::new(),
        full_state: true,
    })
}

/// Returns the full state for the client, and whether it includes deleted resources.
fn full_state_for(
    state: &TypeState,
    resources: &TypeResources,
    keep_removed: bool,
) -> (BTreeMap<Arc<str>, Arc<Resource>>, bool) {
    let subscribed = state.subscribed(resources).into_iter();
    let mut set: BTreeMap<_, _> = subscribed
        .map(|resource| (Arc::clone(&resource.name), Arc::clone(resource)))
        .collect();
    let mut kept = false;
    for (name, accepted) in &state.accepted {
        let absent = resources.is_absent(name);
        if !set.contains_key(name) && (keep_removed || !absent) {
            kept |= absent;
            set.insert(Arc::clone(name), Arc::clone(accepted));
        }
    }
    (set, kept)
}

/// Returns whether full state cannot be sent yet, because an omitted resource may exist.
fn is_unresolved(state: &TypeState, resources: &TypeResources) -> bool {
    let unknown = |name: &Arc<str>| {
        let known = resources.get(name).is_some() || resources.is_absent(name);
        !known && !state.accepted.contains_key(name)
    };
    let subscription = &state.subscription;
    let never_whole = subscription.is_wildcard() && state.accepted.is_empty();
    !resources.is_complete() && (never_whole || subscription.names().iter().any(unknown))
}
