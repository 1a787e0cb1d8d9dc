//! ADS client state machine, SotW and incremental, without IO.
//!
//! A driver (code that does the IO) passes in stream starts, stream ends and responses; after every
//! call it sends the requests of [`Client::poll_transmit`], drains [`Client::poll_event`] and arms
//! a timer for [`Client::poll_timeout`]. Reconnecting is up to the driver.
//!
//! Resources are cached in decoded form (`T`); a relay uses `T = Bytes`. They survive NACKs and
//! lost streams. When a response contains invalid resources, the valid ones are used and the
//! response is NACKed (gRFC A46). Resources of a different type than the response, and names that
//! occur twice, are invalid too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use xxhash_rust::xxh64::xxh64;

mod event;
mod type_state;

pub use event::ClientEvent;

use self::type_state::{ReceivedResource, ReceivedResponse, TypeState};
use super::message::{Any, DiscoveryResponse, NodeMessage};
use super::view::Resource;
use super::{Request, Response, Variant};
use crate::error::DecodeError;

/// Timers of an ADS client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientSettings {
    /// Time without a response until a resource counts as nonexistent; the protocol suggests 15 s.
    pub does_not_exist_after: Duration,
    /// Initial delay before an unchanged response is NACKed again. Doubles up to
    /// [`ClientSettings::nack_backoff_max`], which prevents a busy loop with the server.
    pub nack_backoff: Duration,
    pub nack_backoff_max: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            does_not_exist_after: Duration::from_secs(15),
            nack_backoff: Duration::from_secs(1),
            nack_backoff_max: Duration::from_secs(30),
        }
    }
}

/// Extracts the resource name from a type URL and an encoded resource, see `wire::resource_name`.
pub type NameOf = fn(&str, &[u8]) -> Option<String>;

/// ADS client that decodes resources into `T`.
#[derive(Debug)]
pub struct Client<T = Bytes> {
    variant: Variant,
    node: NodeMessage,
    name_of: NameOf,
    settings: ClientSettings,
    types: BTreeMap<Arc<str>, TypeState<T>>,
    connected: bool,
    node_sent: bool,
    events: VecDeque<ClientEvent<T>>,
}

impl<T: Clone> Client<T> {
    /// Creates a disconnected client without subscriptions.
    pub fn new(
        variant: Variant,
        node: NodeMessage,
        name_of: NameOf,
        settings: ClientSettings,
    ) -> Self {
        Self {
            variant,
            node,
            name_of,
            settings,
            types: BTreeMap::new(),
            connected: false,
            node_sent: false,
            events: VecDeque::new(),
        }
    }

    /// Subscribes to a resource, or with `*` to all resources of the type. Idempotent.
    pub fn subscribe(&mut self, type_url: &Arc<str>, name: &Arc<str>) {
        self.types
            .entry(Arc::clone(type_url))
            .or_insert_with(|| TypeState::new(Arc::clone(type_url), self.variant))
            .subscribe(name, &mut self.events);
    }

    /// Unsubscribes from a resource and drops it from the cache.
    pub fn unsubscribe(&mut self, type_url: &str, name: &str) {
        if let Some(state) = self.types.get_mut(type_url) {
            state.unsubscribe(name);
        }
    }

    /// Handles a new stream: all subscriptions are requested again, with the cached versions.
    pub fn handle_connected(&mut self) {
        self.connected = true;
        self.node_sent = false;
        self.types.values_mut().for_each(TypeState::connect);
    }

    /// Discards the versions of cached resources, because the next stream is to a different server.
    pub fn handle_server_change(&mut self) {
        self.types.values_mut().for_each(TypeState::forget_versions);
    }

    /// Returns whether a subscription has neither a cached resource nor a "does not exist" verdict.
    pub fn has_unresolved_subscriptions(&self) -> bool {
        self.types.values().any(TypeState::has_unresolved)
    }

    /// Handles the end of the stream. Cached resources stay valid.
    pub fn handle_disconnected(&mut self) {
        self.connected = false;
        self.types.values_mut().for_each(TypeState::disconnect);
    }

    /// Handles a response. `decode` is called with the name and body of each resource whose body
    /// changed; it must be deterministic. Responses for a type without subscription, or of the
    /// other protocol variant, are ignored.
    pub fn handle_response(
        &mut self,
        response: Response,
        decode: impl FnMut(&str, &Bytes) -> Result<T, DecodeError>,
        now: Instant,
    ) {
        let Some(state) = self.types.get_mut(response.type_url()) else {
            return;
        };
        let received = match (self.variant, response) {
            (Variant::Sotw, Response::Sotw(response)) => from_sotw(response, self.name_of),
            (Variant::Delta, Response::Delta(response)) => ReceivedResponse::from(response),
            _ => return,
        };
        state.receive(received, decode, &mut self.events);
        state.delay_repeated_nack(&self.settings, now);
    }

    /// Returns the next request to send, if any.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Request> {
        if !self.connected {
            return None;
        }
        let (settings, types) = (&self.settings, &mut self.types);
        let mut request = types.values_mut().find_map(|s| s.request(settings, now))?;
        if !self.node_sent {
            let node = Some(self.node.clone());
            match &mut request {
                Request::Sotw(request) => request.node = node,
                Request::Delta(request) => request.node = node,
            }
            self.node_sent = true;
        }
        Some(request)
    }

    /// Returns the next resource event, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent<T>> {
        self.events.pop_front()
    }

    /// Returns when to call [`Client::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.types.values().filter_map(TypeState::deadline).min()
    }

    /// Reports subscriptions whose response is overdue as nonexistent. Call
    /// [`Client::poll_transmit`] afterwards: a delayed NACK may be due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for state in self.types.values_mut() {
            state.handle_timeout(&mut self.events, now);
        }
    }

    /// Returns the cached resources of a type, ordered by name.
    pub fn resources(&self, type_url: &str) -> impl Iterator<Item = &Resource<T>> {
        let state = self.types.get(type_url).into_iter();
        state.flat_map(TypeState::resources)
    }

    /// Returns the protocol variant of the client.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns whether a stream is open.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
}

fn from_sotw(response: DiscoveryResponse, name_of: NameOf) -> ReceivedResponse {
    let named = |any: Any| ReceivedResource {
        name: name_of(&any.type_url, &any.value).map(Arc::from),
        version: None,
        type_url: any.type_url,
        content_hash: xxh64(&any.value, 0),
        body: any.value,
    };
    ReceivedResponse {
        full_state: super::has_wildcard(&response.type_url),
        version: response.version_info,
        nonce: response.nonce,
        resources: response.resources.into_iter().map(named).collect(),
        removed: Vec::new(),
    }
}
