//! [`Client`]: the subscriber's end of ADS, either variant, without IO.
//!
//! A driver says what is wanted ([`Client::watch`]), when streams begin and end
//! ([`Client::handle_connected`], [`Client::handle_disconnected`]) and what arrives
//! ([`Client::handle_response`], with a check that tells good resources from bad). After every call
//! it sends what [`Client::poll_transmit`] yields, drains [`Client::poll_event`] and arms a timer
//! for [`Client::poll_timeout`]. When to dial again is the driver's business.
//!
//! What was good stays through refusals and lost streams. Of a response with bad resources the good
//! ones are used and the response is refused (gRFC A46); bad are also those of another type than
//! the response, and those that are listed twice. The state of one type is in `type_state`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::time::Instant;

mod event;
mod type_state;

pub use event::ClientEvent;

use self::type_state::{Received, ReceivedResource, TypeState};
use super::message::{Any, DiscoveryResponse, NodeMessage};
use super::{Request, Response, Variant};

/// Times of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// How long a name may stay without answer before it counts as missing. The protocol's 15 s.
    pub does_not_exist_after: Duration,
    /// A response that was refused and comes again unchanged is refused again only after this, and
    /// twice as long each time up to [`ClientSettings::nack_backoff_max`]: a server that answers
    /// every refusal with the same cannot make a loop.
    pub nack_backoff: Duration,
    /// The longest of these pauses.
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

/// Finds the name in a resource, by type URL and body: `wire::resource_name`.
pub type NameOf = fn(&str, &[u8]) -> Option<String>;

/// A subscriber.
#[derive(Debug)]
pub struct Client {
    variant: Variant,
    node: NodeMessage,
    name_of: NameOf,
    settings: ClientSettings,
    types: BTreeMap<Arc<str>, TypeState>,
    connected: bool,
    node_sent: bool,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// A client that wants nothing yet and is not connected.
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

    /// Wants a resource, or with `*` all of a type. Again is no change.
    pub fn watch(&mut self, type_url: &Arc<str>, name: &Arc<str>) {
        let state = self.types.entry(Arc::clone(type_url));
        let state = state.or_insert_with(|| TypeState::new(Arc::clone(type_url), self.variant));
        state.watch(name, &mut self.events);
    }

    /// Does not want it any more, and forgets it.
    pub fn unwatch(&mut self, type_url: &str, name: &str) {
        if let Some(state) = self.types.get_mut(type_url) {
            state.unwatch(name);
        }
    }

    /// A stream is open. Requests for everything follow, with what is known already.
    pub fn handle_connected(&mut self) {
        self.connected = true;
        self.node_sent = false;
        self.types.values_mut().for_each(TypeState::connect);
    }

    /// The next stream is to another server, to which versions of the last one mean nothing.
    pub fn handle_other_server(&mut self) {
        self.types.values_mut().for_each(TypeState::forget_versions);
    }

    /// Whether something is wanted that no server has sent, or said not to have.
    pub fn lacks(&self) -> bool {
        self.types.values().any(TypeState::lacks)
    }

    /// The stream is over. Resources stay.
    pub fn handle_disconnected(&mut self) {
        self.connected = false;
        self.types.values_mut().for_each(TypeState::disconnect);
    }

    /// A response arrived. `check` is called with name and body of each resource and says what is
    /// wrong with it. Responses of a type nobody watches, or of the other variant, are ignored.
    pub fn handle_response(
        &mut self,
        response: Response,
        check: impl FnMut(&str, &Bytes) -> Result<(), String>,
        now: Instant,
    ) {
        let Some(state) = self.types.get_mut(response.type_url()) else {
            return;
        };
        let received = match (self.variant, response) {
            (Variant::Sotw, Response::Sotw(response)) => received_sotw(response, self.name_of),
            (Variant::Delta, Response::Delta(response)) => Received::from(response),
            _ => return,
        };
        state.receive(received, check, &mut self.events);
        state.pace(&self.settings, now);
    }

    /// The next request to send, if there is one.
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

    /// What became of resources, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// When to call [`Client::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.types.values().filter_map(TypeState::deadline).min()
    }

    /// Time has passed: names without answer are missing. Poll for requests afterwards: a refusal
    /// that was held back may be due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for state in self.types.values_mut() {
            state.expire(&mut self.events, now);
        }
    }

    /// The last good resources of a type, by name.
    pub fn resources(&self, type_url: &str) -> impl Iterator<Item = &super::view::Resource> {
        let state = self.types.get(type_url).into_iter();
        state.flat_map(TypeState::resources)
    }

    /// Which variant it speaks.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Whether a stream is open.
    pub fn is_connected(&self) -> bool {
        self.connected
    }
}

fn received_sotw(response: DiscoveryResponse, name_of: NameOf) -> Received {
    let named = |any: Any| ReceivedResource {
        name: name_of(&any.type_url, &any.value).map(Arc::from),
        version: None,
        type_url: any.type_url,
        body: any.value,
    };
    Received {
        whole: super::has_wildcard(&response.type_url),
        version: response.version_info,
        nonce: response.nonce,
        resources: response.resources.into_iter().map(named).collect(),
        removed: Vec::new(),
    }
}
