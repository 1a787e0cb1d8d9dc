//! Endpoints and clusters that change under load: no request fails, and no memory is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::bootstrap::{
    Endpoint, bootstrap, cluster, module, policy, with_clusters_file, write_clusters,
    write_endpoints,
};
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send};
use crate::support::{RELEASES, scratch, wait_until};

/// Connections, which Envoy spreads over its two workers.
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 50_000;

#[test]
fn no_request_fails_while_endpoints_change() {
    for release in RELEASES {
        let directory = scratch("churn");
        let servers = Server::zones(&[("zone-a", 4), ("zone-b", 4), ("zone-c", 4)]);
        let zone_aware = zone_aware(1);
        let clusters = ["fleet", "orders"].map(|name| {
            write_endpoints(&directory, name, servers.iter().map(Endpoint::from));
            cluster(&directory, name, &zone_aware)
        });
        let envoy = Envoy::start(release, &directory, &bootstrap(&clusters, &[]));
        let listener = envoy.listener;
        let done = Arc::new(AtomicBool::new(false));
        let churn = {
            let (done, servers) = (Arc::clone(&done), servers.clone());
            thread::spawn(move || churn(&directory, &servers, &done))
        };
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| thread::spawn(move || send(listener, "/orders", REQUESTS / CONNECTIONS)))
            .collect();
        let mut statuses = Statuses::new();
        for client in clients {
            for (status, count) in client.join().unwrap() {
                *statuses.entry(status).or_default() += count;
            }
        }
        done.store(true, Ordering::Relaxed);
        let pushes = churn.join().unwrap();
        eprintln!("{release}: {statuses:?} during {pushes} pushes of endpoints");
        assert_eq!(statuses, Statuses::from([(200, REQUESTS as u64)]));
        assert!(
            !envoy.log().contains("invalid host index"),
            "{}",
            envoy.log()
        );
        assert!(envoy.stat("cluster.orders.membership_change") > 10);
        assert!(envoy.terminate().success());
    }
}

/// Writes other endpoints and another health again and again; returns how often. The first server
/// of each zone stays healthy.
fn churn(directory: &Path, servers: &[Arc<Server>], done: &AtomicBool) -> u32 {
    let mut random = 1_u64;
    let mut pushes = 0;
    while !done.load(Ordering::Relaxed) {
        let endpoints = servers.iter().enumerate().filter_map(|(number, server)| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let health = match (number % 4, random >> 61) {
                (0, _) | (_, 0..=3) => "HEALTHY",
                (_, 4) => "UNHEALTHY",
                (_, 5) => "DEGRADED",
                _ => return None,
            };
            Some(Endpoint {
                health,
                ..Endpoint::from(server)
            })
        });
        write_endpoints(directory, "orders", endpoints);
        pushes += 1;
        // The pace of the pushes; nothing depends on it.
        thread::sleep(Duration::from_millis(20));
    }
    pushes
}

/// Clusters per file, and how often the file is written: 1,000 configurations.
const CLUSTERS: usize = 20;
const WRITES: usize = 50;
/// Configurations before memory is compared: allocators keep what they once needed.
const WARM_UP: usize = 15;
/// Growth that the allocator may have, in KiB. A lost load balancer per configuration would be
/// more than ten times as much.
const ALLOWED_KIB: u64 = 6 * 1024;

#[test]
fn a_thousand_configurations_leave_no_memory_behind() {
    for release in RELEASES {
        let directory = scratch("reloads");
        let servers = Server::zones(&[("zone-a", 2), ("zone-b", 2)]);
        let names: Vec<_> = (0..CLUSTERS)
            .map(|number| format!("cluster-{number:02}"))
            .collect();
        for name in &names {
            write_endpoints(&directory, name, servers.iter().map(Endpoint::from));
        }
        let file = directory.join("clusters.json").to_str().unwrap().to_owned();
        let write = |version: usize| {
            let policy = zone_aware(1 + version % 7);
            let clusters = names.iter().map(|name| cluster(&directory, name, &policy));
            write_clusters(&file, &clusters.collect::<Vec<_>>());
        };
        write(0);
        let routes: Vec<_> = names.iter().map(String::as_str).collect();
        let bootstrap = with_clusters_file(bootstrap(&[], &routes), &file);
        let envoy = Envoy::start(release, &directory, &bootstrap);
        let reload = |version: usize| {
            let before = envoy.stat("cluster_manager.cluster_modified");
            write(version);
            wait_until("all clusters have changed", || {
                envoy.stat("cluster_manager.cluster_modified") >= before + CLUSTERS as u64
            });
            for name in &names[..2] {
                let statuses = send(envoy.listener, &format!("/{name}"), 10);
                assert_eq!(statuses, Statuses::from([(200, 10)]), "{release}");
            }
        };
        (1..=WARM_UP).for_each(reload);
        let warm = envoy.resident();
        (WARM_UP + 1..=WARM_UP + WRITES).for_each(reload);
        let grown = envoy.resident().saturating_sub(warm);
        eprintln!(
            "{release}: {grown} KiB more after {} configurations",
            WRITES * CLUSTERS
        );
        assert!(grown <= ALLOWED_KIB, "{release}: {grown} KiB");
        assert!(envoy.terminate().success());
    }
}

fn zone_aware(min_cluster_size: usize) -> Value {
    let rules = json!({ "min_cluster_size": min_cluster_size });
    policy(
        "plimsoll",
        &module(&json!({ "common_lb_config": { "zone_aware_lb_config": rules } })),
    )
}
