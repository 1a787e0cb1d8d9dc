//! `OBSERVED_LOAD` inside Envoy: the upstream filter times responses, and requests leave a slow
//! zone.

use std::thread;

use serde_json::json;

use crate::support::bootstrap::{
    Endpoint, bootstrap, cluster, module, policy, with_orca_filter, write_endpoints,
};
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send};
use crate::support::{scratch, wait_until};

/// Connections at a time, and requests of each.
const CONNECTIONS: usize = 10;
const REQUESTS: usize = 150;

#[test]
fn requests_leave_a_slow_zone() {
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
    for server in servers.iter().filter(|server| server.zone == "zone-a") {
        server.set_latency(6);
    }
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
    // At first all requests stay in their zone; the policy may move some within the first 1,500.
    let first = share();
    assert!(first > 0.7, "{first}");
    wait_until("requests leave the slow zone", || share() < 0.6);
    assert!(envoy.terminate().success());
}
