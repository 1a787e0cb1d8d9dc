//! Demand per zone: how much of the fleet's traffic each zone issues, as exact integer weights.
//!
//! There are three sources: healthy hosts, weights of healthy hosts, or measured fractions
//! completed by host counts where a zone is unknown (decision 0023). `fractions` stores measured
//! fractions by origin, with their age; `zone_aware` turns demand into shares.

use std::collections::{BTreeMap, BTreeSet};

use crate::counts::{HostSetCounts, LocalityCounts};
use crate::model::locality::Locality;
use crate::planner::fractions::largest_remainder_f64;
use crate::units::{BASIS_POINTS, BasisPoints, FieldError};

/// Measured shares of demand; a missing zone is unknown, not 0 (decision 0023).
pub type FractionMap = BTreeMap<Locality, BasisPoints>;

/// Converts relative demand per zone, for example requests per second, to fractions that sum to
/// 10000 basis points. Rejects numbers that are negative or not finite, a locality that is listed
/// twice, and demand that is 0 everywhere.
pub fn fractions_of(demand: &[(Locality, f64)]) -> Result<FractionMap, FieldError> {
    let mut seen = BTreeSet::new();
    for (locality, amount) in demand {
        let path = format!("demand[{locality}]");
        if !(amount.is_finite() && *amount >= 0.0) {
            let reason = format!("{amount} is not a finite number of at least 0");
            return Err(FieldError::new(path, reason));
        }
        if !seen.insert(locality) {
            return Err(FieldError::new(path, "is listed twice"));
        }
    }
    let amounts: Vec<f64> = demand.iter().map(|(_, amount)| *amount).collect();
    let Some(shares) = largest_remainder_f64(&amounts, BASIS_POINTS) else {
        let reason = "needs at least one zone with a number above 0";
        return Err(FieldError::new("demand", reason));
    };
    let mut fractions = FractionMap::new();
    for ((locality, _), share) in demand.iter().zip(shares) {
        fractions.insert(locality.clone(), BasisPoints::new(share, "demand")?);
    }
    Ok(fractions)
}

/// Relative demand per locality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Sorted by locality, one entry each.
    weights: Vec<(Locality, u64)>,
    total: u128,
    /// Whether demand was measured, as opposed to assumed from hosts.
    measured: bool,
    /// Whether demand was measured, but not for every zone of the fleet.
    partial: bool,
}

impl Demand {
    /// Assumes demand in proportion to healthy hosts, as Envoy does.
    pub fn from_host_counts(fleet: &HostSetCounts) -> Self {
        let weight = |slot: &LocalityCounts| (slot.locality.clone(), slot.healthy);
        Self::collect(fleet.localities.iter().map(weight), false)
    }

    /// Assumes demand in proportion to the weights of healthy hosts.
    pub fn from_host_weights(fleet: &HostSetCounts) -> Self {
        let weight = |slot: &LocalityCounts| (slot.locality.clone(), slot.healthy_weight);
        Self::collect(fleet.localities.iter().map(weight), false)
    }

    /// Uses measured fractions. Zones of the fleet without one share what the known ones leave
    /// over, by healthy hosts, in the same units: with S = sum of known and N = hosts of unknown
    /// zones, a known zone weighs f·N and an unknown one (10000 − S)·n.
    ///
    /// Returns `None` if there is no information: no fraction at all, or all known ones are 0 and
    /// no zone is unknown.
    pub fn from_fractions(fractions: &FractionMap, fleet: &HostSetCounts) -> Option<Self> {
        if fractions.is_empty() {
            return None;
        }
        let known: u64 = fractions.values().map(|fraction| fraction.get()).sum();
        let unknown = unknown_slots(fractions, fleet);
        let unknown_hosts: u64 = unknown.iter().map(|slot| slot.healthy).sum();
        if known == 0 && unknown_hosts == 0 {
            return None;
        }
        // Without unknown zones the factor N is left out: it would make every weight 0.
        let scale = unknown_hosts.max(1);
        let rest = BASIS_POINTS.saturating_sub(known);
        let assumed = unknown
            .iter()
            .map(|slot| (slot.locality.clone(), rest * slot.healthy));
        let weights = fractions
            .iter()
            .map(|(locality, fraction)| (locality.clone(), fraction.get() * scale))
            .chain(assumed);
        Some(Self {
            partial: !unknown.is_empty(),
            ..Self::collect(weights, true)
        })
    }

