//! Zone-aware routing: shares, conservation of demand, fair load, and independence of input order.

use std::sync::Arc;

use plimsoll_core::explain::{Explanation, StateName};
use plimsoll_core::model::assignment::AssignmentParts;
use plimsoll_core::model::cluster::{ClusterConfig, LocalitySampling};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::zone_aware::{CapacityBasis, LocalityBasis, ZoneAware};
use plimsoll_core::rng::{Rng, Xoshiro256};
use proptest::prelude::*;
use proptest::sample::select;

use super::cases;
use super::generate::{self, ZONES};
use crate::support::{self, Driver, Tally, at, by_zone, config, parts, pick_sequence, zone};

/// Creates a proxy in `own` with a cluster and a fleet.
fn driver(
    config: &Arc<ClusterConfig>,
    own: &str,
    upstream: &AssignmentParts,
    fleet: &AssignmentParts,
) -> Driver {
    let mut driver = Driver::new(Arc::clone(config), own);
    driver.assignment(upstream.clone(), at(0));
    driver.originating(fleet.clone(), at(0));
    driver
}

/// Whether the sum is 1 (`true`) or 0 because requests fail (`false`); `None` otherwise.
fn is_whole(shares: impl Iterator<Item = f64>) -> Option<bool> {
    let mut sum = 0.0;
    for share in shares {
        if !(0.0..=1.0 + 1e-12).contains(&share) {
            return None;
        }
        sum += share;
    }
    ((sum - 1.0).abs() < 1e-9)
        .then_some(true)
        .or((sum == 0.0).then_some(false))
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn shares_sum_to_one(
        config in generate::cluster_config(),
        own in select(&ZONES[..5]),
        upstream in generate::assignment(5, 2, generate::any_health()),
        fleet in generate::fleet(5),
    ) {
        let explanation = driver(&config, own, &upstream, &fleet).explain();
        let rows = &explanation.localities;
        let own_shares = is_whole(rows.iter().map(|row| row.expected_share));
        prop_assert!(own_shares.is_some(), "{rows:?}");
        let traffic: f64 = rows.iter().map(|row| row.traffic_share).sum();
        prop_assert!((0.0..=1.0 + 1e-9).contains(&traffic), "{rows:?}");
        for zone in &explanation.zones {
            prop_assert!(is_whole(zone.shares.iter().copied()).is_some(), "{zone:?}");
        }
        let p0 = &explanation.priorities[0];
        let fails = config.zone_aware().is_some_and(ZoneAware::fail_traffic_on_panic);
        if p0.healthy > 0 && !fails {
            prop_assert_eq!(own_shares, Some(true));
            prop_assert!((traffic - 1.0).abs() < 1e-9, "nothing fails: {}", traffic);
        }
        // Only Envoy's choice among localities without capacity includes empty ones.
        if p0.hosts == 0 && explanation.state == StateName::NoLocalityRouting {
            prop_assert_eq!(own_shares, Some(false));
        }
        prop_assert!(is_whole(rows.iter().map(|row| row.capacity_share)).is_some());
        prop_assert!(is_whole(explanation.zones.iter().map(|z| z.demand_share)).is_some());
    }

    #[test]
    fn input_order_does_not_matter(
        config in generate::cluster_config(),
        upstream in generate::assignment(5, 2, generate::any_health()),
        fleet in generate::fleet(5),
        seed in any::<u64>(),
    ) {
        let mut straight = driver(&config, "a", &upstream, &fleet);
        let (upstream, fleet) = (shuffled(upstream, seed), shuffled(fleet, seed ^ 1));
        let mut mixed = driver(&config, "a", &upstream, &fleet);
        prop_assert_eq!(straight.explain(), mixed.explain());
        let addresses = |driver: &mut Driver| -> Vec<_> {
            driver.snapshot().hosts().map(|host| host.address()).collect()
        };
        prop_assert_eq!(addresses(&mut straight), addresses(&mut mixed));
        let picks = |driver: &Driver| pick_sequence(&mut driver.picker(seed), 100);
        prop_assert_eq!(picks(&straight), picks(&mixed));
        // As an update, the same endpoints in another order change nothing.
        straight.assignment(upstream, at(1));
        prop_assert_eq!(straight.balancer.stats().snapshots_built.get(), 2);
    }

    /// Zones with a fraction keep it, the others share exactly the rest (decision 0023).
    #[test]
    fn partial_fractions_conserve_demand(
        hosts in proptest::collection::vec((1_usize..6, proptest::option::of(0_u64..=4000)), 2..6),
    ) {
        let zones: Vec<_> = ZONES.iter().copied().zip(hosts.iter().map(|&(n, _)| n)).collect();
        let mut fleet = parts(&zones);
        for (entry, &(_, fraction)) in fleet.endpoints.iter_mut().zip(&hosts) {
            entry.observed_traffic_fraction = fraction;
        }
        let known: u64 = hosts.iter().filter_map(|&(_, fraction)| fraction).sum();
        let unknown_hosts: usize =
            hosts.iter().filter(|(_, fraction)| fraction.is_none()).map(|&(n, _)| n).sum();
        let policy = support::zone_aware(|zone| {
            zone.locality_basis = LocalityBasis::LrsReportedRate;
            zone.min_cluster_size = Some(1);
        });
        let config = config(|parts| parts.locality_policy = policy);
        let explanation = driver(&config, "a", &parts(&zones), &fleet).explain();
        let whole: f64 = explanation.localities.iter().map(|row| row.demand_share).sum();
        prop_assert!((whole - 1.0).abs() < 1e-12, "{whole}");
        if known == 0 && unknown_hosts == 0 {
            return Ok(()); // no data: host counts
        }
        let demand = by_zone(&explanation, |row| (row.demand_share, row.local_bp));
        let scale = if unknown_hosts == 0 { known } else { known.max(10_000) };
        for (&(name, hosts), &(_, fraction)) in zones.iter().zip(&hosts) {
            let weight = match fraction {
                Some(bp) => support::ratio(bp, 1),
                None => {
                    let rest = 10_000_u64.saturating_sub(known) * hosts as u64;
                    support::ratio(rest, unknown_hosts as u64)
                }
            };
            let share = weight / support::ratio(scale, 1);
            let (actual, bp) = demand[name];
            prop_assert!((actual - share).abs() < 1e-12, "{name}: {actual} is not {share}");
            // Rounded down, as in Envoy; exact where a fraction is given.
            let bp = support::ratio(bp, 10_000);
            prop_assert!(bp <= actual + 1e-12 && actual < bp + 1e-4 + 1e-12, "{name}");
            if let (Some(fraction), 10_000) = (fraction, scale) {
                prop_assert_eq!(demand[name].1, fraction);
            }
        }
    }
}

