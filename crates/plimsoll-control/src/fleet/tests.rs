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
    let assignment = fleets.representatives("gateway");
    let zone = |entry: &plimsoll_core::model::assignment::LocalityLbEndpoints| {
        (entry.locality.zone().to_owned(), entry.lb_endpoints.len())
    };
    assignment.endpoints().iter().map(zone).collect()
}

/// Opens a stream; returns whether the fleet changed.
fn open(fleets: &mut Fleets, info: &NodeInfo, kind: StreamKind, now: Instant) -> bool {
    fleets
        .open(info, kind, &Peer::default(), now)
        .unwrap()
        .changed
}

fn fleet_node(fleet: &str, id: &str, zone: &str) -> NodeInfo {
    let mut info = node(id, zone);
    info.node.cluster = fleet.into();
    info
}

fn limited(nodes: usize, fleets: usize, zones_per_fleet: usize) -> Fleets {
    let mut all = Fleets::default();
    all.set_limits(FleetLimits {
        nodes,
        fleets,
        zones_per_fleet,
        ..FleetLimits::default()
    });
    all
}

#[test]
fn nodes_join_with_their_first_stream() {
    let mut fleets = Fleets::default();
    assert!(open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0)));
    assert!(open(&mut fleets, &node("2", "a"), StreamKind::Lrs, at(0)));
    assert!(open(&mut fleets, &node("3", "b"), StreamKind::Ads, at(0)));
    assert!(
        !open(&mut fleets, &node("3", "b"), StreamKind::Lrs, at(1)),
        "known"
    );
    assert_eq!(zones(&fleets), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let counted = HostSetCounts::of_assignment(&fleets.representatives("gateway"), 0, None);
    assert_eq!(fleets.counts("gateway"), counted);
    let name = Arc::clone(fleets.representatives("gateway").cluster_name());
    assert_eq!(&*name, "gateway");
    assert!(fleets.representatives("other").endpoints().is_empty());
    assert_eq!(fleets.counts("other"), HostSetCounts::default());
}

#[test]
fn a_reconnect_does_not_change_membership() {
    let mut fleets = Fleets::default();
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    open(&mut fleets, &node("1", "a"), StreamKind::Lrs, at(0));
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
    assert!(!open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(35)));
    assert_eq!(fleets.deadline(LEAVE_AFTER), None);
}

#[test]
fn disconnected_nodes_leave() {
    let mut fleets = Fleets::default();
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    open(&mut fleets, &node("2", "a"), StreamKind::Ads, at(0));
    fleets.close("gateway", "1", StreamKind::Ads, at(1));
    assert_eq!(
        fleets.expire(LEAVE_AFTER, at(31)),
        [("gateway".into(), "1".into())]
    );
    assert_eq!(zones(&fleets), [("a".to_owned(), 1)]);
    assert!(
        !fleets.close("gateway", "1", StreamKind::Ads, at(32)),
        "long gone"
    );
}

#[test]
fn a_node_that_moves_changes_the_fleet() {
    let mut fleets = Fleets::default();
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    assert!(open(&mut fleets, &node("1", "b"), StreamKind::Ads, at(1)));
    assert_eq!(zones(&fleets), [("b".to_owned(), 1)]);
}

#[test]
fn addresses_are_derived_from_ids_and_distinct() {
    let mut first = Fleets::default();
    let mut second = Fleets::default();
    for id in 0..200 {
        open(
            &mut first,
            &node(&id.to_string(), "a"),
            StreamKind::Ads,
            at(0),
        );
        open(
            &mut second,
            &node(&(199 - id).to_string(), "a"),
            StreamKind::Ads,
            at(0),
        );
    }
    let assignment = first.representatives("gateway");
    assert_eq!(assignment, second.representatives("gateway"));
    let endpoints = &assignment.endpoints()[0].lb_endpoints;
    assert_eq!(endpoints.len(), 200);
    assert!(endpoints.iter().all(|endpoint| match endpoint.address {
        SocketAddr::V4(address) => (240..248).contains(&address.ip().octets()[0]),
        SocketAddr::V6(_) => false,
    }));
}

