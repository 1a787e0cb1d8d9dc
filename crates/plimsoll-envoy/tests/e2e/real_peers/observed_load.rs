//! `OBSERVED_LOAD` inside Envoy: the upstream filter times responses, requests leave a slow zone,
//! and come back when it is the fastest.

use std::thread;

use serde_json::json;

use crate::support::bootstrap::{
    Endpoint, bootstrap, cluster, module, policy, with_orca_filter, write_endpoints,
};
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send};
use crate::support::{scratch, wait_to_see};

/// Milliseconds that the servers of a slow zone take.
const SLOW: u16 = 6;
/// Connections at a time, and requests of each: a share of 1,500 has a standard deviation of 1.3
/// points at most. It is waited for on both sides of a third, what host counts would give.
const CONNECTIONS: usize = 10;
const REQUESTS: usize = 150;

#[test]
fn requests_leave_a_slow_zone_and_return() {
    let directory = scratch("observed-load");
    let servers = Server::zones(&[("zone-a", 3), ("zone-b", 3), ("zone-c", 3)]);
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let rules = json!({ "locality_basis": "OBSERVED_LOAD", "min_cluster_size": 1 });
    let round_robin = json!({
        "@type": format!("{package}.round_robin.v3.RoundRobin"),
        "locality_lb_config": { "zone_aware_lb_config": rules },
    });
    let name = "envoy.load_balancing_policies.round_robin";
    let settings = json!({ "load_balancing_policy": { "policies": [
        { "typed_extension_config": { "name": name, "typed_config": round_robin } },
    ] } });
    write_endpoints(&directory, "orders", servers.iter().map(Endpoint::from));
    let orders = cluster(
        &directory,
        "orders",
        &policy("plimsoll", &module(&settings)),
    );
    let file = bootstrap(&[with_orca_filter(orders)], &[]);
    let envoy = Envoy::start("1.40.0", &directory, &file);
    let slow = |is_slow: fn(&str) -> bool| {
        for server in &servers {
            server.set_latency(if is_slow(server.zone) { SLOW } else { 0 });
        }
    };
    let local = || -> u64 {
        let own = servers.iter().filter(|server| server.zone == "zone-a");
        own.map(|server| server.requests()).sum()
    };
    let share = || {
        let before = local();
        let listener = envoy.listener;
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| thread::spawn(move || send(listener, "/orders", REQUESTS)))
            .collect();
        for client in clients {
            let all = Statuses::from([(200, REQUESTS as u64)]);
            assert_eq!(client.join().unwrap(), all);
        }
        (local() - before) as f64 / (CONNECTIONS * REQUESTS) as f64
    };
    slow(|zone| zone == "zone-a");
    wait_to_see("requests leave the slow zone", share, |share| *share < 0.6);
    slow(|zone| zone != "zone-a");
    wait_to_see("requests return to it", share, |share| *share > 0.7);
    assert!(envoy.terminate().success());
}
