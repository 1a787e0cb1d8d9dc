//! Interpreter of byte strings as an ADS exchange with a client that may violate the protocol.
//!
//! The first byte chooses the variant, the others are views, requests, ACKs with old and new
//! nonces, and NACKs. After each step: at most one response per type is in flight, nothing is sent
//! that is not subscribed, no NACKed response is repeated unchanged. Finally everything is
//! accepted, and then the client has what the view contains and the server stops sending.
//! `ads_convergence.rs` tests the server with a correct client. Used by the tests of this crate and
//! by the fuzz target `ads_ops`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::message::{
    DeltaDiscoveryRequest, DiscoveryRequest, ErrorDetail, NodeMessage,
};
use plimsoll_xds::ads::server::{Limits, ServerStream};
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Request, Response, Variant,
};
use plimsoll_xds::node::NodeInfo;

const TYPES: [&str; 5] = [
    CLUSTER,
    CLUSTER_LOAD_ASSIGNMENT,
    LISTENER,
    ROUTE_CONFIGURATION,
    "type.googleapis.com/other.Type",
];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// More messages than a converged pair needs; beyond that they loop.
const MAX_MESSAGES: usize = 500;

/// Cases that were reached, so that tests can check coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) responses: usize,
    pub(crate) acks: usize,
    pub(crate) nacks: usize,
    pub(crate) stale: usize,
    /// The stream ended because the client violated the protocol.
    pub(crate) ended: bool,
}

/// Names and bodies, and removed names.
type Content = (BTreeMap<String, Bytes>, BTreeSet<String>);

/// Response without ACK or NACK.
struct InFlight {
    nonce: String,
    content: Content,
    /// The client sent a subscription since, which must be answered whatever it answers to this
    /// response.
    asked_since: bool,
}

/// Model of the client's state of a type.
#[derive(Default)]
struct TypeModel {
    in_flight: Option<InFlight>,
    old_nonces: Vec<String>,
    /// Accepted resources by name.
    has: BTreeMap<String, Bytes>,
    /// NACKed since the view or the subscription of this type changed.
    refused: Vec<Content>,
    /// Content of the view.
    view: BTreeMap<String, Bytes>,
}

struct World {
    variant: Variant,
    server: ServerStream,
    model: [TypeModel; TYPES.len()],
    published: bool,
    contents: u64,
    coverage: Coverage,
}

/// Runs the exchange described by `bytes`; panics if an invariant is violated.
pub(crate) fn run(bytes: &[u8]) -> Coverage {
    let Some((&first, mut rest)) = bytes.split_first() else {
        return Coverage::default();
    };
    let variant = match first % 2 {
        0 => Variant::Sotw,
        _ => Variant::Delta,
    };
    let mut world = World {
        variant,
        server: ServerStream::new(
            variant,
            Limits {
                types: 4,
                ..Limits::default()
            },
        ),
        model: Default::default(),
        published: false,
        contents: 0,
        coverage: Coverage::default(),
    };
    while let [op, argument, next @ ..] = rest {
        rest = next;
        if !world.step(*op, *argument) {
            world.coverage.ended = true;
            return world.coverage;
        }
    }
    world.accept_all();
    world.coverage
}

impl World {
    /// Returns whether the stream continues.
    fn step(&mut self, op: u8, argument: u8) -> bool {
        let kind = usize::from(op >> 4) % TYPES.len();
        match op % 16 {
            0 => self.publish(argument, false),
            1 => self.publish(argument, true),
            2..=4 => return self.ask(kind, argument, String::new()),
            5..=8 => return self.answer(kind, None, argument),
            9 | 10 => return self.answer(kind, Some(error()), argument),
            11 => {
                let nonces = &self.model[kind].old_nonces;
                let old = nonces.get(usize::from(argument) % nonces.len().max(1));
                let nonce = old.cloned().unwrap_or_else(|| "unknown nonce".to_owned());
                self.coverage.stale += 1;
                return self.ask(kind, argument, nonce);
            }
            12 => return self.send(Request::Sotw(DiscoveryRequest::default())),
            _ => {
                self.receive();
            }
        }
        true
    }

