//! Nanoseconds per pick: `cargo bench -p plimsoll-core --bench pick`.
//!
//! Each policy at 10 hosts in 3 zones and at 10,000 hosts in 100 zones: the cost of a pick must not
//! grow with the cluster. Which lines hold which bar is in docs/benchmarks.md.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::model::cluster::{LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash,
};
use plimsoll_core::picker::PickArgs;

mod common;

use common::{Cluster, LARGE, SMALL, Setup, Shape, State};

/// Zone-aware routing under the three policies that the bars name.
fn zone_aware(c: &mut Criterion) {
    let policies = [
        ("round_robin", EndpointPolicy::default()),
        ("random", EndpointPolicy::Random),
        ("least_request", least_request()),
    ];
    for (name, policy) in policies {
        for state in [State::Direct, State::Residual] {
            for shape in [SMALL, LARGE] {
                let name = format!("{name}/{}", state.name());
                bench(c, &name, Setup::new(shape, state, policy.clone()));
            }
        }
    }
}

/// All other policies and features.
fn others(c: &mut Criterion) {
    for shape in [SMALL, LARGE] {
        let base = |policy| Setup::new(shape, State::Residual, policy);
        let round_robin = || base(EndpointPolicy::default());
        let sampling = LocalitySampling::LowDiscrepancy;
        bench(
            c,
            "low_discrepancy/residual",
            Setup {
                sampling,
                ..round_robin()
            },
        );
        bench(
            c,
            "weighted_round_robin/residual",
            Setup {
                weighted: true,
                ..round_robin()
            },
        );
        let locality_policy = Some(LocalityPolicy::LocalityWeighted);
        bench(
            c,
            "locality_weighted",
            Setup {
                locality_policy,
                ..round_robin()
            },
        );
        for (name, policy) in [("ring_hash", ring_hash()), ("maglev", maglev())] {
            let locality_policy = Some(LocalityPolicy::Flat);
            bench(
                c,
                name,
                Setup {
                    locality_policy,
                    ..base(policy)
                },
            );
        }
    }
}

fn bench(c: &mut Criterion, name: &str, setup: Setup) {
    let Shape { hosts, zones } = setup.shape;
    let cluster = Cluster::new(setup);
    let mut picker = cluster.picker();
    let mut request = 0_u64;
    c.bench_function(&format!("pick/{name}/{hosts}x{zones}"), |b| {
        b.iter(|| {
            // Spread over the hash space, for consistent hashing; other policies ignore it.
            request = request.wrapping_add(0x9e37_79b9_7f4a_7c15);
            black_box(
                picker
                    .pick(PickArgs {
                        hash: Some(request),
                        avoid: &[],
                        ..Default::default()
                    })
                    .host(),
            );
        });
    });
}

fn least_request() -> EndpointPolicy {
    let policy = LeastRequest::try_new(LeastRequestParts::default()).expect("valid settings");
    EndpointPolicy::LeastRequest(policy)
}

fn ring_hash() -> EndpointPolicy {
    let policy = RingHash::try_new(
        HashFunction::default(),
        None,
        None,
        ConsistentHashing::default(),
    );
    EndpointPolicy::RingHash(policy.expect("valid settings"))
}

fn maglev() -> EndpointPolicy {
    let policy = Maglev::try_new(None, ConsistentHashing::default());
    EndpointPolicy::Maglev(policy.expect("valid settings"))
}

criterion_group!(benches, zone_aware, others);
criterion_main!(benches);
