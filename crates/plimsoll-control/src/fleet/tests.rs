//! Tests of membership: joining and leaving a fleet.

use plimsoll_core::model::load_report::Node;

use super::*;

const LEAVE_AFTER: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
}

fn node(id: &str, zone: &str) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "gateway".into(),
            locality: Locality::zone_only(zone),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: "1.40.0".to_owned(),
        client_features: Vec::new(),
    }
}

fn zones(fleets: &Fleets) -> Vec<(String, usize)> {
    let assignment = fleets.assignment("gateway");
    let zone = |entry: &plimsoll_core::model::assignment::LocalityLbEndpoints| {
        (entry.locality.zone().to_owned(), entry.lb_endpoints.len())
    };
    assignment.endpoints().iter().map(zone).collect()
}

#[test]
fn nodes_join_with_their_first_stream() {
    let mut fleets = Fleets::default();
    assert!(fleets.open(&node("1", "a"), StreamKind::Ads, at(0)));
    assert!(fleets.open(&node("2", "a"), StreamKind::Lrs, at(0)));
    assert!(fleets.open(&node("3", "b"), StreamKind::Ads, at(0)));
    assert!(
        !fleets.open(&node("3", "b"), StreamKind::Lrs, at(1)),
        "known"
    );
    assert_eq!(zones(&fleets), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let counted = HostSetCounts::of_assignment(&fleets.assignment("gateway"), 0, None);
    assert_eq!(fleets.counts("gateway"), counted);
    assert!(fleets.assignment("other").endpoints().is_empty());
    assert_eq!(fleets.counts("other"), HostSetCounts::default());
}

#[test]
fn a_reconnect_does_not_change_membership() {
    let mut fleets = Fleets::default();
    fleets.open(&node("1", "a"), StreamKind::Ads, at(0));
    fleets.open(&node("1", "a"), StreamKind::Lrs, at(0));
    assert!(
        fleets.close("gateway", "1", StreamKind::Lrs, at(5)),
        "the last of its kind"
    );
    assert_eq!(
        fleets.deadline(LEAVE_AFTER),
        None,
        "discovery is still open"
    );
    fleets.close("gateway", "1", StreamKind::Ads, at(6));
    assert_eq!(fleets.deadline(LEAVE_AFTER), Some(at(36)));
    assert!(fleets.expire(LEAVE_AFTER, at(35)).is_empty());
    assert!(!fleets.open(&node("1", "a"), StreamKind::Ads, at(35)));
    assert_eq!(fleets.deadline(LEAVE_AFTER), None);
}

#[test]
fn disconnected_nodes_leave() {
    let mut fleets = Fleets::default();
    fleets.open(&node("1", "a"), StreamKind::Ads, at(0));
    fleets.open(&node("2", "a"), StreamKind::Ads, at(0));
    fleets.close("gateway", "1", StreamKind::Ads, at(1));
    assert_eq!(fleets.expire(LEAVE_AFTER, at(31)), ["gateway".into()]);
    assert_eq!(zones(&fleets), [("a".to_owned(), 1)]);
    assert!(
        !fleets.close("gateway", "1", StreamKind::Ads, at(32)),
        "long gone"
    );
}

#[test]
fn a_node_that_moves_changes_the_fleet() {
    let mut fleets = Fleets::default();
    fleets.open(&node("1", "a"), StreamKind::Ads, at(0));
    assert!(fleets.open(&node("1", "b"), StreamKind::Ads, at(1)));
    assert_eq!(zones(&fleets), [("b".to_owned(), 1)]);
}

#[test]
fn addresses_are_derived_from_ids_and_distinct() {
    let mut first = Fleets::default();
    let mut second = Fleets::default();
    for id in 0..500 {
        first.open(&node(&id.to_string(), "a"), StreamKind::Ads, at(0));
        second.open(&node(&(499 - id).to_string(), "a"), StreamKind::Ads, at(0));
    }
    let assignment = first.assignment("gateway");
    assert_eq!(assignment, second.assignment("gateway"));
    let endpoints = &assignment.endpoints()[0].lb_endpoints;
    assert_eq!(endpoints.len(), 500);
    assert!(endpoints.iter().all(|endpoint| match endpoint.address {
        SocketAddr::V4(address) => address.ip().octets()[0] >= 240,
        SocketAddr::V6(_) => false,
    }));
}

#[test]
fn large_fleets_are_sampled() {
    let mut fleets = Fleets::default();
    for id in 0..900 {
        let zone = match id {
            0..600 => "a",
            600..899 => "b",
            _ => "c",
        };
        fleets.open(&node(&id.to_string(), zone), StreamKind::Ads, at(0));
    }
    let few = fleets.representatives("gateway");
    let sizes: Vec<_> = few
        .endpoints()
        .iter()
        .map(|zone| zone.lb_endpoints.len())
        .collect();
    assert_eq!(sizes, [133, 66, 1], "in proportion, and no zone without");
    assert!(fleets.has_locality("gateway", &Locality::zone_only("c")));
    assert!(!fleets.has_locality("gateway", &Locality::zone_only("d")));
}
