//! The suite that the same library passes on every release: splits, retries, removal, health,
//! panics, and a clean exit.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use crate::support::bootstrap::{
    Endpoint, bootstrap, bounded_load, cluster, load_aware, module, policy, with_orca_filter,
    with_override_status, write_endpoints,
};
use crate::support::envoy::Envoy;
use crate::support::servers::Server;
use crate::support::traffic::{Statuses, send, shares};
use crate::support::{scratch, wait_until};
use plimsoll_testing::http::Connection;

/// Requests of a measurement; one standard deviation of a share is at most 1 point.
const REQUESTS: usize = 2_500;
/// Six standard deviations: of the 24 comparisons of a run one is further away once in 20 million
/// runs. Even zones instead of the expected ones are at least 0.14 away.
const TOLERANCE: f64 = 0.06;

#[test]
fn envoy_1_38() {
    run("1.38.3");
}

#[test]
fn envoy_1_39() {
    run("1.39.3");
}

#[test]
fn envoy_1_40() {
    run("1.40.0");
}

/// An Envoy with clusters that use the module, and their servers.
struct Testbed {
    directory: PathBuf,
    envoy: Envoy,
    servers: Vec<Arc<Server>>,
    retried: Vec<Arc<Server>>,
}

fn run(release: &str) {
    let testbed = Testbed::start(release);
    testbed.assert_worked_examples();
    testbed.assert_removal_and_health();
    testbed.assert_degraded_and_panic();
    testbed.assert_load_reports();
    testbed.assert_bounded_load();
    testbed.assert_retries();
    testbed.assert_metrics_and_explanations();
    testbed.assert_panic_is_contained();
    let warnings: Vec<_> = testbed
        .envoy
        .log()
        .lines()
        .filter(|line| line.contains("invalid host index") || line.contains("deprecated"))
        .map(str::to_owned)
        .collect();
    assert!(warnings.is_empty(), "{release}: {warnings:#?}");
    let status = testbed.envoy.terminate();
    assert!(status.success(), "{release}: {status}");
}

impl Testbed {
    fn start(release: &str) -> Self {
        let directory = scratch("suite");
        let servers = Server::zones(&[("zone-a", 3), ("zone-b", 5), ("zone-c", 3)]);
        let retried = Server::zones(&[("zone-a", 2)]);
        let zone_aware = module(&json!({ "common_lb_config": {
            "zone_aware_lb_config": { "min_cluster_size": 1 },
        } }));
        let least_request = module(&json!({
            "lb_policy": "LEAST_REQUEST",
            "common_lb_config": { "zone_aware_lb_config": { "min_cluster_size": 1 } },
        }));
        let plain = policy("plimsoll", &zone_aware);
        let clusters = [
            ("fleet", &plain),
            ("orders", &plain),
            ("busy", &policy("plimsoll", &least_request)),
            ("retries", &plain),
            (
                "loaded",
                &policy("plimsoll", &module(&load_aware(json!({})))),
            ),
            ("bounded", &policy("plimsoll", &module(&bounded_load()))),
            ("degraded", &policy("plimsoll", &module(&json!({})))),
            ("panics", &policy("plimsoll.panic", &zone_aware)),
        ];
        for (name, _) in &clusters {
            write_endpoints(&directory, name, retried.iter().map(Endpoint::from));
        }
        let clusters = clusters.map(|(name, policy)| {
            let cluster = cluster(&directory, name, policy);
            match name {
                "loaded" | "bounded" => with_orca_filter(cluster),
                "degraded" => with_override_status(cluster),
                _ => cluster,
            }
        });
        let envoy = Envoy::start(release, &directory, &bootstrap(&clusters, &[]));
        Self {
            directory,
            envoy,
            servers,
            retried,
        }
    }

