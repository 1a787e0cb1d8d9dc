//! Interpreter of byte strings as an ADS exchange with a server that may violate the protocol.
//!
//! The first byte chooses the variant, the others are subscriptions, stream starts and ends, time,
//! and responses with resources that are valid, invalid, unnamed, of another type, duplicate, not
//! subscribed, or both present and removed. After each step: cached resources are valid and match
//! the events, resources are lost only by explicit removal, and every response is answered, with a
//! NACK if and only if it was invalid. `ads_ops.rs` tests the server. Used by the tests of this
//! crate and by the fuzz target `ads_client_ops`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::{
    Any, DeltaDiscoveryResponse, DeltaResource, DiscoveryResponse, NodeMessage,
};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Request, Response, Variant};
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::node::NodeInfo;

/// One type with full-state responses (CDS), one without (EDS).
const TYPES: [&str; 2] = [CLUSTER, CLUSTER_LOAD_ASSIGNMENT];
const NAMES: [&str; 4] = ["a", "b", "c", "*"];
/// Longer than the maximum NACK delay.
const LONGER_THAN_BACKOFF: Duration = Duration::from_secs(31);

/// Cases that were reached, so that tests can check coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) updates: usize,
    pub(crate) removals: usize,
    pub(crate) nacks: usize,
    pub(crate) answers: usize,
}

#[derive(Default)]
struct TypeModel {
    subscribed: BTreeSet<&'static str>,
    /// Valid resources, according to events.
    good: BTreeMap<Arc<str>, Bytes>,
    /// A request of this type was sent on this stream.
    asked: bool,
    /// Nonce of the last response, and whether it was invalid.
    owed: Option<(String, bool)>,
}

struct World {
    client: Client,
    model: [TypeModel; TYPES.len()],
    now: Instant,
    responses: u32,
    coverage: Coverage,
}

/// Content of a response.
#[derive(Default)]
struct Content {
    resources: Vec<(Option<&'static str>, Any)>,
    removed: Vec<Arc<str>>,
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
        client: Client::new(variant, node(), name_of, ClientSettings::default()),
        model: Default::default(),
        now: Instant::ORIGIN,
        responses: 0,
        coverage: Coverage::default(),
    };
    while let [op, argument, next @ ..] = rest {
        rest = next;
        world.step(*op, *argument);
        world.check();
    }
    world.send_pending();
    world.check();
    world.coverage
}

impl World {
    fn step(&mut self, op: u8, argument: u8) {
        let kind = usize::from(op >> 4) % TYPES.len();
        let name = NAMES[usize::from(argument) % NAMES.len()];
        match op % 16 {
            0..=3 => self.subscribe(kind, name),
            4 => self.unsubscribe(kind, name),
            5 | 6 => {
                self.client.handle_connected();
                self.forget_stream();
            }
            7 => {
                self.client.handle_disconnected();
                self.forget_stream();
            }
            8 => self.advance(Duration::from_secs(argument.into())),
            9 => self.send_pending(),
            _ => self.respond(kind, argument),
        }
        self.apply_events(None);
    }

    fn subscribe(&mut self, kind: usize, name: &'static str) {
        self.model[kind].subscribed.insert(name);
        self.client.subscribe(&TYPES[kind].into(), &name.into());
    }

    fn unsubscribe(&mut self, kind: usize, name: &'static str) {
        let model = &mut self.model[kind];
        model.subscribed.remove(name);
        let subscribed = &model.subscribed;
        model.good.retain(|name, _| is_subscribed(subscribed, name));
        self.client.unsubscribe(TYPES[kind], name);
    }

    fn forget_stream(&mut self) {
        for model in &mut self.model {
            model.asked = false;
            model.owed = None;
        }
    }

    fn advance(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        self.client.handle_timeout(self.now);
        self.apply_events(None);
    }

