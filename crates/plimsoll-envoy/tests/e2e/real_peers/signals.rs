//! What the module says about clusters: panic that fails requests, draining hosts, lines in Envoy's
//! log, counters under their names, and one thread for all out-of-band streams.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_core::stats::{BalancerStats, LoadAwareStats, PickerStats};
use plimsoll_xds::orca::oob::OobStats;
use serde_json::{Value, json};

use crate::support::bootstrap::{
    Endpoint, bootstrap, cluster, load_aware, module, policy, with_orca_filter, write_endpoints,
    zone_aware,
};
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send};
use crate::support::{scratch, wait_until};

const REQUESTS: usize = 100;

struct Testbed {
    directory: PathBuf,
    envoy: Envoy,
    servers: Vec<Arc<Server>>,
}

impl Testbed {
    /// Starts an Envoy with clusters of these configurations of the module.
    fn start(name: &str, clusters: &[(&str, Value)]) -> Self {
        let directory = scratch(name);
        let servers = Server::zones(&[("zone-a", 5), ("zone-b", 5)]);
        let clusters: Vec<_> = clusters
            .iter()
            .map(|(name, config)| {
                write_endpoints(&directory, name, servers.iter().map(Endpoint::from));
                with_orca_filter(cluster(&directory, name, &policy("plimsoll", config)))
            })
            .collect();
        let envoy = Envoy::start("1.40.0", &directory, &bootstrap(&clusters, &[]));
        Self {
            directory,
            envoy,
            servers,
        }
    }

    /// Gives the first servers of a cluster this health.
    fn write(&self, cluster: &str, count: usize, health: &'static str) {
        let endpoints = self.servers.iter().enumerate().map(|(number, server)| {
            let endpoint = Endpoint::from(server);
            let health = if number < count {
                health
            } else {
                endpoint.health
            };
            Endpoint { health, ..endpoint }
        });
        write_endpoints(&self.directory, cluster, endpoints);
    }

    /// Whether all requests get this status.
    fn all_get(&self, cluster: &str, status: u16) -> bool {
        let statuses = send(self.envoy.listener, &format!("/{cluster}"), REQUESTS);
        statuses == Statuses::from([(status, REQUESTS as u64)])
    }
}

#[test]
fn panic_fails_requests_where_that_is_configured() {
    let fails = json!({ "fail_traffic_on_panic": true, "min_cluster_size": 1 });
    let serves = json!({ "min_cluster_size": 1 });
    let clusters = [
        ("fleet", module(&json!({}))),
        ("failing", module(&zone_aware(&fails))),
        ("serving", module(&zone_aware(&serves))),
    ];
    let testbed = Testbed::start("panic", &clusters);
    wait_until("requests are served", || testbed.all_get("failing", 200));
    for name in ["failing", "serving"] {
        testbed.write(name, 7, "UNHEALTHY");
    }
    wait_until("requests fail in panic", || testbed.all_get("failing", 503));
    wait_until("the panic of the other cluster is logged", || {
        let log = testbed.envoy.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("entered panic mode"));
        let warned = |name: &str| {
            let cluster = format!("cluster=\"{name}\"");
            let mut lines = lines.clone();
            lines.any(|line| line.contains("[warning]") && line.contains(&cluster))
        };
        warned("failing") && warned("serving")
    });
    assert!(testbed.all_get("serving", 200), "without the setting");

    // Draining hosts do not count: three of three are healthy, as in Envoy's own policies.
    testbed.write("failing", 7, "DRAINING");
    wait_until("draining hosts are no panic", || {
        testbed.all_get("failing", 200)
    });
    assert!(testbed.all_get("failing", 200));
    wait_until("the end of the panic is logged", || {
        testbed.envoy.log().contains("left panic mode")
    });
    assert!(testbed.envoy.terminate().success());
}

#[test]
fn counters_exist_under_their_names_and_one_thread_runs_all_streams() {
    let oob = json!({ "enable_oob_load_report": true, "oob_reporting_period": "1s" });
    let clusters = [
        ("fleet", module(&json!({}))),
        ("orders", module(&load_aware(oob.clone()))),
        ("carts", module(&load_aware(oob))),
    ];
    let testbed = Testbed::start("counters", &clusters);
    let groups = [
        PickerStats::METRICS,
        BalancerStats::METRICS,
        LoadAwareStats::METRICS,
        OobStats::METRICS,
    ];
    let names = groups
        .into_iter()
        .flatten()
        .map(plimsoll_core::stats::Metric::stat_name);
    let names: Vec<_> = names.collect();
    for cluster in ["orders", "carts"] {
        let value = |name: &str| {
            let name = format!("dynamicmodulescustom.plimsoll.{name}.cluster.{cluster}");
            testbed.envoy.stats(&name)
        };
        wait_until("all statistics exist", || {
            send(testbed.envoy.listener, &format!("/{cluster}"), 20);
            names.iter().all(|name| value(name).len() == 1)
        });
        wait_until(
            "weights are recomputed and hosts are asked for reports",
            || {
                send(testbed.envoy.listener, &format!("/{cluster}"), 20);
                value("load_aware_locality.recompute_total")[0] > 0
                    && value("snapshots_built")[0] > 0
                    && value("lb_orca_oob.active_sessions")[0] == 10
            },
        );
    }
    assert_eq!(testbed.envoy.threads("plimsoll-oob"), 1);
    assert!(testbed.envoy.terminate().success());
}

#[test]
fn requests_ask_for_load_reports_where_a_format_is_configured() {
    let mut asking = module(&load_aware(json!({})));
    asking["endpoint_load_metrics_format"] = json!("JSON");
    // As a control plane sends it.
    let mut sent = module(&load_aware(json!({})));
    sent["cluster"]["plimsoll"] = json!({ "endpoint_load_metrics_format": "JSON" });
    let clusters = [
        ("orders", asking),
        ("users", sent),
        ("carts", module(&load_aware(json!({})))),
    ];
    let testbed = Testbed::start("asking", &clusters);
    let asked = || -> u64 { testbed.servers.iter().map(|server| server.asking()).sum() };
    assert!(testbed.all_get("orders", 200));
    assert_eq!(asked(), REQUESTS as u64);
    assert!(testbed.all_get("carts", 200));
    assert_eq!(asked(), REQUESTS as u64);
    assert!(testbed.all_get("users", 200));
    assert_eq!(asked(), 2 * REQUESTS as u64);
    assert!(testbed.envoy.terminate().success());
}