#[test]
fn an_address_that_is_taken_is_not_assigned_again() {
    let mut fleet = Fleet::default();
    for taken in 0..3 {
        let address = fleet.free_address("1");
        assert!(fleet.addresses.insert(address), "{taken} addresses before");
    }
}

#[test]
fn a_load_reporting_stream_from_another_zone_moves_the_node() {
    let mut fleets = Fleets::default();
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    assert!(open(&mut fleets, &node("1", "b"), StreamKind::Lrs, at(1)));
    let member = fleets.member("gateway", "1").unwrap();
    assert_eq!(member.info.node.locality, Locality::zone_only("b"));
    assert_eq!(zones(&fleets), [("b".to_owned(), 1)]);
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
        open(
            &mut fleets,
            &node(&id.to_string(), zone),
            StreamKind::Ads,
            at(0),
        );
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

#[test]
fn nodes_beyond_the_limit_are_refused_until_one_leaves() {
    let mut fleets = limited(2, 10, 10);
    let now = at(0);
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, now);
    open(&mut fleets, &node("2", "a"), StreamKind::Ads, now);
    open(&mut fleets, &node("2", "a"), StreamKind::Lrs, now);
    let third = fleet_node("batch", "3", "a");
    let refused = fleets.open(&third, StreamKind::Ads, &Peer::default(), now);
    assert_eq!(refused, Err(OpenRefusal::Nodes(2)));
    assert_eq!(fleets.node_count("batch"), 0);
    // A node without a stream makes room before its time.
    fleets.close("gateway", "1", StreamKind::Ads, at(1));
    let opened = fleets
        .open(&third, StreamKind::Ads, &Peer::default(), at(2))
        .unwrap();
    assert_eq!(opened.left, [("gateway".into(), "1".into())]);
    assert_eq!(
        (fleets.node_count("gateway"), fleets.node_count("batch")),
        (1, 1)
    );
    assert_eq!(fleets.deadline(LEAVE_AFTER), None);
    assert_eq!(
        fleets.open(&node("1", "a"), StreamKind::Ads, &Peer::default(), at(3)),
        Err(OpenRefusal::Nodes(2))
    );
    // Expiry makes room as well.
    fleets.close("batch", "3", StreamKind::Ads, at(3));
    assert_eq!(
        fleets.expire(LEAVE_AFTER, at(33)),
        [("batch".into(), "3".into())]
    );
    let opened = fleets
        .open(&node("1", "a"), StreamKind::Ads, &Peer::default(), at(33))
        .unwrap();
    assert!(opened.left.is_empty());
}

#[test]
fn fleets_beyond_the_limit_are_refused() {
    let mut fleets = limited(10, 2, 10);
    for name in ["one", "two"] {
        open(
            &mut fleets,
            &fleet_node(name, "1", "a"),
            StreamKind::Ads,
            at(0),
        );
    }
    let refused = fleets.open(
        &fleet_node("three", "1", "a"),
        StreamKind::Ads,
        &Peer::default(),
        at(0),
    );
    assert_eq!(refused, Err(OpenRefusal::Fleets(2)));
    let known = fleets.open(
        &fleet_node("two", "2", "a"),
        StreamKind::Ads,
        &Peer::default(),
        at(0),
    );
    assert!(known.is_ok(), "a fleet that is known may grow");
    fleets.close("one", "1", StreamKind::Ads, at(1));
    let opened = fleets.open(
        &fleet_node("three", "1", "a"),
        StreamKind::Ads,
        &Peer::default(),
        at(1),
    );
    assert_eq!(opened.unwrap().left, [("one".into(), "1".into())]);
}

