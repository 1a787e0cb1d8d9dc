//! SotW variant: one rule per test.

use std::sync::Arc;

use plimsoll_xds::ads::server::{Limits, ServerStream, StatusCode, StreamEvent};
use plimsoll_xds::ads::view::{TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT as EDS, LISTENER, Request, Variant};

use super::peer::{Peer, resource, sotw_request, view};

#[test]
fn an_empty_first_request_gets_all_clusters_and_later_changes() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1"), ("b", "1")])]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[("a", "1"), ("b", "1")], &[]);
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "2"), ("b", "1")])]);
    peer.expect_ack(CLUSTER, &[("a", "2"), ("b", "1")], &[]);
    peer.set(&[(CLUSTER, &[("a", "2")])]);
    peer.expect_ack(CLUSTER, &[("a", "2")], &[]);
    peer.expect_nothing();
}

#[test]
fn a_view_is_accepted_when_everything_subscribed_is() {
    let both: &[(&str, &[_])] = &[(CLUSTER, &[("a", "1")]), (EDS, &[("a", "1"), ("b", "1")])];
    let mut peer = Peer::sotw(&view(both));
    assert_eq!(
        peer.stream.accepted_generation(),
        Some(1),
        "nothing is subscribed"
    );
    peer.ask(CLUSTER, "", "", &[]);
    assert_eq!(peer.stream.accepted_generation(), None);
    let clusters = peer.expect(CLUSTER, &[("a", "1")]);
    assert_eq!(peer.stream.accepted_generation(), None, "in flight");
    peer.ack(&clusters, &[]);
    assert_eq!(peer.stream.accepted_generation(), Some(1));
    peer.ask(EDS, "", "", &["a"]);
    let assignments = peer.expect(EDS, &[("a", "1")]);
    peer.nack(&assignments, "", &["a"]);
    assert_eq!(peer.stream.accepted_generation(), None, "rejected");
    peer.set(&[(CLUSTER, &[("a", "1")]), (EDS, &[("a", "2"), ("b", "2")])]);
    peer.expect_ack(EDS, &[("a", "2")], &["a"]);
    assert_eq!(
        peer.stream.accepted_generation(),
        Some(1),
        "b is not subscribed"
    );
}

#[test]
fn an_empty_set_is_sent() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[])]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[], &[]);
    peer.expect_nothing();
}

#[test]
fn subscribed_names_are_sent_and_new_ones_always_answered() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1"), ("b", "1")])]));
    peer.ask(CLUSTER, "", "", &["a"]);
    let first = peer.expect(CLUSTER, &[("a", "1")]);
    peer.ack(&first, &["a"]);
    peer.expect_nothing();
    // A nonexistent name: the same set again says so.
    peer.ack(&first, &["a", "missing"]);
    let second = peer.expect(CLUSTER, &[("a", "1")]);
    assert_eq!(first.version_info, second.version_info);
    peer.ack(&second, &["missing", "a", "b"]);
    peer.expect_ack(CLUSTER, &[("a", "1"), ("b", "1")], &["a", "b", "missing"]);
    peer.expect_nothing();
}

#[test]
fn assignments_are_sent_on_change_or_subscription() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.ask(EDS, "", "", &["a"]);
    let first = peer.expect(EDS, &[("a", "1")]);
    peer.ack(&first, &["b", "a"]);
    let second = peer.expect(EDS, &[("b", "1")]);
    // The same names in another order change nothing.
    peer.ack(&second, &["a", "b"]);
    peer.expect_nothing();
    peer.set(&[(EDS, &[("a", "1"), ("b", "2"), ("c", "1")])]);
    let third = peer.expect(EDS, &[("b", "2")]);
    // Unsubscribing a name needs no response, subscribing again does.
    peer.ack(&third, &["b"]);
    peer.expect_nothing();
    peer.ack(&third, &["a", "b"]);
    peer.expect_ack(EDS, &[("a", "1")], &["a", "b"]);
    // A nonexistent resource gets no response until it exists.
    peer.set(&[(EDS, &[("b", "2")])]);
    peer.expect_nothing();
    let version = peer.status().acked;
    assert_eq!(version.as_deref(), Some(&*second_version()));
}

