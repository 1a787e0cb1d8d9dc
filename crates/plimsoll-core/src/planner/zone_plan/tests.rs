//! Tests of plans by objective: the worked figures, both forms of delivery, failing zones, noise.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use crate::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};
use crate::planner::cost::{CostParts, PairPrice};
use crate::planner::fractions::{ReportedZone, fractions};
use crate::planner::weights::{RampStart, ReceiverWeights, planned_weights, ramped_weights};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

fn demand(rates: &[f64]) -> Vec<ZoneFraction> {
    let reported = |rate_per_second: &f64| ReportedZone {
        rate_per_second: *rate_per_second,
        reporters: 1,
    };
    let rates = NAMES.iter().zip(rates);
    let zones = rates.map(|(name, rate)| (zone(name), reported(rate)));
    fractions(&zones.collect(), None).unwrap()
}

fn hosts(counts: &[u8]) -> HostSetCounts {
    let zones = NAMES.iter().zip(counts).zip(0..);
    let localities = zones.map(|((name, hosts), net)| {
        let address = |host| SocketAddr::from(([10, 0, net, host], 80));
        LocalityParts::new(zone(name), (0..*hosts).map(address))
    });
    let parts = AssignmentParts::new("orders", localities);
    HostSetCounts::of_assignment(&ClusterLoadAssignment::try_new(parts).unwrap(), 0, None)
}

fn waterfall(target: f64, per_host: f64) -> ZoneGoal {
    ZoneGoal {
        objective: Objective::waterfall(target).unwrap(),
        capacity: Some(HostCapacity::requests_per_second(per_host).unwrap()),
        ..ZoneGoal::default()
    }
}

fn prices(parts: CostParts) -> Arc<Cost> {
    Arc::new(Cost::try_new(parts).unwrap())
}

/// A crossing from zone a to zone b for nothing; two cents elsewhere.
fn cheap_lane() -> Arc<Cost> {
    prices(CostParts {
        usd_per_gigabyte: Some(0.02),
        bytes_per_request: Some(10_000.0),
        between: vec![PairPrice {
            from: zone("a"),
            to: zone("b"),
            usd_per_gigabyte: 0.0,
        }],
        ..CostParts::default()
    })
}

fn plan_of(goal: ZoneGoal, rates: &[f64], counts: &[u8], failing: &[&str]) -> ZonePlan {
    let inputs = ZoneInputs {
        demand: &demand(rates),
        upstream: &hosts(counts),
        failing: &failing.iter().map(|name| zone(name)).collect(),
    };
    ZonePlanner::default()
        .plan(&goal, inputs, Instant::ORIGIN)
        .unwrap()
}

fn rules() -> ZoneAware {
    ZoneAware::default()
        .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .with_upstream_locality_basis(CapacityBasis::HealthyHostsWeight)
        .with_min_cluster_size(1)
        .without_dead_band()
}

/// Share of all requests that cross zones if proxies follow these weights.
fn crossing(weights: &[ReceiverWeights], rates: &[f64]) -> f64 {
    let total: f64 = rates.iter().sum();
    let sent = NAMES.iter().zip(rates).map(|(name, rate)| {
        let own = weights
            .iter()
            .find(|own| own.receiver == zone(name))
            .unwrap();
        let kept = own.weights.iter().find(|(to, _)| *to == zone(name));
        let kept = f64::from(kept.and_then(|(_, weight)| *weight).unwrap_or(0));
        rate * (1.0 - kept / 10_000.0)
    });
    sent.sum::<f64>() / total
}

/// Weights of the plan, and those that zone-aware routing computes from its virtual demand.
fn both_forms(plan: &ZonePlan, counts: &[u8]) -> [Vec<ReceiverWeights>; 2] {
    let (rules, upstream, fleet) = (rules(), hosts(counts), hosts(&[1, 1, 1]));
    let (fleet, start) = (Some(&fleet), RampStart::Hosts);
    let by_demand = ramped_weights(&rules, start, &upstream, fleet, plan.virtual_demand(), 100);
    let rows = planned_weights(&rules, start, &upstream, fleet, plan, 100);
    [rows, by_demand]
}

