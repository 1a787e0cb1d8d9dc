//! Properties of plans on random problems. `plimsoll-conformance` compares costs with a solver.

use proptest::prelude::*;

use super::super::*;
use crate::counts::HostSetCounts;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts};
use crate::model::locality::Locality;
use crate::model::zone_aware::ZoneAware;
use crate::planner::fractions::{ReportedZone, fractions};
use crate::planner::weights::locality_weights;

/// Zones with a unit of demand between a thousandth and a thousand requests per second.
fn zones() -> impl Strategy<Value = Vec<ZoneLoad>> {
    let amount = |most| prop_oneof![1 => Just(0), 6 => 0..most];
    let zone = (amount(1000_u64), amount(1500_u64));
    let unit = prop_oneof![Just(1), Just(1000), Just(1_000_000)];
    (prop::collection::vec(zone, 2..12), unit).prop_map(|(zones, unit)| {
        let zone = |&(demand, capacity): &(u64, u64)| ZoneLoad {
            demand: demand * unit,
            capacity: capacity * unit,
        };
        zones.iter().map(zone).collect()
    })
}

fn objective() -> impl Strategy<Value = Objective> {
    let target = prop_oneof![Just(0), Just(1000), 100..1000];
    target.prop_map(|target| match target {
        0 => Objective::LEVEL,
        target => Objective::waterfall(f64::from(target) / 1000.0).unwrap(),
    })
}

/// Prices of all kinds: equal, by two regions, any, and any without cheaper detours.
fn prices(zones: usize, kind: u32, seeds: &[u32]) -> Prices {
    let seed = |at: usize| seeds[at % seeds.len()];
    let region = |zone: usize| seed(zone) % 2;
    let price = |from: usize, to: usize| match kind {
        _ if from == to => 0,
        0 => 7,
        1 if region(from) == region(to) => 2,
        1 => 9,
        2 => seed(from * zones + to) % 100,
        _ => 50 + seed(from * zones + to) % 50,
    };
    let row = |from| (0..zones).map(|to| price(from, to)).collect();
    Prices::matrix(&(0..zones).map(row).collect::<Vec<_>>()).unwrap()
}

fn problems() -> impl Strategy<Value = (Problem, Prices)> {
    let seeds = prop::collection::vec(0_u32..1000, 150);
    (zones(), objective(), 0_u32..4, seeds).prop_filter_map("no capacity", |parts| {
        let (zones, objective, kind, seeds) = parts;
        let problem = Problem::try_new(&zones, objective).ok()?;
        Some((problem, prices(zones.len(), kind, &seeds)))
    })
}

/// Returns the requests from each zone to each zone, from the rows.
fn flows(solution: &Solution) -> Vec<Vec<u64>> {
    let rows = solution.problem().zones().iter().enumerate();
    rows.map(|(from, zone)| {
        let row = solution.row(from);
        let share = |part: &u64| u128::from(*part) * u128::from(zone.demand);
        row.iter()
            .map(|part| u64::try_from(share(part) / u128::from(ROW_PARTS)).unwrap())
            .collect()
    })
    .collect()
}

