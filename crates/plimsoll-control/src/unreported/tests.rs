//! Tests of nodes that subscribe to services and do or do not report their load.

use plimsoll_xds::ads::Variant;
use plimsoll_xds::node::NodeInfo;

use super::*;
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::server::StreamRecord;
use crate::state::tests::driver::{Driver, HEAD, fleet, parse};

/// A state with two services and load reports every second.
fn driver() -> Driver {
    let services = "services: [{cluster: {name: orders}}, {cluster: {name: carts}}]";
    Driver::with_config(parse(&format!("{HEAD}{services}")))
}

/// Adds a discovery stream of `node` that subscribed to these assignments at time zero.
fn subscribe(records: &StreamRecords, node: &NodeInfo, names: &[&str]) -> u64 {
    let number = records.open(StreamRecord {
        node: Arc::new(node.clone()),
        peer: None,
        variant: Variant::Sotw,
        since: Instant::ORIGIN,
        types: Vec::new(),
        assignments: BTreeMap::new(),
    });
    let names: Vec<Arc<str>> = names.iter().map(|&name| name.into()).collect();
    records.subscribe(number, &names, Instant::ORIGIN);
    number
}

/// Returns `node: services` for every node with unreported services.
fn listed(driver: &Driver, records: &StreamRecords) -> Vec<String> {
    let subscriptions = Subscriptions::of(records);
    let unreported = Unreported::new(&driver.state, &subscriptions, driver.now);
    let line = |(_, id, names): (_, &Arc<str>, &[Arc<str>])| format!("{id}: {}", names.join(" "));
    unreported.iter().map(line).collect()
}

#[test]
fn subscribed_services_without_reports_are_listed() {
    let mut driver = driver();
    let [a, b, c] = &fleet(NodeClass::Grpc);
    let records = StreamRecords::default();
    for node in [a, b, c] {
        driver.open(node);
        // `local_cluster` is the fleet's own assignment, not a service.
        subscribe(&records, node, &["orders", "carts", "local_cluster"]);
    }
    driver.report(a, "orders", 5);
    driver.report(a, "carts", 5);
    // Like grpc-js, which skips the first cluster name of the LRS response.
    driver.report(b, "orders", 5);
    // A report with zero requests counts as a report about the service.
    driver.report(c, "carts", 0);
    driver.report(c, "unknown", 5);
    driver.advance(2999);
    assert_eq!(
        listed(&driver, &records),
        [""; 0],
        "not before three intervals"
    );
    driver.advance(1);
    assert_eq!(
        listed(&driver, &records),
        ["Grpc-b: carts", "Grpc-c: orders"]
    );
    let subscriptions = Subscriptions::of(&records);
    let unreported = Unreported::new(&driver.state, &subscriptions, driver.now);
    let of = |node: &NodeInfo| unreported.of(&node.node.cluster, &node.node.id).to_vec();
    assert_eq!([a, b].map(of), [vec![], vec!["carts".into()]]);
    driver.report(b, "carts", 1);
    driver.report(c, "orders", 1);
    driver.advance(60_000);
    assert_eq!(listed(&driver, &records), [""; 0], "idle since then");
}

#[test]
fn only_subscribers_with_a_reporting_stream_are_listed() {
    let mut driver = driver();
    let [a, b, c] = &fleet(NodeClass::Envoy);
    let records = StreamRecords::default();
    driver.open(a);
    subscribe(&records, b, &["orders"]);
    driver
        .state
        .handle_open(
            b,
            StreamKind::Ads,
            false,
            &crate::fleet::Peer::default(),
            driver.now,
        )
        .unwrap();
    let number = subscribe(&records, c, &["orders", "carts"]);
    driver.open(c);
    driver.advance(10_000);
    assert_eq!(listed(&driver, &records), ["Envoy-c: carts orders"]);
    records.unsubscribe(number, &["carts".into()]);
    assert_eq!(listed(&driver, &records), ["Envoy-c: orders"]);
    driver.reload(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: carts}}}}]"
    )));
    assert_eq!(listed(&driver, &records), [""; 0], "not a service any more");
}

#[test]
fn a_new_reporting_stream_starts_over() {
    let mut driver = driver();
    let [a, ..] = &fleet(NodeClass::Envoy);
    let records = StreamRecords::default();
    subscribe(&records, a, &["orders"]);
    driver.open(a);
    driver.report(a, "orders", 5);
    driver.advance(5000);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.close(a);
    driver.open(a);
    driver.advance(2000);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.advance(1000);
    assert_eq!(listed(&driver, &records), ["Envoy-a: orders"]);
}

#[test]
fn a_new_subscription_has_three_intervals() {
    let mut driver = driver();
    let [a, ..] = &fleet(NodeClass::Envoy);
    let records = StreamRecords::default();
    let number = subscribe(&records, a, &["orders"]);
    driver.open(a);
    driver.report(a, "orders", 5);
    driver.advance(5000);
    records.subscribe(number, &["carts".into()], driver.now);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.advance(3000);
    assert_eq!(listed(&driver, &records), ["Envoy-a: carts"]);
}