    /// Publishes a view in which each name of each type is absent, unchanged or new; with `again`
    /// nothing is new but everything is resent.
    fn publish(&mut self, argument: u8, again: bool) {
        let mut view = View::new(0);
        self.contents += 1;
        for (kind, type_url) in TYPES.iter().enumerate() {
            let model = &mut self.model[kind];
            if !again {
                let before = model.view.clone();
                for (index, name) in NAMES.iter().enumerate() {
                    match (usize::from(argument) >> ((index + kind) % 4 * 2)) % 4 {
                        0 => {
                            model.view.remove(*name);
                        }
                        1 => {}
                        _ => {
                            let body = format!("{name}={}", self.contents);
                            model.view.insert((*name).to_owned(), body.into());
                        }
                    }
                }
                if model.view != before {
                    model.refused.clear();
                }
            }
            let epoch = if again { self.contents } else { 0 };
            let resources = model
                .view
                .iter()
                .map(|(name, body)| Resource::new(name.as_str(), body.clone()).with_epoch(epoch));
            view = view.with(*type_url, Arc::new(TypeResources::new(resources)));
        }
        self.published = true;
        self.server.set_view(Arc::new(view));
    }

    /// Sends a request that changes the subscription: three bits for names, one for the wildcard.
    fn ask(&mut self, kind: usize, argument: u8, response_nonce: String) -> bool {
        let listed = |bits: u8| {
            let names = NAMES
                .iter()
                .chain(&["*"])
                .enumerate()
                .filter(|(index, _)| bits >> index & 1 == 1);
            names.map(|(_, name)| Arc::from(*name)).collect()
        };
        let node = (self.server.node().is_none() && argument != u8::MAX).then(node);
        let type_url = TYPES[kind].into();
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                node,
                type_url,
                response_nonce,
                resource_names: listed(argument),
                ..Default::default()
            }),
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                node,
                type_url,
                response_nonce,
                resource_names_subscribe: listed(argument),
                resource_names_unsubscribe: listed(argument >> 4),
                ..Default::default()
            }),
        };
        let model = &mut self.model[kind];
        model.refused.clear();
        if let Some(in_flight) = &mut model.in_flight {
            in_flight.asked_since = true;
        }
        self.send(request)
    }

    /// Answers the response in flight without changing the subscription.
    fn answer(&mut self, kind: usize, error: Option<ErrorDetail>, _: u8) -> bool {
        let Some(in_flight) = self.model[kind].in_flight.take() else {
            return true;
        };
        let InFlight { nonce, content, .. } = in_flight;
        let model = &mut self.model[kind];
        match error {
            Some(_) => {
                self.coverage.nacks += 1;
                // Removals of an incremental response count even if it is NACKed.
                model.has.retain(|name, _| !content.1.contains(name));
                if !in_flight.asked_since {
                    model.refused.push(content);
                }
            }
            None => {
                self.coverage.acks += 1;
                if is_full_state(self.variant, kind) {
                    model.has.clear();
                }
                model.has.retain(|name, _| !content.1.contains(name));
                model.has.extend(content.0);
            }
        }
        model.old_nonces.push(nonce.clone());
        let subscription = self.server.subscription(TYPES[kind]);
        let names = subscription.map(|subscription| {
            let all = subscription.is_wildcard().then(|| Arc::from("*"));
            subscription.names().iter().cloned().chain(all).collect()
        });
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                type_url: TYPES[kind].into(),
                response_nonce: nonce,
                resource_names: names.unwrap_or_default(),
                error_detail: error,
                ..Default::default()
            }),
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                type_url: TYPES[kind].into(),
                response_nonce: nonce,
                error_detail: error,
                ..Default::default()
            }),
        };
        self.send(request)
    }

    fn send(&mut self, request: Request) -> bool {
        let result = self.server.handle_request(request, Instant::ORIGIN);
        while self.server.poll_event().is_some() {}
        if let Err(error) = &result {
            assert!(!error.message.is_empty());
        }
        for (kind, model) in self.model.iter_mut().enumerate() {
            let subscription = self.server.subscription(TYPES[kind]);
            model.has.retain(|name, _| {
                subscription.is_some_and(|subscription| subscription.covers(name))
            });
        }
        result.is_ok()
    }

    /// Receives a response, if there is one.
    fn receive(&mut self) -> bool {
        let Some(response) = self.server.poll_transmit() else {
            return false;
        };
        assert!(self.published, "nothing is known yet");
        self.coverage.responses += 1;
        let kind = TYPES
            .iter()
            .position(|kind| **kind == **response.type_url())
            .expect("a requested type");
        let (nonce, content) = read(response);
        let subscription = self.server.subscription(TYPES[kind]).expect("subscribed");
        for name in content.0.keys() {
            assert!(subscription.covers(name), "{name} is not subscribed");
        }
        let model = &mut self.model[kind];
        assert!(model.in_flight.is_none(), "two responses in flight");
        assert!(!model.old_nonces.contains(&nonce), "a nonce is used once");
        let empty = content.0.is_empty() && content.1.is_empty();
        assert!(
            empty || !model.refused.contains(&content),
            "NACKed response repeated: {content:?}"
        );
        model.in_flight = Some(InFlight {
            nonce,
            content,
            asked_since: false,
        });
        true
    }

    /// Accepts everything from now on.
    fn accept_all(&mut self) {
        // A NACKed resource may be the last version: publish new ones.
        self.publish(0b1010_1010, false);
        for _ in 0..MAX_MESSAGES {
            let mut moved = self.receive();
            for kind in 0..TYPES.len() {
                if self.model[kind].in_flight.is_some() {
                    assert!(self.answer(kind, None, 0), "a polite answer ends no stream");
                    moved = true;
                }
            }
            if !moved {
                return self.check();
            }
        }
        unreachable!("they never fall silent");
    }

    fn check(&self) {
        for (kind, model) in self.model.iter().enumerate() {
            let Some(subscription) = self.server.subscription(TYPES[kind]) else {
                continue;
            };
            for (name, body) in &model.view {
                if subscription.covers(name) {
                    assert_eq!(model.has.get(name), Some(body), "{} {name}", TYPES[kind]);
                }
            }
        }
    }
}

