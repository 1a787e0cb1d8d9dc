//! ADS client and server together, in any order of views, subscriptions, messages and lost streams:
//! in the end the client has what the view contains, and both stop sending.
//!
//! Messages travel in two queues that are drained at random, so they cross as on a real stream.
//! Single rules are tested in `ads_conversation.rs`.

use crate::ads_conversation::node::node;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::ads::server::{Limits, ServerStream};
use plimsoll_xds::ads::view::{Resource, TypeResources, View};
use plimsoll_xds::ads::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Request, Response, Variant,
};
use plimsoll_xds::error::DecodeError;
use proptest::prelude::*;

const TYPES: [&str; 4] = [
    CLUSTER,
    CLUSTER_LOAD_ASSIGNMENT,
    LISTENER,
    ROUTE_CONFIGURATION,
];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// More messages than a converged pair needs; beyond that they loop.
const MAX_MESSAGES: usize = 2000;

/// Content of a type: for each name nothing or a number. The client rejects content 3.
type Contents = [Option<u8>; NAMES.len()];
const BAD: u8 = 3;

#[derive(Clone, Debug)]
enum Op {
    View([Contents; TYPES.len()]),
    Heartbeat,
    /// Type, name; the index past the last is `*`.
    Watch(usize, usize),
    Unwatch(usize, usize),
    ClientSends,
    ServerSends,
    ServerReceives,
    ClientReceives,
    Reconnect,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let content = prop_oneof![2 => Just(None), 6 => (0..BAD).prop_map(Some), 1 => Just(Some(BAD))];
    let contents = proptest::array::uniform3(content);
    let watch = (0..TYPES.len(), 0..=NAMES.len());
    let op = prop_oneof![
        3 => proptest::array::uniform4(contents).prop_map(Op::View),
        1 => Just(Op::Heartbeat),
        4 => watch.clone().prop_map(|(kind, name)| Op::Watch(kind, name)),
        2 => watch.prop_map(|(kind, name)| Op::Unwatch(kind, name)),
        6 => Just(Op::ClientSends),
        6 => Just(Op::ServerSends),
        6 => Just(Op::ServerReceives),
        6 => Just(Op::ClientReceives),
        1 => Just(Op::Reconnect),
    ];
    proptest::collection::vec(op, 1..80)
}

struct World {
    variant: Variant,
    client: Client,
    server: ServerStream,
    up: VecDeque<Request>,
    down: VecDeque<Response>,
    contents: [Contents; TYPES.len()],
    epoch: u64,
    watched: BTreeSet<(usize, usize)>,
    /// Full states that each version stood for.
    versions: BTreeMap<(Arc<str>, String), Vec<Bytes>>,
    now: Instant,
}

impl World {
    fn new(variant: Variant) -> Self {
        let settings = ClientSettings::default();
        let mut client = Client::new(variant, node(), name_of, settings);
        client.handle_connected();
        let mut world = Self {
            variant,
            client,
            server: ServerStream::new(variant, Limits::default()),
            up: VecDeque::new(),
            down: VecDeque::new(),
            contents: Default::default(),
            epoch: 0,
            watched: BTreeSet::new(),
            versions: BTreeMap::new(),
            now: Instant::ORIGIN,
        };
        world.publish();
        world
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::View(contents) => {
                self.contents = contents;
                self.publish();
            }
            Op::Heartbeat => {
                self.epoch += 1;
                self.publish();
            }
            Op::Watch(kind, name) => {
                self.client
                    .subscribe(&TYPES[kind].into(), &name_at(name).into());
                self.watched.insert((kind, name));
            }
            Op::Unwatch(kind, name) => {
                self.client.unsubscribe(TYPES[kind], name_at(name));
                self.watched.remove(&(kind, name));
            }
            Op::ClientSends => {
                self.client_sends();
            }
            Op::ServerSends => {
                self.server_sends();
            }
            Op::ServerReceives => {
                self.server_receives();
            }
            Op::ClientReceives => {
                self.client_receives();
            }
            Op::Reconnect => {
                self.up.clear();
                self.down.clear();
                self.client.handle_disconnected();
                self.client.handle_connected();
                self.server = ServerStream::new(self.variant, Limits::default());
                self.publish();
            }
        }
    }

    fn publish(&mut self) {
        let mut view = View::new(0);
        for (type_url, contents) in TYPES.iter().zip(&self.contents) {
            let resources = NAMES.iter().zip(contents).filter_map(|(name, content)| {
                let body = Bytes::from(format!("{name}={}", (*content)?));
                Some(Resource::new(*name, body).with_epoch(self.epoch))
            });
            view = view.with(*type_url, Arc::new(TypeResources::new(resources)));
        }
        self.server.set_view(Arc::new(view));
    }

    fn client_sends(&mut self) -> bool {
        let request = self.client.poll_transmit(self.now);
        self.up.extend(request.clone());
        request.is_some()
    }

    fn server_sends(&mut self) -> bool {
        let response = self.server.poll_transmit();
        if let Some(Response::Sotw(response)) = &response
            && [CLUSTER, LISTENER].contains(&&*response.type_url)
        {
            let key = (
                Arc::clone(&response.type_url),
                response.version_info.clone(),
            );
            let bodies: Vec<_> = response
                .resources
                .iter()
                .map(|any| any.value.clone())
                .collect();
            let before = self.versions.entry(key).or_insert_with(|| bodies.clone());
            assert_eq!(*before, bodies, "one version, two contents");
        }
        self.down.extend(response.clone());
        response.is_some()
    }

    fn server_receives(&mut self) -> bool {
        let Some(request) = self.up.pop_front() else {
            return false;
        };
        self.server
            .handle_request(request, self.now)
            .expect("our client is polite");
        while self.server.poll_event().is_some() {}
        true
    }

    fn client_receives(&mut self) -> bool {
        let Some(response) = self.down.pop_front() else {
            return false;
        };
        self.client.handle_response(response, decode, self.now);
        while self.client.poll_event().is_some() {}
        true
    }

    /// Delivers everything in flight, and sends delayed NACKs.
    fn deliver_all(&mut self) {
        for _ in 0..MAX_MESSAGES {
            let moved = self.client_sends()
                | self.server_receives()
                | self.server_sends()
                | self.client_receives();
            if !moved {
                let Some(at) = self.client.poll_timeout() else {
                    return;
                };
                self.now = at.max(self.now);
                self.client.handle_timeout(self.now);
                while self.client.poll_event().is_some() {}
            }
        }
        unreachable!("they never fall silent");
    }

    fn is_subscribed(&self, kind: usize, name: usize) -> bool {
        self.watched.contains(&(kind, name)) || self.watched.contains(&(kind, NAMES.len()))
    }

    /// Asserts that the client has what the view contains, as far as the variant can express it.
    fn check(&self) {
        let has_bad = |kind: usize| self.contents[kind].contains(&Some(BAD));
        for (kind, type_url) in TYPES.into_iter().enumerate() {
            let resources = self.client.resources(type_url);
            let has: BTreeMap<_, _> = resources.map(|r| (&*r.name, &*r.body)).collect();
            let whole = [CLUSTER, LISTENER].contains(&type_url);
            let says_gone = whole || self.variant == Variant::Delta;
            // Clusters stay while a referring resource is NACKed, and assignments with them.
            let kept = kind < 2 && (has_bad(2) || has_bad(3));
            for (name, text) in NAMES.iter().enumerate() {
                let got = has.get(text);
                match self.contents[kind][name] {
                    _ if !self.is_subscribed(kind, name) => assert_eq!(got, None),
                    Some(BAD) => {}
                    Some(content) => {
                        let body = format!("{text}={content}");
                        assert_eq!(got, Some(&body.as_bytes()), "{type_url} {text}");
                    }
                    None if says_gone && !kept => {
                        assert_eq!(got, None, "{type_url} {text}");
                    }
                    None => {}
                }
            }
        }
    }
}