    /// Takes fractions as they are, for a `locality_basis` that does not measure demand.
    pub(crate) fn assumed(fractions: &FractionMap) -> Self {
        let weight = |(locality, share): (&Locality, &BasisPoints)| (locality.clone(), share.get());
        Self::collect(fractions.iter().map(weight), false)
    }

    /// Uses relative weights, for example rates of a planner. Entries of one locality add up.
    pub fn from_weights(weights: impl IntoIterator<Item = (Locality, u64)>) -> Self {
        Self::collect(weights.into_iter(), true)
    }

    /// Uses rates, for example requests per second; negative and infinite ones count as 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates when it is cast to an integer"
    )]
    pub(crate) fn from_rates(rates: &[(Locality, f64)]) -> Self {
        // Millionths: shares of simple rates stay exact.
        let weight =
            |(locality, rate): &(Locality, f64)| (locality.clone(), (rate * 1e6).round() as u64);
        Self::from_weights(rates.iter().map(weight))
    }

    /// Whether no zone has demand.
    pub(crate) const fn is_zero(&self) -> bool {
        self.total == 0
    }

    /// Returns the share of `locality` in basis points, rounded down as in Envoy; 0 if it has none.
    pub fn basis_points(&self, locality: &Locality) -> u64 {
        share(self.weight(locality), self.total, BASIS_POINTS)
    }

    /// Returns the share of `locality`, 0.0 to 1.0.
    #[expect(clippy::cast_precision_loss, reason = "a share for display")]
    pub fn share(&self, locality: &Locality) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            self.weight(locality) as f64 / self.total as f64
        }
    }

    /// Returns localities and their weights, sorted.
    pub fn weights(&self) -> &[(Locality, u64)] {
        &self.weights
    }

    /// Whether the demand was measured, so that the rules for a measured `locality_basis` apply
    /// (decision 0004).
    pub const fn is_measured(&self) -> bool {
        self.measured
    }

    /// Whether zones of the fleet had no fraction and were given what the others left over.
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    /// Looks up shares of many localities, fastest in sorted order.
    pub(crate) const fn lookup(&self) -> DemandLookup<'_> {
        DemandLookup {
            demand: self,
            next: 0,
        }
    }

    fn weight(&self, locality: &Locality) -> u64 {
        match self.weights.binary_search_by(|(key, _)| key.cmp(locality)) {
            Ok(index) => self.weights[index].1,
            Err(_) => 0,
        }
    }

    fn collect(weights: impl Iterator<Item = (Locality, u64)>, measured: bool) -> Self {
        let mut weights: Vec<_> = weights.collect();
        weights.sort_by(|(a, _), (b, _)| a.cmp(b));
        weights.dedup_by(|(later, weight), (earlier, sum)| {
            let same = later == earlier;
            if same {
                *sum = sum.saturating_add(*weight);
            }
            same
        });
        let total = weights.iter().map(|&(_, weight)| u128::from(weight)).sum();
        Self {
            weights,
            total,
            measured,
            partial: false,
        }
    }
}

/// Lookups of demand, fast in order: slots (except the local one) and demand are sorted alike.
#[derive(Clone, Debug)]
pub(crate) struct DemandLookup<'a> {
    demand: &'a Demand,
    next: usize,
}

impl DemandLookup<'_> {
    /// Returns the share of `locality` in parts of `whole`, rounded down.
    pub(crate) fn share_of(&mut self, locality: &Locality, whole: u64) -> u64 {
        let weights = &self.demand.weights;
        let at_hand = weights.get(self.next).filter(|(key, _)| key == locality);
        let found = match at_hand {
            Some(_) => Ok(self.next),
            None => weights.binary_search_by(|(key, _)| key.cmp(locality)),
        };
        let Ok(index) = found else { return 0 };
        self.next = index + 1;
        share(weights[index].1, self.demand.total, whole)
    }
}

/// Slots with healthy hosts but without fraction. Walks along both lists; where the next slot is
/// not the next fraction, the walk restarts at the slot.
fn unknown_slots<'a>(fractions: &FractionMap, fleet: &'a HostSetCounts) -> Vec<&'a LocalityCounts> {
    let mut walk = fractions.range::<Locality, _>(..);
    let mut is_known = |slot: &LocalityCounts| {
        let is_slot = |(key, _): (&Locality, _)| *key == slot.locality;
        if walk.next().is_some_and(is_slot) {
            return true;
        }
        walk = fractions.range(&slot.locality..);
        walk.next().is_some_and(is_slot)
    };
    fleet
        .localities
        .iter()
        .filter(|slot| slot.healthy > 0 && !is_known(slot))
        .collect()
}

