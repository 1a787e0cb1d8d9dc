//! Gradual transition from host counts to measured fractions, which an operator turns up in steps.
//!
//! Pure arithmetic; the control plane decides the percentage (`ramp`) of each configured service.

use super::fractions::{ZoneFraction, assign_shares, largest_remainder};
use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::units::{BASIS_POINTS, BasisPoints};

/// Blends the shares of the fleet's healthy hosts with the measured `zones`; sorted by locality and
/// summing to 10000.
///
/// At 0 percent the result is what zone-aware routing by host counts would use, at 100 and above
/// the measured fractions unchanged. Without measured fractions, or without a healthy host to start
/// from, there is nothing to blend and the measured ones are returned as they are. Rates and
/// reporters are not changed.
pub fn ramp_fractions(
    zones: &[ZoneFraction],
    fleet: &HostSetCounts,
    percent: u32,
) -> Vec<ZoneFraction> {
    let total: u64 = fleet.localities.iter().map(|slot| slot.healthy).sum();
    let percent = u64::from(percent);
    if zones.is_empty() || total == 0 || percent >= 100 {
        return zones.to_vec();
    }
    let measured = |zone: &ZoneFraction| zones.iter().any(|known| known.locality == zone.locality);
    let mut blended = zones.to_vec();
    blended.extend(unmeasured(fleet).filter(|zone| !measured(zone)));
    blended.sort_by(|a, b| a.locality.cmp(&b.locality));
    // Both shares over the common denominator 10000 · total · 100, to stay in exact integers.
    let weight = |zone: &ZoneFraction| {
        zone.fraction.get() * total * percent
            + BASIS_POINTS * healthy_at(fleet, &zone.locality) * (100 - percent)
    };
    let weights: Vec<u64> = blended.iter().map(weight).collect();
    let shares = largest_remainder(&weights, BASIS_POINTS).unwrap_or_default();
    assign_shares(&mut blended, shares);
    blended
}

/// Returns fractions proportional to the fleet's healthy hosts, sorted by locality and summing to
/// 10000; empty without a healthy host.
pub fn host_count_fractions(fleet: &HostSetCounts) -> Vec<ZoneFraction> {
    let mut zones: Vec<_> = unmeasured(fleet).collect();
    zones.sort_by(|a, b| a.locality.cmp(&b.locality));
    let hosts: Vec<u64> = zones
        .iter()
        .map(|zone| healthy_at(fleet, &zone.locality))
        .collect();
    let shares = largest_remainder(&hosts, BASIS_POINTS).unwrap_or_default();
    assign_shares(&mut zones, shares);
    zones
}

fn healthy_at(fleet: &HostSetCounts, locality: &Locality) -> u64 {
    let slot = fleet
        .localities
        .iter()
        .find(|slot| slot.locality == *locality);
    slot.map_or(0, |slot| slot.healthy)
}

/// Returns the zones where the fleet has healthy hosts, as if they had no reporters.
fn unmeasured(fleet: &HostSetCounts) -> impl Iterator<Item = ZoneFraction> {
    let slots = fleet.localities.iter().filter(|slot| slot.healthy > 0);
    slots.map(|slot| ZoneFraction {
        locality: slot.locality.clone(),
        fraction: BasisPoints::ZERO,
        rate_per_second: 0.0,
        reporters: 0,
        estimated: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(zones: &[(&str, u64)]) -> HostSetCounts {
        let zone = |&(zone, hosts): &(&str, u64)| (Locality::zone_only(zone), hosts);
        HostSetCounts::all_healthy(zones.iter().map(zone))
    }

    fn measured(zones: &[(&str, u64)]) -> Vec<ZoneFraction> {
        let zone = |&(zone, bp): &(&str, u64)| ZoneFraction {
            locality: Locality::zone_only(zone),
            fraction: BasisPoints::new(bp, "bp").unwrap(),
            rate_per_second: 1.0,
            reporters: 1,
            estimated: false,
        };
        zones.iter().map(zone).collect()
    }

    fn shares(zones: &[ZoneFraction]) -> Vec<(&str, u64)> {
        let share = |zone: &ZoneFraction| zone.fraction.get();
        zones
            .iter()
            .map(|zone| (zone.locality.zone(), share(zone)))
            .collect()
    }

    #[test]
    fn from_host_counts_to_measured() {
        let fleet = fleet(&[("a", 3), ("b", 5), ("c", 2)]);
        let zones = measured(&[("a", 5000), ("b", 3500), ("c", 1500)]);
        let at = |percent| ramp_fractions(&zones, &fleet, percent);
        assert_eq!(shares(&at(0)), [("a", 3000), ("b", 5000), ("c", 2000)]);
        assert_eq!(shares(&at(50)), [("a", 4000), ("b", 4250), ("c", 1750)]);
        assert_eq!(at(100), zones);
        assert_eq!(at(1000), zones);
    }

    #[test]
    fn a_zone_known_to_one_side_only_is_blended_too() {
        let fleet = fleet(&[("b", 1), ("c", 1)]);
        let zones = measured(&[("a", 10_000)]);
        let half = ramp_fractions(&zones, &fleet, 50);
        assert_eq!(shares(&half), [("a", 5000), ("b", 2500), ("c", 2500)]);
        assert!(half[1].estimated && !half[0].estimated);
    }

    #[test]
    fn without_one_side_there_is_nothing_to_blend() {
        assert!(ramp_fractions(&[], &fleet(&[("a", 1)]), 50).is_empty());
        let zones = measured(&[("a", 6000), ("b", 4000)]);
        assert_eq!(ramp_fractions(&zones, &fleet(&[("a", 0)]), 50), zones);
    }

    #[test]
    fn the_lowest_step_uses_host_counts_alone() {
        let fleet = fleet(&[("b", 5), ("a", 3), ("c", 0), ("d", 2)]);
        let alone = host_count_fractions(&fleet);
        assert_eq!(shares(&alone), [("a", 3000), ("b", 5000), ("d", 2000)]);
        assert!(host_count_fractions(&HostSetCounts::default()).is_empty());
    }

    #[test]
    fn every_step_sums_to_10000() {
        let fleet = fleet(&[("a", 7), ("b", 11), ("c", 13)]);
        let zones = measured(&[("a", 3333), ("b", 3333), ("c", 3334)]);
        for percent in 0..=100 {
            let sum: u64 = ramp_fractions(&zones, &fleet, percent)
                .iter()
                .map(|zone| zone.fraction.get())
                .sum();
            assert_eq!(sum, BASIS_POINTS, "at {percent}");
        }
    }
}