fn name_at(index: usize) -> &'static str {
    NAMES.get(index).copied().unwrap_or("*")
}

fn name_of(_: &str, body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    Some(text.split_once('=')?.0.to_owned())
}

fn decode(_: &str, body: &Bytes) -> Result<Bytes, DecodeError> {
    if body.ends_with(b"=3") {
        Err(DecodeError::new("", "bad"))
    } else {
        Ok(body.clone())
    }
}

fn converges(variant: Variant, ops: &[Op]) {
    let mut world = World::new(variant);
    for op in ops {
        world.apply(op);
    }
    world.deliver_all();
    world.check();
    // The same content in a new view causes no message.
    world.publish();
    assert_eq!(world.server.poll_transmit(), None);
}

/// A full state with an invalid part is NACKed while the client has unsubscribed from the valid
/// part.
#[test]
fn a_name_subscribed_again_is_sent_although_its_set_was_nacked() {
    const CLUSTERS: usize = 0;
    let (a, b) = (0, 1);
    let mut view = [[None; NAMES.len()]; TYPES.len()];
    view[CLUSTERS][a] = Some(BAD);
    view[CLUSTERS][b] = Some(0);
    let exchange = [
        Op::ClientSends,
        Op::ServerReceives,
        Op::ServerSends,
        Op::ClientReceives,
    ];
    let ops = [
        vec![
            Op::View(view),
            Op::Watch(CLUSTERS, b),
            Op::Watch(CLUSTERS, a),
        ],
        vec![Op::ClientSends, Op::ServerReceives],
        vec![Op::Unwatch(CLUSTERS, b), Op::ServerSends],
        vec![Op::ClientSends, Op::ClientReceives],
        vec![Op::Watch(CLUSTERS, b)],
        exchange.to_vec(),
    ];
    converges(Variant::Sotw, &ops.concat());
}

/// A listener is unsubscribed, sent, removed, and covered by a new wildcard before it arrives.
#[test]
fn a_removal_that_crosses_a_resubscription_is_applied() {
    const LISTENERS: usize = 2;
    let (b, all) = (1, NAMES.len());
    let empty = [[None; NAMES.len()]; TYPES.len()];
    let mut view = empty;
    view[LISTENERS][b] = Some(0);
    let ops = [
        Op::Watch(LISTENERS, b),
        Op::ClientSends,
        Op::ServerReceives,
        Op::View(view),
        Op::Unwatch(LISTENERS, b),
        Op::ServerSends,
        Op::View(empty),
        Op::ClientSends,
        Op::Watch(LISTENERS, all),
        Op::ClientReceives,
    ];
    converges(Variant::Delta, &ops);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn sotw_converges(ops in ops()) {
        converges(Variant::Sotw, &ops);
    }

    #[test]
    fn incremental_converges(ops in ops()) {
        converges(Variant::Delta, &ops);
    }
}
