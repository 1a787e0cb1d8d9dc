//! Milliseconds per plan: `cargo bench -p plimsoll-core --bench plan`.
//!
//! The split of demand over 100 zones in 10 regions at a target of 0.7: of 1,000 services with one
//! price and with rings, of one service with a matrix of prices, and of 1,000 services of which
//! one has changed. Plans of all services must take at most 50 ms.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::transport::{Objective, Prices, Problem, Solutions, ZoneLoad};
use plimsoll_core::rng::{Rng as _, Xoshiro256};

const ZONES: u32 = 100;
const SERVICES: usize = 1000;

/// Services with up to 1,000 requests per second in each zone, and a capacity of up to 1,500.
fn services() -> Vec<Vec<ZoneLoad>> {
    let mut rng = Xoshiro256::from_seed(7);
    let mut zone = || ZoneLoad {
        demand: rng.next_u64() % 1_000_000,
        capacity: rng.next_u64() % 1_500_000,
    };
    let mut zones = || (0..ZONES).map(|_| zone()).collect();
    (0..SERVICES).map(|_| zones()).collect()
}

fn problem(zones: &[ZoneLoad]) -> Problem {
    let objective = Objective::waterfall(0.7).expect("a utilization");
    Problem::try_new(zones, objective).expect("zones with capacity")
}

fn rings() -> Prices {
    let zone = |zone| Locality::new(&format!("region-{}", zone % 10), &format!("{zone}"), "");
    Prices::rings(&(0..ZONES).map(zone).collect::<Vec<_>>(), 1, 2)
}

/// Prices of lanes between points in a square: there are no rings, and no detour is cheaper.
fn matrix() -> Prices {
    let mut rng = Xoshiro256::from_seed(9);
    let mut point = || (rng.next_u64() % 1000, rng.next_u64() % 1000);
    let points: Vec<_> = (0..ZONES).map(|_| point()).collect();
    let apart = |a: &(u64, u64), b: &(u64, u64)| a.0.abs_diff(b.0) + a.1.abs_diff(b.1);
    let price = |a, b| u32::try_from(apart(a, b)).expect("below 2000");
    let row = |from| points.iter().map(|to| price(from, to)).collect();
    Prices::matrix(&points.iter().map(row).collect::<Vec<_>>()).expect("a square")
}

fn plans(c: &mut Criterion) {
    let services = services();
    for (name, prices) in [
        ("one_price", Prices::uniform(ZONES as usize)),
        ("rings", rings()),
    ] {
        c.bench_function(&format!("plan/{name}/100x1000"), |b| {
            b.iter(|| {
                for zones in &services {
                    black_box(problem(zones).solve(&prices).expect("as many zones"));
                }
            });
        });
    }
    let prices = matrix();
    c.bench_function("plan/matrix/100x1", |b| {
        b.iter(|| problem(&services[0]).solve(&prices).expect("as many zones"));
    });
}

fn changes(c: &mut Criterion) {
    let services = services();
    let prices = rings();
    let names = (0..SERVICES).map(|service| Arc::from(format!("service-{service}")));
    let names: Vec<Arc<str>> = names.collect();
    let mut solutions = Solutions::default();
    let mut turn = 0;
    c.bench_function("plan/one_of_1000_changed/100x1000", |b| {
        b.iter(|| {
            turn += 1;
            for (service, name) in names.iter().enumerate() {
                // The first service has the problem of another one in every second turn.
                let zones = match service {
                    0 => &services[turn % 2],
                    _ => &services[service],
                };
                let updated = solutions.update(name, &problem(zones), &prices);
                black_box(updated.expect("as many zones"));
            }
        });
    });
}

criterion_group!(benches, plans, changes);
criterion_main!(benches);
