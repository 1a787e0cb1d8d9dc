//! `plimsoll proxy` as a client of a management server of others: clusters and endpoints, in both
//! variants of discovery.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::backends::Backends;
use crate::support::http::Connection;
use crate::support::load::{Load, Source};
use crate::support::management_server::ManagementServer;
use crate::support::proxy::{Proxy, everything, file, listener, localities, steered_by};
use crate::support::{scratch, wait_for, wait_until};

/// Traffic that shows a lost request.
const TICK: Duration = Duration::from_millis(10);

#[test]
fn state_of_the_world() {
    follow("proxy-xds-sotw", "GRPC");
}

#[test]
fn incremental() {
    follow("proxy-xds-delta", "DELTA_GRPC");
}

/// One host in each zone, so that zones are hosts.
struct World {
    load: Load,
    proxy: Proxy,
    server: ManagementServer,
    backends: Backends,
}

fn follow(name: &str, api_type: &str) {
    let mut world = World::start(name, api_type);
    // Endpoints change: the other host takes over, without a failure.
    world.serve(&[("orders", &["zone-b"])]);
    world.wait_for_hosts(&["zone-b"]);
    world.serve(&[("orders", &["zone-b", "zone-c"])]);
    world.wait_for_hosts(&["zone-b", "zone-c"]);

    // Clusters come and go.
    assert_eq!(world.status_of("others"), 503, "nobody knows it");
    world.serve(&[("orders", &["zone-b"]), ("others", &["zone-a"])]);
    wait_until("the new cluster serves", || {
        world.status_of("others") == 200
    });
    world.wait_for_hosts(&["zone-b"]);
    world.serve(&[("orders", &["zone-a"])]);
    wait_until("it is gone", || world.status_of("others") == 503);
    world.wait_for_hosts(&["zone-a"]);

    // What cannot be is refused with the name of the field, and changes nothing.
    let mut bad = world.resources(&[("orders", &["zone-b"])]);
    bad[0]["outlier_detection"] = json!({ "max_ejection_percent": 101 });
    world.server.replace(&bad);
    let (kind, why) = wait_for("the refusal arrives", || world.server.refusals().pop());
    assert!(kind.ends_with("envoy.config.cluster.v3.Cluster"), "{kind}");
    let field = "outlier_detection.max_ejection_percent";
    assert!(why.contains("orders") && why.contains(field), "{why}");
    assert!(world.proxy.is_alive());
    // The next good version is taken.
    world.serve(&[("orders", &["zone-c"])]);
    world.wait_for_hosts(&["zone-c"]);

    // Without the server everything goes on; what it says after its return counts.
    world.server.kill();
    world.answered(200);
    let resources = world.resources(&[("orders", &["zone-a"])]);
    world.server.restart(&resources);
    world.wait_for_hosts(&["zone-a"]);
    assert_eq!(world.load.failed(), 0);
    assert!(world.load.succeeded() > 500);
}

impl World {
    fn start(name: &str, api_type: &str) -> Self {
        let folder = scratch(name);
        let backends = Backends::start(&[("zone-a", 1), ("zone-b", 1), ("zone-c", 1)]);
        let first = resources(&backends, &[("orders", &["zone-a"])]);
        let server = ManagementServer::start(&folder, &first);
        let named = json!([{
            "match": { "prefix": "/" },
            "route": { "cluster_header": "x-cluster" },
        }]);
        let listeners = [
            listener("front", &everything("orders")),
            listener("named", &named),
        ];
        let config = steered_by(file("zone-a", &listeners, &[]), server.address(), api_type);
        let proxy = Proxy::start(&folder, "proxy", &config);
        let front = proxy.listener("front");
        wait_until("the proxy knows the cluster", || {
            status(front, "orders") == 200
        });
        let source = Source {
            to: front,
            from: "zone-a".to_owned(),
            per_tick: 2,
        };
        Self {
            load: Load::start(&[source], TICK),
            proxy,
            server,
            backends,
        }
    }

    fn resources(&self, clusters: &[(&str, &[&str])]) -> Value {
        resources(&self.backends, clusters)
    }

    fn serve(&mut self, clusters: &[(&str, &[&str])]) {
        let resources = self.resources(clusters);
        self.server.replace(&resources);
    }

    /// Waits until these hosts, and no others, take requests.
    fn wait_for_hosts(&self, expected: &[&str]) {
        wait_until("requests go where they should", || {
            let before = self.backends.counts();
            self.answered(40);
            let counts = self.backends.counts();
            let mut gained = counts.iter().filter(|(key, count)| {
                let before = before.get(*key).copied().unwrap_or_default();
                key.0 == "zone-a" && **count > before
            });
            let hosts: Vec<_> = gained.by_ref().map(|(key, _)| key.1.as_str()).collect();
            hosts == expected
        });
    }

    fn answered(&self, requests: u64) {
        let from = self.load.succeeded();
        wait_until("requests are answered", || {
            self.load.succeeded() >= from + requests
        });
    }

    fn status_of(&self, cluster: &str) -> u16 {
        status(self.proxy.listener("named"), cluster)
    }
}

/// The answer to a request that names a cluster; 0 is none.
fn status(to: SocketAddr, cluster: &str) -> u16 {
    let head = format!("GET / HTTP/1.1\r\nhost: test\r\nx-cluster: {cluster}\r\n\r\n");
    let answer = Connection::open(to).and_then(|mut connection| connection.request(&head));
    answer.map_or(0, |(status, _)| status)
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
