//! Tests of the owner of fleets, without the other owners.

use super::*;
use crate::delivery::NodeClass;
use crate::state::tests::driver::node;

fn settings(nodes: usize) -> FleetSettings {
    FleetSettings {
        limits: FleetLimits {
            nodes,
            ..FleetLimits::default()
        },
        leave_after: Duration::from_secs(5),
        counted: None,
        known: BTreeSet::from([Locality::new("r", "a", "")]),
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

fn open(members: &mut Membership, id: &str, zone: &str, now: u64) -> Result<(), OpenRefusal> {
    let node = node(NodeClass::Envoy, id, zone);
    members.handle_open(&node, StreamKind::Ads, &Peer::default(), at(now))
}

fn close(members: &mut Membership, id: &str, zone: &str, now: u64) -> bool {
    let node = node(NodeClass::Envoy, id, zone).node;
    members.handle_close(&node, StreamKind::Ads, at(now))
}

fn due(members: &mut Membership, now: u64) -> Vec<(Arc<str>, u64)> {
    let due = std::iter::from_fn(|| members.poll_due(at(now)));
    let nodes = |hosts: &HostSetCounts| hosts.localities.iter().map(|zone| zone.all).sum();
    due.map(|(fleet, hosts)| (fleet, nodes(&hosts))).collect()
}

#[test]
fn a_new_zone_is_due_at_once_and_other_changes_are_batched() {
    let mut members = Membership::new(settings(10));
    open(&mut members, "1", "a", 0).unwrap();
    assert_eq!(due(&mut members, 0), [("gateway".into(), 1)]);
    open(&mut members, "2", "a", 0).unwrap();
    open(&mut members, "3", "a", 0).unwrap();
    assert_eq!(due(&mut members, 0), []);
    assert_eq!(members.poll_timeout(), Some(at(1)));
    assert_eq!(due(&mut members, 1), [("gateway".into(), 3)]);
    assert_eq!(members.poll_timeout(), None);
}

#[test]
fn nodes_without_a_stream_leave_unless_they_may_be_at_another_replica() {
    for (is_connected, leaves) in [(true, true), (false, false)] {
        let mut members = Membership::new(settings(10));
        open(&mut members, "1", "a", 0).unwrap();
        due(&mut members, 0);
        members.handle_store_connected(is_connected, at(0));
        assert!(close(&mut members, "1", "a", 0), "the last stream");
        members.handle_timeout(at(5));
        let left = members.poll_left();
        let expected = leaves.then(|| ("gateway".into(), "1".into()));
        assert_eq!(left, expected);
        if !leaves {
            // It starts over to wait when the store is back.
            members.handle_store_connected(true, at(7));
            assert_eq!(members.poll_timeout(), Some(at(12)));
        }
    }
}

#[test]
fn nodes_without_a_stream_leave_later_while_the_store_is_away_but_not_never() {
    let mut members = Membership::new(settings(10));
    open(&mut members, "1", "a", 0).unwrap();
    due(&mut members, 0);
    members.handle_store_connected(false, at(0));
    close(&mut members, "1", "a", 0);
    assert_eq!(
        members.poll_timeout(),
        Some(at(17)),
        "2 x 5 s and the time of a move"
    );
    members.handle_timeout(at(16));
    assert_eq!(members.poll_left(), None);
    members.handle_timeout(at(17));
    assert_eq!(members.poll_left(), Some(("gateway".into(), "1".into())));
}

#[test]
fn a_node_without_a_stream_makes_room_for_another_one() {
    let mut members = Membership::new(settings(1));
    open(&mut members, "1", "a", 0).unwrap();
    let refusal = open(&mut members, "2", "a", 1).unwrap_err();
    assert_eq!(refusal, OpenRefusal::Nodes(1));
    close(&mut members, "1", "a", 2);
    open(&mut members, "2", "a", 3).unwrap();
    let left = members.poll_left();
    assert_eq!(left, Some(("gateway".into(), "1".into())));
    let events: Vec<_> = std::iter::from_fn(|| members.poll_event()).collect();
    let refused = ControlEvent::StreamRefused {
        fleet: "gateway".into(),
        node: "2".into(),
        refusal,
    };
    assert_eq!(events.iter().filter(|event| **event == refused).count(), 1);
}

#[test]
fn a_shared_node_leaves_when_its_replica_has_gone_unless_it_has_a_stream() {
    for (has_stream, left) in [(false, true), (true, false)] {
        let mut members = Membership::new(settings(10));
        let shared = node(NodeClass::Envoy, "1", "a");
        members.handle_shared(&shared, at(0)).unwrap();
        if has_stream {
            open(&mut members, "1", "a", 0).unwrap();
        }
        let key = ("gateway".into(), "1".into());
        members.handle_unshared(&key, true, at(1));
        assert_eq!(members.fleets().member("gateway", "1").is_none(), left);
        assert_eq!(members.poll_left(), None, "its replica knows");
    }
}

#[test]
fn signs_of_other_owners_make_a_node_suspect() {
    let mut members = Membership::new(settings(10));
    let event = ControlEvent::DuplicateNode {
        fleet: "gateway".into(),
        node: "1".into(),
        replica: "r1".into(),
    };
    members.handle_event(&event, at(0));
    let suspects = members.suspects().recent(Suspicion::DuplicateId, at(1));
    let expected = ("gateway".into(), "1".into());
    assert_eq!(suspects.collect::<Vec<_>>(), [&expected]);
    assert_eq!(members.poll_event(), None, "its owner tells it");
}

#[test]
fn other_settings_make_all_fleets_due() {
    let mut members = Membership::new(settings(10));
    open(&mut members, "1", "a", 0).unwrap();
    due(&mut members, 0);
    let elsewhere = BTreeSet::from([Locality::zone_only("b")]);
    members.handle_settings(
        FleetSettings {
            counted: Some(elsewhere),
            ..settings(10)
        },
        at(1),
    );
    assert_eq!(due(&mut members, 1), [("gateway".into(), 0)]);
    let near = members.nearest_locality(&Locality::zone_only("a"));
    assert_eq!(near, Some(Locality::new("r", "a", "")));
}
