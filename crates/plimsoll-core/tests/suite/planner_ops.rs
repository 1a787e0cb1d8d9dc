//! Operation sequences on the planner: seeded random strings and hand-written edge cases, through
//! the interpreter that the fuzz target uses.

use crate::support::planner_ops;
use plimsoll_core::rng::{Rng, Xoshiro256};

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Xoshiro256::from_seed(seed);
    (0..len.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .take(len)
        .collect()
}

/// A failure prints its seed: `planner_ops::run(&random_bytes(seed, len))` reproduces it.
#[test]
fn random_sequences_hold_the_invariants() {
    let mut total = planner_ops::Coverage::default();
    for seed in 0..1_500 {
        let len = 200 + (seed % 4) as usize * 200;
        let coverage = std::panic::catch_unwind(|| planner_ops::run(&random_bytes(seed, len)))
            .unwrap_or_else(|_| unreachable!("seed {seed}, {len} bytes"));
        for (sum, more) in [
            (&mut total.plans, coverage.plans),
            (&mut total.events, coverage.events),
        ] {
            more.into_iter()
                .for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
        total.fleet_weights += coverage.fleet_weights;
        total.locality_weights += coverage.locality_weights;
        total.refused += coverage.refused;
    }
    println!("{total:?}");
    let causes = [
        "FirstData",
        "FractionsMoved",
        "Heartbeat",
        "NoData",
        "WarmedUp",
        "ZonesChanged",
    ];
    for cause in causes {
        assert!(
            total.plans.get(cause).is_some_and(|&count| count > 20),
            "{cause}: {total:?}"
        );
    }
    for event in ["joined", "left", "moved", "ignored"] {
        assert!(
            total.events.get(event).is_some_and(|&count| count > 20),
            "{event}: {total:?}"
        );
    }
    let weights = total.fleet_weights.min(total.locality_weights);
    assert!(weights > 100 && total.refused > 100, "{total:?}");
}

#[test]
fn sequences_are_deterministic() {
    for seed in [1, 2, 3] {
        let bytes = random_bytes(seed, 600);
        assert_eq!(planner_ops::run(&bytes), planner_ops::run(&bytes));
    }
}

#[test]
fn edge_cases_hold_the_invariants() {
    planner_ops::run(&[]);
    for byte in 0..=u8::MAX {
        planner_ops::run(&[byte; 200]);
        let alternating: Vec<u8> = (0..200)
            .map(|i| if i % 2 == 0 { byte } else { 0 })
            .collect();
        planner_ops::run(&alternating);
        let rising: Vec<u8> = (0..200_u32)
            .map(|i| byte.wrapping_add(i.to_le_bytes()[0]))
            .collect();
        planner_ops::run(&rising);
    }
}