/// Demand 60/20/20 over three equal zones, at several mean utilizations.
#[test]
fn a_waterfall_crosses_as_little_as_its_target_allows() {
    let counts = [4, 4, 4];
    for (mean, expected) in [
        (0.3, 0.0),
        (0.4, 0.0),
        (0.5, 0.0667),
        (0.6, 0.1556),
        (0.8, 0.2667),
        (0.9, 0.2667),
    ] {
        let total = mean * 12.0 * 30.0;
        let rates = [0.6 * total, 0.2 * total, 0.2 * total];
        let plan = plan_of(waterfall(0.8, 30.0), &rates, &counts, &[]);
        for weights in both_forms(&plan, &counts) {
            let found = crossing(&weights, &rates);
            assert!((found - expected).abs() < 0.001, "{mean}: {found}");
        }
        assert_eq!(plan.is_forced(), mean >= 0.8, "{mean}");
    }
}

#[test]
fn level_is_the_target_zero() {
    let rates = [60.0, 20.0, 20.0];
    let plan = plan_of(ZoneGoal::default(), &rates, &[4, 4, 4], &[]);
    let shares: Vec<u64> = plan
        .virtual_demand()
        .iter()
        .map(|zone| zone.fraction.get())
        .collect();
    assert_eq!(shares, [6000, 2000, 2000], "the demand itself");
    for weights in both_forms(&plan, &[4, 4, 4]) {
        let found = crossing(&weights, &rates);
        assert!((found - 0.2667).abs() < 0.001, "{found}");
    }
}

/// A row has no rounding of virtual demand: gRPC clients drop localities without weight.
#[test]
fn a_zone_within_its_target_keeps_every_request() {
    let plan = plan_of(waterfall(0.8, 30.0), &[60.0, 20.0, 20.0], &[4, 4, 4], &[]);
    let [rows, _] = both_forms(&plan, &[4, 4, 4]);
    for own in rows {
        let used: Vec<_> = own
            .weights
            .iter()
            .filter(|(_, weight)| weight.is_some())
            .collect();
        assert_eq!(used, [&(own.receiver.clone(), Some(10_000))]);
    }
}

#[test]
fn preconditions_and_settings_of_zone_aware_routing_hold_for_rows() {
    let rates = [200.0, 20.0, 20.0];
    let plan = plan_of(waterfall(0.8, 30.0), &rates, &[4, 4, 4], &[]);
    let (upstream, fleet) = (hosts(&[4, 4, 4]), hosts(&[1, 1, 1]));
    let crossing_by = |rules: &ZoneAware| {
        let start = RampStart::Hosts;
        let weights = planned_weights(rules, start, &upstream, Some(&fleet), &plan, 100);
        (weights[0].off, crossing(&weights, &rates))
    };
    let (off, planned) = crossing_by(&rules());
    assert!(
        off.is_none() && (planned - 104.0 / 240.0).abs() < 0.001,
        "{planned}"
    );
    let (off, by_capacity) = crossing_by(&rules().with_min_cluster_size(100));
    assert!(off.is_some() && (by_capacity - 2.0 / 3.0).abs() < 0.001);
}

#[test]
fn a_ramp_leads_to_the_rows() {
    let rates = [60.0, 20.0, 20.0];
    let plan = plan_of(waterfall(0.8, 30.0), &rates, &[4, 4, 4], &[]);
    let (rules, upstream, fleet) = (rules(), hosts(&[4, 4, 4]), hosts(&[1, 1, 1]));
    let at = |percent| {
        let start = RampStart::Hosts;
        planned_weights(&rules, start, &upstream, Some(&fleet), &plan, percent)
    };
    for (percent, expected) in [(0, 2.0 / 3.0), (50, 1.0 / 3.0), (100, 0.0)] {
        let found = crossing(&at(percent), &rates);
        assert!((found - expected).abs() < 0.001, "{percent}: {found}");
    }
}

