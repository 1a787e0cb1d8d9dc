//! Bounds, rings, rows and virtual demand on single problems; `random` has properties of all, and
//! `vectors/transport.json` the cases that other implementations could share.

use std::sync::Arc;

use super::*;
use crate::model::locality::Locality;

mod damping;
mod random;

fn problem(demand: &[u64], capacity: &[u64], target: f64) -> Problem {
    let objective = if target == 0.0 {
        Objective::LEVEL
    } else {
        Objective::waterfall(target).unwrap()
    };
    let zones = demand.iter().zip(capacity);
    let zones: Vec<_> = zones
        .map(|(&demand, &capacity)| ZoneLoad { demand, capacity })
        .collect();
    Problem::try_new(&zones, objective).unwrap()
}

fn crossing(demand: &[u64], capacity: &[u64], target: f64) -> u64 {
    let problem = problem(demand, capacity, target);
    problem
        .solve(&Prices::uniform(demand.len()))
        .unwrap()
        .crossing()
}

/// Demand 60/20/20 over equal zones, in parts per thousand of all requests that cross.
#[test]
fn a_target_keeps_requests_local_that_level_sends_away() {
    for (mean, expected) in [
        (0.3, 0),
        (0.4, 0),
        (0.5, 67),
        (0.6, 156),
        (0.7, 219),
        (0.8, 267),
    ] {
        let capacity = 10_000.0 * 100.0 / mean / 3.0;
        let capacity = vec![format!("{capacity:.0}").parse().unwrap(); 3];
        let demand = [600_000, 200_000, 200_000];
        let share = |target| (crossing(&demand, &capacity, target) + 500) / 1000;
        assert_eq!((share(0.8), share(0.0)), (expected, 267), "{mean}");
    }
}

#[test]
fn plans_move_continuously_when_demand_grows_past_the_target() {
    let capacity = [50_000; 3];
    let mut before = None;
    for growth in (0..40_000).step_by(100) {
        let demand = [80_000 + growth, 20_000, 10_000];
        let now = crossing(&demand, &capacity, 0.8);
        if let Some(before) = before {
            assert!(now.abs_diff(before) <= 100, "{growth}: {before} to {now}");
        }
        before = Some(now);
    }
}

#[test]
fn zones_without_capacity_and_absurd_numbers_are_refused() {
    let zone = |demand, capacity| ZoneLoad { demand, capacity };
    let refused = |zones: &[ZoneLoad]| {
        let error = Problem::try_new(zones, Objective::LEVEL).unwrap_err();
        error.to_string()
    };
    assert_eq!(refused(&[]), "capacity: no zone has any");
    assert_eq!(refused(&[zone(5, 0)]), "capacity: no zone has any");
    let absurd = "the sum over all zones exceeds 2^52";
    let half = 1 << 51;
    let zones = [zone(half, half), zone(half + 1, half)];
    assert_eq!(refused(&zones), format!("demand: {absurd}"));
    let zones = [zone(half, half), zone(half, u64::MAX)];
    assert_eq!(refused(&zones), format!("capacity: {absurd}"));
    let full = problem(&[MAX_TOTAL, 0], &[0, MAX_TOTAL], 0.8);
    let largest = full.solve(&Prices::uniform(2)).unwrap();
    assert_eq!(
        (largest.loads(), largest.row(0)),
        (vec![0, MAX_TOTAL], vec![0, ROW_PARTS])
    );
    // No room to enlarge the problem: the first request is still placed.
    let full = problem(&[0, MAX_TOTAL], &[0, MAX_TOTAL], 0.0);
    assert_eq!(
        full.solve(&Prices::uniform(2)).unwrap().row(0),
        [0, ROW_PARTS]
    );
}

#[test]
fn targets_are_above_0_and_at_most_1() {
    for bad in [0.0, -0.5, 1.000_001, f64::NAN, f64::INFINITY, 1e-9] {
        let error = Objective::waterfall(bad).unwrap_err();
        assert_eq!(error.path(), "target_utilization", "{bad}");
    }
    let objective = Objective::waterfall(0.8).unwrap();
    assert!(!objective.is_level() && Objective::default().is_level());
    assert!((objective.target_utilization() - 0.8).abs() < 1e-12);
    assert_eq!(Objective::waterfall(1.0).unwrap().of(MAX_TOTAL), MAX_TOTAL);
}

