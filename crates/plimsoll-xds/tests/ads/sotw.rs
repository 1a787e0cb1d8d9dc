//! State of the world: one rule per test.

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
fn no_clusters_at_all_is_an_answer() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[])]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[], &[]);
    peer.expect_nothing();
}

#[test]
fn names_get_what_they_ask_for_and_new_ones_are_always_answered() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1"), ("b", "1")])]));
    peer.ask(CLUSTER, "", "", &["a"]);
    let first = peer.expect(CLUSTER, &[("a", "1")]);
    peer.ack(&first, &["a"]);
    peer.expect_nothing();
    // One that does not exist: the same set again says so.
    peer.ack(&first, &["a", "missing"]);
    let second = peer.expect(CLUSTER, &[("a", "1")]);
    assert_eq!(first.version_info, second.version_info);
    peer.ack(&second, &["missing", "a", "b"]);
    peer.expect_ack(CLUSTER, &[("a", "1"), ("b", "1")], &["a", "b", "missing"]);
    peer.expect_nothing();
}

#[test]
fn assignments_come_as_they_change_or_are_asked_for() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.ask(EDS, "", "", &["a"]);
    let first = peer.expect(EDS, &[("a", "1")]);
    peer.ack(&first, &["b", "a"]);
    let second = peer.expect(EDS, &[("b", "1")]);
    // The same names in another order are no news.
    peer.ack(&second, &["a", "b"]);
    peer.expect_nothing();
    peer.set(&[(EDS, &[("a", "1"), ("b", "2"), ("c", "1")])]);
    let third = peer.expect(EDS, &[("b", "2")]);
    // A name less is no reason to answer, but it is when it returns.
    peer.ack(&third, &["b"]);
    peer.expect_nothing();
    peer.ack(&third, &["a", "b"]);
    peer.expect_ack(EDS, &[("a", "1")], &["a", "b"]);
    // What does not exist is not answered; it comes when it does.
    peer.set(&[(EDS, &[("b", "2")])]);
    peer.expect_nothing();
    let version = peer.stream.status().next().expect("one type").acked;
    assert_eq!(version.as_deref(), Some(&*second_version()));
}

/// Version of `a=1, b=2`, as another stream computes it.
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
fn one_response_is_under_way_and_only_the_newest_view_follows() {
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
fn names_changed_without_waiting_are_answered_when_it_is_their_turn() {
    let mut peer = Peer::sotw(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.ask(EDS, "", "", &["a"]);
    let first = peer.expect(EDS, &[("a", "1")]);
    peer.ask(EDS, "", "", &["a", "b"]);
    peer.expect_nothing();
    assert_eq!(peer.stream.status().next().expect("one type").stale, 1);
    peer.ack(&first, &["a", "b"]);
    let second = peer.expect(EDS, &[("b", "1")]);
    // An answer to the first once more is stale, and no answer to the second.
    peer.ack(&first, &["a", "b"]);
    assert!(peer.stream.status().next().expect("one type").in_flight);
    peer.ack(&second, &["a", "b"]);
    peer.expect_nothing();
}

/// It has forgotten the name in between, and its answer to the response that crossed does not show
/// that.
#[test]
fn a_name_dropped_and_taken_up_again_is_sent_again() {
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
fn a_client_that_returns_with_the_same_clusters_gets_nothing() {
    let clusters = view(&[(CLUSTER, &[("a", "1")]), (LISTENER, &[])]);
    let mut before = Peer::sotw(&clusters);
    before.ask(CLUSTER, "", "", &[]);
    let version = before.expect(CLUSTER, &[("a", "1")]).version_info;

    let mut peer = Peer::sotw(&clusters);
    peer.ask(CLUSTER, &version, "", &[]);
    peer.expect_nothing();
    assert_eq!(
        peer.stream
            .status()
            .next()
            .expect("one type")
            .acked
            .as_deref(),
        Some(&*version)
    );
    peer.set(&[(CLUSTER, &[("a", "2")])]);
    peer.expect_ack(CLUSTER, &[("a", "2")], &[]);

    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "2")])]));
    peer.ask(CLUSTER, &version, "", &[]);
    peer.expect(CLUSTER, &[("a", "2")]);

    // By name: the same, unless a name has no resource, which it must hear.
    let mut peer = Peer::sotw(&clusters);
    peer.ask(CLUSTER, &version, "", &["a"]);
    peer.expect_nothing();
    peer.ask(CLUSTER, &version, "", &["a", "missing"]);
    peer.expect(CLUSTER, &[("a", "1")]);
}

