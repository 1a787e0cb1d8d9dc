//! Interpreter of discovery conversations: bytes in, a client that does as it likes.
//!
//! The first byte chooses the variant, the others are views, requests, answers with old and new
//! nonces, refusals. After each step: one response per type under way at most, nothing sent that
//! was not asked for, no refused response again unchanged. In the end everything is accepted, and
//! then the client has what the view says and there is silence. Our own client, which is polite,
//! talks to the server in `ads_convergence.rs`. Used by the tests of this crate and by the fuzz
//! target `ads_ops`.

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
/// More messages than any settled pair needs: past that, they talk in circles.
const PATIENCE: usize = 500;

/// What happened, so that tests can see that all of it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) responses: usize,
    pub(crate) acks: usize,
    pub(crate) nacks: usize,
    pub(crate) stale: usize,
    /// The stream ended because the client broke a rule.
    pub(crate) ended: bool,
}

/// Names and bodies, and names that are gone.
type Content = (BTreeMap<String, Bytes>, BTreeSet<String>);

/// A response without answer.
struct InFlight {
    nonce: String,
    content: Content,
    /// The client asked since for something, perhaps for the same: that is to be answered, whatever
    /// it says about this one.
    asked_since: bool,
}

/// What the client knows of a type.
#[derive(Default)]
struct Told {
    in_flight: Option<InFlight>,
    old_nonces: Vec<String>,
    /// Accepted, by name.
    has: BTreeMap<String, Bytes>,
    /// Refused since the view or the wishes of this type changed.
    refused: Vec<Content>,
    /// Content of the view.
    view: BTreeMap<String, Bytes>,
}

struct World {
    variant: Variant,
    server: ServerStream,
    told: [Told; TYPES.len()],
    published: bool,
    contents: u64,
    seen: Seen,
}

/// Runs the conversation that `bytes` describe, and panics when something does not hold.
pub(crate) fn run(bytes: &[u8]) -> Seen {
    let Some((&first, mut rest)) = bytes.split_first() else {
        return Seen::default();
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
        told: Default::default(),
        published: false,
        contents: 0,
        seen: Seen::default(),
    };
    while let [op, argument, next @ ..] = rest {
        rest = next;
        if !world.step(*op, *argument) {
            world.seen.ended = true;
            return world.seen;
        }
    }
    world.settle();
    world.seen
}

impl World {
    /// Returns whether the stream goes on.
    fn step(&mut self, op: u8, argument: u8) -> bool {
        let kind = usize::from(op >> 4) % TYPES.len();
        match op % 16 {
            0 => self.publish(argument, false),
            1 => self.publish(argument, true),
            2..=4 => return self.ask(kind, argument, String::new()),
            5..=8 => return self.answer(kind, None, argument),
            9 | 10 => return self.answer(kind, Some(error()), argument),
            11 => {
                let nonces = &self.told[kind].old_nonces;
                let old = nonces.get(usize::from(argument) % nonces.len().max(1));
                let nonce = old.cloned().unwrap_or_else(|| "no such nonce".to_owned());
                self.seen.stale += 1;
                return self.ask(kind, argument, nonce);
            }
            12 => return self.send(Request::Sotw(DiscoveryRequest::default())),
            _ => {
                self.receive();
            }
        }
        true
    }

    /// A view in which each name of each type is absent, unchanged or new; with `again` nothing is
    /// new but all of it is to be sent again.
    fn publish(&mut self, argument: u8, again: bool) {
        let mut view = View::new(0);
        self.contents += 1;
        for (kind, type_url) in TYPES.iter().enumerate() {
            let told = &mut self.told[kind];
            if !again {
                let before = told.view.clone();
                for (index, name) in NAMES.iter().enumerate() {
                    match (usize::from(argument) >> ((index + kind) % 4 * 2)) % 4 {
                        0 => {
                            told.view.remove(*name);
                        }
                        1 => {}
                        _ => {
                            let body = format!("{name}={}", self.contents);
                            told.view.insert((*name).to_owned(), body.into());
                        }
                    }
                }
                if told.view != before {
                    told.refused.clear();
                }
            }
            let epoch = if again { self.contents } else { 0 };
            let resources = told
                .view
                .iter()
                .map(|(name, body)| Resource::new(name.as_str(), body.clone()).with_epoch(epoch));
            view = view.with(*type_url, Arc::new(TypeResources::new(resources)));
        }
        self.published = true;
        self.server.set_view(Arc::new(view));
    }

