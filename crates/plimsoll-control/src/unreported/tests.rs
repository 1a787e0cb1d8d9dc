//! Nodes that subscribe and report, subscribe and do not report, and neither.

use plimsoll_xds::ads::Variant;
use plimsoll_xds::node::NodeInfo;

use super::*;
use crate::delivery::Class;
use crate::fleet::StreamKind;
use crate::server::StreamRecord;
use crate::state::tests::driver::{Driver, HEAD, fleet, parse};

/// Two services, reports every second.
fn driver() -> Driver {
    let services = "services: [{cluster: {name: orders}}, {cluster: {name: carts}}]";
    Driver::with_config(parse(&format!("{HEAD}{services}")))
}

/// A discovery stream of `node` that has subscribed to these assignments at the start.
fn subscribe(records: &Records, node: &NodeInfo, names: &[&str]) -> u64 {
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

/// `node: services` for every node that is listed.
fn listed(driver: &Driver, records: &Records) -> Vec<String> {
    let subscriptions = Subscriptions::of(records);
    let unreported = Unreported::new(&driver.state, &subscriptions, driver.now);
    let line = |(_, id, names): (_, &Arc<str>, &[Arc<str>])| format!("{id}: {}", names.join(" "));
    unreported.iter().map(line).collect()
}

#[test]
fn subscribed_services_that_no_report_names_are_listed() {
    let mut driver = driver();
    let [a, b, c] = &fleet(Class::Grpc);
    let records = Records::default();
    for node in [a, b, c] {
        driver.open(node);
        // The fleet's own assignment is not a service.
        subscribe(&records, node, &["orders", "carts", "local_cluster"]);
    }
    driver.report(a, "orders", 5);
    driver.report(a, "carts", 5);
    // As grpc-js did, which skips the first name that it is asked for.
    driver.report(b, "orders", 5);
    // Idle is not silent.
    driver.report(c, "carts", 0);
    driver.report(c, "unknown", 5);
    driver.pass(2999);
    assert_eq!(
        listed(&driver, &records),
        [""; 0],
        "not before three intervals"
    );
    driver.pass(1);
    assert_eq!(
        listed(&driver, &records),
        ["Grpc-b: carts", "Grpc-c: orders"]
    );
    driver.report(b, "carts", 1);
    driver.report(c, "orders", 1);
    driver.pass(60_000);
    assert_eq!(listed(&driver, &records), [""; 0], "idle since then");
}

#[test]
fn only_who_subscribes_and_has_a_reporting_stream_is_listed() {
    let mut driver = driver();
    let [a, b, c] = &fleet(Class::Envoy);
    let records = Records::default();
    driver.open(a);
    subscribe(&records, b, &["orders"]);
    driver
        .state
        .handle_open(b, StreamKind::Ads, false, driver.now);
    let number = subscribe(&records, c, &["orders", "carts"]);
    driver.open(c);
    driver.pass(10_000);
    assert_eq!(listed(&driver, &records), ["Envoy-c: carts orders"]);
    records.unsubscribe(number, &["carts".into()]);
    assert_eq!(listed(&driver, &records), ["Envoy-c: orders"]);
    driver.reload(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: carts}}}}]"
    )));
    assert_eq!(listed(&driver, &records), [""; 0], "not a service any more");
}

#[test]
fn a_new_stream_has_to_name_its_services_again() {
    let mut driver = driver();
    let [a, ..] = &fleet(Class::Envoy);
    let records = Records::default();
    subscribe(&records, a, &["orders"]);
    driver.open(a);
    driver.report(a, "orders", 5);
    driver.pass(5000);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.close(a);
    driver.open(a);
    driver.pass(2000);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.pass(1000);
    assert_eq!(listed(&driver, &records), ["Envoy-a: orders"]);
}

#[test]
fn a_subscription_is_new_when_it_is_made() {
    let mut driver = driver();
    let [a, ..] = &fleet(Class::Envoy);
    let records = Records::default();
    let number = subscribe(&records, a, &["orders"]);
    driver.open(a);
    driver.report(a, "orders", 5);
    driver.pass(5000);
    records.subscribe(number, &["carts".into()], driver.now);
    assert_eq!(listed(&driver, &records), [""; 0]);
    driver.pass(3000);
    assert_eq!(listed(&driver, &records), ["Envoy-a: carts"]);
}
