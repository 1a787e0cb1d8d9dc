//! CPU time and peak memory of an EDS update with 10,000 endpoints, from the bytes on the socket to
//! the published snapshot: `cargo bench -p plimsoll-client --bench eds_update`.
//!
//! The management server runs on another thread, which is not measured. Two updates are measured:
//! the first assignment of a cluster, and a change of one of 10,000 endpoints. The best round
//! counts. `--test` runs everything once.
#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use more")]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use plimsoll_client::{Client, Variant};
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::wire::{self, AssignmentOut, LocalityOut};
use rustix::time::{ClockId, clock_gettime};
use support::management::{Management, xds_options};
use support::resources::{Made, cluster};
use tokio::runtime::Runtime;

const ENDPOINTS: u32 = 10_000;
const LOCALITIES: u32 = 10;
const ROUNDS: usize = 20;

/// CPU time in milliseconds and peak memory in MiB.
type Cost = (f64, f64);

/// Cost at ca3bcb5 on a 2-core 2.8 GHz machine, when every resource was decoded at least twice.
const BEFORE: [(&str, Cost); 2] = [("first", (54.7, 407.9)), ("update", (27.5, 2.36))];

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let rounds = if once { 1 } else { ROUNDS };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let bodies = [assignment(ENDPOINTS, 0), assignment(ENDPOINTS, 1)];
    println!("bytes on the wire: {}", bodies[0].2.len());
    let mut best = [(f64::MAX, f64::MAX); 2];
    for _ in 0..rounds {
        let server = Management::start(&[orders(), assignment(1, 0)]);
        let client = runtime.block_on(connect(&server));
        for (best, body) in best.iter_mut().zip(&bodies) {
            server.set(&[orders(), body.clone()]);
            let cost = update(&runtime, &client);
            *best = (best.0.min(cost.0), best.1.min(cost.1));
        }
    }
    for ((name, before), (time, peak)) in BEFORE.into_iter().zip(best) {
        println!(
            "{name}: {time:.2} ms of CPU, {peak:.2} MiB at most; before: {:.2} ms, {:.2} MiB",
            before.0, before.1
        );
    }
}

/// Cost of a pending update until its snapshot is published.
fn update(runtime: &Runtime, client: &Client) -> Cost {
    let old = client.snapshot("orders").unwrap();
    let published = || !Arc::ptr_eq(&client.snapshot("orders").unwrap(), &old);
    let before = cpu_time();
    let memory = measure(|| runtime.block_on(wait(published)));
    let time = cpu_time() - before;
    let peak = f64::from(u32::try_from(memory.bytes_max).unwrap()) / f64::from(1 << 20);
    (time.as_secs_f64() * 1e3, peak)
}

async fn wait(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

/// Starts a client whose cluster has one host.
async fn connect(server: &Management) -> Client {
    let mut options = xds_options(server.address, Variant::Sotw);
    options = options.clusters(["orders"]);
    let client = Client::builder().xds(options).build().unwrap();
    wait(|| {
        let snapshot = client.snapshot("orders");
        snapshot.is_some_and(|snapshot| snapshot.hosts().count() == 1)
    })
    .await;
    client
}

fn orders() -> Made {
    cluster("orders", "lb_policy: ROUND_ROBIN")
}

/// `count` endpoints; `last` changes the address of the last one.
fn assignment(count: u32, last: u32) -> Made {
    let host = |index: u32| {
        let place = if index + 1 == count {
            index + last
        } else {
            index
        };
        let [_, a, b, c] = place.to_be_bytes();
        LbEndpoint {
            load_balancing_weight: Some(1 + index % 3),
            ..LbEndpoint::new(SocketAddr::from(([10, a, b, c], 8080)))
        }
    };
    let localities = (0..LOCALITIES).map(|locality| LocalityOut {
        locality: Locality::zone_only(&format!("zone-{locality}")),
        load_balancing_weight: Some(1),
        endpoints: (0..count)
            .filter(|index| index % LOCALITIES == locality)
            .map(host)
            .collect(),
        ..LocalityOut::default()
    });
    let body = wire::encode_assignment(&AssignmentOut {
        cluster_name: "orders".into(),
        localities: localities.collect(),
        ..AssignmentOut::default()
    });
    (CLUSTER_LOAD_ASSIGNMENT, "orders".to_owned(), body)
}

/// CPU time of this thread only.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u64::try_from(time.tv_nsec).unwrap();
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap()) + Duration::from_nanos(nanos)
}
