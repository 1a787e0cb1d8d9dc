//! Make before break: the order of types.

use plimsoll_xds::ads::{
    CLUSTER, CLUSTER_LOAD_ASSIGNMENT as EDS, LISTENER, ROUTE_CONFIGURATION as RDS,
};

use super::peer::{Peer, Short, view};

type Types<'a> = &'a [(&'a str, &'a [Short<'a>])];

const OLD: Types<'static> = &[
    (CLUSTER, &[("old", "1")]),
    (EDS, &[("old", "1")]),
    (LISTENER, &[("l", "1")]),
    (RDS, &[("r", "to old")]),
];
const NEW: Types<'static> = &[
    (CLUSTER, &[("new", "1")]),
    (EDS, &[("new", "1")]),
    (LISTENER, &[("l", "1")]),
    (RDS, &[("r", "to new")]),
];

/// Envoy that has accepted all of [`OLD`].
fn envoy() -> Peer {
    let mut peer = Peer::sotw(&view(OLD));
    peer.ask(CLUSTER, "", "", &[]);
    peer.expect_ack(CLUSTER, &[("old", "1")], &[]);
    peer.ask(EDS, "", "", &["old"]);
    peer.expect_ack(EDS, &[("old", "1")], &["old"]);
    peer.ask(LISTENER, "", "", &[]);
    peer.expect_ack(LISTENER, &[("l", "1")], &[]);
    peer.ask(RDS, "", "", &["r"]);
    peer.expect_ack(RDS, &[("r", "to old")], &["r"]);
    peer.expect_nothing();
    peer
}

#[test]
fn a_route_moves_before_the_old_cluster_is_removed() {
    let mut peer = envoy();
    peer.set(NEW);
    let clusters = peer.expect(CLUSTER, &[("new", "1"), ("old", "1")]);
    // The old assignment would be due again, but the view no longer has it.
    peer.expect_nothing();
    // As Envoy does: the new name first, then the ACK of the clusters.
    let nonce = "2";
    peer.ask(EDS, "", nonce, &["old", "new"]);
    let assignments = peer.expect(EDS, &[("new", "1")]);
    peer.expect_nothing();
    peer.ack(&clusters, &[]);
    peer.expect_nothing();
    peer.ack(&assignments, &["old", "new"]);
    let routes = peer.expect(RDS, &[("r", "to new")]);
    peer.expect_nothing();
    peer.ack(&routes, &["r"]);
    peer.expect_ack(CLUSTER, &[("new", "1")], &[]);
    peer.expect_nothing();
}

#[test]
fn the_old_cluster_stays_while_a_route_is_nacked() {
    let mut peer = envoy();
    peer.set(NEW);
    peer.expect_ack(CLUSTER, &[("new", "1"), ("old", "1")], &[]);
    let routes = peer.expect(RDS, &[("r", "to new")]);
    peer.nack(&routes, "", &["r"]);
    peer.expect_nothing();
    // Another change of clusters still lists it.
    let newer: Types<'_> = &[(CLUSTER, &[("new", "2")]), NEW[1], NEW[2], NEW[3]];
    peer.set(newer);
    peer.expect_ack(CLUSTER, &[("new", "2"), ("old", "1")], &[]);
    peer.expect_nothing();
}

#[test]
fn a_changed_cluster_gets_its_assignment_again_and_a_listener_its_routes() {
    let mut peer = envoy();
    let types: Types<'_> = &[
        (CLUSTER, &[("old", "2")]),
        OLD[1],
        (LISTENER, &[("l", "2")]),
        OLD[3],
    ];
    peer.set(types);
    let clusters = peer.expect(CLUSTER, &[("old", "2")]);
    let assignments = peer.expect(EDS, &[("old", "1")]);
    peer.expect_ack(LISTENER, &[("l", "2")], &[]);
    peer.expect_ack(RDS, &[("r", "to old")], &["r"]);
    peer.ack(&clusters, &[]);
    peer.ack(&assignments, &["old"]);
    peer.expect_nothing();
}

/// The assignment in flight arrives before the cluster, so it does not end the warming.
#[test]
fn a_changed_cluster_gets_its_assignment_again_even_if_one_is_in_flight() {
    let mut peer = envoy();
    peer.set(&[OLD[0], (EDS, &[("old", "2")]), OLD[2], OLD[3]]);
    let assignments = peer.expect(EDS, &[("old", "2")]);
    peer.set(&[
        (CLUSTER, &[("old", "2")]),
        (EDS, &[("old", "2")]),
        OLD[2],
        OLD[3],
    ]);
    peer.expect_ack(CLUSTER, &[("old", "2")], &[]);
    peer.expect_nothing();
    peer.ack(&assignments, &["old"]);
    peer.expect_ack(EDS, &[("old", "2")], &["old"]);
    peer.expect_nothing();
}