    /// Sends all pending requests and asserts that every response is answered.
    fn send_pending(&mut self) {
        self.advance(LONGER_THAN_BACKOFF);
        while let Some(request) = self.client.poll_transmit(self.now) {
            self.handle_request(&request);
        }
        for model in &self.model {
            assert!(!model.asked || model.owed.is_none(), "{:?}", model.owed);
        }
    }

    fn handle_request(&mut self, request: &Request) {
        let kind = TYPES.iter().position(|url| **url == **request.type_url());
        let model = &mut self.model[kind.expect("a type that is subscribed")];
        model.asked = true;
        let (nonce, error) = match request {
            Request::Sotw(request) => (&request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.response_nonce, &request.error_detail),
        };
        assert!(error.as_ref().is_none_or(|error| !error.message.is_empty()));
        if let Some((_, bad)) = model.owed.take_if(|(owed, _)| owed == nonce) {
            assert_eq!(error.is_some(), bad, "{error:?}");
            self.coverage.answers += 1;
        }
    }

    /// Two bits for each name: absent, valid, and two ways of being invalid.
    fn respond(&mut self, kind: usize, argument: u8) {
        self.responses += 1;
        let nonce = self.responses.to_string();
        let content = self.content(kind, argument);
        let bad = is_bad(kind, self.client.variant(), &content);
        let (type_url, variant) = (TYPES[kind].into(), self.client.variant());
        let before: BTreeSet<_> = self.model[kind].good.keys().cloned().collect();
        let may_go = may_go(kind, variant, &content, &before);
        let response = match variant {
            Variant::Sotw => Response::Sotw(DiscoveryResponse {
                type_url,
                version_info: nonce.clone(),
                nonce: nonce.clone(),
                resources: content.resources.into_iter().map(|(_, any)| any).collect(),
            }),
            Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
                type_url,
                system_version_info: String::new(),
                nonce: nonce.clone(),
                resources: content.resources.into_iter().filter_map(named).collect(),
                removed_resources: content.removed,
            }),
        };
        let heard = !self.model[kind].subscribed.is_empty();
        self.client.handle_response(response, decode, self.now);
        self.apply_events(Some((kind, &may_go)));
        if self.client.is_connected() {
            // A newer response replaces an older one. Without a subscription to the type it need
            // not be answered.
            self.model[kind].owed = heard.then_some((nonce, bad));
        }
    }

    fn content(&self, kind: usize, argument: u8) -> Content {
        let mut content = Content::default();
        let number = self.responses;
        for (index, name) in NAMES.into_iter().take(3).enumerate() {
            let body = match argument >> (2 * index) & 3 {
                0 => continue,
                1 | 2 => format!("{name}={number}"),
                _ => format!("{name}=!"),
            };
            content.resources.push((Some(name), any(kind, &body)));
        }
        match (argument >> 6, content.resources.first().cloned()) {
            (1, Some(first)) => content.resources.push(first),
            (2, _) => content.resources.push((None, any(kind, "nameless"))),
            (3, _) => {
                let other = any(1 - kind, &format!("b={number}"));
                content.resources.push((Some("b"), other));
            }
            _ => {}
        }
        // Some absent names are listed as removed, and sometimes a present one.
        let gone = NAMES[usize::from(argument) % 3];
        if number.is_multiple_of(3) {
            content.removed.push(gone.into());
        }
        content
    }

    /// Applies events; only names in `may_go` may be removed.
    fn apply_events(&mut self, may_go: Option<(usize, &BTreeSet<Arc<str>>)>) {
        while let Some(event) = self.client.poll_event() {
            let kind = |url: &Arc<str>| TYPES.iter().position(|known| *known == &**url);
            match event {
                ClientEvent::Updated { type_url, resource } => {
                    self.coverage.updates += 1;
                    assert!(
                        decode(&resource.name, &resource.body).is_ok(),
                        "bad, and used"
                    );
                    let model = &mut self.model[kind(&type_url).expect("a known type")];
                    assert!(
                        is_subscribed(&model.subscribed, &resource.name),
                        "not subscribed"
                    );
                    model.good.insert(resource.name, resource.body);
                }
                ClientEvent::Removed { type_url, name } => {
                    self.coverage.removals += 1;
                    let index = kind(&type_url).expect("a known type");
                    let allowed =
                        may_go.is_some_and(|(of, names)| of == index && names.contains(&name));
                    assert!(allowed, "{name} was lost");
                    self.model[index].good.remove(&name);
                }
                ClientEvent::DoesNotExist { type_url, name, .. } => {
                    let model = &self.model[kind(&type_url).expect("a known type")];
                    assert!(!model.good.contains_key(&name), "{name} is there");
                }
                ClientEvent::Rejected { reason, .. } => {
                    self.coverage.nacks += 1;
                    assert!(!reason.is_empty());
                }
                ClientEvent::Complete { .. } => {}
            }
        }
    }

    fn check(&self) {
        for (kind, model) in self.model.iter().enumerate() {
            let held: BTreeMap<_, _> = self
                .client
                .resources(TYPES[kind])
                .map(|resource| (Arc::clone(&resource.name), resource.body.clone()))
                .collect();
            assert_eq!(held, model.good, "{}", TYPES[kind]);
        }
    }
}

