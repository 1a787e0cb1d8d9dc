//! Time that a membership update of 10,000 hosts takes on threads of Envoy:
//! `cargo bench -p plimsoll-envoy --bench membership`.
//!
//! Envoy updates the main thread, where hosts are converted and the engine computes the routing,
//! and every worker, whose next request rebuilds its table of hosts and takes the new snapshot.
//! The calls into Envoy are left out: 20,000 of them take about 0.3 ms (14 ns each). The median
//! counts. As a test, everything runs once.
#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use plimsoll_envoy::host_sets::HostSets;
use plimsoll_envoy::load_balancer::{LoadBalancer, PolicyConfig, Request};
use rustix::time::{ClockId, clock_gettime};

const HOSTS: usize = 10_000;
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const ROUNDS: usize = 51;
/// Time that an update may block a worker, in milliseconds.
const WORKER_LIMIT: f64 = 2.0;

/// Hosts as Envoy shows them, in one priority; `sick` is not healthy.
struct Hosts {
    addresses: Vec<String>,
    sick: usize,
}

impl Hosts {
    fn new(sick: usize) -> Self {
        let address = |number: usize| {
            let [.., a, b] = u32::try_from(number).unwrap().to_be_bytes();
            SocketAddr::from(([10, 0, a, b], 8080)).to_string()
        };
        Self {
            addresses: (0..HOSTS).map(address).collect(),
            sick,
        }
    }
}

impl HostSets for Hosts {
    fn priorities(&self) -> u32 {
        1
    }

    fn hosts(&self, _: u32) -> usize {
        HOSTS
    }

    fn healthy_hosts(&self, _: u32) -> usize {
        HOSTS - 1
    }

    fn address(&self, _: u32, index: usize) -> &str {
        &self.addresses[index]
    }

    fn healthy_address(&self, _: u32, index: usize) -> &str {
        &self.addresses[if index < self.sick { index } else { index + 1 }]
    }

    fn weight(&self, _: u32, _: usize) -> u32 {
        1
    }

    fn is_degraded(&self, _: u32, _: usize) -> bool {
        false
    }

    fn metadata(&self, _: u32, _: usize, _: &str) -> &str {
        ""
    }

    fn locality(&self, _: u32, index: usize) -> [&str; 3] {
        ["r1", ZONES[index % ZONES.len()], ""]
    }

    fn localities(&self, _: u32) -> usize {
        0
    }

    fn locality_weight(&self, _: u32, _: usize) -> u32 {
        0
    }

    fn locality_member(&self, _: u32, _: usize) -> &str {
        ""
    }

    fn active_requests(&self, _: u32, _: usize) -> u64 {
        0
    }
}

struct Plain;

impl Request for Plain {
    fn hash(&self) -> Option<u64> {
        None
    }

    fn reselections(&self) -> u32 {
        0
    }

    fn rejects(&self, _: u32, _: usize) -> bool {
        false
    }
}

fn main() {
    // `cargo bench` passes it, `cargo test` does not.
    let measures = std::env::args().any(|argument| argument == "--bench");
    let rounds = if measures { ROUNDS } else { 1 };
    for policy in ["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM"] {
        measure(policy, rounds);
    }
    println!("Success");
}

/// Updates the main thread and a worker in turn, as Envoy does, and prints the medians.
fn measure(policy: &str, rounds: usize) {
    let text = format!("cluster: {{lb_policy: {policy}}}");
    let config = PolicyConfig::parse(b"plimsoll", text.as_bytes(), true).unwrap();
    let mut main = LoadBalancer::new(&config, policy).unwrap();
    let (updates, received) = mpsc::channel::<usize>();
    let (measured, times) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = LoadBalancer::new(&config, policy).unwrap();
            for sick in received {
                let hosts = Hosts::new(sick);
                let time = cpu_time(|| {
                    worker.handle_membership(&hosts);
                    assert!(worker.choose_host(&hosts, &Plain).is_some());
                });
                measured.send(time).unwrap();
            }
            drop(measured);
        });
        let (mut on_main, mut on_worker) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let sick = round * 7 % HOSTS;
            let hosts = Hosts::new(sick);
            on_main.push(cpu_time(|| main.handle_membership(&hosts)));
            updates.send(sick).unwrap();
            on_worker.push(times.recv().unwrap());
        }
        drop(updates);
        let (first_main, first_worker) = (on_main.remove(0), on_worker.remove(0));
        let (main, worker) = (median(on_main), median(on_worker));
        println!(
            "{policy}: {HOSTS} hosts block a worker for {worker:.2} ms (first time \
             {first_worker:.2}), the main thread for {main:.2} ms (first time {first_main:.2})"
        );
        assert!(
            rounds == 1 || worker < WORKER_LIMIT,
            "limit {WORKER_LIMIT} ms"
        );
    });
}

/// Returns the CPU time of this thread in milliseconds.
fn cpu_time(run: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    };
    let start = now();
    run();
    now() - start
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