    fn write<'a>(&self, cluster: &str, servers: impl IntoIterator<Item = &'a Arc<Server>>) {
        let endpoints = servers.into_iter().map(Endpoint::from);
        write_endpoints(&self.directory, cluster, endpoints);
    }

    /// Returns the first `count` servers of each zone.
    fn first(&self, counts: [usize; 3]) -> Vec<&Arc<Server>> {
        let zones = ["zone-a", "zone-b", "zone-c"].into_iter().zip(counts);
        let of_zone = |(zone, count): (&'static str, usize)| {
            let servers = self.servers.iter();
            servers
                .filter(move |server| server.zone == zone)
                .take(count)
        };
        zones.flat_map(of_zone).collect()
    }

    /// Writes a fleet with this number of hosts in each zone. Nothing connects to them.
    fn write_fleet(&self, counts: [u16; 3]) {
        let zones = ["zone-a", "zone-b", "zone-c"].into_iter().zip(counts);
        let hosts = (1_u16..).zip(zones).flat_map(|(number, (zone, count))| {
            (1..=count).map(move |host| Endpoint {
                zone,
                address: ([127, 0, 0, 1], 1_000 * number + host).into(),
                health: "HEALTHY",
            })
        });
        write_endpoints(&self.directory, "fleet", hosts);
    }

    fn assert_worked_examples(&self) {
        // Fleet 4/2/2, servers 3/3/3: zone-a has half of the demand and a third of the capacity.
        self.write_fleet([4, 2, 2]);
        for cluster in ["orders", "busy"] {
            self.write(cluster, self.first([3, 3, 3]));
            self.assert_split(cluster, [2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0]);
        }
        // Equal fleet, servers 3/5/2: zone-a keeps 90 %, the rest fits into zone-b only.
        self.write_fleet([3, 3, 3]);
        for cluster in ["orders", "busy"] {
            self.write(cluster, self.first([3, 5, 2]));
            self.assert_split(cluster, [0.9, 0.1, 0.0]);
        }
    }

    /// Waits until shares are near the expected ones, and then measures them.
    fn assert_split(&self, cluster: &str, expected: [f64; 3]) {
        wait_until("the engine uses the new hosts", || {
            self.distance(cluster, expected, 200) < 0.12
        });
        let distance = self.distance(cluster, expected, REQUESTS);
        assert!(
            distance < TOLERANCE,
            "{cluster}: {distance:.4} from {expected:?}"
        );
    }

    /// Sends requests and returns how far the share of a zone is from the expected one, at most.
    fn distance(&self, cluster: &str, expected: [f64; 3], requests: usize) -> f64 {
        let path = format!("/{cluster}");
        let shares = shares(self.envoy.listener, &path, &self.servers, requests);
        let shares = ["zone-a", "zone-b", "zone-c"].map(|zone| shares[zone]);
        eprintln!("{cluster}: {shares:.4?}, expected {expected:.4?}");
        let pairs = shares.iter().zip(expected);
        pairs
            .map(|(share, expected)| (share - expected).abs())
            .fold(0.0, f64::max)
    }

    fn assert_removal_and_health(&self) {
        let all = self.first([3, 5, 2]);
        let (gone, rest) = all.split_first().unwrap();
        let is_idle = |server: &Server| {
            let before = server.requests();
            let statuses = send(self.envoy.listener, "/orders", 300);
            assert_eq!(statuses, Statuses::from([(200, 300)]));
            server.requests() == before
        };
        self.write("orders", rest.iter().copied());
        wait_until("a removed host gets no request", || is_idle(gone));
        assert!(is_idle(gone));
        self.write("orders", all.iter().copied());
        wait_until("it gets requests again", || !is_idle(gone));
        let sick = all.iter().map(|server| Endpoint {
            health: if server.address == gone.address {
                "UNHEALTHY"
            } else {
                "HEALTHY"
            },
            ..Endpoint::from(*server)
        });
        write_endpoints(&self.directory, "orders", sick);
        wait_until("an unhealthy host gets no request", || is_idle(gone));
        assert!(is_idle(gone));
        self.write("orders", all.iter().copied());
        wait_until("a healthy host gets requests again", || !is_idle(gone));
    }

    /// The filter asks for hosts that a policy may not return: four healthy and six degraded hosts
    /// share the load as in Envoy's own policies, and in panic unhealthy hosts get their share.
    fn assert_degraded_and_panic(&self) {
        let all = self.first([3, 5, 2]);
        let impaired = &all[..6];
        let served = || -> u64 { impaired.iter().map(|server| server.requests()).sum() };
        let share = |requests: usize| {
            let before = served();
            let statuses = send(self.envoy.listener, "/degraded", requests);
            assert_eq!(statuses, Statuses::from([(200, requests as u64)]));
            (served() - before) as f64 / requests as f64
        };
        // Healthy hosts serve 4 of 10 times the overprovisioning factor of 1.4. In panic, all hosts
        // are equal.
        for (health, expected) in [("DEGRADED", 0.44), ("UNHEALTHY", 0.6)] {
            let endpoints = all.iter().enumerate().map(|(number, server)| Endpoint {
                health: if number < impaired.len() {
                    health
                } else {
                    "HEALTHY"
                },
                ..Endpoint::from(*server)
            });
            write_endpoints(&self.directory, "degraded", endpoints);
            wait_until("the engine knows the health of hosts", || {
                (share(400) - expected).abs() < 0.08
            });
            let measured = share(REQUESTS);
            assert!(
                (measured - expected).abs() < TOLERANCE,
                "{health}: {measured}"
            );
        }
    }

    /// Zones follow the headroom of their servers: 0.3, 0.7 and 0.6.
    fn assert_load_reports(&self) {
        for server in &self.servers {
            server.set_utilization(match server.zone {
                "zone-a" => 700,
                "zone-b" => 300,
                _ => 400,
            });
        }
        self.write("loaded", self.first([3, 3, 3]));
        // Utilization is smoothed, and hosts report with their first request.
        wait_until("shares follow the reports", || {
            self.distance("loaded", [0.1875, 0.4375, 0.375], REQUESTS) < TOLERANCE
        });
        self.servers
            .iter()
            .for_each(|server| server.set_utilization(0));
    }

    /// Requests with one hash go to one host, and to others when that host has more requests in
    /// flight than its share: the filter counts them.
    fn assert_bounded_load(&self) {
        let hosts = self.first([3, 3, 3]);
        self.write("bounded", hosts.iter().copied());
        let busy = |connections: usize| {
            let before: Vec<_> = hosts.iter().map(|server| server.requests()).collect();
            let listener = self.envoy.listener;
            let clients: Vec<_> = (0..connections)
                .map(|_| thread::spawn(move || send(listener, "/bounded", 30)))
                .collect();
            for client in clients {
                assert_eq!(client.join().unwrap(), Statuses::from([(200, 30)]));
            }
            let servers = hosts.iter().zip(before);
            servers
                .filter(|(server, before)| server.requests() > *before)
                .count()
        };
        wait_until("Envoy has the new hosts", || {
            send(self.envoy.listener, "/bounded", 30);
            busy(1) == 1
        });
        hosts.iter().for_each(|server| server.set_latency(5));
        let busy = busy(12);
        hosts.iter().for_each(|server| server.set_latency(0));
        assert!(busy >= 3, "{busy} hosts");
    }

    fn assert_retries(&self) {
        self.retried[0].set_status(500);
        let statuses = send(self.envoy.listener, "/retries", 100);
        assert_eq!(statuses, Statuses::from([(200, 100)]));
        assert!(self.retried[0].requests() > 0, "first attempts reach it");
    }

    fn assert_metrics_and_explanations(&self) {
        let counter = "dynamicmodulescustom.plimsoll.lb_zone_routing_cross_zone.cluster.orders";
        wait_until("workers write their counters", || {
            send(self.envoy.listener, "/orders", 50);
            self.envoy.stat(counter) > 0
        });
        let zone = "zone_(load_permille|demand_bp|share_bp).cluster.orders.zone.zone-a";
        let gauges = format!("dynamicmodulescustom.plimsoll.{zone}");
        wait_until("workers write the gauges of zones", || {
            send(self.envoy.listener, "/orders", 50);
            self.envoy.stats(&gauges).len() == 3
        });
        let seen = "dynamicmodulescustom.plimsoll.zone_utilization_permille.cluster.loaded.*";
        wait_until("workers write the utilization of zones", || {
            send(self.envoy.listener, "/loaded", 50);
            let values = self.envoy.stats(seen);
            values.len() == 3 && values.iter().all(|value| *value > 100)
        });
        let log = self.envoy.log();
        let (_, rest) = log
            .split_once("explanations on http://")
            .expect("a line in the log");
        let (address, _) = rest.split_once('/').unwrap();
        let ask = |host: &str| {
            let mut connection = Connection::open(address.parse().unwrap()).unwrap();
            let head = format!("GET /explain?cluster=orders HTTP/1.1\r\nhost: {host}\r\n\r\n");
            connection.request(&head).unwrap()
        };
        assert_eq!(ask("rebound.example").0, 403);
        let (status, body) = ask("localhost");
        assert_eq!(status, 200);
        let explained: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(explained["endpoint_policy"], "round_robin");
        assert_eq!(explained["cluster"], "orders");
    }

    fn assert_panic_is_contained(&self) {
        let statuses = send(self.envoy.listener, "/panics", 20);
        assert_eq!(statuses, Statuses::from([(503, 20)]));
        wait_until("the panic is logged", || {
            self.envoy.log().contains("on_lb_choose_host panicked")
        });
        let statuses = send(self.envoy.listener, "/orders", 100);
        assert_eq!(statuses, Statuses::from([(200, 100)]));
    }
}
