//! Scripted message exchanges with the ADS client state machine, without sockets.
//!
//! Client and server together are tested in `ads_convergence.rs`.

use crate::ads_conversation::node::node;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::{
    Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DeltaResource, DiscoveryRequest,
    DiscoveryResponse,
};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT as EDS, Request, Response, Variant};
use plimsoll_xds::error::DecodeError;

const NOW: Instant = Instant::ORIGIN;

struct Subscriber {
    client: Client,
    now: Instant,
}

impl Subscriber {
    fn new(variant: Variant) -> Self {
        let settings = ClientSettings::default();
        let mut client = Client::new(variant, node(), name_of, settings);
        client.handle_connected();
        Self { client, now: NOW }
    }

    fn subscribe(&mut self, type_url: &str, names: &[&str]) {
        for name in names {
            self.client.subscribe(&type_url.into(), &(*name).into());
        }
    }

    fn sotw(&mut self) -> DiscoveryRequest {
        match self.client.poll_transmit(self.now) {
            Some(Request::Sotw(request)) => request,
            other => unreachable!("{other:?}"),
        }
    }

    fn delta(&mut self) -> DeltaDiscoveryRequest {
        match self.client.poll_transmit(self.now) {
            Some(Request::Delta(request)) => request,
            other => unreachable!("{other:?}"),
        }
    }

    fn expect_no_request(&mut self) {
        assert_eq!(self.client.poll_transmit(self.now), None);
    }

    /// Passes in a response: type, version, nonce, bodies.
    fn receive(&mut self, type_url: &str, version: &str, nonce: &str, bodies: &[&str]) {
        let response = Response::Sotw(DiscoveryResponse {
            type_url: type_url.into(),
            version_info: version.to_owned(),
            nonce: nonce.to_owned(),
            resources: bodies.iter().map(|body| any(type_url, body)).collect(),
        });
        self.client.handle_response(response, decode, self.now);
    }

    fn receive_delta(&mut self, type_url: &str, nonce: &str, bodies: &[&str], removed: &[&str]) {
        let resource = |body: &&str| DeltaResource {
            name: body.split('=').next().expect("a name").into(),
            version: format!("v{body}"),
            resource: Some(any(type_url, body)),
        };
        let response = Response::Delta(DeltaDiscoveryResponse {
            type_url: type_url.into(),
            system_version_info: String::new(),
            nonce: nonce.to_owned(),
            resources: bodies.iter().map(resource).collect(),
            removed_resources: removed.iter().map(|&name| name.into()).collect(),
        });
        self.client.handle_response(response, decode, self.now);
    }

    /// Events in short notation: `+a=1`, `-a`, `?a`, `all`, `!reason`.
    fn events(&mut self) -> Vec<String> {
        let short = |event: ClientEvent| match event {
            ClientEvent::Updated { resource, .. } => {
                format!("+{}", String::from_utf8_lossy(&resource.body))
            }
            ClientEvent::Removed { name, .. } => format!("-{name}"),
            ClientEvent::DoesNotExist { name, .. } => format!("?{name}"),
            ClientEvent::Complete { .. } => "all".to_owned(),
            ClientEvent::Rejected { reason, .. } => format!("!{reason}"),
        };
        std::iter::from_fn(|| self.client.poll_event())
            .map(short)
            .collect()
    }

    fn bodies(&self, type_url: &str) -> Vec<String> {
        let resources = self.client.resources(type_url);
        resources
            .map(|r| String::from_utf8_lossy(&r.body).into_owned())
            .collect()
    }

    fn advance_to_timeout(&mut self) -> Duration {
        let at = self.client.poll_timeout().expect("a deadline");
        let waited = at.saturating_duration_since(self.now);
        self.now = at;
        self.client.handle_timeout(at);
        waited
    }

    fn reconnect(&mut self) {
        self.client.handle_disconnected();
        self.expect_no_request();
        self.client.handle_connected();
    }
}

