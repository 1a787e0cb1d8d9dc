//! Operation sequences on the planner: seeded random strings and hand-written nasty ones, through
//! the interpreter that the fuzz target uses.

#[path = "support/planner_ops.rs"]
mod planner_ops;

use plimsoll_core::rng::{Rng, Xoshiro256};

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Xoshiro256::from_seed(seed);
    (0..len.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .take(len)
        .collect()
}

/// A failure names its seed: `planner_ops::run(&random_bytes(seed, len))` brings it back.
#[test]
fn random_sequences_hold_the_invariants() {
    let mut total = planner_ops::Reached::default();
    for seed in 0..1_500 {
        let len = 200 + (seed % 4) as usize * 200;
        let reached = std::panic::catch_unwind(|| planner_ops::run(&random_bytes(seed, len)));
        let reached = reached.unwrap_or_else(|_| unreachable!("seed {seed}, {len} bytes"));
        for (sum, more) in [
            (&mut total.plans, reached.plans),
            (&mut total.events, reached.events),
        ] {
            more.into_iter()
                .for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
        total.fleet_weights += reached.fleet_weights;
        total.locality_weights += reached.locality_weights;
        total.refused += reached.refused;
    }
    println!("{total:?}");
    let causes = [
        "EndpointsChanged",
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
fn the_same_bytes_do_the_same() {
    for seed in [1, 2, 3] {
        let bytes = random_bytes(seed, 600);
        assert_eq!(planner_ops::run(&bytes), planner_ops::run(&bytes));
    }
}

#[test]
fn nasty_sequences_hold_the_invariants() {
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