#[test]
fn continuously_changing_assignments_do_not_starve_listeners() {
    let mut peer = envoy();
    peer.set(&[
        OLD[0],
        (EDS, &[("old", "2")]),
        (LISTENER, &[("l", "2")]),
        OLD[3],
    ]);
    let _unanswered = peer.expect(EDS, &[("old", "2")]);
    peer.expect(LISTENER, &[("l", "2")]);
}

#[test]
fn assignments_do_not_overtake_clusters() {
    let mut peer = envoy();
    peer.set(&[(CLUSTER, &[("old", "2")]), OLD[1], OLD[2], OLD[3]]);
    let clusters = peer.expect(CLUSTER, &[("old", "2")]);
    peer.set(&[
        (CLUSTER, &[("old", "3")]),
        (EDS, &[("old", "2")]),
        OLD[2],
        OLD[3],
    ]);
    peer.expect_nothing();
    peer.ack(&clusters, &[]);
    peer.expect_ack(CLUSTER, &[("old", "3")], &[]);
    peer.expect_ack(EDS, &[("old", "2")], &["old"]);
    peer.expect_nothing();
}

#[test]
fn a_nacked_cluster_does_not_block_listeners() {
    let mut peer = envoy();
    peer.set(&[
        (CLUSTER, &[("new", "bad"), ("old", "1")]),
        OLD[1],
        (LISTENER, &[("l", "2")]),
        OLD[3],
    ]);
    let clusters = peer.expect(CLUSTER, &[("new", "bad"), ("old", "1")]);
    peer.expect_ack(EDS, &[("old", "1")], &["old"]);
    peer.expect_nothing();
    peer.nack(&clusters, "", &[]);
    peer.expect_ack(LISTENER, &[("l", "2")], &[]);
}

#[test]
fn other_types_are_unordered() {
    let mut peer = envoy();
    let mut types = vec![("secret", &[("s", "1")] as &[_])];
    types.extend_from_slice(NEW);
    peer.set(&types);
    let _unanswered = peer.expect(CLUSTER, &[("new", "1"), ("old", "1")]);
    peer.ask("secret", "", "", &["s"]);
    peer.expect_ack("secret", &[("s", "1")], &["s"]);
}

#[test]
fn incremental_removals_are_last_clusters_before_assignments() {
    let mut peer = Peer::delta(&view(OLD));
    peer.change(CLUSTER, &[], &[]);
    peer.expect_delta_ack(CLUSTER, &[("old", "1")], &[]);
    peer.change(EDS, &["old"], &[]);
    peer.expect_delta_ack(EDS, &[("old", "1")], &[]);
    peer.change(LISTENER, &[], &[]);
    peer.expect_delta_ack(LISTENER, &[("l", "1")], &[]);
    peer.change(RDS, &["r"], &[]);
    peer.expect_delta_ack(RDS, &[("r", "to old")], &[]);
    peer.set(NEW);
    let clusters = peer.expect_delta(CLUSTER, &[("new", "1")], &[]);
    peer.change(EDS, &["new"], &[]);
    let assignments = peer.expect_delta(EDS, &[("new", "1")], &[]);
    peer.answer(&clusters, None);
    peer.expect_nothing();
    peer.answer(&assignments, None);
    let routes = peer.expect_delta(RDS, &[("r", "to new")], &[]);
    peer.expect_nothing();
    peer.answer(&routes, None);
    let clusters = peer.expect_delta(CLUSTER, &[], &["old"]);
    peer.expect_nothing();
    peer.answer(&clusters, None);
    peer.expect_delta_ack(EDS, &[], &["old"]);
    peer.expect_nothing();
}

/// gRPC subscribes in the other direction: listener, route, cluster, assignment, each by the name
/// in the previous one.
#[test]
fn a_client_that_subscribes_by_name_makes_progress() {
    let mut peer = Peer::sotw(&view(OLD));
    peer.ask(LISTENER, "", "", &["l"]);
    peer.expect_ack(LISTENER, &[("l", "1")], &["l"]);
    peer.ask(RDS, "", "", &["r"]);
    peer.expect_ack(RDS, &[("r", "to old")], &["r"]);
    peer.ask(CLUSTER, "", "", &["old"]);
    let clusters = peer.expect(CLUSTER, &[("old", "1")]);
    peer.ack(&clusters, &["old"]);
    peer.ask(EDS, "", "", &["old"]);
    peer.expect_ack(EDS, &[("old", "1")], &["old"]);
    // It subscribes to the new cluster once it has the route; until then the old one stays.
    peer.set(NEW);
    peer.expect_ack(RDS, &[("r", "to new")], &["r"]);
    peer.expect_ack(CLUSTER, &[], &["new"]);
    peer.expect_ack(CLUSTER, &[("new", "1")], &["new"]);
    peer.expect_nothing();
}