fn any(type_url: &str, body: &str) -> Any {
    Any {
        type_url: type_url.into(),
        value: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn name_of(_: &str, body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    Some(text.split_once('=')?.0.to_owned())
}

fn decode(_: &str, body: &Bytes) -> Result<Bytes, DecodeError> {
    let bad = body.ends_with(b"bad");
    if bad {
        Err(DecodeError::new("", "is bad"))
    } else {
        Ok(body.clone())
    }
}

fn list(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

#[test]
fn the_first_request_has_the_node_and_an_ack_echoes_the_nonce() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.expect_no_request();
    it.subscribe(EDS, &["b", "a"]);
    it.subscribe(CLUSTER, &["*"]);
    let clusters = it.sotw();
    assert_eq!(
        (&*clusters.type_url, clusters.resource_names.len()),
        (CLUSTER, 0)
    );
    assert!(clusters.node.is_some());
    let assignments = it.sotw();
    assert_eq!(list(&assignments.resource_names), ["a", "b"]);
    assert_eq!(assignments.node, None);
    it.expect_no_request();
    it.receive(EDS, "7", "n1", &["a=1"]);
    assert_eq!(it.events(), ["+a=1"]);
    let ack = it.sotw();
    assert_eq!((&*ack.version_info, &*ack.response_nonce), ("7", "n1"));
    assert_eq!(ack.error_detail, None);
    it.expect_no_request();
    it.subscribe(EDS, &["c"]);
    let more = it.sotw();
    assert_eq!(list(&more.resource_names), ["a", "b", "c"]);
    assert_eq!((&*more.version_info, &*more.response_nonce), ("7", "n1"));
}

#[test]
fn valid_resources_of_a_nacked_response_are_used() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(EDS, &["a", "b"]);
    it.sotw();
    it.receive(EDS, "1", "n1", &["a=1", "b=1"]);
    it.sotw();
    it.events();
    it.receive(EDS, "2", "n2", &["a=bad", "b=2"]);
    assert_eq!(it.events(), ["+b=2", "!a: is bad"]);
    let nack = it.sotw();
    assert_eq!((&*nack.version_info, &*nack.response_nonce), ("1", "n2"));
    let detail = nack.error_detail.expect("a NACK");
    assert_eq!((detail.code, &*detail.message), (3, "a: is bad"));
    assert_eq!(it.bodies(EDS), ["a=1", "b=2"]);
}

#[test]
fn repeated_nacks_back_off() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut it = Subscriber::new(variant);
        it.subscribe(EDS, &["a"]);
        assert!(it.client.poll_transmit(NOW).is_some());
        let send = |it: &mut Subscriber, nonce: &str, body: &str| match variant {
            Variant::Sotw => it.receive(EDS, body, nonce, &[body]),
            Variant::Delta => it.receive_delta(EDS, nonce, &[body], &[]),
        };
        send(&mut it, "1", "a=bad");
        assert!(
            it.client.poll_transmit(it.now).is_some(),
            "the first at once"
        );
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            send(&mut it, "again", "a=bad");
            it.expect_no_request();
            // The does-not-exist deadline of the name may come first.
            while it.client.poll_transmit(it.now).is_none() {
                assert!(it.advance_to_timeout() <= Duration::from_secs(pause));
            }
        }
        send(&mut it, "later", "a=bad");
        it.expect_no_request();
        send(&mut it, "other", "a=really bad");
        assert!(
            it.client.poll_transmit(it.now).is_some(),
            "other content at once"
        );
    }
}

#[test]
fn a_new_stream_starts_with_known_versions() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(CLUSTER, &["*"]);
    it.sotw();
    it.receive(CLUSTER, "5", "n1", &["a=1"]);
    it.sotw();
    it.reconnect();
    assert_eq!(it.bodies(CLUSTER), ["a=1"]);
    let first = it.sotw();
    assert_eq!((&*first.version_info, &*first.response_nonce), ("5", ""));
    assert!(first.node.is_some());
    // With a name that has no resource yet, the version would hide that something is missing.
    it.subscribe(CLUSTER, &["b"]);
    it.reconnect();
    assert_eq!(it.sotw().version_info, "");

    let mut it = Subscriber::new(Variant::Delta);
    it.subscribe(EDS, &["a", "b"]);
    it.delta();
    it.receive_delta(EDS, "n1", &["a=1"], &["b"]);
    assert_eq!(it.events(), ["+a=1", "?b"]);
    it.delta();
    it.reconnect();
    let first = it.delta();
    assert_eq!(list(&first.resource_names_subscribe), ["a", "b"]);
    let versions: Vec<_> = first.initial_resource_versions.into_iter().collect();
    assert_eq!(versions, [("a".into(), "va=1".to_owned())]);
    assert!(first.response_nonce.is_empty() && first.node.is_some());
}

#[test]
fn unanswered_names_do_not_exist_after_a_timeout() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(EDS, &["a", "b"]);
    assert_eq!(it.client.poll_timeout(), None, "nothing was requested yet");
    it.sotw();
    it.receive(EDS, "1", "n1", &["a=1"]);
    it.sotw();
    it.events();
    assert_eq!(it.advance_to_timeout(), Duration::from_secs(15));
    assert_eq!(it.events(), ["?b"]);
    assert_eq!(it.client.poll_timeout(), None);
    it.receive(EDS, "2", "n2", &["b=1"]);
    assert_eq!(it.events(), ["+b=1"]);
    // A lost stream stops the timer.
    it.subscribe(EDS, &["c"]);
    it.sotw();
    assert!(it.client.poll_timeout().is_some());
    it.client.handle_disconnected();
    assert_eq!(it.client.poll_timeout(), None);
}