#[test]
fn zones_without_endpoints_are_limited_and_not_counted() {
    let mut fleets = limited(10, 10, 2);
    fleets.set_zones(Some(["a", "b"].map(Locality::zone_only).into()));
    for (id, zone) in [("1", "x"), ("2", "y"), ("3", "a")] {
        let opened = fleets
            .open(&node(id, zone), StreamKind::Ads, &Peer::default(), at(0))
            .unwrap();
        assert_eq!(opened.new_zone, zone == "a", "{zone}");
    }
    let refused = fleets.open(&node("4", "z"), StreamKind::Ads, &Peer::default(), at(0));
    assert_eq!(refused, Err(OpenRefusal::Zones(2)));
    let moved = fleets.open(&node("3", "z"), StreamKind::Ads, &Peer::default(), at(0));
    assert_eq!(
        moved,
        Err(OpenRefusal::Zones(2)),
        "a known node is not exempt"
    );
    open(&mut fleets, &node("5", "x"), StreamKind::Ads, at(0));
    open(&mut fleets, &node("6", "b"), StreamKind::Ads, at(0));
    assert_eq!(zones(&fleets), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(
        (
            fleets.node_count("gateway"),
            fleets.counted_nodes("gateway")
        ),
        (5, 2)
    );
    let counted = HostSetCounts::of_assignment(&fleets.representatives("gateway"), 0, None);
    assert_eq!(fleets.counts("gateway"), counted);
    // Once a zone is configured, its nodes count.
    fleets.set_zones(Some(["x"].map(Locality::zone_only).into()));
    assert_eq!(zones(&fleets), [("x".to_owned(), 2)]);
    fleets.set_zones(None);
    assert_eq!(fleets.counted_nodes("gateway"), 5);
    assert!(fleets.counts_zone(&Locality::zone_only("z")));
}

#[test]
fn without_configured_zones_all_count_and_are_limited() {
    let mut fleets = limited(10, 10, 2);
    for (id, zone) in [("1", "x"), ("2", "y")] {
        open(&mut fleets, &node(id, zone), StreamKind::Ads, at(0));
    }
    let refused = fleets.open(&node("3", "z"), StreamKind::Ads, &Peer::default(), at(0));
    assert_eq!(refused, Err(OpenRefusal::Zones(2)));
    // A zone is free again when its last node has left.
    fleets.close("gateway", "1", StreamKind::Ads, at(0));
    fleets.expire(LEAVE_AFTER, at(30));
    assert!(!fleets.has_locality("gateway", &Locality::zone_only("x")));
    assert!(open(&mut fleets, &node("3", "z"), StreamKind::Ads, at(30)));
}

/// A peer at `10.0.0.<last>`.
fn peer(last: u8) -> Peer {
    IpAddr::from([10, 0, 0, last]).into()
}

#[test]
fn an_id_belongs_to_the_peer_of_its_open_streams() {
    let mut fleets = Fleets::default();
    let [first, second] = [1, 2].map(peer);
    let info = node("1", "a");
    fleets.open(&info, StreamKind::Ads, &first, at(0)).unwrap();
    let refused = OpenRefusal::DuplicateId {
        first: first.clone(),
        second: second.clone(),
    };
    // Also of another kind, and from another zone: the node is not moved.
    let elsewhere = node("1", "b");
    for kind in [StreamKind::Ads, StreamKind::Lrs, StreamKind::Module] {
        let opened = fleets.open(&elsewhere, kind, &second, at(1));
        assert_eq!(opened.unwrap_err(), refused);
    }
    assert_eq!(zones(&fleets), [("a".to_owned(), 1)]);
    fleets.open(&info, StreamKind::Lrs, &first, at(1)).unwrap();
    fleets
        .open(&info, StreamKind::Module, &first, at(1))
        .unwrap();
    // Another replica that serves the node says nothing about its peer.
    fleets.share(&info, at(1)).unwrap();
    for kind in [StreamKind::Ads, StreamKind::Lrs, StreamKind::Module] {
        assert!(fleets.open(&info, kind, &second, at(2)).is_err());
        fleets.close("gateway", "1", kind, at(2));
    }
    // The node has moved to another address.
    fleets.open(&info, StreamKind::Lrs, &second, at(3)).unwrap();
    assert!(fleets.open(&info, StreamKind::Lrs, &first, at(3)).is_err());
    let other = fleet_node("other", "1", "a");
    fleets.open(&other, StreamKind::Lrs, &first, at(3)).unwrap();
}

#[test]
fn a_node_has_so_many_streams_of_a_kind() {
    let mut fleets = Fleets::default();
    fleets.set_limits(FleetLimits {
        streams_per_node: 2,
        ..FleetLimits::default()
    });
    let info = fleet_node("one", "1", "a");
    let open = |fleets: &mut Fleets, kind: StreamKind| {
        let opened = fleets.open(&info, kind, &peer(1), at(0));
        opened.err().map(|refusal| refusal.limit())
    };
    for kind in [StreamKind::Ads, StreamKind::Lrs, StreamKind::Module] {
        assert_eq!([0; 2].map(|_| open(&mut fleets, kind)), [None; 2]);
        assert_eq!(open(&mut fleets, kind), Some("streams_per_node"));
    }
    // A refused stream counts for nothing, and one that closes makes room for another.
    assert!(!fleets.close("one", "1", StreamKind::Ads, at(1)));
    assert_eq!(open(&mut fleets, StreamKind::Ads), None);
    assert_eq!(open(&mut fleets, StreamKind::Ads), Some("streams_per_node"));
}

#[test]
fn a_peer_has_a_part_of_the_nodes_and_fleets() {
    let mut fleets = Fleets::default();
    fleets.set_limits(FleetLimits {
        nodes_per_peer: 3,
        fleets_per_peer: 2,
        ..FleetLimits::default()
    });
    let kind = StreamKind::Ads;
    let open = |fleets: &mut Fleets, fleet: &str, id: &str, peer: &Peer| {
        let info = fleet_node(fleet, id, "a");
        let opened = fleets.open(&info, kind, peer, at(0));
        opened.err().map(|refusal| refusal.limit())
    };
    let [greedy, other] = [1, 2].map(peer);
    assert_eq!(open(&mut fleets, "one", "1", &greedy), None);
    assert_eq!(open(&mut fleets, "two", "1", &greedy), None);
    let refused = open(&mut fleets, "three", "1", &greedy);
    assert_eq!(refused, Some("fleets_per_peer"));
    assert_eq!(open(&mut fleets, "two", "2", &greedy), None);
    let refused = open(&mut fleets, "two", "3", &greedy);
    assert_eq!(refused, Some("nodes_per_peer"));
    assert_eq!(open(&mut fleets, "two", "2", &greedy), None, "is known");
    for (fleet, id) in [("three", "1"), ("two", "3")] {
        assert_eq!(open(&mut fleets, fleet, id, &other), None);
    }
    // Neither loopback nor a node of another replica counts.
    let local = Peer::from(IpAddr::from([127, 0, 0, 1]));
    for id in 10..20 {
        let shared = fleet_node("one", &format!("shared-{id}"), "a");
        fleets.share(&shared, at(0)).unwrap();
        assert_eq!(open(&mut fleets, "one", &id.to_string(), &local), None);
    }
    // A node that has left makes room, and so does a fleet.
    for id in ["2", "2", "1"] {
        fleets.close("two", id, kind, at(1));
    }
    let refused = open(&mut fleets, "two", "4", &greedy);
    assert_eq!(refused, Some("nodes_per_peer"), "not yet left");
    fleets.expire(LEAVE_AFTER, at(40));
    assert_eq!(open(&mut fleets, "two", "4", &greedy), None);
    fleets.close("two", "4", kind, at(40));
    fleets.close("two", "3", kind, at(40));
    fleets.expire(LEAVE_AFTER, at(80));
    assert_eq!(open(&mut fleets, "four", "1", &greedy), None);
}

#[test]
fn peers_without_nodes_are_forgotten() {
    let mut fleets = Fleets::default();
    let info = node("1", "a");
    fleets
        .open(&info, StreamKind::Ads, &peer(1), at(0))
        .unwrap();
    assert!(!fleets.peers.is_empty());
    fleets.close("gateway", "1", StreamKind::Ads, at(0));
    fleets.expire(LEAVE_AFTER, at(30));
    assert!(fleets.peers.is_empty());
}

#[test]
fn a_module_inside_an_envoy_shares_its_node() {
    use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE};
    let mut fleets = Fleets::default();
    let envoy = node("1", "a");
    let mut module = node("1", "a");
    module.user_agent_version.clear();
    module.client_features = [ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE]
        .map(str::to_owned)
        .into();
    assert_eq!(StreamKind::of_lrs(&envoy), StreamKind::Lrs);
    assert_eq!(StreamKind::of_lrs(&module), StreamKind::Module);
    // Without discovery, the module decides the class; Envoy knows its version.
    assert!(open(&mut fleets, &module, StreamKind::Module, at(0)));
    assert!(!open(&mut fleets, &envoy, StreamKind::Lrs, at(0)));
    let classes = |fleets: &Fleets| fleets.classes("gateway").collect::<Vec<_>>();
    assert_eq!(classes(&fleets), [NodeClass::EnvoyModule]);
    let member = fleets.member("gateway", "1").unwrap();
    assert_eq!((member.lrs_streams, member.module_streams), (1, 1));
    assert_eq!(member.info.user_agent_version, "1.40.0");
    // An Envoy that does not announce the module gets the clusters of a stock Envoy.
    open(&mut fleets, &envoy, StreamKind::Ads, at(1));
    assert_eq!(classes(&fleets), [NodeClass::Envoy]);
    // The stream of the module is none of load reports.
    assert!(fleets.close("gateway", "1", StreamKind::Lrs, at(2)));
    let member = fleets.member("gateway", "1").unwrap();
    assert!(member.lrs_since.is_none() && member.has_stream());
}

