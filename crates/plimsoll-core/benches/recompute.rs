//! Microseconds per rebuild: `cargo bench -p plimsoll-core --bench recompute`.
//!
//! One input to a balancer of 10,000 hosts in 100 localities, until its snapshot is published and
//! the previous one is dropped. The inputs are cloned outside the measurement.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::time::Instant;

mod common;

use common::{Cluster, LARGE, Setup, State};

/// Host lists change: everything of the priority is rebuilt.
fn full(c: &mut Criterion) {
    let mut cluster = cluster();
    let mut ejected = false;
    c.bench_function("recompute/health_of_one_host/10000x100", |b| {
        b.iter(|| {
            ejected = !ejected;
            let signal = if ejected {
                HealthSignal::OutlierEjected
            } else {
                HealthSignal::OutlierReturned
            };
            cluster
                .balancer
                .handle_health(common::address(5_000), signal, Instant::ORIGIN);
            cluster.publish();
        });
    });
    let assignments = [
        common::upstream_with(LARGE, false, &[(5_000, 20_000)]),
        common::upstream_with(LARGE, false, &[]),
    ];
    alternate(
        c,
        "assignment_with_one_new_host",
        assignments,
        |assignment| {
            cluster
                .balancer
                .handle_assignment(assignment, Instant::ORIGIN);
            cluster.publish();
        },
    );
}

/// Only fractions of demand change: no host list may be touched.
fn fractions(c: &mut Criterion) {
    let mut cluster = cluster();
    let states = [State::Direct, State::Residual];
    let maps = states.map(|state| common::fractions(LARGE, state));
    alternate(c, "observed_traffic", maps, |fractions| {
        cluster
            .balancer
            .handle_observed_traffic(fractions, Instant::ORIGIN);
        cluster.publish();
    });
    // Without fractions for this cluster, those of the fleet's assignment count.
    cluster
        .balancer
        .handle_observed_traffic(FractionMap::new(), Instant::ORIGIN);
    let fleets = states.map(|state| common::fleet(LARGE, Some(state)));
    alternate(c, "originating", fleets, |fleet| {
        cluster
            .balancer
            .handle_fleet_assignment(fleet, Instant::ORIGIN);
        cluster.publish();
    });
}

/// Alternates between two inputs, so that each of them changes something.
fn alternate<T: Clone>(
    c: &mut Criterion,
    name: &str,
    mut inputs: [T; 2],
    mut apply: impl FnMut(T),
) {
    c.bench_function(&format!("recompute/{name}/10000x100"), |b| {
        b.iter_batched(
            || {
                inputs.swap(0, 1);
                inputs[0].clone()
            },
            &mut apply,
            BatchSize::PerIteration,
        );
    });
}

fn cluster() -> Cluster {
    Cluster::new(Setup::new(
        LARGE,
        State::Residual,
        EndpointPolicy::default(),
    ))
}

criterion_group!(benches, full, fractions);
criterion_main!(benches);
