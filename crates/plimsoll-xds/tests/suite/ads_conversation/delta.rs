//! Incremental variant: one rule per test.

use std::sync::Arc;

use plimsoll_xds::ads::view::{TypeResources, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT as EDS, Request, Variant};

use super::peer::{Peer, nack_detail, resource, sotw_request, view};

#[test]
fn a_wildcard_gets_all_clusters_then_changes_and_removals() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[("a", "1"), ("b", "1")])]));
    peer.change(CLUSTER, &[], &[]);
    peer.expect_delta_ack(CLUSTER, &[("a", "1"), ("b", "1")], &[]);
    peer.set(&[(CLUSTER, &[("a", "2"), ("c", "1")])]);
    peer.expect_delta_ack(CLUSTER, &[("a", "2"), ("c", "1")], &[]);
    peer.expect_delta_ack(CLUSTER, &[], &["b"]);
    peer.expect_nothing();
}

#[test]
fn an_empty_set_is_sent() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[])]));
    peer.change(CLUSTER, &[], &[]);
    peer.expect_delta_ack(CLUSTER, &[], &[]);
    peer.expect_nothing();
}

#[test]
fn nonexistent_names_are_reported_once() {
    let mut peer = Peer::delta(&view(&[(EDS, &[("a", "1")])]));
    peer.change(EDS, &["a", "missing"], &[]);
    peer.expect_delta_ack(EDS, &[("a", "1")], &["missing"]);
    peer.set(&[(EDS, &[("a", "2")])]);
    peer.expect_delta_ack(EDS, &[("a", "2")], &[]);
    peer.set(&[(EDS, &[("a", "2"), ("missing", "1")])]);
    peer.expect_delta_ack(EDS, &[("missing", "1")], &[]);
    peer.set(&[(EDS, &[("a", "2")])]);
    peer.expect_delta_ack(EDS, &[], &["missing"]);
    // Subscribing again reports it again.
    peer.change(EDS, &["missing"], &[]);
    peer.expect_delta_ack(EDS, &[], &["missing"]);
    peer.expect_nothing();
}

#[test]
fn names_subscribed_again_are_sent_again() {
    let mut peer = Peer::delta(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.change(EDS, &["a", "b"], &[]);
    peer.expect_delta_ack(EDS, &[("a", "1"), ("b", "1")], &[]);
    peer.change(EDS, &["b"], &[]);
    peer.expect_delta_ack(EDS, &[("b", "1")], &[]);
    peer.change(EDS, &[], &["a"]);
    peer.set(&[(EDS, &[("a", "2"), ("b", "1")])]);
    peer.expect_nothing();
    peer.change(EDS, &["a"], &[]);
    peer.expect_delta_ack(EDS, &[("a", "2")], &[]);
    peer.expect_nothing();
}

#[test]
fn subscriptions_change_while_a_response_is_in_flight() {
    let mut peer = Peer::delta(&view(&[(EDS, &[("a", "1"), ("b", "1")])]));
    peer.change(EDS, &["a"], &[]);
    let first = peer.expect_delta(EDS, &[("a", "1")], &[]);
    peer.change(EDS, &["b"], &["a"]);
    peer.change(EDS, &["a"], &[]);
    peer.expect_nothing();
    peer.answer(&first, None);
    peer.expect_delta_ack(EDS, &[("a", "1"), ("b", "1")], &[]);
    peer.expect_nothing();
}

#[test]
fn a_reconnecting_client_gets_differences() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[("a", "1"), ("b", "2"), ("c", "1")])]));
    peer.resume(CLUSTER, &[], &[("a", "1"), ("b", "1"), ("gone", "1")]);
    peer.expect_delta_ack(CLUSTER, &[("b", "2"), ("c", "1")], &[]);
    peer.expect_delta_ack(CLUSTER, &[], &["gone"]);
    peer.expect_nothing();

    let mut peer = Peer::delta(&view(&[(EDS, &[("a", "1"), ("b", "2")])]));
    peer.resume(
        EDS,
        &["a", "b", "missing"],
        &[("a", "1"), ("b", "1"), ("other", "1")],
    );
    peer.expect_delta_ack(EDS, &[("b", "2")], &["missing"]);
    peer.expect_nothing();
}

