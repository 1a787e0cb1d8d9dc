//! Soak test: requests through a proxy while hosts are added, removed and crash, health flaps,
//! valid and invalid edits are made, and the control plane restarts.
//!
//! No request may fail: retries are configured, and there are always healthy hosts. Memory must not
//! grow. `make test` runs it for half a minute, `make soak` for ten minutes: [`SECONDS`].

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_core::rng::{Rng as _, Xoshiro256};
use plimsoll_testing::http::get;
use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::hosts::Hosts;
use crate::support::load::{Load, Source};
use crate::support::proxy::{Proxy, cluster, file, listener, with_management_server};
use crate::support::{scratch, wait_until};

/// Variables with the duration and with the seed for the order of disturbances; see
/// `scripts/soak.sh`.
const SECONDS: &str = "PLIMSOLL_SOAK_SECONDS";
const SEED: &str = "PLIMSOLL_SOAK_SEED";
const SHORT: u64 = 25;
/// Number of hosts in each of two clusters, enough to avoid panic while some are down. One cluster
/// comes from the control plane; the other is in the file and has health checks.
const HOSTS: usize = 5;
/// Two sources send three requests per tick: 200 per second.
const TICK: Duration = Duration::from_millis(30);
/// Requests of h2load during each disturbance, on new connections.
const BURST: &str = "300";
/// Maximum growth of memory from the third to the last quarter of the time; more is a leak.
const GROWTH: f64 = 1.15;
const GROWTH_KIB: f64 = 4096.0;

#[test]
fn no_request_fails_and_memory_does_not_grow() {
    let variable =
        |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, seed) = (variable(SECONDS, SHORT), variable(SEED, 7));
    let mut testbed = Testbed::start();
    let mut rng = Xoshiro256::from_seed(seed);
    let mut memory: Vec<u64> = Vec::new();
    let started = Instant::now();
    let mut rounds = 0_u64;
    while started.elapsed() < Duration::from_secs(seconds) || rounds < 2 {
        let mut order: Vec<_> = DISTURBANCES.into_iter().collect();
        while !order.is_empty() {
            let draw = rng.next_u64() % order.len() as u64;
            let (name, disturb) = order.swap_remove(usize::try_from(draw).unwrap());
            let host = usize::try_from(rng.next_u64() % HOSTS as u64).unwrap();
            let burst = Burst::start(&testbed);
            disturb(&mut testbed, host);
            burst.end(name);
            let failed = testbed.load.failed();
            assert_eq!(
                failed, 0,
                "{name} of host {host}, round {rounds}, seed {seed}"
            );
            memory.push(testbed.proxy.resident_kib());
        }
        rounds += 1;
    }
    assert!(testbed.proxy.is_alive());
    let requests = testbed.load.succeeded();
    let (before, after) = quarters(&memory);
    eprintln!(
        "{rounds} rounds in {:?}, {requests} requests, none failed; {before:.0} KiB in the third \
         quarter, {after:.0} in the last",
        started.elapsed()
    );
    assert!(after <= before * GROWTH + GROWTH_KIB, "{memory:?}");
}

/// Disturbance, applied to a host where it concerns one. Everything is restored at its end.
type Disturbance = fn(&mut Testbed, usize);

const DISTURBANCES: [(&str, Disturbance); 7] = [
    ("a removal", removal),
    ("a crash", crash),
    ("failing health checks", failing_health_checks),
    ("an EDS health status", eds_health_status),
    ("a valid edit", valid_edit),
    ("an invalid edit", invalid_edit),
    ("a control plane outage", control_plane_outage),
];

/// Removes a host from the assignment and stops it; later restores it.
fn removal(testbed: &mut Testbed, host: usize) {
    testbed.assign(&[(host, "absent")]);
    testbed.wait_for_no_traffic(host);
    testbed.hosts.kill(host);
    testbed.wait_for_requests(100);
    testbed.hosts.restart(host);
    testbed.assign(&[]);
    testbed.wait_for_traffic(host);
}