#[test]
fn a_failing_zone_is_no_headroom() {
    let rates = [120.0, 20.0, 20.0];
    let counts = [4, 4, 4];
    let spill = |failing: &[&str]| {
        let plan = plan_of(waterfall(0.8, 30.0), &rates, &counts, failing);
        let row: Vec<u64> = plan
            .row(&zone("a"))
            .unwrap()
            .map(|(_, parts)| parts)
            .collect();
        (row, plan.zone(&zone("c")).unwrap().clone())
    };
    let (row, _) = spill(&[]);
    assert_eq!(row, [800_000, 100_000, 100_000]);
    let plan = plan_of(waterfall(0.8, 30.0), &rates, &counts, &["c"]);
    for weights in both_forms(&plan, &counts) {
        let of_a: Vec<u32> = weights[0]
            .weights
            .iter()
            .map(|(_, to)| to.unwrap_or(0))
            .collect();
        assert!(of_a[0].abs_diff(8000) < 5 && of_a[2] < 5, "{of_a:?}");
        assert!(weights[2].weights[2].1 > Some(9990), "{weights:?}");
    }
    let (row, failing) = spill(&["c"]);
    assert_eq!(row, [800_000, 200_000, 0]);
    assert!((failing.kept - 20.0).abs() < 0.001, "{failing:?}");
    assert!(
        (failing.capacity - 120.0).abs() < 0.001,
        "its hosts are counted"
    );
    // The hot zone fails because it is overloaded: it is still relieved.
    let (row, _) = spill(&["a"]);
    assert_eq!(row, [800_000, 100_000, 100_000]);
}

#[test]
fn a_zone_without_hosts_sends_all_of_its_requests_away() {
    let plan = plan_of(waterfall(0.8, 30.0), &[30.0, 20.0, 20.0], &[0, 4, 4], &[]);
    let row: Vec<u64> = plan
        .row(&zone("a"))
        .unwrap()
        .map(|(_, parts)| parts)
        .collect();
    assert_eq!(row, [0, 500_000, 500_000]);
    let words = plan.sentence(&zone("a")).unwrap();
    assert!(
        words.starts_with("a spills: 30.0 requests/s arrive"),
        "{words}"
    );
}

#[test]
fn without_hosts_there_is_no_plan() {
    let inputs = ZoneInputs {
        demand: &demand(&[60.0, 20.0, 20.0]),
        upstream: &hosts(&[0, 0, 0]),
        failing: &BTreeSet::new(),
    };
    let goal = waterfall(0.8, 30.0);
    let planned = ZonePlanner::default().plan(&goal, inputs, Instant::ORIGIN);
    assert_eq!(planned.unwrap_err().path(), "capacity");
}

#[test]
fn noise_keeps_the_split_and_a_step_does_not() {
    let goal = waterfall(0.8, 30.0);
    let before = plan_of(goal.clone(), &[120.0, 20.0, 20.0], &[4, 4, 4], &[]);
    let noise = plan_of(goal.clone(), &[120.4, 20.2, 19.9], &[4, 4, 4], &[]).settled(&before);
    assert_eq!(noise.virtual_demand(), before.virtual_demand());
    assert_eq!(noise.rows, before.rows);
    assert!((noise.zone(&zone("a")).unwrap().demand - 120.4).abs() < 1e-9);
    let step = plan_of(goal.clone(), &[130.0, 20.0, 20.0], &[4, 4, 4], &[]).settled(&before);
    assert_ne!(step.rows, before.rows);
    let host = plan_of(goal.clone(), &[120.0, 20.0, 20.0], &[4, 4, 5], &[]).settled(&before);
    assert_eq!(host.zone(&zone("c")).unwrap().weight, 5);
    assert_ne!(host.rows, before.rows);
}

