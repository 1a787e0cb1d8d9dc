//! Interpreter of discovery conversations: bytes in, a server that does as it likes.
//!
//! The first byte chooses the variant, the others are watches, streams that begin and end, time,
//! and responses with resources that are good, bad, nameless, of another type, listed twice, not
//! asked for, or there and gone at once. After each step: what is held was good and is what the
//! events said, nothing is lost but what the server took away in so many words, and every response
//! is answered, with a refusal exactly when something was wrong with it. The other end is in
//! `ads_ops.rs`. Used by the tests of this crate and by the fuzz target `ads_client_ops`.

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
use plimsoll_xds::node::NodeInfo;

/// One whose lists are whole, and one whose are not.
const TYPES: [&str; 2] = [CLUSTER, CLUSTER_LOAD_ASSIGNMENT];
const NAMES: [&str; 4] = ["a", "b", "c", "*"];
/// Longer than any refusal is held back.
const LONG: Duration = Duration::from_secs(31);

/// What happened, so that tests can see that all of it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) updates: usize,
    pub(crate) removals: usize,
    pub(crate) refusals: usize,
    pub(crate) answers: usize,
}

#[derive(Default)]
struct Told {
    watched: BTreeSet<&'static str>,
    /// Good resources, as events told them.
    good: BTreeMap<Arc<str>, Bytes>,
    /// A request of this type went out on this stream.
    asked: bool,
    /// Nonce of the last response, and whether something was wrong with it.
    owed: Option<(String, bool)>,
}

struct World {
    client: Client,
    told: [Told; TYPES.len()],
    now: Instant,
    responses: u32,
    seen: Seen,
}

/// What is in a response.
#[derive(Default)]
struct Content {
    resources: Vec<(Option<&'static str>, Any)>,
    removed: Vec<Arc<str>>,
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
        client: Client::new(variant, node(), name_of, ClientSettings::default()),
        told: Default::default(),
        now: Instant::ORIGIN,
        responses: 0,
        seen: Seen::default(),
    };
    while let [op, argument, next @ ..] = rest {
        rest = next;
        world.step(*op, *argument);
        world.check();
    }
    world.settle();
    world.check();
    world.seen
}

impl World {
    fn step(&mut self, op: u8, argument: u8) {
        let kind = usize::from(op >> 4) % TYPES.len();
        let name = NAMES[usize::from(argument) % NAMES.len()];
        match op % 16 {
            0..=3 => self.watch(kind, name),
            4 => self.unwatch(kind, name),
            5 | 6 => {
                self.client.handle_connected();
                self.forget_stream();
            }
            7 => {
                self.client.handle_disconnected();
                self.forget_stream();
            }
            8 => self.wait(Duration::from_secs(argument.into())),
            9 => self.settle(),
            _ => self.respond(kind, argument),
        }
        self.hear(None);
    }

    fn watch(&mut self, kind: usize, name: &'static str) {
        self.told[kind].watched.insert(name);
        self.client.watch(&TYPES[kind].into(), &name.into());
    }

    fn unwatch(&mut self, kind: usize, name: &'static str) {
        let told = &mut self.told[kind];
        told.watched.remove(name);
        let watched = &told.watched;
        told.good.retain(|name, _| wants(watched, name));
        self.client.unwatch(TYPES[kind], name);
    }