/// Kills a host of each cluster while requests are in flight.
fn crash(testbed: &mut Testbed, host: usize) {
    let both = [host, HOSTS + host];
    for _ in 0..3 {
        for host in both {
            testbed.hosts.kill(host);
        }
        testbed.wait_for_requests(60);
        for host in both {
            testbed.hosts.restart(host);
        }
        testbed.wait_for_requests(60);
    }
    for host in both {
        testbed.wait_for_traffic(host);
    }
}

/// Lets a host fail its health checks, and later pass them.
fn failing_health_checks(testbed: &mut Testbed, host: usize) {
    let host = HOSTS + host;
    testbed.hosts.set_unhealthy(host, true);
    testbed.wait_for_no_traffic(host);
    testbed.hosts.set_unhealthy(host, false);
    testbed.wait_for_traffic(host);
}

/// Marks hosts as unhealthy and draining in the assignment.
fn eds_health_status(testbed: &mut Testbed, host: usize) {
    let other = (host + 1) % HOSTS;
    testbed.assign(&[(host, "UNHEALTHY"), (other, "DRAINING")]);
    testbed.wait_for_no_traffic(host);
    testbed.assign(&[]);
    testbed.wait_for_traffic(host);
}

/// Changes the routes of the proxy.
fn valid_edit(testbed: &mut Testbed, _: usize) {
    for _ in 0..2 {
        let before = testbed.proxy.stat("config.reload_success");
        testbed.generation += 1;
        testbed.proxy.edit(&testbed.config());
        wait_until("the edit is in force", || {
            testbed.proxy.stat("config.reload_success") > before
        });
        testbed.wait_for_requests(20);
    }
}

/// Writes an invalid file, then the valid one again.
fn invalid_edit(testbed: &mut Testbed, _: usize) {
    let before = testbed.proxy.stat("config.reload_failure");
    let mut invalid = testbed.config();
    invalid["static_resources"]["listners"] = json!([]);
    testbed.proxy.edit(&invalid);
    wait_until("the edit is rejected", || {
        testbed.proxy.stat("config.reload_failure") > before
    });
    testbed.wait_for_requests(20);
    testbed.proxy.edit(&testbed.config());
}

/// Stops the control plane, crashes a host meanwhile, and restarts with other hosts.
fn control_plane_outage(testbed: &mut Testbed, host: usize) {
    testbed.control.kill();
    testbed.hosts.kill(host);
    testbed.wait_for_requests(100);
    testbed.hosts.restart(host);
    testbed.control.restart();
    testbed.assign(&[(host, "absent")]);
    testbed.wait_for_no_traffic(host);
    testbed.assign(&[]);
    testbed.wait_for_traffic(host);
}

/// Processes of the test. Dropped in this order: traffic, proxy, control plane, hosts.
struct Testbed {
    load: Load,
    proxy: Proxy,
    control: Control,
    hosts: Hosts,
    directory: PathBuf,
    /// Version of the proxy's configuration.
    generation: u64,
}

impl Testbed {
    fn start() -> Self {
        let directory = scratch("churn");
        let hosts = Hosts::start(2 * HOSTS);
        let control = Control::start(&directory, &control_config(&hosts, &[]));
        let proxy = Proxy::start(&directory, "proxy", &proxy_file(&hosts, &control, 0));
        let front = proxy.listener("front");
        wait_until("the proxy serves", || get(front, "/").is_some());
        let source = Source {
            to: front,
            from: "client".to_owned(),
            per_tick: 3,
        };
        Self {
            load: Load::start(&vec![source; 2], TICK),
            proxy,
            control,
            hosts,
            directory,
            generation: 0,
        }
    }

    /// Returns the configuration of the proxy.
    fn config(&self) -> Value {
        proxy_file(&self.hosts, &self.control, self.generation)
    }