/// Shuffles localities and endpoints.
fn shuffled(mut parts: AssignmentParts, seed: u64) -> AssignmentParts {
    let mut rng = Xoshiro256::from_seed(seed);
    shuffle(&mut parts.endpoints, &mut rng);
    parts
        .endpoints
        .iter_mut()
        .for_each(|entry| shuffle(&mut entry.lb_endpoints, &mut rng));
    parts
}

fn shuffle<T>(items: &mut [T], rng: &mut Xoshiro256) {
    for last in (1..items.len()).rev() {
        let other = usize::try_from(rng.next_u64() % (last as u64 + 1)).expect("an index");
        items.swap(last, other);
    }
}

/// A fleet with true fractions in front of homogeneous hosts.
#[derive(Debug, Clone)]
struct World {
    /// Per zone: healthy and unhealthy upstream hosts; both 0 = the cluster is not in this zone.
    upstream: Vec<(usize, usize)>,
    demand: Vec<u64>,
    /// Weight of every host of a zone, if capacity is measured by weight.
    weights: Option<Vec<u32>>,
}

fn world() -> impl Strategy<Value = World> {
    (2_usize..=8).prop_flat_map(|zones| {
        let hosts = prop_oneof![4 => (1_usize..40, 0_usize..3), 1 => (Just(0), 0_usize..3)];
        let weights = proptest::option::of(proptest::collection::vec(1_u32..9, zones));
        (
            proptest::collection::vec(hosts, zones),
            generate::demand(zones),
            weights,
        )
            .prop_filter("two localities upstream", |(upstream, ..)| {
                upstream.iter().filter(|&&(healthy, _)| healthy > 0).count() >= 2
            })
            .prop_map(|(upstream, demand, weights)| World {
                upstream,
                demand,
                weights,
            })
    })
}

impl World {
    fn zones(&self) -> &'static [&'static str] {
        &ZONES[..self.upstream.len()]
    }

    /// Returns the number of upstream zones with healthy hosts.
    fn serving(&self) -> usize {
        self.upstream
            .iter()
            .filter(|&&(healthy, _)| healthy > 0)
            .count()
    }

    fn config(&self, dead_band_bp: Option<u64>) -> Arc<ClusterConfig> {
        let policy = support::zone_aware(|zone| {
            zone.locality_basis = LocalityBasis::LrsReportedRate;
            zone.min_cluster_size = Some(1);
            zone.dead_band_bp = dead_band_bp;
            if self.weights.is_some() {
                zone.upstream_locality_basis = CapacityBasis::HealthyHostsWeight;
            }
        });
        config(|parts| {
            parts.locality_policy = policy;
            parts.locality_sampling = Some(LocalitySampling::LowDiscrepancy);
            // Unhealthy hosts must not make the cluster panic, which is not tested here.
            parts.healthy_panic_threshold = Some(0.0);
        })
    }

    fn driver(&self, own: &str, dead_band_bp: Option<u64>) -> Driver {
        let sizes = self.upstream.iter().map(|&(healthy, sick)| healthy + sick);
        let upstream: Vec<_> = self.zones().iter().copied().zip(sizes).collect();
        let mut upstream = parts(&upstream);
        for (index, entry) in upstream.endpoints.iter_mut().enumerate() {
            for (host, endpoint) in entry.lb_endpoints.iter_mut().enumerate() {
                endpoint.load_balancing_weight =
                    self.weights.as_ref().map(|weights| weights[index]);
                if host >= self.upstream[index].0 {
                    endpoint.health_status = HealthStatus::Unhealthy;
                }
            }
        }
        upstream
            .endpoints
            .retain(|entry| !entry.lb_endpoints.is_empty());
        let fleet: Vec<_> = self.zones().iter().map(|&name| (name, 1)).collect();
        let mut fleet = parts(&fleet);
        for (entry, &bp) in fleet.endpoints.iter_mut().zip(&self.demand) {
            entry.observed_traffic_fraction = Some(bp);
        }
        driver(&self.config(dead_band_bp), own, &upstream, &fleet)
    }

    /// Returns load factor and capacity (basis points) of each zone that has capacity.
    fn load(explanation: &Explanation) -> Vec<(String, f64, f64)> {
        let rows = explanation.localities.iter();
        rows.filter_map(|row| Some((row.zone.clone(), row.load_factor?, row.capacity_share * 1e4)))
            .collect()
    }
}