#[test]
fn a_module_that_connects_after_its_envoy_changes_the_class() {
    use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE};
    let mut fleets = Fleets::default();
    let envoy = node("1", "a");
    let mut module = envoy.clone();
    module.client_features = [ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE]
        .map(str::to_owned)
        .into();
    for (info, kind, class) in [
        (&envoy, StreamKind::Lrs, NodeClass::Envoy),
        (&module, StreamKind::Module, NodeClass::EnvoyModule),
    ] {
        assert_eq!(
            open(&mut fleets, info, kind, at(0)),
            kind == StreamKind::Lrs
        );
        assert_eq!(fleets.classes("gateway").collect::<Vec<_>>(), [class]);
    }
}

#[test]
fn nodes_of_other_replicas_join_move_and_leave() {
    let mut fleets = Fleets::default();
    let (gateway, id) = ("gateway".into(), "1".into());
    let joined = Opened {
        changed: true,
        new_zone: true,
        left: Vec::new(),
    };
    let share = |fleets: &mut Fleets, zone| fleets.share(&node("1", zone), at(0)).unwrap();
    assert_eq!(share(&mut fleets, "a"), joined);
    assert_eq!(share(&mut fleets, "a"), Opened::default());
    assert_eq!(share(&mut fleets, "b"), joined);
    assert_eq!(zones(&fleets), [("b".to_owned(), 1)]);
    // Without a replica it leaves later, and at once if it is gone.
    assert!(!fleets.remove_shared(&gateway, &id, false, at(1)));
    assert_eq!(fleets.deadline(LEAVE_AFTER), Some(at(31)));
    fleets.restart_leaving(at(10));
    assert_eq!(fleets.deadline(LEAVE_AFTER), Some(at(40)));
    let member = fleets.member("gateway", "1").unwrap();
    assert_eq!(member.disconnected_since, Some(at(10)));
    assert!(fleets.remove_shared(&gateway, &id, true, at(11)));
    assert_eq!(
        (fleets.node_count("gateway"), fleets.deadline(LEAVE_AFTER)),
        (0, None)
    );
    assert!(
        !fleets.remove_shared(&gateway, &id, true, at(12)),
        "long gone"
    );
}

