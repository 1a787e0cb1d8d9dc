//! Tests of checks of node identities: unknown localities and shared ids.

use plimsoll_core::model::locality::Locality;

use super::driver::{Driver, node, parse};
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::state::{ControlEvent, Suspicion};

fn in_region() -> Driver {
    Driver::with_config(parse(
        "services: [{cluster: {name: orders}, endpoints: [{locality: {region: r1, zone: zone-b}, \
         lb_endpoints: ['10.0.0.1:80']}]}]",
    ))
}

#[test]
fn a_node_without_its_region_is_reported_with_the_locality_that_it_means() {
    let mut driver = in_region();
    let lost = node(NodeClass::Envoy, "lost", "zone-b");
    driver.open(&lost);
    let reported = |driver: &Driver| -> Vec<ControlEvent> {
        let unknown = |event: &&ControlEvent| matches!(event, ControlEvent::UnknownLocality { .. });
        driver.events.iter().filter(unknown).cloned().collect()
    };
    let expected = ControlEvent::UnknownLocality {
        fleet: "gateway".into(),
        node: "lost".into(),
        locality: Locality::zone_only("zone-b"),
        nearest: Some(Locality::new("r1", "zone-b", "")),
    };
    // Two streams were opened; it is reported once.
    assert_eq!(reported(&driver), [expected]);
    let unknown: Vec<_> = driver.state.fleets().unknown_localities().collect();
    let zone = Locality::zone_only("zone-b");
    assert_eq!(unknown, [(&"gateway".into(), &zone, 1)]);
    let mut right = node(NodeClass::Envoy, "right", "zone-b");
    right.node.locality = Locality::new("r1", "zone-b", "");
    driver.open(&right);
    assert_eq!(reported(&driver).len(), 1);
    // Nodes without a locality are reported too.
    let mut nowhere = node(NodeClass::Envoy, "nowhere", "");
    nowhere.node.locality = Locality::default();
    driver.open(&nowhere);
    let last = reported(&driver).pop();
    assert!(
        matches!(&last, Some(ControlEvent::UnknownLocality { nearest: None, node, .. })
            if &**node == "nowhere"),
        "{last:?}"
    );
}

#[test]
fn two_proxies_with_one_id_are_reported_unless_one_reconnects() {
    let mut driver = Driver::new("");
    let twice = node(NodeClass::Envoy, "twice", "a");
    let grpc = node(NodeClass::Grpc, "grpc", "a");
    for node in [&twice, &twice, &grpc, &grpc] {
        driver.open(node);
    }
    let shared = |driver: &Driver| {
        let is_shared = |event: &&ControlEvent| matches!(event, ControlEvent::SharedId { .. });
        driver
            .events
            .iter()
            .filter(is_shared)
            .cloned()
            .collect::<Vec<_>>()
    };
    driver.advance(19_000);
    assert_eq!(shared(&driver), [], "it may have reconnected");
    driver.advance(2_000);
    let event = ControlEvent::SharedId {
        fleet: "gateway".into(),
        node: "twice".into(),
        streams: 2,
    };
    assert_eq!(shared(&driver), std::slice::from_ref(&event));
    // It stays a notice as long as it lasts, and is no further event.
    driver.advance(600_000);
    assert_eq!(shared(&driver), std::slice::from_ref(&event));
    let suspects = driver.state.suspects();
    let recent = suspects.recent(Suspicion::SharedId, driver.now);
    assert_eq!(
        recent.collect::<Vec<_>>(),
        [&("gateway".into(), "twice".into())]
    );
    driver.close(&twice);
    driver.advance(600_000);
    let suspects = driver.state.suspects();
    assert_eq!(suspects.recent(Suspicion::SharedId, driver.now).count(), 0);
    // A node that reconnects has two streams for a moment.
    driver.open(&twice);
    driver
        .state
        .handle_close(&twice, StreamKind::Ads, driver.now);
    driver
        .state
        .handle_close(&twice, StreamKind::Lrs, driver.now);
    driver.advance(60_000);
    assert_eq!(shared(&driver), [event]);
}

#[test]
fn a_limited_number_of_shared_ids_is_watched() {
    let mut driver = Driver::new("");
    let mut open = |id: usize, streams: usize| {
        let node = node(NodeClass::Envoy, &id.to_string(), "a");
        for _ in 0..streams {
            let now = driver.now;
            let opened = driver.state.handle_open(
                &node,
                StreamKind::Lrs,
                false,
                &crate::fleet::Peer::default(),
                now,
            );
            opened.unwrap();
        }
        driver.state.fleets.watched()
    };
    assert_eq!(open(0, 1), 0, "one stream is what a proxy opens");
    for id in 1..=1000 {
        assert_eq!(open(id, 2), id);
    }
    assert_eq!(open(1001, 2), 1000);
}
