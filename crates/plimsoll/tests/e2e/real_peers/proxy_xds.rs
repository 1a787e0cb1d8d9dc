//! `plimsoll proxy` as a client of a management server: clusters and endpoints, in both variants of
//! discovery. A server made by others throughout is in `proxy_xds_server`.

use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::management_server::ManagementServer;
use crate::support::proxy::localities;
use crate::support::steered::Steered;
use crate::support::{scratch, wait_for, wait_until};

#[test]
fn state_of_the_world() {
    follow("proxy-xds-sotw", "GRPC");
}

#[test]
fn incremental() {
    follow("proxy-xds-delta", "DELTA_GRPC");
}

struct World {
    steered: Steered,
    server: ManagementServer,
}

fn follow(name: &str, api_type: &str) {
    let mut world = World::start(name, api_type);
    // Endpoints change: the other host takes over, without a failure.
    world.serve(&[("orders", &["zone-b"])]);
    world.steered.wait_for_hosts(&["zone-b"]);
    world.serve(&[("orders", &["zone-b", "zone-c"])]);
    world.steered.wait_for_hosts(&["zone-b", "zone-c"]);

    // Clusters come and go.
    assert_eq!(world.steered.status_of("others"), 503, "nobody knows it");
    world.serve(&[("orders", &["zone-b"]), ("others", &["zone-a"])]);
    wait_until("the new cluster serves", || {
        world.steered.status_of("others") == 200
    });
    world.steered.wait_for_hosts(&["zone-b"]);
    world.serve(&[("orders", &["zone-a"])]);
    wait_until("it is gone", || world.steered.status_of("others") == 503);
    world.steered.wait_for_hosts(&["zone-a"]);

    // What cannot be is refused with the name of the field, and changes nothing.
    let mut bad = world.resources(&[("orders", &["zone-b"])]);
    bad[0]["outlier_detection"] = json!({ "max_ejection_percent": 101 });
    world.server.replace(&bad);
    let (kind, why) = wait_for("the refusal arrives", || world.server.refusals().pop());
    assert!(kind.ends_with("envoy.config.cluster.v3.Cluster"), "{kind}");
    let field = "outlier_detection.max_ejection_percent";
    assert!(why.contains("orders") && why.contains(field), "{why}");
    assert!(world.steered.proxy.is_alive());
    // The next good version is taken.
    world.serve(&[("orders", &["zone-c"])]);
    world.steered.wait_for_hosts(&["zone-c"]);

    // Without the server everything goes on; what it says after its return counts.
    world.server.kill();
    world.steered.answered(200);
    let resources = world.resources(&[("orders", &["zone-a"])]);
    world.server.restart(&resources);
    world.steered.wait_for_hosts(&["zone-a"]);
    assert_eq!(world.steered.load.failed(), 0);
    assert!(world.steered.load.succeeded() > 500);
}

impl World {
    fn start(name: &str, api_type: &str) -> Self {
        let folder = scratch(name);
        let backends = Steered::backends();
        let first = resources(&backends, &[("orders", &["zone-a"])]);
        let server = ManagementServer::start(&folder, &first);
        Self {
            steered: Steered::start(&folder, backends, server.address(), api_type),
            server,
        }
    }

    fn resources(&self, clusters: &[(&str, &[&str])]) -> Value {
        resources(&self.steered.backends, clusters)
    }

    fn serve(&mut self, clusters: &[(&str, &[&str])]) {
        let resources = self.resources(clusters);
        self.server.replace(&resources);
    }
}

/// Clusters with hosts in these zones. Assignments have names of their own.
fn resources(backends: &Backends, clusters: &[(&str, &[&str])]) -> Value {
    let mut resources = Vec::new();
    for (name, zones) in clusters {
        let assignment = format!("outbound|80||{name}");
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": name,
            "type": "EDS",
            "connect_timeout": "5s",
            "lb_policy": "ROUND_ROBIN",
            "eds_cluster_config": {
                "service_name": assignment,
                "eds_config": { "ads": {}, "resource_api_version": "V3" },
            },
        }));
        let hosts = backends.addresses().iter();
        let hosts = hosts.filter(|(zone, _)| zones.contains(&zone.as_str()));
        let hosts = hosts.map(|(zone, hosts)| (zone.as_str(), hosts.as_slice()));
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": assignment,
            "endpoints": localities(&hosts.collect::<Vec<_>>()),
        }));
    }
    Value::Array(resources)
}
