//! Operation sequences on the balancer and its pickers: seeded random strings and hand-written edge
//! cases, through the interpreter that the fuzz targets use.

use crate::support::ops::Coverage;

/// Returns reproducible random bytes for a seed (splitmix64).
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..len.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .take(len)
        .collect()
}

fn sum(total: &Coverage, one: &Coverage) -> Coverage {
    let mut sources = total.sources;
    sources
        .iter_mut()
        .zip(one.sources)
        .for_each(|(sum, more)| *sum += more);
    Coverage {
        snapshots: total.snapshots + one.snapshots,
        refused: total.refused + one.refused,
        stale: total.stale + one.stale,
        recovered: total.recovered + one.recovered,
        picks: total.picks + one.picks,
        drops: total.drops + one.drops,
        failures: total.failures + one.failures,
        queued: total.queued + one.queued,
        local: total.local + one.local,
        avoided: total.avoided + one.avoided,
        reports: total.reports + one.reports,
        sources,
    }
}

/// A failure prints its seed: `ops::run(&random_bytes(seed, len))` reproduces it.
#[test]
fn random_sequences_hold_the_invariants() {
    let mut total = Coverage::default();
    for seed in 0..2_000 {
        let len = 300 + (seed % 5) as usize * 300;
        let coverage =
            std::panic::catch_unwind(|| crate::support::ops::run(&random_bytes(seed, len)))
                .unwrap_or_else(|_| unreachable!("seed {seed}, {len} bytes"));
        total = sum(&total, &coverage);
    }
    println!("{total:?}");
    // The strings must cover what they are meant to test.
    assert!(total.sources.iter().all(|&count| count > 100), "{total:?}");
    for (what, count) in [
        ("snapshots", total.snapshots),
        ("rejected inputs", total.refused),
        ("stale fractions", total.stale),
        ("recovered fractions", total.recovered),
        ("drops", total.drops),
        ("failures", total.failures),
        ("queued picks", total.queued),
        ("local picks", total.local),
        ("retries", total.avoided),
        ("load reports", total.reports),
    ] {
        assert!(count > 100, "{what}: {count} in {total:?}");
    }
}

#[test]
fn sequences_are_deterministic() {
    for seed in [1, 2, 3] {
        let bytes = random_bytes(seed, 600);
        assert_eq!(
            crate::support::ops::run(&bytes),
            crate::support::ops::run(&bytes)
        );
    }
}

#[test]
fn edge_cases_hold_the_invariants() {
    crate::support::ops::run(&[]);
    for byte in 0..=u8::MAX {
        crate::support::ops::run(&[byte; 300]);
        let alternating: Vec<u8> = (0..300)
            .map(|i| if i % 2 == 0 { byte } else { 0 })
            .collect();
        crate::support::ops::run(&alternating);
        let rising: Vec<u8> = (0..300_u32)
            .map(|i| byte.wrapping_add(i.to_le_bytes()[0]))
            .collect();
        crate::support::ops::run(&rising);
    }
}