/// Version of `a=1, b=2`, as computed by another stream.
fn second_version() -> String {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("b", "2"), ("a", "1")])]));
    peer.ask(EDS, "", "", &["a", "b"]);
    peer.expect(EDS, &[("a", "1"), ("b", "2")]).version_info
}

#[test]
fn requests_wait_for_the_view_of_their_type() {
    let mut peer = Peer::new(Variant::Sotw);
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_nothing();
    peer.set(&[(EDS, &[("a", "1")])]);
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "1")])]);
    peer.expect(CLUSTER, &[("a", "1")]);
}

#[test]
fn one_response_is_in_flight_and_only_the_newest_view_follows() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1")])]));
    peer.ask(EDS, "", "", &["a"]);
    let first = peer.expect(EDS, &[("a", "1")]);
    for text in ["2", "3", "4"] {
        peer.set(&[(EDS, &[("a", text)])]);
        peer.expect_nothing();
    }
    peer.ack(&first, &["a"]);
    peer.expect_ack(EDS, &[("a", "4")], &["a"]);
    peer.expect_nothing();
}

#[test]
fn names_changed_during_a_response_are_answered_after_it() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.ask(EDS, "", "", &["a"]);
    let first = peer.expect(EDS, &[("a", "1")]);
    peer.ask(EDS, "", "", &["a", "b"]);
    peer.expect_nothing();
    assert_eq!(peer.status().stale, 1);
    peer.ack(&first, &["a", "b"]);
    let second = peer.expect(EDS, &[("b", "1")]);
    // A repeated ACK of the first response is stale, and does not answer the second.
    peer.ack(&first, &["a", "b"]);
    assert!(peer.status().in_flight);
    peer.ack(&second, &["a", "b"]);
    peer.expect_nothing();
}

/// The client dropped the name in between, and its ACK of the response that crossed does not show
/// that.
#[test]
fn a_name_unsubscribed_and_subscribed_again_is_sent_again() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    let both = &["a", "b"];
    peer.ask(EDS, "", "", both);
    let first = peer.expect(EDS, &[("a", "1"), ("b", "1")]);
    peer.ack(&first, both);
    peer.set(&[(EDS, &[("a", "1"), ("b", "2")])]);
    let second = peer.expect(EDS, &[("b", "2")]);
    peer.ack(&first, &["b"]);
    peer.ack(&first, both);
    peer.expect_nothing();
    peer.ack(&second, both);
    peer.expect_ack(EDS, &[("a", "1")], both);
    peer.expect_nothing();
}

#[test]
fn a_reconnecting_client_with_the_same_clusters_gets_nothing() {
    let clusters = view(&[(CLUSTER, &[("a", "1")]), (LISTENER, &[])]);
    let mut before = Peer::sotw(&clusters);
    before.ask(CLUSTER, "", "", &[]);
    let version = before.expect(CLUSTER, &[("a", "1")]).version_info;

    let mut peer = Peer::sotw(&clusters);
    peer.ask(CLUSTER, &version, "", &[]);
    peer.expect_nothing();
    assert_eq!(peer.status().acked.as_deref(), Some(&*version));
    peer.set(&[(CLUSTER, &[("a", "2")])]);
    peer.expect_ack(CLUSTER, &[("a", "2")], &[]);

    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "2")])]));
    peer.ask(CLUSTER, &version, "", &[]);
    peer.expect(CLUSTER, &[("a", "2")]);

    // By name: the same, except for a name without resource, which must be reported.
    let mut peer = Peer::sotw(&clusters);
    peer.ask(CLUSTER, &version, "", &["a"]);
    peer.expect_nothing();
    peer.ask(CLUSTER, &version, "", &["a", "missing"]);
    peer.expect(CLUSTER, &[("a", "1")]);
}

#[test]
fn a_reconnecting_client_always_gets_its_assignments() {
    let assignments = view(&[(EDS, &[("a", "1")])]);
    let mut before = Peer::sotw(&assignments);
    before.ask(EDS, "", "", &["a"]);
    let version = before.expect(EDS, &[("a", "1")]).version_info;
    let mut peer = Peer::sotw(&assignments);
    peer.ask(EDS, &version, "", &["a"]);
    let again = peer.expect(EDS, &[("a", "1")]);
    assert_eq!(again.version_info, version);
    peer.ack(&again, &["a"]);
    peer.expect_nothing();
}