#[test]
fn a_node_with_a_stream_is_not_changed_by_another_replica() {
    let mut fleets = Fleets::default();
    let (gateway, id) = ("gateway".into(), "1".into());
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    let elsewhere = node("1", "b");
    assert_eq!(fleets.share(&elsewhere, at(1)), Ok(Opened::default()));
    assert_eq!(zones(&fleets), [("a".to_owned(), 1)]);
    assert!(!fleets.remove_shared(&gateway, &id, true, at(2)));
    assert_eq!(fleets.node_count("gateway"), 1, "it has a stream");
    // Without its stream it stays as long as another replica serves it.
    fleets.share(&elsewhere, at(3)).unwrap();
    fleets.close("gateway", "1", StreamKind::Ads, at(4));
    assert_eq!(fleets.deadline(LEAVE_AFTER), None);
    assert!(!fleets.remove_shared(&gateway, &id, false, at(5)));
    assert_eq!(fleets.deadline(LEAVE_AFTER), Some(at(35)));
}

#[test]
fn nodes_of_other_replicas_count_towards_the_limit() {
    let mut fleets = limited(1, 10, 10);
    open(&mut fleets, &node("1", "a"), StreamKind::Ads, at(0));
    fleets.close("gateway", "1", StreamKind::Ads, at(1));
    let opened = fleets.share(&node("2", "a"), at(2)).unwrap();
    assert_eq!(opened.left, [("gateway".into(), "1".into())]);
    let refused = fleets.share(&node("3", "a"), at(3));
    assert_eq!(refused, Err(OpenRefusal::Nodes(1)));
}

