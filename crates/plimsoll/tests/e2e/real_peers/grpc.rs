//! Real gRPC clients (C-core, through Python) follow weights of their zone and report their load.

use std::collections::BTreeMap;

use crate::support::control::Control;
use crate::support::grpc::Peer;
use crate::support::{scratch, wait_until};

#[test]
fn clients_follow_the_weights_of_their_zone_and_report() {
    let folder = scratch("grpc");
    let zones = ["zone-a", "zone-a", "zone-b", "zone-b"];
    let (_servers, ports) = Peer::serve(&folder, &zones);
    let config = format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 3s}}
services:
- cluster:
    name: orders
    common_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1}}}}
  endpoints:
  - locality: {{region: r1, zone: zone-a}}
    lb_endpoints: ['127.0.0.1:{}', '127.0.0.1:{}']
  - locality: {{region: r1, zone: zone-b}}
    lb_endpoints: ['127.0.0.1:{}', '127.0.0.1:{}']
",
        ports[0], ports[1], ports[2], ports[3]
    );
    let control = Control::start(&folder, &config);
    // Three quarters of the demand against one half of the servers.
    let mut a = Peer::call(&folder, &control, "zone-a", 150);
    let mut b = Peer::call(&folder, &control, "zone-b", 50);
    wait_until("load reports of both zones have arrived", || {
        let fractions = control.service_fractions("orders");
        let zone_a = fractions.get("zone-a").copied().unwrap_or_default();
        zone_a.abs_diff(7500) <= 300 && fractions.len() == 2
    });
    let node = control.node("checkout-zone-a");
    assert_eq!(node["class"], "grpc");
    assert_eq!(node["delivery"][0]["delivery"], "locality_weights");
    assert_eq!(node["load_reporting_streams"], 1);
    assert!(
        node["requests_per_second"].as_f64().unwrap() > 0.0,
        "{node}"
    );

    // One standard deviation is 1.2 points.
    let from_a = gained(&mut a, 1500);
    let local = share(&from_a, "zone-a");
    assert!((local - 0.667).abs() < 0.06, "{from_a:?}");
    let from_b = gained(&mut b, 300);
    assert!(share(&from_b, "zone-b") > 0.97, "{from_b:?}");
    for counts in [a.counts(), b.counts()] {
        assert_eq!(counts.get(""), None, "failed calls: {counts:?}");
    }
}

/// What a client counts while it makes `calls` more.
fn gained(client: &mut Peer, calls: u64) -> BTreeMap<String, u64> {
    let before = client.counts();
    let mut after = BTreeMap::new();
    wait_until("calls are answered", || {
        after = client.counts();
        after.values().sum::<u64>() >= before.values().sum::<u64>() + calls
    });
    for (zone, count) in &mut after {
        *count -= before.get(zone).copied().unwrap_or_default();
    }
    after
}

fn share(counts: &BTreeMap<String, u64>, zone: &str) -> f64 {
    let total: u64 = counts.values().sum();
    counts.get(zone).copied().unwrap_or_default() as f64 / total as f64
}