/// The view changed while the response was in flight, but not the subscribed part.
#[test]
fn a_nacked_set_is_not_repeated_for_changes_before_the_nack() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1"), ("b", "bad")])]));
    peer.ask(CLUSTER, "", "", &["b"]);
    let bad = peer.expect(CLUSTER, &[("b", "bad")]);
    peer.set(&[(CLUSTER, &[("a", "2"), ("b", "bad")])]);
    peer.nack(&bad, "", &["b"]);
    peer.expect_nothing();
    // The NACK may depend on the rest of the view, so a later change allows one retry.
    peer.set(&[(CLUSTER, &[("a", "3"), ("b", "bad")])]);
    let again = peer.expect(CLUSTER, &[("b", "bad")]);
    peer.nack(&again, "", &["b"]);
    peer.expect_nothing();
}

#[test]
fn a_nacked_set_is_reported_and_not_repeated_until_it_changes() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1")])]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[("a", "1")], &[]);
    peer.set(&[(CLUSTER, &[("a", "bad")])]);
    let bad = peer.expect(CLUSTER, &[("a", "bad")]);
    peer.events();
    peer.nack(&bad, "before", &[]);
    let events = peer.events();
    let [StreamEvent::Nacked { nack, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&*nack.version, &*nack.detail.message),
        (&*bad.version_info, "weight 0")
    );
    peer.expect_nothing();
    peer.nack(&bad, "before", &[]);
    peer.set(&[(CLUSTER, &[("a", "bad")])]);
    peer.expect_nothing();
    let heartbeat = TypeResources::new([resource(&("a", "bad")).with_epoch(1)]);
    peer.stream
        .set_view(Arc::new(View::new(2).with(CLUSTER, Arc::new(heartbeat))));
    peer.expect_nothing();
    assert!(peer.status().nacked.is_some());
    peer.set(&[(CLUSTER, &[("a", "3")])]);
    peer.expect_ack(CLUSTER, &[("a", "3")], &[]);
    assert!(peer.status().nacked.is_none());
}

#[test]
fn one_invalid_assignment_does_not_block_the_others() {
    let good: &[_] = &[("a", "1"), ("b", "1"), ("c", "1")];
    let mut peer = Peer::sotw(&view(&[(EDS, good)]));
    let names = &["a", "b", "c"];
    peer.ask(EDS, "", "", names);
    peer.expect_ack(EDS, good, names);
    peer.set(&[(EDS, &[("a", "2"), ("b", "bad"), ("c", "1")])]);
    let both = peer.expect(EDS, &[("a", "2"), ("b", "bad")]);
    peer.nack(&both, "", names);
    // Each alone, once.
    peer.expect_ack(EDS, &[("a", "2")], names);
    let alone = peer.expect(EDS, &[("b", "bad")]);
    peer.nack(&alone, "", names);
    peer.expect_nothing();
    // The others continue without it.
    peer.set(&[(EDS, &[("a", "3"), ("b", "bad"), ("c", "1")])]);
    peer.expect_ack(EDS, &[("a", "3")], names);
    peer.expect_nothing();
    assert!(peer.status().nacked.is_some());
    peer.set(&[(EDS, &[("a", "3"), ("b", "2"), ("c", "1")])]);
    peer.expect_ack(EDS, &[("b", "2")], names);
    assert!(peer.status().nacked.is_none());
}

#[test]
fn a_new_epoch_sends_the_same_content_again() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.ask(EDS, "", "", &["a", "b"]);
    let first = peer.expect(EDS, &[("a", "1"), ("b", "1")]);
    peer.ack(&first, &["a", "b"]);
    let fresh = resource(&("a", "1")).with_epoch(1);
    let fresh = TypeResources::new([fresh, resource(&("b", "1"))]);
    let fresh = Arc::new(View::new(2).with(EDS, Arc::new(fresh)));
    peer.stream.set_view(Arc::clone(&fresh));
    let again = peer.expect(EDS, &[("a", "1")]);
    assert_eq!(again.version_info, first.version_info);
    assert_ne!(again.nonce, first.nonce);
    peer.ack(&again, &["a", "b"]);
    peer.stream.set_view(fresh);
    peer.expect_nothing();
}