#[test]
fn services_in_load_reports_are_kept_for_known_nodes() {
    let mut fleets = Fleets::default();
    let [known, stranger] = ["1", "2"].map(|id| node(id, "a"));
    open(&mut fleets, &known, StreamKind::Lrs, at(0));
    for service in ["orders", "carts", "orders"] {
        fleets.reported(&known.node, &service.into());
        fleets.reported(&stranger.node, &service.into());
    }
    let all: Vec<_> = fleets.members("gateway").collect();
    let [member] = all[..] else {
        panic!("{all:?}");
    };
    assert!(
        member
            .reported
            .iter()
            .eq([&"carts".into(), &"orders".into()])
    );
}

#[test]
fn localities_that_do_not_count_are_listed_with_their_nodes() {
    let mut fleets = Fleets::default();
    for (id, zone) in [("1", "a"), ("2", "x"), ("3", "x"), ("4", "")] {
        open(&mut fleets, &node(id, zone), StreamKind::Ads, at(0));
    }
    let unknown = |fleets: &Fleets| -> Vec<(String, usize)> {
        let all = fleets.unknown_localities();
        let row = |(fleet, zone, nodes): (&Arc<str>, &Locality, usize)| {
            assert_eq!(&**fleet, "gateway");
            (zone.zone().to_owned(), nodes)
        };
        all.map(row).collect()
    };
    assert_eq!(unknown(&fleets), [(String::new(), 1)]);
    fleets.set_zones(Some(["a"].map(Locality::zone_only).into()));
    assert_eq!(unknown(&fleets), [(String::new(), 1), ("x".to_owned(), 2)]);
}

#[test]
fn the_second_stream_of_a_module_node_is_no_shared_id() {
    use crate::state::tests::driver::Driver;
    let mut driver = Driver::new("");
    let envoy = crate::state::tests::driver::node(NodeClass::EnvoyModule, "1", "a");
    let key = driver.open(&envoy);
    let mut module = envoy.clone();
    module
        .client_features
        .push(plimsoll_xds::node::PLIMSOLL_FEATURE.to_owned());
    let kind = StreamKind::of_lrs(&module);
    driver
        .state
        .handle_open(&module, kind, false, &Peer::default(), driver.now)
        .unwrap();
    driver.drain();
    driver.advance(60_000);
    let shared = |event: &crate::state::ControlEvent| {
        matches!(event, crate::state::ControlEvent::SharedId { .. })
    };
    assert!(!driver.events.iter().any(shared), "{:?}", driver.events);
    assert_eq!(key.class, NodeClass::EnvoyModule);
}
