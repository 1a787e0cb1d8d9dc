//! Tests that the influence of measured demand grows with its percentage: from reports alone, each
//! percent of it moves a share by at most 1 %.

use super::*;

/// Shares of every proxy, the own zone first, that have nothing to do with where the load is.
const WRONG: [f64; 3] = [0.12, 0.44, 0.44];

/// Three zones that are level by reports, and the same with demand that asks for something else.
fn pair(percent: u32, fractions: [f64; 3], start: ColdStart) -> [Loop; 2] {
    [None, Some(percent)].map(|percent| {
        let mut world = Loop::new(&[4.0; 3], &fractions, 0.6, 3);
        world.settings = settings(|parts| {
            parts.cold_start = start;
            parts.demand_feed_forward_percent = percent;
        });
        world
    })
}

/// Runs both; returns the largest difference between shares at the same time.
fn apart(worlds: &mut [Loop; 2], ticks: u32) -> f64 {
    let mut most = 0.0_f64;
    for _ in 0..ticks {
        worlds.iter_mut().for_each(Loop::step);
        let shares = |world: &Loop| world.shares.concat();
        let [off, led] = [&worlds[0], &worlds[1]].map(shares);
        let differences = off.iter().zip(&led).map(|(a, b)| (a - b).abs());
        most = differences.fold(most, f64::max);
    }
    most
}

fn asks(world: &mut Loop) {
    world.asked = Some(vec![WRONG.to_vec(); 3]);
}

#[test]
fn demand_that_starts_to_lead_a_level_fleet_moves_no_share_by_more_than_its_percentage() {
    for fractions in SKEWS {
        let moved = |percent| {
            let mut worlds = pair(percent, fractions, ColdStart::Local);
            assert!(
                apart(&mut worlds, 120) < 1e-9,
                "they are the same until then"
            );
            asks(&mut worlds[1]);
            apart(&mut worlds, 300)
        };
        for (percent, limit) in [(1, 0.01), (5, 0.05)] {
            let moved = moved(percent);
            assert!(moved <= limit, "{fractions:?}: {moved} at {percent} %");
        }
        assert!(moved(100) > 0.1, "{fractions:?}: {} at 100 %", moved(100));
    }
}

#[test]
fn each_percent_moves_a_share_that_reports_hold_by_at_most_one() {
    let mut before = 0.0;
    for percent in 1..=100 {
        let mut flow = Flow::new(1.0);
        flow.asked = Some(0.0);
        let pulled = 1.0 - flow.trim(1.0, f64::from(percent) / 100.0, 0.0);
        assert!(pulled - before <= 0.01, "{pulled} at {percent} %");
        before = pulled;
    }
    assert!(before > 0.85, "{before}");
}

#[test]
fn a_cold_start_is_led_by_the_percentage() {
    for start in [ColdStart::Local, ColdStart::HostCount] {
        let first = |percent| {
            let mut worlds = pair(percent, SKEWS[0], start);
            asks(&mut worlds[1]);
            apart(&mut worlds, 1)
        };
        assert!(first(0) < 1e-9, "{start:?}: {}", first(0));
        assert!(first(1) <= 0.01, "{start:?}: {}", first(1));
        assert!(first(100) > 10.0 * first(1), "{start:?}: {}", first(100));
    }
}

#[test]
fn demand_that_moves_is_followed_by_the_percentage() {
    let moved = |percent| {
        let mut worlds = pair(percent, SKEWS[0], ColdStart::Local);
        worlds.iter_mut().for_each(asks);
        worlds[0].settings = settings(|parts| parts.demand_feed_forward_percent = Some(0));
        apart(&mut worlds, 120);
        worlds[1].asked = Some(vec![vec![1.0, 0.0, 0.0]; 3]);
        apart(&mut worlds, 60)
    };
    assert!(moved(1) <= 0.01, "{}", moved(1));
    assert!(moved(100) > 0.1, "{}", moved(100));
}
