//! Incremental variant: requests that change the subscription, responses that list changes.
//!
//! Absence is reported by name, once, for names the client has or subscribes to. Resources that a
//! client subscribes to again are sent again, because the client may have dropped them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::time::Instant;

use super::event::StreamEvent;
use super::limits::{Limits, ProtocolError};
use super::look_up::look_up;
use super::type_state::{Draft, EARLIER_STREAM, Next, TypeState};
use crate::ads::message::{Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DeltaResource};
use crate::ads::view::{Resource, TypeResources};

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
    let answered = state.names_in_flight();
    if !nonce.is_empty() {
        match state.handle_answer(nonce, request.error_detail.as_ref(), now) {
            Some(event) => events.push_back(event),
            None => state.status.stale += 1,
        }
    }
    subscribe(state, request, events);
    if state.in_flight.is_none() {
        // It is unknown whether the client processed the response before it subscribed again.
        let is_unsure =
            |name: &Arc<str>| state.subscription.covers(name) && !state.accepted.contains_key(name);
        state.resend.extend(answered.into_iter().filter(is_unsure));
    }
    state.count_earlier();
    limits.check_count(&state.type_url, state.subscription.names().len())
}

/// Computes the next response. With `keep_removed`, removals are withheld.
pub(super) fn next(state: &mut TypeState, resources: &TypeResources, keep_removed: bool) -> Next {
    let changed = state.changed(resources);
    let mut removed: BTreeSet<_> = absent(state.accepted.keys(), resources).cloned().collect();
    let kept = keep_removed && !removed.is_empty();
    if keep_removed {
        removed.clear();
    }
    let subscribed = absent(state.subscription.names().iter(), resources);
    for name in subscribed.chain(absent(state.resend.iter(), resources)) {
        let is_known = state.known_absent.contains(name) && !state.resend.contains(name);
        if !is_known && !state.accepted.contains_key(name) {
            removed.insert(Arc::clone(name));
        }
    }
    let response_due = state.response_due && resources.is_complete();
    if changed.is_empty() && removed.is_empty() && !response_due {
        return if kept {
            Next::OnlyRemovals
        } else {
            Next::Nothing
        };
    }
    Next::Send(Draft {
        resources: changed,
        removed: removed.into_iter().collect(),
        full_state: false,
    })
}

/// Returns the names, which must be sorted, that are known not to exist.
fn absent<'a>(
    names: impl ExactSizeIterator<Item = &'a Arc<str>>,
    resources: &TypeResources,
) -> impl Iterator<Item = &'a Arc<str>> {
    look_up(names, resources.by_name())
        .filter(|(name, resource)| resource.is_none() && resources.knows_absence(name))
        .map(|(name, _)| name)
}

pub(super) fn response(
    type_url: &Arc<str>,
    draft: Draft,
    version: Arc<str>,
    nonce: String,
) -> DeltaDiscoveryResponse {
    let resource = |resource: Arc<Resource>| DeltaResource {
        name: Arc::clone(&resource.name),
        version: resource.version.to_string(),
        resource: Some(Any {
            type_url: Arc::clone(type_url),
            value: resource.body.clone(),
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
    let first = !state.subscription.is_started();
    let change = state.subscription.change(
        &state.type_url,
        &request.resource_names_subscribe,
        &request.resource_names_unsubscribe,
        state.newest.as_deref(),
    );
    state.invalidate();
    state.drop_unsubscribed(&change.removed);
    if first {
        load_initial_versions(state, request);
    } else {
        state.resend.extend(change.added.iter().cloned());
    }
    // The wildcard may still cover an unsubscribed name; the client must be sent that resource.
    let still = change
        .removed
        .iter()
        .filter(|name| state.subscription.covers(name));
    state.resend.extend(still.cloned());
    // An empty set is a valid response to a wildcard subscription.
    state.response_due |= change.wildcard_added() && state.accepted.is_empty();
    let (added, removed) = (change.names_added(), change.names_removed());
    StreamEvent::push_change(events, &state.type_url, added, removed);
}

/// Loads the versions that the client kept from an earlier stream. What the view has is shared with
/// it; of another version of such a resource it is enough to know that it differs.
fn load_initial_versions(state: &mut TypeState, request: &DeltaDiscoveryRequest) {
    let view = state.newest.clone();
    let earlier = |name: &Arc<str>, version: &str| {
        Arc::new(Resource {
            name: Arc::clone(name),
            version: version.into(),
            body: Bytes::new(),
            epoch: EARLIER_STREAM,
        })
    };
    for (name, version) in &request.initial_resource_versions {
        if !state.subscription.covers(name) {
            continue;
        }
        let accepted = match view.as_deref().and_then(|all| all.by_name().get(name)) {
            Some(current) if *current.version == **version => Arc::clone(current),
            Some(current) => earlier(&current.name, ""),
            None => earlier(name, version),
        };
        state.accepted.insert(Arc::clone(&accepted.name), accepted);
    }
    state.has_earlier = true;
}