    fn forget_stream(&mut self) {
        for told in &mut self.told {
            told.asked = false;
            told.owed = None;
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        self.client.handle_timeout(self.now);
        self.hear(None);
    }

    /// All that is to be said is said, and every response has its answer.
    fn settle(&mut self) {
        self.wait(LONG);
        while let Some(request) = self.client.poll_transmit(self.now) {
            self.heed(&request);
        }
        for told in &self.told {
            assert!(!told.asked || told.owed.is_none(), "{:?}", told.owed);
        }
    }

    fn heed(&mut self, request: &Request) {
        let kind = TYPES.iter().position(|url| **url == **request.type_url());
        let told = &mut self.told[kind.expect("a type that is watched")];
        told.asked = true;
        let (nonce, error) = match request {
            Request::Sotw(request) => (&request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.response_nonce, &request.error_detail),
        };
        assert!(error.as_ref().is_none_or(|error| !error.message.is_empty()));
        if let Some((_, bad)) = told.owed.take_if(|(owed, _)| owed == nonce) {
            assert_eq!(error.is_some(), bad, "{error:?}");
            self.seen.answers += 1;
        }
    }

    /// Two bits for each name: absent, good, and two ways of being bad.
    fn respond(&mut self, kind: usize, argument: u8) {
        self.responses += 1;
        let nonce = self.responses.to_string();
        let content = self.content(kind, argument);
        let bad = is_bad(kind, self.client.variant(), &content);
        let (type_url, variant) = (TYPES[kind].into(), self.client.variant());
        let before: BTreeSet<_> = self.told[kind].good.keys().cloned().collect();
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
        let heard = !self.told[kind].watched.is_empty();
        self.client.handle_response(response, check, self.now);
        self.hear(Some((kind, &may_go)));
        if self.client.is_connected() {
            // A newer response takes the place of an older one. That of a type which is watched no
            // more need not be answered.
            self.told[kind].owed = heard.then_some((nonce, bad));
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
        // Of those that are not there some are gone, and sometimes one that is.
        let gone = NAMES[usize::from(argument) % 3];
        if number.is_multiple_of(3) {
            content.removed.push(gone.into());
        }
        content
    }

    /// Takes events; only what `may_go` of a type may be taken away.
    fn hear(&mut self, may_go: Option<(usize, &BTreeSet<Arc<str>>)>) {
        while let Some(event) = self.client.poll_event() {
            let kind = |url: &Arc<str>| TYPES.iter().position(|known| *known == &**url);
            match event {
                ClientEvent::Updated { type_url, resource } => {
                    self.seen.updates += 1;
                    assert!(
                        check(&resource.name, &resource.body).is_ok(),
                        "bad, and used"
                    );
                    let told = &mut self.told[kind(&type_url).expect("a known type")];
                    assert!(wants(&told.watched, &resource.name), "not asked for");
                    told.good.insert(resource.name, resource.body);
                }
                ClientEvent::Removed { type_url, name } => {
                    self.seen.removals += 1;
                    let index = kind(&type_url).expect("a known type");
                    let allowed =
                        may_go.is_some_and(|(of, names)| of == index && names.contains(&name));
                    assert!(allowed, "{name} was lost");
                    self.told[index].good.remove(&name);
                }
                ClientEvent::DoesNotExist { type_url, name } => {
                    let told = &self.told[kind(&type_url).expect("a known type")];
                    assert!(!told.good.contains_key(&name), "{name} is there");
                }
                ClientEvent::Rejected { reason, .. } => {
                    self.seen.refusals += 1;
                    assert!(!reason.is_empty());
                }
                ClientEvent::Complete { .. } => {}
            }
        }
    }

    fn check(&self) {
        for (kind, told) in self.told.iter().enumerate() {
            let held = self.client.resources(TYPES[kind]);
            let held: BTreeMap<_, _> = held
                .map(|resource| (Arc::clone(&resource.name), resource.body.clone()))
                .collect();
            assert_eq!(held, told.good, "{}", TYPES[kind]);
        }
    }
}

fn wants(watched: &BTreeSet<&'static str>, name: &str) -> bool {
    watched.contains("*") || watched.contains(name)
}

/// Names that are there more than once, or there and gone.
fn ambiguous(variant: Variant, content: &Content) -> BTreeSet<Arc<str>> {
    let mut seen: BTreeSet<Arc<str>> = match variant {
        Variant::Sotw => BTreeSet::new(),
        Variant::Delta => content.removed.iter().cloned().collect(),
    };
    let names = content.resources.iter().filter_map(|(name, _)| *name);
    let names = names.map(Arc::<str>::from);
    names
        .filter(|name| !seen.insert(Arc::clone(name)))
        .collect()
}

fn is_bad(kind: usize, variant: Variant, content: &Content) -> bool {
    let bad = |(name, any): &(Option<&str>, Any)| match name {
        // The incremental variant cannot say it.
        None => variant == Variant::Sotw,
        Some(name) => *any.type_url != *TYPES[kind] || check(name, &any.value).is_err(),
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

fn check(_: &str, body: &Bytes) -> Result<(), String> {
    match body.ends_with(b"!") {
        true => Err("value: is bad".to_owned()),
        false => Ok(()),
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