#[test]
fn omission_from_full_state_is_deletion() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(CLUSTER, &["*"]);
    it.sotw();
    it.receive(CLUSTER, "1", "n1", &["a=1", "b=1"]);
    assert_eq!(it.events(), ["+a=1", "+b=1", "all"]);
    it.receive(CLUSTER, "2", "n2", &["b=1"]);
    assert_eq!(it.events(), ["+b=1", "-a"]);
    // An unreadable resource may be any of the missing ones.
    it.receive(CLUSTER, "3", "n3", &["nameless"]);
    assert_eq!(it.events(), ["!resources[0]: has no name that can be read"]);
    assert_eq!(it.bodies(CLUSTER), ["b=1"]);

    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(CLUSTER, &["a", "b"]);
    it.sotw();
    it.receive(CLUSTER, "1", "n1", &["a=1"]);
    assert_eq!(it.events(), ["+a=1", "?b"]);
    it.receive(CLUSTER, "1", "n2", &["a=1"]);
    assert_eq!(it.events(), ["+a=1"], "absence is reported once");
}

#[test]
fn the_legacy_wildcard_is_used_while_possible() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(CLUSTER, &["*"]);
    assert!(it.sotw().resource_names.is_empty());
    it.subscribe(CLUSTER, &["a"]);
    assert_eq!(list(&it.sotw().resource_names), ["*", "a"]);
    it.client.unsubscribe(CLUSTER, "a");
    assert_eq!(list(&it.sotw().resource_names), ["*"]);
    it.client.unsubscribe(CLUSTER, "*");
    assert!(it.sotw().resource_names.is_empty());

    let mut it = Subscriber::new(Variant::Delta);
    it.subscribe(CLUSTER, &["*"]);
    assert!(it.delta().resource_names_subscribe.is_empty());
    it.subscribe(CLUSTER, &["a"]);
    it.client.unsubscribe(CLUSTER, "*");
    let change = it.delta();
    assert_eq!(list(&change.resource_names_subscribe), ["a"]);
    assert_eq!(list(&change.resource_names_unsubscribe), ["*"]);
}

#[test]
fn resources_of_a_wildcard_that_cannot_be_ended_stay_cached() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(CLUSTER, &["*"]);
    it.sotw();
    it.receive(CLUSTER, "1", "n1", &["a=1"]);
    it.events();
    it.client.unsubscribe(CLUSTER, "*");
    let ack = it.sotw();
    assert!(ack.resource_names.is_empty(), "it still means all clusters");
    assert!(it.bodies(CLUSTER).is_empty());
    it.receive(CLUSTER, "2", "n2", &["a=2"]);
    it.sotw();
    assert!(it.events().is_empty());
    // The server has nothing to send.
    it.subscribe(CLUSTER, &["*"]);
    it.expect_no_request();
    assert_eq!(it.events(), ["+a=2"]);
}

#[test]
fn a_name_subscribed_again_is_cached_or_requested() {
    let mut it = Subscriber::new(Variant::Delta);
    it.subscribe(EDS, &["a"]);
    it.delta();
    it.receive_delta(EDS, "n1", &["a=1"], &[]);
    it.delta();
    it.events();
    it.client.unsubscribe(EDS, "a");
    assert!(it.bodies(EDS).is_empty());
    it.subscribe(EDS, &["a"]);
    it.expect_no_request();
    assert_eq!(it.events(), ["+a=1"]);
    it.client.unsubscribe(EDS, "a");
    assert_eq!(list(&it.delta().resource_names_unsubscribe), ["a"]);
    it.subscribe(EDS, &["a"]);
    assert_eq!(list(&it.delta().resource_names_subscribe), ["a"]);
    assert!(it.events().is_empty());
}

#[test]
fn every_arrival_is_an_event_with_a_new_epoch() {
    let mut it = Subscriber::new(Variant::Sotw);
    it.subscribe(EDS, &["a"]);
    it.sotw();
    for epoch in 0..3 {
        it.receive(EDS, "1", "n", &["a=1"]);
        let Some(ClientEvent::Updated { resource, .. }) = it.client.poll_event() else {
            panic!("no update event");
        };
        assert_eq!(resource.epoch, epoch);
    }
}

#[test]
fn unchanged_resources_are_not_decoded_again() {
    let settings = ClientSettings::default();
    let mut client: Client<usize> = Client::new(Variant::Sotw, node(), name_of, settings);
    client.handle_connected();
    client.subscribe(&CLUSTER.into(), &"*".into());
    let mut decoded = Vec::new();
    for bodies in [["a=1", "b=1"], ["a=1", "b=2"], ["a=1", "b=2"]] {
        let response = Response::Sotw(DiscoveryResponse {
            type_url: CLUSTER.into(),
            version_info: String::new(),
            nonce: "n".to_owned(),
            resources: bodies.iter().map(|body| any(CLUSTER, body)).collect(),
        });
        client.poll_transmit(NOW);
        client.handle_response(
            response,
            |_, body| {
                decoded.push(body.clone());
                Ok(decoded.len())
            },
            NOW,
        );
    }
    assert_eq!(decoded, ["a=1", "b=1", "b=2"]);
    // A repeated resource is emitted in its first decoded form.
    let told = std::iter::from_fn(|| client.poll_event()).filter_map(|event| match event {
        ClientEvent::Updated { resource, .. } => Some((resource.body, resource.epoch)),
        _ => None,
    });
    let expected = [(1, 0), (2, 0), (1, 1), (3, 1), (1, 2), (3, 2)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