#[test]
fn sentences_name_target_demand_and_headroom() {
    let plan = plan_of(waterfall(0.8, 30.0), &[120.0, 20.0, 20.0], &[4, 4, 4], &[]);
    assert_eq!(
        plan.sentence(&zone("a")).unwrap(),
        "a spills: 120.0 requests/s arrive, and the target of 80 % of its capacity of 120.0/s are \
         96.0; 24.0/s go to b (headroom 76.0/s), c (headroom 76.0/s)"
    );
    assert_eq!(
        plan.sentence(&zone("b")).unwrap(),
        "b keeps all of its 20.0 requests/s: with 32.0/s it is at 27 % of its capacity, the \
         target is 80 %"
    );
    assert_eq!(plan.sentence(&zone("d")), None);
    let forced = plan_of(waterfall(0.8, 30.0), &[300.0, 20.0, 20.0], &[4, 4, 4], &[]);
    let words = forced.sentence(&zone("a")).unwrap();
    assert!(
        words.contains("94 % (demand is above the target of all zones together)"),
        "{words}"
    );
}

#[test]
fn wanted_hosts_hold_the_own_demand_at_the_target() {
    let goal = waterfall(0.8, 30.0);
    for (demand, hosts) in [(0.0, 0), (24.0, 1), (24.1, 2), (96.0, 4), (120.0, 5)] {
        assert_eq!(goal.wanted_hosts(demand), Some(hosts), "{demand}");
    }
    assert_eq!(ZoneGoal::default().wanted_hosts(24.0), None);
}

/// 24 requests/s leave zone a: for nothing to b, which has room for all of them.
#[test]
fn requests_take_the_cheapest_way() {
    let rates = [120.0, 20.0, 20.0];
    let goal = ZoneGoal {
        cost: cheap_lane(),
        ..waterfall(0.8, 30.0)
    };
    assert!(goal.needs_rows() && goal.needs_plan());
    let plan = plan_of(goal, &rates, &[4, 4, 4], &[]);
    let row: Vec<u64> = plan
        .row(&zone("a"))
        .unwrap()
        .map(|(_, parts)| parts)
        .collect();
    assert_eq!(row, [800_000, 200_000, 0]);
    let [rows, _] = both_forms(&plan, &[4, 4, 4]);
    assert_eq!(rows[0].weights[1], (zone("b"), Some(2000)));
    assert_eq!(rows[0].weights[2], (zone("c"), None));
    let shares: u64 = plan
        .virtual_demand()
        .iter()
        .map(|zone| zone.fraction.get())
        .sum();
    assert_eq!(shares, BASIS_POINTS, "measured demand");
    assert!(plan.bill().objective.abs() < 1e-9, "{:?}", plan.bill());
}

/// Prices steer a level service, too: what has to leave a zone takes the cheapest way.
#[test]
fn a_level_service_with_prices_is_planned() {
    let level = ZoneGoal {
        cost: cheap_lane(),
        ..ZoneGoal::default()
    };
    assert!(level.needs_plan());
    let plan = plan_of(level, &[120.0, 0.0, 60.0], &[4, 4, 4], &[]);
    let row: Vec<u64> = plan
        .row(&zone("a"))
        .unwrap()
        .map(|(_, parts)| parts)
        .collect();
    assert_eq!(row, [500_000, 500_000, 0]);
    assert_eq!(
        plan.bill_sentence().unwrap(),
        "requests between zones cost $0.00 a month"
    );
    let words = plan.sentence(&zone("a")).unwrap();
    assert!(
        words.contains("its share by its hosts is 60.0/s"),
        "{words}"
    );
}

