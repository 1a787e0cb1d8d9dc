//! Requests through a proxy while everything around it changes: hosts come, go and crash, health
//! flaps, files are edited well and badly, the control plane dies and returns.
//!
//! Nothing may fail that a correct proxy can avoid, which is all of it: requests may be tried
//! again, and there are always hosts that live. Memory must not grow. `make test` takes half a
//! minute of it and `make soak` ten minutes: [`SECONDS`].

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_core::rng::{Rng as _, Xoshiro256};
use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::hosts::Hosts;
use crate::support::http::get;
use crate::support::load::{Load, Source};
use crate::support::proxy::{Proxy, cluster, file, listener, steered_by};
use crate::support::{scratch, wait_until};

/// How long it goes on, and what decides the order of disturbances; see `scripts/soak.sh`.
const SECONDS: &str = "PLIMSOLL_SOAK_SECONDS";
const SEED: &str = "PLIMSOLL_SOAK_SEED";
const SHORT: u64 = 25;
/// Hosts of each of two clusters, so many that those which are away are no reason for panic. One
/// cluster comes from the control plane; the other stands in the file, with health checks.
const HOSTS: usize = 5;
/// Two sources with three requests each per tick: 200 per second.
const TICK: Duration = Duration::from_millis(30);
/// Requests of h2load in each round, on connections of their own.
const BURST: &str = "300";
/// Memory may grow by so much from the third quarter of the time to the last. More is a leak.
const GROWTH: f64 = 1.15;
const GROWTH_KIB: f64 = 4096.0;

#[test]
fn nothing_fails_and_memory_stays() {
    let variable =
        |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, seed) = (variable(SECONDS, SHORT), variable(SEED, 7));
    let mut world = World::start();
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
            let burst = Burst::start(&world);
            disturb(&mut world, host);
            burst.end(name);
            let failed = world.load.failed();
            assert_eq!(
                failed, 0,
                "{name} of host {host}, round {rounds}, seed {seed}"
            );
            memory.push(world.proxy.resident_kib());
        }
        rounds += 1;
    }
    assert!(world.proxy.is_alive());
    let requests = world.load.succeeded();
    let (before, after) = quarters(&memory);
    eprintln!(
        "{rounds} rounds in {:?}, {requests} requests, none failed; {before:.0} KiB in the third \
         quarter, {after:.0} in the last",
        started.elapsed()
    );
    assert!(after <= before * GROWTH + GROWTH_KIB, "{memory:?}");
}

/// What can happen, to a host if it happens to one. All is well again at its end.
type Disturbance = fn(&mut World, usize);

const DISTURBANCES: [(&str, Disturbance); 7] = [
    ("a departure", departure),
    ("a crash", crash),
    ("an illness", illness),
    ("a mark of ill health", marked),
    ("a good edit", good_edit),
    ("a bad edit", bad_edit),
    ("the death of the control plane", control_dies),
];

/// A host is taken out of service, then ends; later it is put back.
fn departure(world: &mut World, host: usize) {
    world.assign(&[(host, "absent")]);
    world.wait_for_silence(host);
    world.hosts.kill(host);
    world.answered(100);
    world.hosts.restart(host);
    world.assign(&[]);
    world.wait_for_traffic(host);
}

/// A host of each cluster ends without a word, in the midst of requests.
fn crash(world: &mut World, host: usize) {
    let both = [host, HOSTS + host];
    for _ in 0..3 {
        for host in both {
            world.hosts.kill(host);
        }
        world.answered(60);
        for host in both {
            world.hosts.restart(host);
        }
        world.answered(60);
    }
    for host in both {
        world.wait_for_traffic(host);
    }
}

/// A host says that it is ill, and later that it is well.
fn illness(world: &mut World, host: usize) {
    let host = HOSTS + host;
    world.hosts.set_ill(host, true);
    world.wait_for_silence(host);
    world.hosts.set_ill(host, false);
    world.wait_for_traffic(host);
}