#[test]
fn resources_not_known_to_be_deleted_stay() {
    let partial = |resources: &[_], absent: &[&str]| {
        let absent = absent.iter().map(|&name| name.into());
        let resources = TypeResources::partial(resources.iter().map(resource), absent);
        Arc::new(View::new(2).with(CLUSTER, Arc::new(resources)))
    };
    // Wildcard: nothing is sent before the set is complete.
    let mut peer = Peer::sotw(&partial(&[("a", "1")], &[]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "1"), ("b", "1")])]);
    peer.expect_ack(CLUSTER, &[("a", "1"), ("b", "1")], &[]);
    // Then changes are sent together with the rest.
    peer.stream.set_view(partial(&[("a", "2")], &[]));
    peer.expect_ack(CLUSTER, &[("a", "2"), ("b", "1")], &[]);
    peer.stream.set_view(partial(&[("a", "2")], &["b"]));
    peer.expect_ack(CLUSTER, &[("a", "2")], &[]);

    // By name: nothing is sent before each name is known to exist or not.
    let mut peer = Peer::sotw(&partial(&[("a", "1")], &[]));
    peer.ask(CLUSTER, "", "", &["a", "b"]);
    peer.expect_nothing();
    peer.stream.set_view(partial(&[("a", "1")], &["b"]));
    peer.expect(CLUSTER, &[("a", "1")]);
}

#[test]
fn subscription_changes_are_events() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1")])]));
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.into())
            .collect::<Vec<Arc<str>>>()
    };
    peer.ask(EDS, "", "", &["a", "b"]);
    let type_url: Arc<str> = EDS.into();
    let first = StreamEvent::Subscribed {
        type_url: Arc::clone(&type_url),
        names: names(&["a", "b"]),
    };
    assert_eq!(peer.events(), [first]);
    let response = peer.expect(EDS, &[("a", "1")]);
    peer.ack(&response, &["b", "c"]);
    let acked = StreamEvent::Acked {
        type_url: Arc::clone(&type_url),
        version: response.version_info.as_str().into(),
    };
    let subscribed = StreamEvent::Subscribed {
        type_url: Arc::clone(&type_url),
        names: names(&["c"]),
    };
    let unsubscribed = StreamEvent::Unsubscribed {
        type_url,
        names: names(&["a"]),
    };
    assert_eq!(peer.events(), [acked, subscribed, unsubscribed]);
    assert!(
        peer.stream
            .subscription(EDS)
            .expect("subscribed")
            .covers("c")
    );
}

#[test]
fn subscriptions_are_limited() {
    let limits = Limits {
        types: 2,
        names_per_type: 2,
        name_length: 64,
        ..Default::default()
    };
    let long = "x".repeat(65);
    let cases: &[(&str, &[&str], Option<StatusCode>)] = &[
        ("t", &["a", "b"], None),
        ("t", &["a", "b", "c"], Some(StatusCode::ResourceExhausted)),
        ("t", &[&long], Some(StatusCode::ResourceExhausted)),
        (&long, &[], Some(StatusCode::ResourceExhausted)),
        ("third", &[], Some(StatusCode::ResourceExhausted)),
        ("", &[], Some(StatusCode::InvalidArgument)),
    ];
    for (type_url, names, code) in cases {
        let mut peer = Peer {
            stream: ServerStream::new(Variant::Sotw, limits),
        };
        peer.ask("t", "", "", &[]);
        peer.ask("u", "", "", &[]);
        let request = sotw_request(type_url, "", "", names);
        let got = peer.handle(Request::Sotw(request)).err();
        assert_eq!(got.map(|error| error.code), *code, "{type_url} {names:?}");
    }
    let mut peer = Peer::new(Variant::Sotw);
    let mut request = sotw_request("t", "", "", &[]);
    request.node = None;
    let error = peer.handle(Request::Sotw(request)).expect_err("no node");
    assert_eq!(error.code.number(), 3);
}