/// Returns `whole · part // total`; 0 if `total` is 0.
pub(crate) fn share(part: u64, total: u128, whole: u64) -> u64 {
    if total == 0 {
        return 0;
    }
    // 128-bit division is many times slower and hardly ever needed.
    if let (Ok(total), Some(scaled)) = (u64::try_from(total), part.checked_mul(whole)) {
        return scaled / total;
    }
    u64::try_from(u128::from(whole) * u128::from(part) / total).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(zones: &[(&str, u64)]) -> HostSetCounts {
        let zone = |&(zone, hosts): &(&str, u64)| (Locality::zone_only(zone), hosts);
        HostSetCounts::all_healthy(zones.iter().map(zone))
    }

    fn fractions(zones: &[(&str, u64)]) -> FractionMap {
        let fraction = |&(zone, bp): &(&str, u64)| {
            (
                Locality::zone_only(zone),
                BasisPoints::new(bp, zone).unwrap(),
            )
        };
        zones.iter().map(fraction).collect()
    }

    fn shares(demand: &Demand, zones: &[&str]) -> Vec<u64> {
        zones
            .iter()
            .map(|zone| demand.basis_points(&Locality::zone_only(zone)))
            .collect()
    }

    #[test]
    fn relative_demand_becomes_fractions_of_the_whole() {
        let demand = |zones: &[(&str, f64)]| {
            let zone = |&(zone, amount): &(&str, f64)| (Locality::zone_only(zone), amount);
            fractions_of(&zones.iter().map(zone).collect::<Vec<_>>())
        };
        let shares = demand(&[("a", 3.0), ("b", 1.0), ("c", 1.0)]).unwrap();
        assert_eq!(shares, fractions(&[("a", 6000), ("b", 2000), ("c", 2000)]));
        let thirds = demand(&[("a", 0.1), ("b", 0.1), ("c", 0.1)]).unwrap();
        assert_eq!(thirds.values().map(|bp| bp.get()).sum::<u64>(), 10_000);
        for (wrong, path) in [
            (&[("a", f64::NAN)][..], "demand[a]"),
            (&[("a", 1.0), ("b", -1.0)], "demand[b]"),
            (&[("a", 1.0), ("a", 1.0)], "demand[a]"),
            (&[("a", 0.0)], "demand"),
            (&[], "demand"),
        ] {
            assert_eq!(demand(wrong).unwrap_err().path(), path, "{wrong:?}");
        }
    }

    #[test]
    fn partial_fractions_leave_the_rest_to_unknown_zones() {
        // Worked example of seed 000 with only zone a known (envoy-semantics §10, problem 1).
        let fleet = fleet(&[("a", 3), ("b", 5), ("c", 2)]);
        let demand = Demand::from_fractions(&fractions(&[("a", 5000)]), &fleet).unwrap();
        assert_eq!(shares(&demand, &["a", "b", "c"]), [5000, 3571, 1428]);
        assert!(demand.is_measured());
    }

    #[test]
    fn more_than_the_whole_leaves_nothing_to_unknown_zones() {
        let fleet = fleet(&[("a", 1), ("b", 1), ("c", 1)]);
        let demand =
            Demand::from_fractions(&fractions(&[("a", 9000), ("b", 6000)]), &fleet).unwrap();
        assert_eq!(shares(&demand, &["a", "b", "c"]), [6000, 4000, 0]);
    }

    #[test]
    fn an_explicit_zero_counts_as_known() {
        let fleet = fleet(&[("a", 1), ("b", 1), ("c", 1)]);
        let demand = Demand::from_fractions(&fractions(&[("a", 0)]), &fleet).unwrap();
        assert_eq!(shares(&demand, &["a", "b", "c"]), [0, 5000, 5000]);
        let all_zero = fractions(&[("a", 0), ("b", 0), ("c", 0)]);
        assert_eq!(Demand::from_fractions(&all_zero, &fleet), None);
        assert_eq!(Demand::from_fractions(&FractionMap::new(), &fleet), None);
    }

    #[test]
    fn a_zone_without_healthy_fleet_hosts_keeps_its_fraction() {
        // Problem 5: the proxies of zone c are unhealthy, but its traffic is still there.
        let fleet = fleet(&[("a", 3), ("b", 5), ("c", 0)]);
        let measured = fractions(&[("a", 5000), ("b", 3500), ("c", 1500)]);
        let demand = Demand::from_fractions(&measured, &fleet).unwrap();
        assert_eq!(shares(&demand, &["a", "b", "c"]), [5000, 3500, 1500]);
    }

    #[test]
    fn an_unknown_zone_without_healthy_hosts_is_not_guessed() {
        let fleet = fleet(&[("a", 3), ("b", 0)]);
        let demand = Demand::from_fractions(&fractions(&[("a", 4000)]), &fleet).unwrap();
        assert_eq!(shares(&demand, &["a", "b"]), [10_000, 0]);
    }

    #[test]
    fn host_counts_and_weights() {
        let mut fleet = fleet(&[("a", 2), ("b", 1)]);
        fleet.localities[1].healthy_weight = 200;
        fleet.localities[0].healthy_weight = 200;
        assert_eq!(
            shares(&Demand::from_host_counts(&fleet), &["a", "b"]),
            [6666, 3333]
        );
        assert_eq!(
            shares(&Demand::from_host_weights(&fleet), &["a", "b"]),
            [5000, 5000]
        );
        assert!(!Demand::from_host_counts(&fleet).is_measured());
    }

    #[test]
    fn weights_of_one_locality_add_up() {
        let zone = Locality::zone_only("a");
        let demand =
            Demand::from_weights([(zone.clone(), 1), (Locality::zone_only("b"), 2), (zone, 1)]);
        assert_eq!(shares(&demand, &["a", "b"]), [5000, 5000]);
        assert_eq!(demand.weights().len(), 2);
        assert_eq!(Demand::default().share(&Locality::zone_only("a")), 0.0);
    }

    #[test]
    fn lookups_in_any_order_agree() {
        let zones = ["a", "b", "c", "d", "e"].map(Locality::zone_only);
        let demand = Demand::from_weights(zones.iter().cloned().zip([1, 2, 3, 4, 90]));
        let unknown = Locality::zone_only("bb");
        // Lookups in order, local zone first, backwards, with repetitions and with unknown zones in
        // between.
        let orders: [&[usize]; 5] = [
            &[0, 1, 2, 3, 4],
            &[3, 0, 1, 2, 4],
            &[4, 3, 2, 1, 0],
            &[2, 2, 3, 2],
            &[0, 5, 1, 5, 4],
        ];
        for order in orders {
            let mut lookup = demand.lookup();
            for &zone in order {
                let zone = zones.get(zone).unwrap_or(&unknown);
                let found = lookup.share_of(zone, BASIS_POINTS);
                assert_eq!(found, demand.basis_points(zone));
            }
        }
    }

    #[test]
    fn unknown_zones_are_found_at_any_position() {
        // The local zone (c) comes first; b and e have no fraction, d has no healthy host.
        let fleet = fleet(&[("c", 1), ("a", 1), ("b", 2), ("d", 0), ("e", 1)]);
        let known = fractions(&[("a", 2500), ("c", 2500), ("z", 1000)]);
        let unknown: Vec<String> = unknown_slots(&known, &fleet)
            .iter()
            .map(|slot| slot.locality.to_string())
            .collect();
        assert_eq!(unknown, ["b", "e"]);
        let demand = Demand::from_fractions(&known, &fleet).unwrap();
        assert_eq!(
            shares(&demand, &["a", "b", "c", "e", "z"]),
            [2500, 2666, 2500, 1333, 1000]
        );
        assert!(demand.is_partial());
        let all = fractions(&[("a", 1), ("b", 1), ("c", 1), ("e", 1)]);
        assert!(!Demand::from_fractions(&all, &fleet).unwrap().is_partial());
        assert!(!Demand::from_host_counts(&fleet).is_partial());
    }

    #[test]
    fn shares_of_huge_weights_do_not_overflow() {
        assert_eq!(share(u64::MAX, u128::from(u64::MAX), BASIS_POINTS), 10_000);
        assert_eq!(
            share(u64::MAX, 2 * u128::from(u64::MAX), BASIS_POINTS),
            5_000
        );
        assert_eq!(
            share(u64::MAX / BASIS_POINTS, u128::from(u64::MAX), BASIS_POINTS),
            0
        );
        assert_eq!(share(1, 0, BASIS_POINTS), 0);
    }
}
