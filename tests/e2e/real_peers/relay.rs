//! The control plane as a relay of another management server: Envoys get their clusters and
//! endpoints from that server, and balance by measured demand.

use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::fleet::{Testbed, TestbedSpec, start_backends};
use crate::support::management_server::ManagementServer;
use crate::support::{scratch, wait_until};

#[test]
fn envoys_behind_a_relay_balance_by_demand() {
    for (name, service) in [
        ("relay-fleet-weights", "delivery: FLEET_WEIGHTS"),
        ("relay-locality-weights", "delivery: LOCALITY_WEIGHTS"),
    ] {
        let directory = scratch(name);
        let backends = start_backends();
        let mut server = ManagementServer::start(&directory, &resources(&backends, "5s"));
        let spec = TestbedSpec {
            name,
            // The relay uses state of the testbed upstream, and incremental discovery to Envoys.
            delta: service.contains("LOCALITY"),
            ..Default::default()
        };
        let config = config(server.port, service);
        let mut testbed = Testbed::start_with(&spec, &directory, backends, &config);
        testbed.wait_for_demand(60);
        let relay = testbed.control.page("status")["relay"].clone();
        assert_eq!(relay["upstream"]["connected"], 3, "{relay}");
        assert_eq!(relay["upstream"]["unreadable"], 0, "{relay}");
        testbed.assert_fair();
        // Changes of the upstream server arrive.
        server.replace(&resources(&testbed.backends, "7s"));
        wait_until("every Envoy has the changed cluster", || {
            testbed
                .envoys
                .iter()
                .all(|envoy| envoy.connect_timeout("orders") == "7s")
        });
        // An outage of the upstream server causes no failures.
        server.kill();
        wait_until("the outage is detected", || {
            let relay = testbed.control.page("status")["relay"].clone();
            relay["upstream"]["connected"] == 0
        });
        testbed.assert_fair();
        assert!(testbed.control.is_alive());
        assert_eq!(testbed.load.failed(), 0);
    }
}

fn config(port: u16, service: &str) -> String {
    format!(
        "load_reporting: {{interval: 1s}}\n\
         demand: {{smoothing_time_constant: 5s, material_change_bp: 10}}\n\
         relay: {{address: '127.0.0.1:{port}'}}\n\
         services:\n- cluster: {{name: orders}}\n  {service}\n"
    )
}

/// Returns a cluster whose assignment has another name, as in many control planes, and one that is
/// not listed in `services`.
fn resources(backends: &Backends, connect_timeout: &str) -> Value {
    let localities = backends.addresses().iter().map(|(zone, addresses)| {
        let endpoint = |address: &std::net::SocketAddr| {
            let address = json!({ "address": "127.0.0.1", "port_value": address.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        };
        json!({
            "locality": { "region": "r1", "zone": zone },
            "lb_endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        })
    });
    let localities: Vec<_> = localities.collect();
    let mut resources = Vec::new();
    for name in ["orders", "others"] {
        let assignment = format!("outbound|80||{name}");
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": name,
            "type": "EDS",
            "connect_timeout": connect_timeout,
            "eds_cluster_config": {
                "service_name": assignment,
                "eds_config": { "ads": {}, "resource_api_version": "V3" },
            },
        }));
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": assignment,
            "endpoints": localities,
        }));
    }
    Value::Array(resources)
}