    /// Sets the status of some hosts in the control plane: `absent`, or a health status.
    fn assign(&self, statuses: &[(usize, &str)]) {
        self.control.edit(&control_config(&self.hosts, statuses));
    }

    fn wait_for_requests(&self, requests: u64) {
        let from = self.load.succeeded() + self.load.failed();
        wait_until("requests are answered", || {
            self.load.succeeded() + self.load.failed() >= from + requests
        });
    }

    /// Waits until a host gets none of 100 requests.
    fn wait_for_no_traffic(&self, host: usize) {
        wait_until("a host gets no requests", || {
            let before = self.hosts.request_count(host);
            self.wait_for_requests(100);
            self.hosts.request_count(host) == before
        });
    }

    fn wait_for_traffic(&self, host: usize) {
        let before = self.hosts.request_count(host);
        wait_until("a host is used again", || {
            self.hosts.request_count(host) > before + 3
        });
    }
}

/// h2load during one disturbance: HTTP/2, with connections that are opened and closed.
struct Burst {
    child: Child,
}

impl Burst {
    fn start(testbed: &Testbed) -> Self {
        let log = std::fs::File::create(testbed.directory.join("h2load.log")).unwrap();
        let mut command = Command::new("h2load");
        command.args(["-n", BURST, "-c4", "-m2", "-r4", "-T20s"]);
        command.arg(format!("http://{}/", testbed.proxy.listener("front")));
        let started = command.stdout(Stdio::piped()).stderr(log).spawn();
        let child = started.expect("h2load is not installed: run `make test` once");
        Self { child }
    }

    fn end(self, during: &str) {
        let output = self.child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let all = format!("{BURST} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(text.contains(&all), "during {during}: {text}");
    }
}

/// Returns the medians of the third and the last quarter.
fn quarters(memory: &[u64]) -> (f64, f64) {
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2] as f64
    };
    let (half, last) = (memory.len() / 2, memory.len() * 3 / 4);
    (median(&memory[half..last]), median(&memory[last..]))
}

fn proxy_file(hosts: &Hosts, control: &Control, generation: u64) -> Value {
    let both = [
        json!({ "name": "orders", "weight": 50 }),
        json!({ "name": "checked", "weight": 50 }),
    ];
    let routes = json!([{
        "match": { "prefix": "/" },
        "route": {
            "weighted_clusters": { "clusters": both },
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset",
                "num_retries": 5,
                "retry_back_off": { "base_interval": "0.002s" },
            },
        },
        "response_headers_to_add": [
            { "header": { "key": "x-generation", "value": generation.to_string() } },
        ],
    }]);
    let mut checked = cluster("checked", &[("zone-a", &hosts.addresses()[HOSTS..])]);
    checked["health_checks"] = json!([{
        "timeout": "2s",
        "interval": "0.2s",
        // Applies before the first connection to the cluster.
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "http_health_check": { "path": "/health" },
    }]);
    let file = file("zone-a", &[listener("front", &routes)], &[checked]);
    with_management_server(file, control.xds, "DELTA_GRPC")
}

fn control_config(hosts: &Hosts, statuses: &[(usize, &str)]) -> String {
    let status = |host: usize| {
        let found = statuses.iter().find(|(other, _)| *other == host);
        found.map_or("HEALTHY", |(_, status)| *status)
    };
    let addresses = hosts.addresses().into_iter().take(HOSTS).enumerate();
    let endpoints = addresses
        .filter(|(host, _)| status(*host) != "absent")
        .map(|(host, address)| json!({ "address": address, "health_status": status(host) }));
    let config = json!({
        "services": [{
            "cluster": {
                "name": "orders",
                "connect_timeout": "5s",
                "lb_policy": "ROUND_ROBIN",
            },
            "endpoints": [{
                "locality": { "region": "r1", "zone": "zone-a" },
                "lb_endpoints": endpoints.collect::<Vec<_>>(),
            }],
        }],
    });
    config.to_string()
}