#[test]
fn rings_are_found_in_prices_however_they_are_stated() {
    let localities = [("r1", "a"), ("r1", "b"), ("r2", "a"), ("r2", "b")]
        .map(|(region, zone)| Locality::new(region, zone, ""));
    let stated = Prices::rings(&localities, 1, 4);
    let rows = [[0, 1, 4, 4], [1, 0, 4, 4], [4, 4, 0, 1], [4, 4, 1, 0]].map(|row| row.to_vec());
    assert_eq!(stated, Prices::matrix(&rows).unwrap());
    assert!(stated.are_nested() && !stated.is_uniform());
    let expected = vec![vec![vec![0, 1], vec![2, 3]], vec![vec![0, 1, 2, 3]]];
    assert_eq!(*stated.structure(), Structure::Rings(expected));
    assert!(Prices::rings(&localities, 3, 3).is_uniform());
    // Dearer within a region than between regions: no ring, and a detour is cheaper.
    let odd = Prices::rings(&localities, 9, 2);
    assert_eq!(*odd.structure(), Structure::Matrix { local_first: false });
    let mut one_way = rows.clone();
    one_way[0][3] = 5;
    let one_way = Prices::matrix(&one_way).unwrap();
    assert_eq!(
        *one_way.structure(),
        Structure::Matrix { local_first: true }
    );
    assert!(!one_way.are_nested() && !one_way.is_uniform());
}

#[test]
fn prices_that_are_no_square_with_zeros_are_refused() {
    for (rows, message) in [
        (vec![vec![0, 1], vec![1]], "prices[1]: 1 prices for 2 zones"),
        (
            vec![vec![0, 1], vec![1, 7]],
            "prices[1][1]: the price within a zone must be 0",
        ),
        (
            vec![Vec::new(); 1001],
            "prices: 1001 zones are more than 1000",
        ),
    ] {
        assert_eq!(Prices::matrix(&rows).unwrap_err().to_string(), message);
    }
    let error = problem(&[1, 2], &[3, 4], 0.0).solve(&Prices::uniform(3));
    assert_eq!(error.unwrap_err().to_string(), "prices: for 3 zones, not 2");
}

#[test]
fn level_is_forced_and_its_virtual_demand_is_the_demand() {
    let demand = [60_000, 20_000, 20_001];
    for (target, forced) in [(0.0, true), (0.5, true), (0.8, false)] {
        let problem = problem(&demand, &[50_000; 3], target);
        assert_eq!(problem.is_forced(), forced, "{target}");
        let solution = problem.solve(&Prices::uniform(3)).unwrap();
        let virtual_demand = solution.virtual_demand().unwrap();
        assert_eq!(virtual_demand == demand, forced, "{target}");
        assert_eq!(
            virtual_demand.iter().sum::<u64>(),
            problem.bounds().iter().sum::<u64>()
        );
    }
    let localities = [("r1", "a"), ("r1", "b"), ("r2", "a")];
    let prices = localities.map(|(region, zone)| Locality::new(region, zone, ""));
    let solution = problem(&demand, &[50_000; 3], 0.8).solve(&Prices::rings(&prices, 1, 2));
    assert_eq!(solution.unwrap().virtual_demand(), None);
}

#[test]
fn only_services_that_changed_are_planned_again() {
    let (orders, users): (Arc<str>, Arc<str>) = ("orders".into(), "users".into());
    let mut solutions = Solutions::default();
    let prices = Prices::uniform(2);
    let mut is_new = |service, problem: &Problem, prices: &Prices| {
        let (solution, is_new) = solutions.update(service, problem, prices).unwrap();
        assert_eq!(solution.problem(), problem);
        is_new
    };
    let one = problem(&[5, 1], &[4, 4], 0.8);
    assert!(is_new(&orders, &one, &prices) && is_new(&users, &one, &prices));
    assert!(!is_new(&orders, &one.clone(), &Prices::uniform(2)));
    assert!(is_new(&orders, &problem(&[5, 1], &[4, 4], 0.7), &prices));
    assert!(is_new(&orders, &problem(&[5, 2], &[4, 4], 0.7), &prices));
    let dearer = Prices::matrix(&[vec![0, 2], vec![2, 0]]).unwrap();
    assert!(is_new(&orders, &problem(&[5, 2], &[4, 4], 0.7), &dearer));
    assert!(!is_new(&users, &one, &prices));
    solutions.retain(|service| service == "users");
    assert!(solutions.get("users").is_some() && solutions.get("orders").is_none());
    let error = solutions.update(&users, &one, &Prices::uniform(3));
    assert!(error.is_err() && solutions.get("users").is_some());
}
