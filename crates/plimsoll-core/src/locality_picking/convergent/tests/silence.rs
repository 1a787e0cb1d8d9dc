//! What the controller does when reports stop: nobody is loaded higher than by host counts.

use proptest::prelude::*;

use super::*;

/// Seconds after which a report expires.
pub(super) const EXPIRATION: f64 = 30.0;

impl Loop {
    fn silence(&mut self, zones: &[usize]) {
        for &zone in zones {
            self.silence[zone] = Some(0.5);
        }
    }

    /// Sets the demand as fractions of what it was.
    fn shift(&mut self, fractions: &[f64]) {
        let total: f64 = self.demand.iter().sum();
        self.demand = fractions.iter().map(|fraction| fraction * total).collect();
    }

    /// The largest difference between the shares of two worlds.
    fn distance(&self, other: &Self) -> f64 {
        let shares = self
            .shares
            .iter()
            .flatten()
            .zip(other.shares.iter().flatten());
        shares
            .map(|(one, other)| (one - other).abs())
            .fold(0.0, f64::max)
    }
}

#[test]
fn silence_of_all_zones_ends_at_host_counts() {
    for after_step in [false, true] {
        let mut world = Loop::new(&[4.0; 3], &[0.6, 0.2, 0.2], 0.6, 3);
        world.noise = 0.05;
        world.run(40);
        if after_step {
            world.shift(&[0.2, 0.2, 0.6]);
            world.run(2);
        }
        world.silence(&[0, 1, 2]);
        world.run(60);
        let (_, worst, _) = world.run(300);
        assert!(worst < 1.002, "level by host counts, not {worst}");
    }
}

#[test]
fn shares_are_held_while_reports_are_old_but_valid() {
    let mut world = Loop::new(&[4.0; 3], &[0.6, 0.2, 0.2], 0.6, 3);
    world.run(40);
    world.silence(&[0, 1, 2]);
    world.run(17);
    let held = world.shares.clone();
    world.run(12);
    let shares = held.iter().flatten().zip(world.shares.iter().flatten());
    let moved = shares.map(|(before, after)| (before - after).abs());
    assert!(moved.fold(0.0, f64::max) < 1e-9);
}

#[test]
fn silence_of_one_zone_leaves_all_level() {
    for silent in 0..3 {
        let mut world = Loop::new(&[4.0; 3], &[0.6, 0.2, 0.2], 0.6, 3);
        world.noise = 0.05;
        world.run(40);
        world.silence(&[silent]);
        world.run(60);
        let (average, worst, _) = world.run(300);
        assert!(
            average < 1.05 && worst < 1.1,
            "{silent}: {average}, {worst}"
        );
    }
}

#[test]
fn measured_demand_replaces_silent_reports() {
    let mut world = Loop::new(&[4.0; 3], &[0.6, 0.2, 0.2], 0.6, 3);
    world.run(40);
    // Fractions 60/20/20 of three equal zones: zone 0 keeps 5/9, the others everything.
    let asked = [
        [5.0 / 9.0, 2.0 / 9.0, 2.0 / 9.0],
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
    ];
    world.asked = Some(asked.map(Vec::from).to_vec());
    world.silence(&[0, 1, 2]);
    world.run(60);
    let (_, worst, cross) = world.run(100);
    assert!(worst < 1.03, "{worst}");
    assert!(cross < 0.3, "requests stay local: {cross}");
}

#[test]
fn reports_that_return_move_nothing_at_once() {
    let mut world = Loop::new(&[4.0; 3], &[0.6, 0.2, 0.2], 0.6, 3);
    world.run(40);
    world.silence(&[0, 1, 2]);
    world.run(120);
    world.silence = vec![None; 3];
    let (_, worst, _) = world.run(60);
    assert!(worst < 1.1, "{worst}");
}

/// Probes go on, so that reports in responses can return: measured demand that keeps everything
/// local would otherwise never let a zone be seen again.
#[test]
fn a_silent_zone_gets_probes_although_demand_calls_for_none() {
    let mut world = Loop::new(&[4.0; 3], &[0.34, 0.33, 0.33], 0.6, 3);
    world.asked = Some(vec![vec![1.0, 0.0, 0.0]; 3]);
    world.silence(&[0, 1, 2]);
    world.run(600);
    for own in 0..3 {
        let [first, second] = [1, 2].map(|step| world.shares[own][(own + step) % 3]);
        assert!(
            (first - 0.015).abs() < 1e-6 && (second - 0.015).abs() < 1e-6,
            "{:?}",
            world.shares
        );
    }
}

