//! Server side of one ADS stream, SotW or incremental, without IO.
//!
//! A driver, which does the IO, passes in requests and the newest view; after every call it sends
//! the responses of [`ServerStream::poll_transmit`] and drains [`ServerStream::poll_event`]. There
//! are no timers. The owner of the [`View`] decides what the client sees; this module enforces the
//! order of types, make before break. State of one type is in `type_state`, `sotw` and `delta`.
//!
//! The order (xDS protocol, "eventual consistency considerations"):
//! * at most one response per type is in flight; a newer view waits for the ACK or NACK and
//!   replaces the view that waited before;
//! * assignments wait until clusters are sent, listeners until new clusters and assignments are
//!   answered, routes until new listeners are answered too;
//! * deleted clusters are kept until listeners and routes of the view are accepted; assignments of
//!   deleted clusters are removed last;
//! * a changed cluster gets its assignment again even if that did not change, because Envoy keeps
//!   the cluster warming until it arrives; likewise a changed listener gets its routes again.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::time::Instant;

mod delta;
mod event;
mod limits;
mod look_up;
mod sotw;
mod subscription;
mod type_state;

pub use event::{Nack, StreamEvent, TypeStatus};
pub use limits::{Limits, ProtocolError, StatusCode, StreamLimit};
pub use subscription::{Subscription, WILDCARD};

use self::type_state::{Draft, Next, TypeState};
use super::view::{TypeResources, View};
use super::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Request, Response,
    SCOPED_ROUTE_CONFIGURATION, VIRTUAL_HOST, Variant,
};
use crate::node::NodeInfo;

/// State machine of one server-side ADS stream.
#[derive(Debug)]
pub struct ServerStream {
    variant: Variant,
    limits: Limits,
    node: Option<NodeInfo>,
    view: Option<Arc<View>>,
    /// State of each type, in the order of their [`Rank`].
    types: Vec<TypeState>,
    nonces: u64,
    events: VecDeque<StreamEvent>,
}

impl ServerStream {
    /// Creates the state of a new stream.
    pub fn new(variant: Variant, limits: Limits) -> Self {
        Self {
            variant,
            limits,
            node: None,
            view: None,
            types: Vec::new(),
            nonces: 0,
            events: VecDeque::new(),
        }
    }

    /// Handles a request. An error ends the stream.
    pub fn handle_request(&mut self, request: Request, now: Instant) -> Result<(), ProtocolError> {
        if self.node.is_none() {
            let node = request
                .node()
                .ok_or_else(|| ProtocolError::invalid("first request without node"))?;
            self.node = Some(node.info.clone());
        }
        let index = self.type_index(request.type_url())?;
        let state = &mut self.types[index];
        let view = self.view.as_ref();
        state.newest = view.and_then(|view| view.get(&state.type_url).cloned());
        match (self.variant, request) {
            (Variant::Sotw, Request::Sotw(request)) => {
                sotw::handle_request(state, &request, &self.limits, now, &mut self.events)?;
            }
            (Variant::Delta, Request::Delta(request)) => {
                delta::handle_request(state, &request, &self.limits, now, &mut self.events)?;
            }
            _ => return Err(ProtocolError::invalid("request of the other variant")),
        }
        self.limits.check_bytes(self.subscription_bytes())
    }

    /// Returns the memory of names that the client sent and that are in no view: clients can invent
    /// any number of them.
    pub fn subscription_bytes(&self) -> usize {
        self.types.iter().map(TypeState::subscription_bytes).sum()
    }

    /// Replaces the view of this client. Intermediate views may be skipped.
    pub fn set_view(&mut self, view: Arc<View>) {
        self.view = Some(view);
    }

    /// Returns the next response to send, if any.
    pub fn poll_transmit(&mut self) -> Option<Response> {
        let view = Arc::clone(self.view.as_ref()?);
        for index in 0..self.types.len() {
            let Some(resources) = view.get(&self.types[index].type_url) else {
                continue;
            };
            let state = &self.types[index];
            if state.in_flight.is_some() || state.is_checked(resources) {
                continue;
            }
            if self.must_wait(index, &view) {
                continue;
            }
            if let Some(draft) = self.next(index, resources, &view) {
                return Some(self.send(index, draft, resources));
            }
        }
        None
    }

    /// Returns the next event of the stream, oldest first.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Returns the node of the client, known after its first request.
    pub fn node(&self) -> Option<&NodeInfo> {
        self.node.as_ref()
    }

    /// Returns the protocol variant of the stream.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the subscription to a type, or `None` before the first request for it.
    pub fn subscription(&self, type_url: &str) -> Option<&Subscription> {
        let state = self.types.iter().find(|state| *state.type_url == *type_url);
        state.map(|state| &state.subscription)
    }

    /// Returns the type URLs that the client has requested.
    pub fn subscribed_types(&self) -> impl Iterator<Item = &Arc<str>> {
        self.types.iter().map(|state| &state.type_url)
    }