/// Returns whether a response carries the full state.
fn is_full_state(variant: Variant, kind: usize) -> bool {
    variant == Variant::Sotw && [CLUSTER, LISTENER].contains(&TYPES[kind])
}

fn read(response: Response) -> (String, Content) {
    let nonce = response.nonce().to_owned();
    let content = match response {
        Response::Sotw(response) => {
            let named = response.resources.into_iter().map(|any| {
                let text = String::from_utf8_lossy(&any.value).into_owned();
                let name = text.split('=').next().unwrap_or_default().to_owned();
                (name, any.value)
            });
            (named.collect(), BTreeSet::new())
        }
        Response::Delta(response) => {
            let named = response.resources.into_iter().map(|resource| {
                let any = resource.resource.expect("we send whole resources");
                (resource.name.to_string(), any.value)
            });
            let removed = response.removed_resources.iter();
            (named.collect(), removed.map(ToString::to_string).collect())
        }
    };
    (nonce, content)
}

fn error() -> ErrorDetail {
    ErrorDetail {
        code: 3,
        message: "no".to_owned(),
    }
}

fn node() -> NodeMessage {
    NodeMessage {
        info: NodeInfo {
            node: Node {
                id: "n".into(),
                cluster: "fleet".into(),
                locality: Locality::default(),
            },
            user_agent_name: "envoy".to_owned(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        },
        raw: Bytes::new(),
    }
}