/// Zones of which nothing new came divide what a zone with expired reports leaves.
#[test]
fn a_silent_zone_among_quiet_ones_gets_its_part_of_the_hosts() {
    let mut world = Loop::new(&[4.0; 3], &[0.34, 0.33, 0.33], 0.6, 3);
    world.run(60);
    world.silence = vec![Some(EXPIRATION + 1.0), Some(16.0), Some(16.0)];
    for _ in 0..12 {
        world.silence = vec![Some(EXPIRATION + 1.0), Some(16.0), Some(16.0)];
        world.step();
    }
    for shares in &world.shares {
        assert!((shares[0] - 1.0 / 3.0).abs() < 0.01, "{shares:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the state at the freeze: shares move no faster than the slew rate, and no zone is
    /// loaded higher than at the freeze or by host counts.
    #[test]
    fn shares_walk_to_host_counts(
        before in prop::collection::vec(0.05_f64..1.0, 3),
        hosts in prop::collection::vec(1_u8..9, 3),
        ticks in 0_u32..60,
        seed in any::<u64>(),
    ) {
        let total: f64 = before.iter().sum();
        let fractions: Vec<f64> = before.iter().map(|part| part / total).collect();
        let hosts: Vec<f64> = hosts.into_iter().map(f64::from).collect();
        let mut world = Loop::new(&hosts, &fractions, 0.6, 3);
        (world.rng, world.noise) = (Xoshiro256::from_seed(seed), 0.3);
        world.run(ticks + 1);
        world.silence = vec![Some(EXPIRATION + 1.0); 3];
        let mut highest = world.imbalance().max(1.0);
        for _ in 0..60 {
            let earlier = world.shares.clone();
            world.step();
            let moved = earlier.iter().flatten().zip(world.shares.iter().flatten());
            for (earlier, now) in moved {
                prop_assert!((earlier - now).abs() <= 0.151, "{earlier} to {now}");
            }
            prop_assert!(world.imbalance() <= highest + 1e-3, "{}", world.imbalance());
            highest = world.imbalance().max(1.0);
        }
        prop_assert!(world.imbalance() < 1.001, "{}", world.imbalance());
    }

    /// Frozen inputs reach a fixed point that does not depend on the state at the freeze: host
    /// counts or, while it is fresh, what measured demand calls for.
    ///
    /// With one or two silent zones their shares are fixed. Those that report are steered by the
    /// law, to which all divisions of the rest are the same that load the zones alike: a zone sends
    /// its spill where there is room, and where there is none anywhere, as it did before.
    #[test]
    fn the_end_of_silence_does_not_depend_on_its_beginning(
        before in prop::collection::vec(0.05_f64..1.0, 3),
        ticks in 0_u32..60,
        silent in prop::sample::subsequence(vec![0_usize, 1, 2], 1..=3),
        asked in prop::option::of(prop::array::uniform3(prop::array::uniform3(0.05_f64..1.0))),
        seed in any::<u64>(),
    ) {
        let after = [0.5, 0.3, 0.2];
        let divided = |parts: &[f64]| -> Vec<f64> {
            let total: f64 = parts.iter().sum();
            parts.iter().map(|part| part / total).collect()
        };
        let asked: Option<Vec<_>> = asked.map(|rows| rows.iter().map(|row| divided(row)).collect());
        let mut world = Loop::new(&[4.0; 3], &divided(&before), 0.6, 3);
        (world.rng, world.noise) = (Xoshiro256::from_seed(seed), 0.3);
        world.run(ticks + 1);
        let mut other = Loop::new(&[4.0; 3], &after, 0.6, 3);
        other.run(100);
        for world in [&mut world, &mut other] {
            world.noise = 0.0;
            world.shift(&after);
            world.asked.clone_from(&asked);
            world.silence(&silent);
            world.run(600);
        }
        if silent.len() == 3 {
            let distance = world.distance(&other);
            prop_assert!(distance < 1e-6, "{:?} and {:?}", world.shares, other.shares);
        }
        let silent_alike = silent.iter().all(|&zone| {
            (0..3).all(|own| (world.shares[own][zone] - other.shares[own][zone]).abs() < 1e-6)
        });
        prop_assert!(silent_alike, "{:?} and {:?}", world.shares, other.shares);
        prop_assert!(asked.is_some() || world.imbalance() < 1.1, "{}", world.imbalance());
    }

    /// One silent zone neither attracts nor repels: wherever demand is and whatever it reported
    /// last, it serves its part of the requests.
    #[test]
    fn a_silent_zone_serves_its_part(
        parts in prop::collection::vec(0.05_f64..1.0, 4),
        hosts in prop::collection::vec(2_u8..9, 4),
        silent in 0_usize..4,
        ticks in 0_u32..60,
        seed in any::<u64>(),
    ) {
        let total: f64 = parts.iter().sum();
        let fractions: Vec<f64> = parts.iter().map(|part| part / total).collect();
        let hosts: Vec<f64> = hosts.into_iter().map(f64::from).collect();
        let mut world = Loop::new(&hosts, &fractions, 0.5, 3);
        (world.rng, world.noise) = (Xoshiro256::from_seed(seed), 0.3);
        world.run(ticks + 1);
        world.silence(&[silent]);
        world.run(100);
        let load = world.utilization()[silent] / 0.5;
        prop_assert!((load - 1.0).abs() < 0.01, "{load}");
    }
}
