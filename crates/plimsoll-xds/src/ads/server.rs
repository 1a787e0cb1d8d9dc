//! [`ServerStream`]: one ADS stream of a server, either variant, without IO.
//!
//! A driver gives it requests ([`ServerStream::handle_request`]) and the newest view
//! ([`ServerStream::set_view`]); after every call it sends what [`ServerStream::poll_transmit`]
//! yields and drains [`ServerStream::poll_event`]. There is no timer: everything happens because a
//! message or a view came.
//!
//! Here lives the order of types, make before break. What one type needs is in `type_state`, `sotw`
//! and `delta`; what a client may ask for in `limits`. What receivers are to see is decided by
//! whoever builds the [`View`].
//!
//! The order (xDS protocol, "eventual consistency considerations"):
//! * one response per type is under way at most; a newer view waits for the answer and replaces
//!   what waited before;
//! * assignments wait until clusters are sent, listeners until new clusters and assignments are
//!   answered, routes until new listeners are answered too;
//! * clusters that are gone are kept until listeners and routes of the view are accepted, then
//!   their assignments go last;
//! * a changed cluster gets its assignment again even if that did not change, because Envoy warms
//!   it until one arrives; a changed listener its routes likewise.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::time::Instant;

mod delta;
mod event;
mod limits;
mod sotw;
mod subscription;
mod type_state;

pub use event::{Refusal, StreamEvent, TypeStatus};
pub use limits::{Limits, ProtocolError, StatusCode};
pub use subscription::{Subscription, WILDCARD};

use self::type_state::{Draft, Next, TypeState};
use super::view::{TypeResources, View};
use super::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Request, Response,
    SCOPED_ROUTE_CONFIGURATION, VIRTUAL_HOST, Variant,
};
use crate::node::NodeInfo;

/// One stream.
#[derive(Debug)]
pub struct ServerStream {
    variant: Variant,
    limits: Limits,
    node: Option<NodeInfo>,
    view: Option<Arc<View>>,
    /// In the order in which they are sent.
    types: Vec<TypeState>,
    nonces: u64,
    events: VecDeque<StreamEvent>,
}

impl ServerStream {
    /// A stream on which nothing was said yet.
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

    /// A request arrived. An error ends the stream.
    pub fn handle_request(&mut self, request: Request, now: Instant) -> Result<(), ProtocolError> {
        if self.node.is_none() {
            let node = request.node();
            let node = node.ok_or_else(|| ProtocolError::invalid("first request without node"))?;
            self.node = Some(node.info.clone());
        }
        let index = self.type_index(request.type_url())?;
        let state = &mut self.types[index];
        let view = self.view.as_ref();
        state.newest = view.and_then(|view| view.get(&state.type_url).cloned());
        match (self.variant, request) {
            (Variant::Sotw, Request::Sotw(request)) => {
                sotw::handle_request(state, &request, &self.limits, now, &mut self.events)
            }
            (Variant::Delta, Request::Delta(request)) => {
                delta::handle_request(state, &request, &self.limits, now, &mut self.events)
            }
            _ => Err(ProtocolError::invalid("request of the other variant")),
        }
    }

    /// What this receiver is to see from now on. Only the newest counts.
    pub fn set_view(&mut self, view: Arc<View>) {
        self.view = Some(view);
    }

    /// The next response to send, if there is one.
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

    /// What happened on the stream, oldest first.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Who is at the other end, once it said so.
    pub fn node(&self) -> Option<&NodeInfo> {
        self.node.as_ref()
    }

    /// Which variant the stream speaks.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// What the client wants of a type; `None` if it never asked.
    pub fn subscription(&self, type_url: &str) -> Option<&Subscription> {
        let state = self.types.iter().find(|state| *state.type_url == *type_url);
        state.map(|state| &state.subscription)
    }

    /// The types the client asked for.
    pub fn subscribed_types(&self) -> impl Iterator<Item = &Arc<str>> {
        self.types.iter().map(|state| &state.type_url)
    }

    /// Versions and answers, by type.
    pub fn status(&self) -> impl Iterator<Item = TypeStatus> + '_ {
        self.types.iter().map(TypeState::status)
    }

    /// Where the state of a type is, making one if this is its first request.
    fn type_index(&mut self, type_url: &Arc<str>) -> Result<usize, ProtocolError> {
        if let Some(index) = self.types.iter().position(|s| s.type_url == *type_url) {
            return Ok(index);
        }
        if type_url.is_empty() {
            return Err(ProtocolError::invalid("request without type_url"));
        }
        if type_url.len() > self.limits.name_length {
            return Err(ProtocolError::exhausted("type_url is too long"));
        }
        if self.types.len() >= self.limits.types {
            let message = format!("more than {} types on one stream", self.limits.types);
            return Err(ProtocolError::exhausted(message));
        }
        let rank = Rank::of(type_url);
        let index = self
            .types
            .partition_point(|s| Rank::of(&s.type_url) <= rank);
        self.types
            .insert(index, TypeState::new(Arc::clone(type_url)));
        Ok(index)
    }

    /// Whether what comes before this type is not far enough. Types before it have nothing to send,
    /// or they would have been asked and have sent.
    fn must_wait(&self, index: usize, view: &View) -> bool {
        let rank = Rank::of(&self.types[index].type_url);
        let mut before = self.types[..index].iter();
        match rank {
            Rank::Cluster | Rank::Other => false,
            Rank::Assignment => before.any(|state| state.has_newer(view)),
            Rank::Listener | Rank::Route => before.any(|state| {
                // Changes of what is there hold nothing up: assignments may change all the time.
                Rank::of(&state.type_url) < rank && state.has_news_under_way(view)
            }),
        }
    }

    fn next(&mut self, index: usize, resources: &Arc<TypeResources>, view: &View) -> Option<Draft> {
        let variant = self.variant;
        let next = |state: &mut TypeState, keep| match variant {
            Variant::Sotw => sotw::next(state, resources, keep),
            Variant::Delta => delta::next(state, resources, keep),
        };
        let mut found = next(&mut self.types[index], true);
        if matches!(found, Next::Kept) && self.may_remove(index, view) {
            found = next(&mut self.types[index], false);
        }
        let state = &mut self.types[index];
        state.keeps = matches!(found, Next::Kept);
        match found {
            Next::Nothing => {
                state.set_checked(resources);
                None
            }
            Next::Kept => None,
            Next::Send(draft) => Some(draft),
        }
    }

    /// Whether nothing the client uses can still refer to what this type is about to remove.
    fn may_remove(&self, index: usize, view: &View) -> bool {
        let rank = Rank::of(&self.types[index].type_url);
        self.types
            .iter()
            .all(|state| match (rank, Rank::of(&state.type_url)) {
                (Rank::Cluster, Rank::Listener | Rank::Route) => {
                    state.is_settled(self.variant, view)
                }
                (Rank::Assignment, Rank::Cluster) => !state.keeps && state.in_flight.is_none(),
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
            .for_each(TypeState::force_all);
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        let state = &mut self.types[index];
        let version = state.start(&draft, &nonce, source);
        match self.variant {
            Variant::Sotw => Response::Sotw(sotw::response(&state.type_url, draft, version, nonce)),
            Variant::Delta => {
                Response::Delta(delta::response(&state.type_url, draft, version, nonce))
            }
        }
    }
}

/// Place of a type in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Cluster,
    Assignment,
    Listener,
    Route,
    /// Nothing of the above waits for it, and it for nothing.
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