/// 24 of 160 requests/s cross; 22.8 with a target of 81 %, 66.7 if all zones are equally full.
#[test]
fn a_bill_tells_what_the_last_percent_costs() {
    let cost = prices(CostParts {
        usd_per_gigabyte: Some(0.02),
        bytes_per_request: Some(10_000.0),
        ..CostParts::default()
    });
    let goal = ZoneGoal {
        cost,
        ..waterfall(0.8, 30.0)
    };
    let plan = plan_of(goal.clone(), &[120.0, 20.0, 20.0], &[4, 4, 4], &[]);
    let bill = plan.bill();
    // A request per second costs 52.56 cents a month.
    for (found, requests) in [
        (bill.objective, 24.0),
        (bill.level, 66.667),
        (bill.last_percent.unwrap(), 1.2),
    ] {
        assert!((found - 0.5256 * requests).abs() < 0.001, "{bill:?}");
    }
    assert_eq!(
        plan.bill_sentence().unwrap(),
        "requests between zones cost $12.61 a month; with LEVEL $35.04; the last percent costs \
         $0.63: with a target of 81 % it would be $11.98"
    );
    let forced = plan_of(goal, &[300.0, 20.0, 20.0], &[4, 4, 4], &[]);
    assert_eq!(forced.bill().last_percent, None);
    assert!((forced.bill().objective - forced.bill().level).abs() < 1e-9);
    let idle = plan_of(waterfall(0.8, 30.0), &[20.0, 20.0, 20.0], &[4, 4, 4], &[]);
    assert_eq!(idle.bill_sentence(), None, "nothing crosses");
}

/// Prices are kept between reports; other prices or zones replace them.
#[test]
fn prices_are_looked_up_again_when_they_change() {
    let mut planner = ZonePlanner::default();
    let mut sent = |goal: &ZoneGoal, counts: &[u8]| {
        let inputs = ZoneInputs {
            demand: &demand(&[120.0, 20.0, 20.0]),
            upstream: &hosts(counts),
            failing: &BTreeSet::new(),
        };
        let plan = planner.plan(goal, inputs, Instant::ORIGIN).unwrap();
        let row: Vec<u64> = plan
            .row(&zone("a"))
            .unwrap()
            .map(|(_, parts)| parts)
            .collect();
        row
    };
    let uniform = waterfall(0.8, 30.0);
    let listed = ZoneGoal {
        cost: cheap_lane(),
        ..uniform.clone()
    };
    assert_eq!(sent(&uniform, &[4, 4, 4]), [800_000, 100_000, 100_000]);
    assert_eq!(sent(&listed, &[4, 4, 4]), [800_000, 200_000, 0]);
    assert_eq!(sent(&uniform, &[4, 4, 4]), [800_000, 100_000, 100_000]);
}

#[test]
fn capacities_are_above_zero() {
    for wrong in [0.0, -1.0, 0.0001, f64::NAN, f64::INFINITY, 2e6] {
        let error = HostCapacity::requests_per_second(wrong).unwrap_err();
        assert_eq!(error.path(), "requests_per_second", "{wrong}");
    }
}

proptest! {
    /// Both forms follow the plan: no zone above its bound, all requests sent.
    #[test]
    fn both_forms_send_what_is_planned(
        rates in prop::collection::vec(0.0_f64..200.0, 3),
        counts in prop::collection::vec(0_u8..8, 3),
        target in 0.3_f64..1.0,
    ) {
        prop_assume!(counts.iter().filter(|hosts| **hosts > 0).count() >= 2);
        prop_assume!(rates.iter().sum::<f64>() > 1.0);
        let plan = plan_of(waterfall(target, 30.0), &rates, &counts, &[]);
        let total: f64 = rates.iter().sum();
        for weights in both_forms(&plan, &counts) {
            for to in plan.zones() {
                let served: f64 = plan.zones().iter().map(|from| {
                    let own = weights.iter().find(|own| own.receiver == from.locality).unwrap();
                    let share = own.weights.iter().find(|(zone, _)| *zone == to.locality);
                    let share = share.and_then(|(_, weight)| *weight).unwrap_or(0);
                    from.demand * f64::from(share) / 10_000.0
                }).sum();
                // A dead band of 2 %, and fractions are basis points.
                let bound = to.bound * 1.02 + total * 0.001;
                prop_assert!(served <= bound, "{}: {served} > {bound}\n{plan:?}", to.locality);
            }
        }
        let shares: u64 = plan.virtual_demand().iter().map(|zone| zone.fraction.get()).sum();
        prop_assert_eq!(shares, BASIS_POINTS);
    }
}