proptest! {
    #[test]
    fn all_demand_is_served_and_no_zone_is_above_its_bound((problem, prices) in problems()) {
        let solution = problem.solve(&prices).unwrap();
        let loads = solution.loads();
        let demand: u64 = problem.zones().iter().map(|zone| zone.demand).sum();
        prop_assert_eq!(loads.iter().sum::<u64>(), demand);
        prop_assert_eq!(solution.kept().iter().sum::<u64>() + solution.crossing(), demand);
        let capacity: u64 = problem.zones().iter().map(|zone| zone.capacity).sum();
        let forced = problem.objective.of(capacity).max(demand);
        for ((load, bound), zone) in loads.iter().zip(problem.bounds()).zip(problem.zones()) {
            prop_assert!(load <= bound, "{:?}", solution);
            let exact = u128::from(forced) * u128::from(zone.capacity) / u128::from(capacity);
            prop_assert!((exact..=exact + 1).contains(&u128::from(*bound)));
        }
    }

    #[test]
    fn rows_are_whole_and_carry_the_loads((problem, prices) in problems()) {
        let solution = problem.solve(&prices).unwrap();
        let demand: u64 = problem.zones().iter().map(|zone| zone.demand).sum();
        let mut arriving = vec![0; problem.zones().len()];
        for (from, row) in flows(&solution).iter().enumerate() {
            prop_assert_eq!(solution.row(from).iter().sum::<u64>(), ROW_PARTS);
            for (to, flow) in row.iter().enumerate() {
                arriving[to] += flow;
            }
        }
        let rounding = 40 + demand / ROW_PARTS * 12;
        for (arrives, load) in arriving.iter().zip(solution.loads()) {
            prop_assert!(arrives.abs_diff(load) <= rounding, "{:?}", solution);
        }
    }

    #[test]
    fn zones_without_hosts_get_nothing((problem, prices) in problems()) {
        let solution = problem.solve(&prices).unwrap();
        for from in 0..problem.zones().len() {
            for (zone, part) in problem.zones().iter().zip(solution.row(from)) {
                prop_assert!(zone.capacity > 0 || part == 0, "{:?}", solution);
            }
        }
    }

    /// Demand that changes by at most a thousandth moves at most half a percent of the requests.
    #[test]
    fn noise_moves_few_requests(
        (problem, prices) in problems(),
        noise in prop::collection::vec(999_u64..=1001, 12),
    ) {
        let scaled = |noise: &[u64]| {
            let zones = problem.zones().iter().zip(noise);
            let zones: Vec<_> = zones
                .map(|(zone, noise)| ZoneLoad {
                    demand: zone.demand * noise,
                    capacity: zone.capacity * 1000,
                })
                .collect();
            let problem = Problem::try_new(&zones, problem.objective).unwrap();
            problem.solve(&prices).unwrap()
        };
        let (before, after) = (scaled(&[1000; 12]), scaled(&noise));
        let demand: u64 = before.problem().zones().iter().map(|zone| zone.demand).sum();
        let (before, after) = (flows(&before), flows(&after));
        let pairs = before.iter().flatten().zip(after.iter().flatten());
        let moved: u64 = pairs.map(|(before, after)| before.abs_diff(*after)).sum();
        prop_assert!(moved / 2 <= demand / 200 + 150, "{} of {}", moved, demand);
    }

    /// The zone-aware formula of every data plane, fed with virtual demand, makes the plan.
    #[test]
    fn virtual_demand_makes_the_plan_in_data_planes(
        zones in prop::collection::vec((1_u64..1000, 1_u8..20), 2..8),
        objective in objective(),
    ) {
        let load = |&(demand, hosts): &(u64, u8)| ZoneLoad {
            demand: demand * 1000,
            capacity: u64::from(hosts) * 50_000,
        };
        let loads: Vec<_> = zones.iter().map(load).collect();
        let problem = Problem::try_new(&loads, objective).unwrap();
        let solution = problem.solve(&Prices::uniform(zones.len())).unwrap();
        let demand = solution.virtual_demand().unwrap();
        let hosts: Vec<u8> = zones.iter().map(|(_, hosts)| *hosts).collect();
        for (from, sent) in by_data_planes(&hosts, &demand).iter().enumerate() {
            for (part, weight) in solution.row(from).iter().zip(sent) {
                // Fractions and weights are basis points.
                let apart = (part / 100).abs_diff(*weight);
                prop_assert!(apart <= 40, "{:?} {:?}", solution.row(from), sent);
            }
        }
        if objective.is_level() {
            let measured: Vec<u64> = loads.iter().map(|zone| zone.demand).collect();
            prop_assert_eq!(demand, measured);
        }
    }
}

/// Returns the locality weights that zone-aware routing computes for the proxies of each zone.
fn by_data_planes(hosts: &[u8], demand: &[u64]) -> Vec<Vec<u64>> {
    let name = |zone: usize| Locality::zone_only(&format!("{zone:02}"));
    let locality = |(zone, hosts): (usize, &u8)| {
        let net = u8::try_from(zone).unwrap();
        let host = |host| LbEndpoint::new(([10, 0, net, host], 80).into());
        LocalityParts {
            locality: name(zone),
            lb_endpoints: (0..*hosts).map(host).collect(),
            ..Default::default()
        }
    };
    let parts = AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: hosts.iter().enumerate().map(locality).collect(),
        ..Default::default()
    };
    let upstream = ClusterLoadAssignment::try_new(parts).unwrap();
    let upstream = HostSetCounts::of_assignment(&upstream, 0, None);
    let reported = |(zone, demand): (usize, &u64)| {
        let rate_per_second = f64::from(u32::try_from(*demand).unwrap());
        let zone_demand = ReportedZone {
            rate_per_second,
            reporters: 1,
        };
        (name(zone), zone_demand)
    };
    let known = demand.iter().enumerate().map(reported).collect();
    let fractions = fractions(&known, None).unwrap();
    let rules = ZoneAware::default()
        .with_min_cluster_size(1)
        .without_dead_band();
    let by_zone = locality_weights(&rules, &upstream, None, &fractions);
    let weights = |(_, weight): &(Locality, Option<u32>)| u64::from(weight.unwrap_or(0));
    by_zone
        .iter()
        .map(|receiver| receiver.weights.iter().map(weights).collect())
        .collect()
}