    /// Returns the sent, ACKed and NACKed versions of each type.
    pub fn status(&self) -> impl Iterator<Item = TypeStatus> + '_ {
        self.types.iter().map(TypeState::status)
    }

    /// Returns the generation of the newest view, if the client has accepted everything of it that
    /// it subscribes to.
    pub fn accepted_generation(&self) -> Option<u64> {
        let view = self.view.as_ref()?;
        let is_current = |state: &TypeState| state.is_up_to_date(self.variant, view);
        self.types.iter().all(is_current).then(|| view.generation())
    }

    /// Returns the index of the type's state, which is created on the first request.
    fn type_index(&mut self, type_url: &Arc<str>) -> Result<usize, ProtocolError> {
        if let Some(index) = self.types.iter().position(|s| s.type_url == *type_url) {
            return Ok(index);
        }
        if type_url.is_empty() {
            return Err(ProtocolError::invalid("request without type_url"));
        }
        if type_url.len() > self.limits.name_length {
            let limit = StreamLimit::NameLength;
            return Err(ProtocolError::exceeded(limit, "type_url is too long"));
        }
        if self.types.len() >= self.limits.types {
            let message = format!("more than {} types on one stream", self.limits.types);
            return Err(ProtocolError::exceeded(StreamLimit::Types, message));
        }
        let rank = Rank::of(type_url);
        let index = self
            .types
            .partition_point(|s| Rank::of(&s.type_url) <= rank);
        // A client subscribes to a few types once, and there may be thousands of clients.
        self.types.reserve_exact(1);
        self.types
            .insert(index, TypeState::new(Arc::clone(type_url)));
        Ok(index)
    }

    /// Returns whether the type must wait for earlier ones; `poll_transmit` visits types in order.
    fn must_wait(&self, index: usize, view: &View) -> bool {
        let rank = Rank::of(&self.types[index].type_url);
        let mut before = self.types[..index].iter();
        match rank {
            Rank::Cluster | Rank::Other => false,
            Rank::Assignment => before.any(|state| state.has_newer(view)),
            Rank::Listener | Rank::Route => before.any(|state| {
                // Updates of existing resources block nothing: assignments may change continuously.
                Rank::of(&state.type_url) < rank && state.has_new_in_flight(view)
            }),
        }
    }

    fn next(&mut self, index: usize, resources: &Arc<TypeResources>, view: &View) -> Option<Draft> {
        let variant = self.variant;
        let next = |state: &mut TypeState, keep_removed| match variant {
            Variant::Sotw => sotw::next(state, resources, keep_removed),
            Variant::Delta => delta::next(state, resources, keep_removed),
        };
        let mut found = next(&mut self.types[index], true);
        if matches!(found, Next::OnlyRemovals) && self.may_remove(index, view) {
            found = next(&mut self.types[index], false);
        }
        let state = &mut self.types[index];
        state.removals_pending = matches!(found, Next::OnlyRemovals);
        match found {
            Next::Nothing => {
                state.set_checked(resources);
                None
            }
            Next::OnlyRemovals => None,
            Next::Send(draft) => Some(draft),
        }
    }

    /// Returns whether no resource in use by the client can still refer to the removed resources.
    fn may_remove(&self, index: usize, view: &View) -> bool {
        let rank = Rank::of(&self.types[index].type_url);
        self.types
            .iter()
            .all(|state| match (rank, Rank::of(&state.type_url)) {
                (Rank::Cluster, Rank::Listener | Rank::Route) => {
                    state.is_up_to_date(self.variant, view)
                }
                (Rank::Assignment, Rank::Cluster) => {
                    !state.removals_pending && state.in_flight.is_none()
                }
                _ => true,
            })
    }

    fn send(&mut self, index: usize, draft: Draft, source: &Arc<TypeResources>) -> Response {
        let dependents = match Rank::of(&self.types[index].type_url) {
            Rank::Cluster if self.types[index].is_change(&draft) => Some(Rank::Assignment),
            Rank::Listener if self.types[index].is_change(&draft) => Some(Rank::Route),
            _ => None,
        };
        let waiting = |state: &&mut TypeState| Some(Rank::of(&state.type_url)) == dependents;
        self.types
            .iter_mut()
            .filter(waiting)
            .for_each(TypeState::resend_all);
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        let state = &mut self.types[index];
        let version = state.record_sent(&draft, &nonce, source);
        match self.variant {
            Variant::Sotw => Response::Sotw(sotw::response(&state.type_url, draft, version, nonce)),
            Variant::Delta => {
                Response::Delta(delta::response(&state.type_url, draft, version, nonce))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Cluster,
    Assignment,
    Listener,
    Route,
    /// Not ordered relative to other types.
    Other,
}

impl Rank {
    fn of(type_url: &str) -> Self {
        match type_url {
            CLUSTER => Self::Cluster,
            CLUSTER_LOAD_ASSIGNMENT => Self::Assignment,
            LISTENER => Self::Listener,
            ROUTE_CONFIGURATION | SCOPED_ROUTE_CONFIGURATION | VIRTUAL_HOST => Self::Route,
            _ => Self::Other,
        }
    }
}
