//! A control plane that dies under a module: the last demand is kept until it is stale, then host
//! counts decide. No request fails, and Envoy's log says what happens.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::bootstrap::{
    Endpoint, bootstrap, cluster, module, policy, socket, write_endpoints, zone_aware,
};
use crate::support::demand::DemandServer;
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{send, shares};
use crate::support::{scratch, wait_until};

/// Most of the demand arrives in the zone of the Envoy, a third of the servers is there.
const DEMAND: &[(&str, u64)] = &[("zone-a", 6000), ("zone-b", 2000), ("zone-c", 2000)];
/// Share that stays local by that demand: 1/3 of 0.6; by host counts everything does.
const BY_DEMAND: f64 = 0.5556;
/// Requests of a measurement; one standard deviation is 2.5 points, the two shares are 44 apart.
const REQUESTS: usize = 400;

fn start(directory: &Path, control: SocketAddr, servers: &[Arc<Server>]) -> Envoy {
    let rules = json!({
        "min_cluster_size": 1,
        "locality_basis": "LRS_REPORTED_RATE",
        "lrs_rate_config": { "staleness_threshold": "15s" },
    });
    let mut config = module(&zone_aware(&rules));
    config["node"]["id"] = json!("gateway");
    config["node"]["cluster"] = json!("gateway");
    config["management_server"] = management_server(control);
    let policy = policy("plimsoll", &config);
    let clusters = ["fleet", "orders"].map(|name| {
        write_endpoints(directory, name, servers.iter().map(Endpoint::from));
        cluster(directory, name, &policy)
    });
    Envoy::start("1.40.0", directory, &bootstrap(&clusters, &[]))
}

fn management_server(address: SocketAddr) -> Value {
    let endpoint = json!({ "endpoint": { "address": socket(address) } });
    let endpoints = json!([{ "lb_endpoints": [endpoint] }]);
    json!({
        "name": "control",
        "type": "STATIC",
        "load_assignment": { "cluster_name": "control", "endpoints": endpoints },
    })
}

#[test]
fn a_dead_control_plane_costs_no_request_and_is_logged() {
    let directory = scratch("control-plane");
    let servers = Server::zones(&[("zone-a", 3), ("zone-b", 3), ("zone-c", 3)]);
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let control = DemandServer::start(any_port, "orders", DEMAND);
    let envoy = start(&directory, control.address, &servers);
    // Fails if a request does.
    let local = || shares(envoy.listener, "/orders", &servers, REQUESTS)["zone-a"];
    let follows_demand = |share: f64| (share - BY_DEMAND).abs() < 0.15;
    let logs = |text: &str| envoy.log().contains(text);
    wait_until("requests follow the demand", || follows_demand(local()));

    let address = control.stop();
    wait_until("the loss is logged", || logs("LRS stream closed"));
    let kept = local();
    // On a machine that holds the test up for 15 s, it is stale already.
    let is_kept = follows_demand(kept) || logs("fractions are stale");
    assert!(is_kept, "the last demand is kept: {kept}");

    wait_until("stale demand is logged", || {
        assert!(local() > 0.0);
        logs("fractions are stale")
    });
    wait_until("host counts decide", || local() > 0.95);
    let log = envoy.log();
    let stale = log
        .lines()
        .find(|line| line.contains("fractions are stale"))
        .unwrap();
    for part in [
        "[warning]",
        "cluster=\"orders\"",
        "threshold_s=15.0",
        "age_s=15",
    ] {
        assert!(stale.contains(part), "no {part} in {stale}");
    }
    let counter = "dynamicmodulescustom.plimsoll.lrs_fractions_stale.cluster.orders";
    wait_until("stale demand is counted", || {
        send(envoy.listener, "/orders", 20);
        envoy.stat(counter) == 1
    });

    let control = DemandServer::start(address, "orders", DEMAND);
    wait_until("requests follow the demand again", || {
        follows_demand(local())
    });
    for line in ["LRS stream restored", "fractions are fresh again"] {
        wait_until(line, || logs(line));
    }
    assert!(envoy.terminate().success());
    control.stop();
}