/// The control plane says so.
fn marked(world: &mut World, host: usize) {
    let other = (host + 1) % HOSTS;
    world.assign(&[(host, "UNHEALTHY"), (other, "DRAINING")]);
    world.wait_for_silence(host);
    world.assign(&[]);
    world.wait_for_traffic(host);
}

/// Routes change.
fn good_edit(world: &mut World, _: usize) {
    for _ in 0..2 {
        let before = world.proxy.stat("config.reload_success");
        world.generation += 1;
        world.proxy.edit(&world.file());
        wait_until("the edit is in force", || {
            world.proxy.stat("config.reload_success") > before
        });
        world.answered(20);
    }
}

/// A file that cannot be, and the good one back.
fn bad_edit(world: &mut World, _: usize) {
    let before = world.proxy.stat("config.reload_failure");
    let mut bad = world.file();
    bad["static_resources"]["listners"] = json!([]);
    world.proxy.edit(&bad);
    wait_until("the edit is refused", || {
        world.proxy.stat("config.reload_failure") > before
    });
    world.answered(20);
    world.proxy.edit(&world.file());
}

/// It is gone for a while, a host crashes meanwhile, and it comes back with other hosts.
fn control_dies(world: &mut World, host: usize) {
    world.control.kill();
    world.hosts.kill(host);
    world.answered(100);
    world.hosts.restart(host);
    world.control.restart();
    world.assign(&[(host, "absent")]);
    world.wait_for_silence(host);
    world.assign(&[]);
    world.wait_for_traffic(host);
}

/// Everything. Dropped in this order: traffic, proxy, control plane, hosts.
struct World {
    load: Load,
    proxy: Proxy,
    control: Control,
    hosts: Hosts,
    folder: PathBuf,
    /// Number of the file that is in force.
    generation: u64,
}

impl World {
    fn start() -> Self {
        let folder = scratch("churn");
        let hosts = Hosts::start(2 * HOSTS);
        let control = Control::start(&folder, &control_config(&hosts, &[]));
        let proxy = Proxy::start(&folder, "proxy", &proxy_file(&hosts, &control, 0));
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
            folder,
            generation: 0,
        }
    }

    /// The file of the proxy.
    fn file(&self) -> Value {
        proxy_file(&self.hosts, &self.control, self.generation)
    }

    /// Has the control plane say so of some hosts: `absent`, or a health status.
    fn assign(&self, apart: &[(usize, &str)]) {
        self.control.edit(&control_config(&self.hosts, apart));
    }

    fn answered(&self, requests: u64) {
        let from = self.load.succeeded() + self.load.failed();
        wait_until("requests are answered", || {
            self.load.succeeded() + self.load.failed() >= from + requests
        });
    }

    /// Waits until a host gets no requests while others get a hundred.
    fn wait_for_silence(&self, host: usize) {
        wait_until("a host is left alone", || {
            let before = self.hosts.taken(host);
            self.answered(100);
            self.hosts.taken(host) == before
        });
    }

    fn wait_for_traffic(&self, host: usize) {
        let before = self.hosts.taken(host);
        wait_until("a host is used again", || {
            self.hosts.taken(host) > before + 3
        });
    }
}

/// h2load during one disturbance: HTTP/2, and connections that come and go.
struct Burst {
    child: Child,
}

impl Burst {
    fn start(world: &World) -> Self {
        let log = std::fs::File::create(world.folder.join("h2load.log")).unwrap();
        let mut command = Command::new("h2load");
        command.args(["-n", BURST, "-c4", "-m2", "-r4", "-T20s"]);
        command.arg(format!("http://{}/", world.proxy.listener("front")));
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

/// Medians of the third and the last quarter.
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
        // Of a cluster that has had no connection when its hosts are first checked.
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "http_health_check": { "path": "/health" },
    }]);
    let file = file("zone-a", &[listener("front", &routes)], &[checked]);
    steered_by(file, control.xds, "DELTA_GRPC")
}

fn control_config(hosts: &Hosts, apart: &[(usize, &str)]) -> String {
    let status = |host: usize| {
        let found = apart.iter().find(|(apart, _)| *apart == host);
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