fn is_subscribed(subscribed: &BTreeSet<&'static str>, name: &str) -> bool {
    subscribed.contains("*") || subscribed.contains(name)
}

/// Names that are listed more than once, or both present and removed.
fn ambiguous(variant: Variant, content: &Content) -> BTreeSet<Arc<str>> {
    let mut coverage: BTreeSet<Arc<str>> = match variant {
        Variant::Sotw => BTreeSet::new(),
        Variant::Delta => content.removed.iter().cloned().collect(),
    };
    let names = content
        .resources
        .iter()
        .filter_map(|(name, _)| *name)
        .map(Arc::<str>::from);
    names
        .filter(|name| !coverage.insert(Arc::clone(name)))
        .collect()
}

fn is_bad(kind: usize, variant: Variant, content: &Content) -> bool {
    let bad = |(name, any): &(Option<&str>, Any)| match name {
        // The incremental variant cannot express it.
        None => variant == Variant::Sotw,
        Some(name) => *any.type_url != *TYPES[kind] || decode(name, &any.value).is_err(),
    };
    content.resources.iter().any(bad) || !ambiguous(variant, content).is_empty()
}

fn may_go(
    kind: usize,
    variant: Variant,
    content: &Content,
    before: &BTreeSet<Arc<str>>,
) -> BTreeSet<Arc<str>> {
    if variant == Variant::Delta {
        let ambiguous = ambiguous(variant, content);
        let removed = content.removed.iter().cloned();
        return removed.filter(|name| !ambiguous.contains(name)).collect();
    }
    let nameless = content.resources.iter().any(|(name, _)| name.is_none());
    if TYPES[kind] != CLUSTER || nameless {
        return BTreeSet::new();
    }
    let listed = |name: &str| {
        content
            .resources
            .iter()
            .any(|(known, _)| *known == Some(name))
    };
    before
        .iter()
        .filter(|name| !listed(name))
        .cloned()
        .collect()
}

fn named((name, any): (Option<&'static str>, Any)) -> Option<DeltaResource> {
    Some(DeltaResource {
        name: name?.into(),
        version: String::from_utf8_lossy(&any.value).into_owned(),
        resource: Some(any),
    })
}

fn any(kind: usize, body: &str) -> Any {
    Any {
        type_url: TYPES[kind].into(),
        value: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn name_of(_: &str, body: &[u8]) -> Option<String> {
    let (name, _) = std::str::from_utf8(body).ok()?.split_once('=')?;
    Some(name.to_owned())
}

fn decode(_: &str, body: &Bytes) -> Result<Bytes, DecodeError> {
    if body.ends_with(b"!") {
        Err(DecodeError::new("value", "is bad"))
    } else {
        Ok(body.clone())
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
            user_agent_name: "plimsoll".to_owned(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        },
        raw: Bytes::new(),
    }
}