#[test]
fn resources_of_an_earlier_stream_are_refreshed() {
    let epoch = |epoch| {
        let resources = TypeResources::new([resource(&("a", "1")).with_epoch(epoch)]);
        Arc::new(View::new(epoch).with(EDS, Arc::new(resources)))
    };
    let mut peer = Peer::delta(&epoch(5));
    peer.resume(EDS, &["a"], &[("a", "1")]);
    peer.expect_nothing();
    peer.stream.set_view(epoch(6));
    peer.expect_delta_ack(EDS, &[("a", "1")], &[]);
    peer.expect_nothing();
}

#[test]
fn wildcard_and_names_combine() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[("a", "1"), ("b", "1")])]));
    peer.change(CLUSTER, &["*", "a"], &[]);
    peer.expect_delta_ack(CLUSTER, &[("a", "1"), ("b", "1")], &[]);
    // The wildcard still covers the unsubscribed `a`, so the client must be sent it.
    peer.change(CLUSTER, &[], &["a"]);
    peer.expect_delta_ack(CLUSTER, &[("a", "1")], &[]);
    peer.change(CLUSTER, &["b"], &["*"]);
    peer.expect_delta_ack(CLUSTER, &[("b", "1")], &[]);
    peer.set(&[(CLUSTER, &[("a", "2"), ("b", "2")])]);
    peer.expect_delta_ack(CLUSTER, &[("b", "2")], &[]);
    peer.expect_nothing();
}

#[test]
fn a_nacked_resource_is_retried_alone_once() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[("a", "1"), ("b", "bad")])]));
    peer.change(CLUSTER, &[], &[]);
    let both = peer.expect_delta(CLUSTER, &[("a", "1"), ("b", "bad")], &[]);
    peer.answer(&both, Some(nack_detail()));
    peer.expect_delta_ack(CLUSTER, &[("a", "1")], &[]);
    let alone = peer.expect_delta(CLUSTER, &[("b", "bad")], &[]);
    peer.answer(&alone, Some(nack_detail()));
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "1"), ("b", "bad")])]);
    peer.expect_nothing();
    peer.set(&[(CLUSTER, &[("a", "1"), ("b", "2")])]);
    peer.expect_delta_ack(CLUSTER, &[("b", "2")], &[]);
    let status = peer.status();
    assert_eq!((status.acks, status.nacks, status.nacked), (2, 2, None));
}

#[test]
fn a_nacked_removal_is_not_repeated() {
    let mut peer = Peer::delta(&view(&[(CLUSTER, &[("a", "1")])]));
    peer.change(CLUSTER, &[], &[]);
    peer.expect_delta_ack(CLUSTER, &[("a", "1")], &[]);
    peer.set(&[(CLUSTER, &[])]);
    let gone = peer.expect_delta(CLUSTER, &[], &["a"]);
    peer.answer(&gone, Some(nack_detail()));
    peer.expect_nothing();
}

#[test]
fn resources_that_may_exist_are_not_removed() {
    let mut peer = Peer::delta(&view(&[(EDS, &[("a", "1")])]));
    peer.change(EDS, &["a", "b"], &[]);
    peer.expect_delta_ack(EDS, &[("a", "1")], &["b"]);
    let nothing = TypeResources::partial([], []);
    peer.stream
        .set_view(Arc::new(View::new(2).with(EDS, Arc::new(nothing))));
    peer.change(EDS, &["c"], &[]);
    peer.expect_nothing();
    let absent = TypeResources::partial([], ["c".into()]);
    peer.stream
        .set_view(Arc::new(View::new(3).with(EDS, Arc::new(absent))));
    peer.expect_delta_ack(EDS, &[], &["c"]);
    peer.expect_nothing();
}

#[test]
fn the_other_variant_is_rejected() {
    let mut peer = Peer::new(Variant::Delta);
    let request = Request::Sotw(sotw_request(CLUSTER, "", "", &[]));
    assert!(peer.handle(request).is_err());
}