// The bound of rounding, in basis points of all traffic. Let u_z be the capacity of zone z and f_z
// its demand; both sum to 10000, but for what rounding to parts of a billion loses. A zone with f_z
// > u_z keeps ⌊10⁴·u_z/f_z⌋ basis points of f_z: between u_z − f_z/10⁴ and u_z. What it does not
// keep spills; all spill S goes to the zones with R_i = u_i − f_i > 0 in proportion. Conservation
// makes S = ΣR + Δ, Δ ≤ Σf_z/10⁴ = 1 being what flooring the kept shares adds over all zones. So
// zone i receives u_i + Δ·R_i/ΣR, between u_i and u_i + 1. Hence
//   |traffic − capacity| ≤ 1        in every zone, and |load factor − 1| ≤ 1 / capacity_bp.
// Without spare capacity (ΣR = 0) the spill is Δ in sum: the same bound.
/// The bound, with what is lost below a billionth.
const ROUNDING_BP: f64 = 1.01;

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn true_fractions_give_every_zone_its_fair_load(world in world(), own in 0_usize..8) {
        let own = world.zones()[own % world.zones().len()];
        let explanation = world.driver(own, Some(0)).explain();
        let load = World::load(&explanation);
        prop_assert_eq!(load.len(), world.serving());
        for (name, factor, capacity) in load {
            let error = (factor - 1.0) * capacity;
            prop_assert!(error.abs() < ROUNDING_BP, "{name}: load {factor}, off {error} bp");
        }
    }

    /// With the default band a zone may keep up to 3 % more than its capacity, and not more than
    /// 100 bp, which are missing elsewhere.
    #[test]
    fn the_dead_band_costs_at_most_the_band(world in world()) {
        let explanation = world.driver("a", None).explain();
        let loads = World::load(&explanation);
        let band = |capacity: f64| f64::min(0.03 * capacity, 100.0);
        let most: f64 = loads.iter().map(|&(_, _, capacity)| band(capacity)).sum();
        for (name, factor, capacity) in loads {
            let error = (factor - 1.0) * capacity;
            prop_assert!(error <= band(capacity) + ROUNDING_BP, "{name}: {error} bp too much");
            prop_assert!(error > -ROUNDING_BP - most, "{name}: {error} bp too little");
        }
    }
}

proptest! {
    #![proptest_config(cases(12))]

    /// The same as an experiment: low-discrepancy picks of every zone's proxies, weighted by
    /// demand.
    #[test]
    fn true_fractions_give_fair_load_by_real_picks(world in world()) {
        let picks = 4_000;
        let mut traffic = vec![0.0; world.upstream.len()];
        for (&own, &demand) in world.zones().iter().zip(&world.demand) {
            let mut driver = world.driver(own, Some(0));
            let tally = Tally::of(&mut driver.picker(9), picks);
            prop_assert_eq!(tally.failed, 0, "in {}", own);
            for (sum, name) in traffic.iter_mut().zip(world.zones()) {
                *sum += support::ratio(demand, 10_000) * tally.share(&zone(name));
            }
            // Direct routing keeps everything local.
            if driver.explain().state == StateName::LocalityDirect {
                prop_assert_eq!(tally.localities.len(), 1);
            }
        }
        let unit = |index: usize| world.weights.as_ref().map_or(1, |weights| weights[index]);
        let capacity: Vec<f64> = (0..world.upstream.len())
            .map(|index| support::ratio(world.upstream[index].0 as u64, 1) * f64::from(unit(index)))
            .collect();
        let whole: f64 = capacity.iter().sum();
        for ((traffic, capacity), name) in traffic.iter().zip(&capacity).zip(world.zones()) {
            let error = (traffic - capacity / whole).abs() * 1e4;
            // Rounding as derived above, and 12 requests of 4000 for the sequence.
            let bound = ROUNDING_BP + 12.0 * 1e4 / 4e3;
            prop_assert!(error < bound, "{name}: off by {error} bp of all traffic");
        }
    }
}
