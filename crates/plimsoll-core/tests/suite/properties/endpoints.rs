//! Endpoint policies without hashing: weights, requests in flight, slow start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::host::Host;
use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::{
    EndpointPolicy, LeastRequest, LeastRequestParts, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::picker::PickArgs;
use plimsoll_core::rng::ScriptedRng;
use proptest::prelude::*;

use super::cases;
use super::generate::ZONES;
use crate::support::{Driver, Tally, at, config, parts, zone};

/// Creates a cluster of one zone with hosts of these weights.
fn weighted(endpoint_policy: EndpointPolicy, weights: &[u32]) -> Driver {
    let mut assignment = parts(&[("a", weights.len())]);
    for (endpoint, &weight) in assignment.endpoints[0].lb_endpoints.iter_mut().zip(weights) {
        endpoint.load_balancing_weight = Some(weight);
    }
    let mut driver = Driver::new(config(|parts| parts.endpoint_policy = endpoint_policy), "a");
    driver.assignment(assignment, at(0));
    driver
}

fn hosts(driver: &mut Driver) -> Vec<Arc<Host>> {
    driver.snapshot().hosts().map(Arc::clone).collect()
}

fn least_request(change: impl FnOnce(&mut LeastRequestParts)) -> EndpointPolicy {
    let mut parts = LeastRequestParts::default();
    change(&mut parts);
    EndpointPolicy::LeastRequest(LeastRequest::try_new(parts).expect("valid"))
}

proptest! {
    #![proptest_config(cases(96))]

    /// Wherever the schedule starts, whole periods give every host its weight. One pick of
    /// tolerance, since coinciding deadlines may change places.
    #[test]
    fn weighted_round_robin_is_proportional_over_a_period(
        weights in proptest::collection::vec(1_u32..=20, 2..12),
        seed in any::<u64>(),
        periods in 1_u64..12,
        skipped in 0_u64..50,
    ) {
        let mut driver = weighted(EndpointPolicy::default(), &weights);
        let period: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut picker = driver.picker(seed);
        Tally::of(&mut picker, skipped);
        let tally = Tally::of(&mut picker, periods * period);
        for (host, &weight) in hosts(&mut driver).iter().zip(&weights) {
            let picked = tally.hosts.get(&host.address()).copied().unwrap_or(0);
            let expected = periods * u64::from(weight);
            prop_assert!(picked.abs_diff(expected) <= 1, "{picked} is not {expected}");
        }
    }

    /// The same for localities, and within each locality for its hosts.
    #[test]
    fn locality_weights_are_proportional_over_a_period(
        zones in proptest::collection::vec((1_u32..=9, 1_usize..5), 2..6),
        seed in any::<u64>(),
    ) {
        let named: Vec<_> = ZONES.iter().copied().zip(zones.iter().map(|&(_, n)| n)).collect();
        let mut assignment = parts(&named);
        for (entry, &(weight, _)) in assignment.endpoints.iter_mut().zip(&zones) {
            entry.load_balancing_weight = Some(weight);
        }
        for policy in [LocalityPolicy::LocalityWeighted, LocalityPolicy::WrrLocality] {
            let mut driver = Driver::new(config(|parts| parts.locality_policy = policy), "b");
            driver.assignment(assignment.clone(), at(0));
            let period: u32 = zones.iter().map(|&(weight, _)| weight).sum();
            let tally = Tally::of(&mut driver.picker(seed), u64::from(period) * 12);
            for (&(name, hosts), &(weight, _)) in named.iter().zip(&zones) {
                let picked = tally.localities[&zone(name)];
                prop_assert!(picked.abs_diff(u64::from(weight) * 12) <= 1, "{name}: {picked}");
                let each = tally.hosts.iter().filter(|(address, _)| in_zone(address, name));
                let counts: Vec<u64> = each.map(|(_, &count)| count).collect();
                prop_assert_eq!(counts.len(), hosts);
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
            }
        }
    }

    /// Draw by draw: the pick has the fewest requests in flight among its sample, and is the first
    /// of equals.
    #[test]
    fn least_request_takes_the_least_busy_of_its_sample(
        active in proptest::collection::vec(0_usize..5, 1..8),
        choices in 2_u32..6,
        draws in proptest::collection::vec(any::<u64>(), 6),
    ) {
        let policy = least_request(|parts| parts.choice_count = Some(choices));
        let mut driver = weighted(policy, &vec![3; active.len()]);
        let hosts = hosts(&mut driver);
        let requests: Vec<_> = hosts
            .iter()
            .zip(&active)
            .flat_map(|(host, &active)| (0..active).map(|_| host.begin_request()))
            .collect();
        // The first draw seeds the worker, the second chooses the priority, the rest sample.
        let mut script = vec![1, 2];
        script.extend(&draws[..choices as usize]);
        let mut picker = driver.picker_with(ScriptedRng::new(script));
        let picked = picker.pick(PickArgs::default()).host().map(|host| host.address());
        let sample = draws[..choices as usize].iter().map(|&draw| {
            usize::try_from(draw % active.len() as u64).expect("an index")
        });
        // `min_by_key` returns the first of equals.
        let expected = sample.min_by_key(|&index| active[index]);
        prop_assert_eq!(picked, expected.map(|index| hosts[index].address()));
        prop_assert_eq!(requests.len() as u64, hosts[0].cluster_load().active());
    }

    /// The full scan finds the least busy of all hosts, independent of draws.
    #[test]
    fn a_full_scan_takes_the_least_busy_host(
        active in proptest::collection::vec(0_usize..4, 1..10),
        seed in any::<u64>(),
    ) {
        let policy = least_request(|parts| parts.selection_method = SelectionMethod::FullScan);
        let mut driver = weighted(policy, &vec![1; active.len()]);
        let hosts = hosts(&mut driver);
        let requests: Vec<_> = hosts
            .iter()
            .zip(&active)
            .flat_map(|(host, &active)| (0..active).map(|_| host.begin_request()))
            .collect();
        let fewest = active.iter().min().copied().unwrap_or(0) as u64;
        let mut picker = driver.picker(seed);
        for _ in 0..20 {
            let picked = picker.pick(PickArgs::default()).host().map(|host| host.active_requests());
            prop_assert_eq!(picked, Some(fewest));
        }
        drop(requests);
        prop_assert_eq!(hosts[0].cluster_load().active(), 0, "all requests ended");
    }

    /// With unequal weights a host with more requests in flight is picked less often; with bias 0
    /// requests have no effect.
    #[test]
    fn weighted_least_request_prefers_idle_hosts(busy in 1_usize..8, bias in 0_u32..3) {
        let policy = least_request(|parts| parts.active_request_bias = Some(f64::from(bias)));
        let mut driver = weighted(policy, &[2, 2, 1]);
        let hosts = hosts(&mut driver);
        let requests: Vec<_> = (0..busy).map(|_| hosts[0].begin_request()).collect();
        let tally = Tally::of(&mut driver.picker(7), 2_000);
        let picks: Vec<u64> = hosts.iter().map(|host| tally.hosts[&host.address()]).collect();
        let ratio = crate::support::ratio(picks[1], picks[0]);
        let expected = crate::support::ratio(requests.len() as u64 + 1, 1)
            .powi(i32::try_from(bias).expect("small"));
        prop_assert!((ratio / expected - 1.0).abs() < 0.1, "{picks:?} for {expected}");
    }

    /// During the slow-start window a host's factor only grows and ends at 1; afterwards there is
    /// no timer.
    #[test]
    fn slow_start_factors_grow_with_time(
        window_ms in 100_u64..120_000,
        aggression in 0.2_f64..4.0,
        min_weight_percent in 1.0_f64..50.0,
        weights in proptest::collection::vec(1_u32..9, 1..5),
        late_ms in 0_u64..60_000,
    ) {
        let window = Duration::from_millis(window_ms);
        let slow_start = SlowStart::try_new(window, Some(aggression), Some(min_weight_percent))
            .expect("valid by construction");
        let policy = EndpointPolicy::RoundRobin(RoundRobin { slow_start });
        let mut driver = weighted(policy, &weights);
        // A host that is added later starts later, independent of the others.
        let mut more = parts(&[("a", weights.len() + 1)]);
        for (endpoint, &weight) in more.endpoints[0].lb_endpoints.iter_mut().zip(&weights) {
            endpoint.load_balancing_weight = Some(weight);
        }
        let mut late = Some(plimsoll_core::time::Instant::from_millis(late_ms));
        let mut last: BTreeMap<_, f64> = BTreeMap::new();
        let mut wakes = 0;
        while let Some(next) = [driver.balancer.poll_timeout(), late].into_iter().flatten().min() {
            wakes += 1;
            prop_assert!(wakes < 10_000, "the ramp ends");
            if late == Some(next) {
                late = None;
                driver.assignment(more.clone(), next);
            }
            driver.timeout(next);
            let after = driver.balancer.poll_timeout();
            prop_assert!(after.is_none_or(|after| after > next), "the next wake-up is later");
            for host in hosts(&mut driver) {
                let factor = host.scheduled_weight() / f64::from(host.weight());
                let before = last.insert(host.address(), factor).unwrap_or(0.0);
                prop_assert!(before <= factor && factor <= 1.0, "{before} then {factor}");
                prop_assert!(factor >= min_weight_percent / 100.0 - 1e-12, "the minimum weight");
            }
        }
        prop_assert_eq!(last.len(), weights.len() + 1);
        prop_assert!(last.values().all(|&factor| factor == 1.0), "{last:?}");
    }
}

/// Whether `parts` assigns the address to the zone.
fn in_zone(address: &std::net::SocketAddr, name: &str) -> bool {
    let index = ZONES.iter().position(|&zone| zone == name);
    let std::net::SocketAddr::V4(address) = address else {
        return false;
    };
    index.is_some_and(|index| usize::from(address.ip().octets()[1]) == index)
}
