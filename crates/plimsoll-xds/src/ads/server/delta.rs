//! Incremental: requests that change what is wanted, responses that list changes.
//!
//! Absence is said by name, once, for whatever the client has or asks for. Names that a client
//! subscribes to again are sent again: it may have forgotten them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::time::Instant;

use super::event::StreamEvent;
use super::limits::{Limits, ProtocolError};
use super::type_state::{Draft, EARLIER, Next, TypeState};
use crate::ads::message::{Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DeltaResource};
use crate::ads::view::{Resource, TypeResources};

/// Reads a request.
pub(super) fn handle_request(
    state: &mut TypeState,
    request: &DeltaDiscoveryRequest,
    limits: &Limits,
    now: Instant,
    events: &mut VecDeque<StreamEvent>,
) -> Result<(), ProtocolError> {
    limits.check_names(&state.type_url, &request.resource_names_subscribe)?;
    limits.check_count(&state.type_url, request.initial_resource_versions.len())?;
    let nonce = &request.response_nonce;
    let answered = state.names_under_way();
    if !nonce.is_empty() {
        match state.answer(nonce, request.error_detail.as_ref(), now) {
            Some(event) => events.push_back(event),
            None => state.status.stale += 1,
        }
    }
    subscribe(state, request, events);
    if state.in_flight.is_none() {
        // What the client took up again with its answer it may have wanted before it read the
        // response, or after: whether it has it is not known.
        let unsure =
            |name: &Arc<str>| state.subscription.covers(name) && !state.held.contains_key(name);
        state.forced.extend(answered.into_iter().filter(unsure));
    }
    limits.check_count(&state.type_url, state.subscription.names().len())
}

/// What a client with this state is to be sent. With `keep`, what it has is not taken away.
pub(super) fn next(state: &mut TypeState, resources: &TypeResources, keep: bool) -> Next {
    let changed = state.changed(resources);
    let gone = state.held.keys().filter(|name| resources.is_absent(name));
    let mut removed: BTreeSet<_> = gone.cloned().collect();
    let kept = keep && !removed.is_empty();
    if keep {
        removed.clear();
    }
    let names = state.subscription.names().iter().chain(&state.forced);
    for name in names.filter(|name| resources.is_absent(name)) {
        let told = state.told_absent.contains(name) && !state.forced.contains(name);
        if !told && !state.held.contains_key(name) {
            removed.insert(Arc::clone(name));
        }
    }
    let owed = state.owed && resources.is_complete();
    if changed.is_empty() && removed.is_empty() && !owed {
        return if kept { Next::Kept } else { Next::Nothing };
    }
    Next::Send(Draft {
        resources: changed,
        removed: removed.into_iter().collect(),
        whole: false,
    })
}

/// The message.
pub(super) fn response(
    type_url: &Arc<str>,
    draft: Draft,
    version: Arc<str>,
    nonce: String,
) -> DeltaDiscoveryResponse {
    let resource = |resource: Resource| DeltaResource {
        name: resource.name,
        version: resource.version.to_string(),
        resource: Some(Any {
            type_url: Arc::clone(type_url),
            value: resource.body,
        }),
    };
    DeltaDiscoveryResponse {
        type_url: Arc::clone(type_url),
        system_version_info: version.to_string(),
        nonce,
        resources: draft.resources.into_iter().map(resource).collect(),
        removed_resources: draft.removed,
    }
}

fn subscribe(
    state: &mut TypeState,
    request: &DeltaDiscoveryRequest,
    events: &mut VecDeque<StreamEvent>,
) {
    let first = !state.subscription.has_begun();
    let before = state.subscription.clone();
    let change = state.subscription.change(
        &state.type_url,
        &request.resource_names_subscribe,
        &request.resource_names_unsubscribe,
    );
    state.touch();
    state.forget(&change.removed);
    if first {
        bring(state, request);
    } else {
        state.forced.extend(change.added.iter().cloned());
    }
    // Without its name a resource may still be wanted as one of all: the client must be told.
    let still = change
        .removed
        .iter()
        .filter(|name| state.subscription.covers(name));
    state.forced.extend(still.cloned());
    // Of all, none is an answer too.
    state.owed |= change.wildcard_added() && state.held.is_empty();
    let mut added = change.names_added();
    added.retain(|name| !before.names().contains(name));
    StreamEvent::push_change(events, &state.type_url, added, change.names_removed());
}

/// What the client has from an earlier stream.
fn bring(state: &mut TypeState, request: &DeltaDiscoveryRequest) {
    for (name, version) in &request.initial_resource_versions {
        if state.subscription.covers(name) {
            let held = Resource {
                name: Arc::clone(name),
                version: version.as_str().into(),
                body: Bytes::new(),
                epoch: EARLIER,
            };
            state.held.insert(Arc::clone(name), held);
        }
    }
}