#[test]
fn a_client_that_returns_gets_its_assignments_in_any_case() {
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

/// The view changed while the response was under way, but not in what this client wants.
#[test]
fn a_refused_set_is_not_repeated_for_what_changed_before_the_refusal() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1"), ("b", "bad")])]));
    peer.ask(CLUSTER, "", "", &["b"]);
    let bad = peer.expect(CLUSTER, &[("b", "bad")]);
    peer.set(&[(CLUSTER, &[("a", "2"), ("b", "bad")])]);
    peer.nack(&bad, "", &["b"]);
    peer.expect_nothing();
    // A refusal may have to do with what else there is: then it is tried once more.
    peer.set(&[(CLUSTER, &[("a", "3"), ("b", "bad")])]);
    let again = peer.expect(CLUSTER, &[("b", "bad")]);
    peer.nack(&again, "", &["b"]);
    peer.expect_nothing();
}

#[test]
fn a_refused_set_is_told_and_not_repeated_until_it_changes() {
    let mut peer = Peer::sotw(&view(&[(CLUSTER, &[("a", "1")])]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[("a", "1")], &[]);
    peer.set(&[(CLUSTER, &[("a", "bad")])]);
    let bad = peer.expect(CLUSTER, &[("a", "bad")]);
    peer.events();
    peer.nack(&bad, "before", &[]);
    let events = peer.events();
    let [StreamEvent::Nacked { refusal, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&*refusal.version, &*refusal.detail.message),
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
    assert!(
        peer.stream
            .status()
            .next()
            .expect("one type")
            .nacked
            .is_some()
    );
    peer.set(&[(CLUSTER, &[("a", "3")])]);
    peer.expect_ack(CLUSTER, &[("a", "3")], &[]);
    assert!(
        peer.stream
            .status()
            .next()
            .expect("one type")
            .nacked
            .is_none()
    );
}

#[test]
fn one_bad_assignment_does_not_hold_up_the_others() {
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
    // The others go on without it.
    peer.set(&[(EDS, &[("a", "3"), ("b", "bad"), ("c", "1")])]);
    peer.expect_ack(EDS, &[("a", "3")], names);
    peer.expect_nothing();
    assert!(
        peer.stream
            .status()
            .next()
            .expect("one type")
            .nacked
            .is_some()
    );
    peer.set(&[(EDS, &[("a", "3"), ("b", "2"), ("c", "1")])]);
    peer.expect_ack(EDS, &[("b", "2")], names);
    assert!(
        peer.stream
            .status()
            .next()
            .expect("one type")
            .nacked
            .is_none()
    );
}

#[test]
fn a_grown_epoch_sends_the_same_content_again() {
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
fn what_is_not_known_to_be_gone_stays() {
    let partial = |resources: &[_], absent: &[&str]| {
        let absent = absent.iter().map(|&name| name.into());
        let resources = TypeResources::partial(resources.iter().map(resource), absent);
        Arc::new(View::new(2).with(CLUSTER, Arc::new(resources)))
    };
    // All clusters: not before all are known.
    let mut peer = Peer::sotw(&partial(&[("a", "1")], &[]));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "1"), ("b", "1")])]);
    peer.expect_ack(CLUSTER, &[("a", "1"), ("b", "1")], &[]);
    // Then changes go out with what else it has.
    peer.stream.set_view(partial(&[("a", "2")], &[]));
    peer.expect_ack(CLUSTER, &[("a", "2"), ("b", "1")], &[]);
    peer.stream.set_view(partial(&[("a", "2")], &["b"]));
    peer.expect_ack(CLUSTER, &[("a", "2")], &[]);

    // By name: not before each is known to exist or not.
    let mut peer = Peer::sotw(&partial(&[("a", "1")], &[]));
    peer.ask(CLUSTER, "", "", &["a", "b"]);
    peer.expect_nothing();
    peer.stream.set_view(partial(&[("a", "1")], &["b"]));
    peer.expect(CLUSTER, &[("a", "1")]);
}

#[test]
fn subscriptions_are_told() {
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
    assert!(peer.stream.subscription(EDS).expect("asked").covers("c"));
}

#[test]
fn a_client_cannot_ask_without_bounds() {
    let limits = Limits {
        types: 2,
        names_per_type: 2,
        name_length: 64,
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