    /// A request that changes what is wanted: three bits for names, one for all.
    fn ask(&mut self, kind: usize, argument: u8, response_nonce: String) -> bool {
        let listed = |bits: u8| {
            let names = NAMES.iter().chain(&["*"]).enumerate();
            let names = names.filter(|(index, _)| bits >> index & 1 == 1);
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
        let told = &mut self.told[kind];
        told.refused.clear();
        if let Some(in_flight) = &mut told.in_flight {
            in_flight.asked_since = true;
        }
        self.send(request)
    }

    /// An answer to what is under way, which changes nothing that is wanted.
    fn answer(&mut self, kind: usize, error: Option<ErrorDetail>, _: u8) -> bool {
        let Some(in_flight) = self.told[kind].in_flight.take() else {
            return true;
        };
        let InFlight { nonce, content, .. } = in_flight;
        let told = &mut self.told[kind];
        match error {
            Some(_) => {
                self.seen.nacks += 1;
                // Of an incremental response the removals count whatever is said.
                told.has.retain(|name, _| !content.1.contains(name));
                if !in_flight.asked_since {
                    told.refused.push(content);
                }
            }
            None => {
                self.seen.acks += 1;
                if is_whole(self.variant, kind) {
                    told.has.clear();
                }
                told.has.retain(|name, _| !content.1.contains(name));
                told.has.extend(content.0);
            }
        }
        told.old_nonces.push(nonce.clone());
        let subscription = self.server.subscription(TYPES[kind]);
        let wanted = subscription.map(|wanted| {
            let all = wanted.is_wildcard().then(|| Arc::from("*"));
            wanted.names().iter().cloned().chain(all).collect()
        });
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                type_url: TYPES[kind].into(),
                response_nonce: nonce,
                resource_names: wanted.unwrap_or_default(),
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
        for (kind, told) in self.told.iter_mut().enumerate() {
            let wanted = self.server.subscription(TYPES[kind]);
            told.has
                .retain(|name, _| wanted.is_some_and(|wanted| wanted.covers(name)));
        }
        result.is_ok()
    }

    /// Takes a response, if there is one.
    fn receive(&mut self) -> bool {
        let Some(response) = self.server.poll_transmit() else {
            return false;
        };
        assert!(self.published, "nothing is known yet");
        self.seen.responses += 1;
        let kind = TYPES
            .iter()
            .position(|kind| **kind == **response.type_url());
        let kind = kind.expect("a type that was asked for");
        let (nonce, content) = read(response);
        let wanted = self.server.subscription(TYPES[kind]).expect("asked for");
        for name in content.0.keys() {
            assert!(wanted.covers(name), "{name} was not asked for");
        }
        let told = &mut self.told[kind];
        assert!(told.in_flight.is_none(), "two responses under way");
        assert!(!told.old_nonces.contains(&nonce), "a nonce is used once");
        let empty = content.0.is_empty() && content.1.is_empty();
        assert!(
            empty || !told.refused.contains(&content),
            "refused, and again: {content:?}"
        );
        told.in_flight = Some(InFlight {
            nonce,
            content,
            asked_since: false,
        });
        true
    }

    /// From now on the client takes everything.
    fn settle(&mut self) {
        // What was refused may have been the last word: let everything be new.
        self.publish(0b1010_1010, false);
        for _ in 0..PATIENCE {
            let mut moved = self.receive();
            for kind in 0..TYPES.len() {
                if self.told[kind].in_flight.is_some() {
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
        for (kind, told) in self.told.iter().enumerate() {
            let Some(wanted) = self.server.subscription(TYPES[kind]) else {
                continue;
            };
            for (name, body) in &told.view {
                if wanted.covers(name) {
                    assert_eq!(told.has.get(name), Some(body), "{} {name}", TYPES[kind]);
                }
            }
        }
    }
}

/// Whether a response lists all that there is.
fn is_whole(variant: Variant, kind: usize) -> bool {
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
