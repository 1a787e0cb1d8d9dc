//! `plimsoll proxy` as a client of a management server: clusters and endpoints, in both variants of
//! discovery. `proxy_xds_server` tests it with an independent server.

use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::dynamic_proxy::DynamicProxy;
use crate::support::management_server::ManagementServer;
use crate::support::proxy::localities;
use crate::support::{scratch, wait_for, wait_until};

#[test]
fn updates_by_state_of_the_world() {
    assert_follows_updates("proxy-xds-sotw", "GRPC");
}

#[test]
fn updates_by_incremental_discovery() {
    assert_follows_updates("proxy-xds-delta", "DELTA_GRPC");
}

struct Testbed {
    proxied: DynamicProxy,
    server: ManagementServer,
}

fn assert_follows_updates(name: &str, api_type: &str) {
    let mut testbed = Testbed::start(name, api_type);
    // Endpoints change: another host takes over without a failed request.
    testbed.serve(&[("orders", &["zone-b"])]);
    testbed.proxied.wait_for_hosts(&["zone-b"]);
    testbed.serve(&[("orders", &["zone-b", "zone-c"])]);
    testbed.proxied.wait_for_hosts(&["zone-b", "zone-c"]);

    // Clusters are added and removed.
    assert_eq!(testbed.proxied.status_of("others"), 503, "unknown cluster");
    testbed.serve(&[("orders", &["zone-b"]), ("others", &["zone-a"])]);
    wait_until("the new cluster serves", || {
        testbed.proxied.status_of("others") == 200
    });
    testbed.proxied.wait_for_hosts(&["zone-b"]);
    testbed.serve(&[("orders", &["zone-a"])]);
    wait_until("the cluster is removed", || {
        testbed.proxied.status_of("others") == 503
    });
    testbed.proxied.wait_for_hosts(&["zone-a"]);

    // An invalid resource is NACKed with the name of the field, and changes nothing.
    let mut invalid = testbed.resources(&[("orders", &["zone-b"])]);
    invalid[0]["outlier_detection"] = json!({ "max_ejection_percent": 101 });
    testbed.server.replace(&invalid);
    let (kind, reason) = wait_for("the NACK arrives", || testbed.server.nacks().pop());
    assert!(kind.ends_with("envoy.config.cluster.v3.Cluster"), "{kind}");
    let field = "outlier_detection.max_ejection_percent";
    assert!(
        reason.contains("orders") && reason.contains(field),
        "{reason}"
    );
    assert!(testbed.proxied.proxy.is_alive());
    // The next valid version is accepted.
    testbed.serve(&[("orders", &["zone-c"])]);
    testbed.proxied.wait_for_hosts(&["zone-c"]);

    // Requests succeed during an outage of the server; its resources after the restart apply.
    testbed.server.kill();
    testbed.proxied.wait_for_requests(200);
    let resources = testbed.resources(&[("orders", &["zone-a"])]);
    testbed.server.restart(&resources);
    testbed.proxied.wait_for_hosts(&["zone-a"]);
    assert_eq!(testbed.proxied.load.failed(), 0);
    assert!(testbed.proxied.load.succeeded() > 500);
}

impl Testbed {
    fn start(name: &str, api_type: &str) -> Self {
        let directory = scratch(name);
        let backends = DynamicProxy::backends();
        let first = resources(&backends, &[("orders", &["zone-a"])]);
        let server = ManagementServer::start(&directory, &first);
        Self {
            proxied: DynamicProxy::start(&directory, backends, server.address(), api_type),
            server,
        }
    }

    fn resources(&self, clusters: &[(&str, &[&str])]) -> Value {
        resources(&self.proxied.backends, clusters)
    }

    fn serve(&mut self, clusters: &[(&str, &[&str])]) {
        let resources = self.resources(clusters);
        self.server.replace(&resources);
    }
}

/// Returns clusters with hosts in these zones; the assignments have other names than the clusters.
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
        let hosts = backends
            .addresses()
            .iter()
            .filter(|(zone, _)| zones.contains(&zone.as_str()))
            .map(|(zone, hosts)| (zone.as_str(), hosts.as_slice()));
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": assignment,
            "endpoints": localities(&hosts.collect::<Vec<_>>()),
        }));
    }
    Value::Array(resources)
}
