//! Conversion of request rates to fractions: basis points per zone that sum to exactly 10000
//! (decision 0023).
//!
//! Pure arithmetic on the rates of one moment. `aggregate` and `smoothing` provide the rates;
//! `scope` decides when fractions are worth sending.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::plan::SharedZone;
use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::units::{BASIS_POINTS, BasisPoints};

/// Largest integer weight that rates and shares are scaled to. Far finer than a basis point and far
/// coarser than floating-point noise, so that equal shares stay equal.
const RESOLUTION: f64 = (1_u64 << 40) as f64;

/// Demand of a zone with at least one reporter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReportedZone {
    pub rate_per_second: f64,
    pub reporters: u64,
}

/// A zone's share of the fleet's demand.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ZoneFraction {
    pub locality: Locality,
    /// Share in basis points; 0 means that demand is known to be zero.
    pub fraction: BasisPoints,
    /// Requests per second that the fraction stands for.
    pub rate_per_second: f64,
    pub reporters: u64,
    /// No node of the zone reports: rate = mean per healthy host of the other zones × its hosts.
    pub estimated: bool,
}

/// Splits `total` in proportion to `weights` into integers that sum to exactly `total` (Hamilton's
/// method): each share is rounded down, and the rest goes one each to the largest remainders, ties
/// to the earlier. `None` if all weights are 0.
pub fn largest_remainder(weights: &[u64], total: u64) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if sum == 0 {
        return None;
    }
    let (mut shares, remainders): (Vec<u64>, Vec<u128>) = weights
        .iter()
        .map(|&weight| divided(weight, total, sum))
        .unzip();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&index| Reverse(remainders[index]));
    let given: u64 = shares.iter().sum();
    // The rest is less than the number of weights, as every remainder is below one.
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for &index in order.iter().take(left) {
        shares[index] += 1;
    }
    Some(shares)
}

/// Returns `weight · total ÷ sum`, rounded down, and the remainder. Divisions of 128 bits take
/// several times as long, and few weights need them.
fn divided(weight: u64, total: u64, sum: u128) -> (u64, u128) {
    if let (Some(product), Ok(sum)) = (weight.checked_mul(total), u64::try_from(sum)) {
        return (product / sum, u128::from(product % sum));
    }
    let product = u128::from(weight) * u128::from(total);
    let share = u64::try_from(product / sum).unwrap_or(total);
    (share, product % sum)
}

/// Like [`largest_remainder`] for real weights. Negative or non-finite weights count as 0.
pub fn largest_remainder_f64(shares: &[f64], total: u64) -> Option<Vec<u64>> {
    let usable = |share: f64| {
        if share.is_finite() {
            share.max(0.0)
        } else {
            0.0
        }
    };
    let largest = shares.iter().copied().map(usable).fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0.0 to 2^40"
    )]
    let scaled = |&share: &f64| (usable(share) / largest * RESOLUTION).round() as u64;
    let weights: Vec<u64> = shares.iter().map(scaled).collect();
    largest_remainder(&weights, total)
}

/// Computes the fractions of all zones, sorted by locality; `None` if no zone has any demand.
///
/// A zone where the fleet has healthy hosts but no reporter is unknown, not zero. Plimsoll data
/// planes could complete fractions by themselves (decision 0023), but stock Envoys and weights
/// cannot, and each receiver would guess by its own view of the fleet. The estimate is therefore
/// made here, once, and marked: the zone's hosts are assumed to be as busy as the mean host of the
/// reporting zones.
pub fn fractions(
    known: &BTreeMap<Locality, ReportedZone>,
    fleet: Option<&HostSetCounts>,
) -> Option<Vec<ZoneFraction>> {
    let mut zones: Vec<ZoneFraction> = known
        .iter()
        .map(|(locality, zone)| ZoneFraction {
            locality: locality.clone(),
            fraction: BasisPoints::ZERO,
            rate_per_second: zone.rate_per_second,
            reporters: zone.reporters,
            estimated: false,
        })
        .collect();
    let slots = fleet.map_or(&[][..], |fleet| &fleet.localities);
    let unknown = slots
        .iter()
        .filter(|slot| slot.healthy > 0 && !known.contains_key(&slot.locality));
    let mean = mean_rate_per_host(known, fleet);
    zones.extend(unknown.map(|slot| ZoneFraction {
        locality: slot.locality.clone(),
        fraction: BasisPoints::ZERO,
        rate_per_second: mean * as_f64(slot.healthy),
        reporters: 0,
        estimated: true,
    }));
    shares_of(zones)
}

/// Computes the fractions of zones that another planner has measured, like [`fractions`].
pub(super) fn shared_fractions(zones: &[SharedZone]) -> Option<Vec<ZoneFraction>> {
    let zone = |zone: &SharedZone| ZoneFraction {
        locality: zone.locality.clone(),
        fraction: BasisPoints::ZERO,
        rate_per_second: zone.rate_per_second,
        reporters: zone.reporters,
        estimated: zone.estimated,
    };
    shares_of(zones.iter().map(zone).collect())
}

/// Computes the fractions of the demand of several fleets together, like [`fractions`]. Planned
/// alone, two fleets whose demand is skewed in opposite directions would exchange requests for
/// nothing. `None` if there is no demand.
pub fn combined<'a>(
    fleets: impl IntoIterator<Item = &'a [ZoneFraction]>,
) -> Option<Vec<ZoneFraction>> {
    let mut zones: BTreeMap<&Locality, ZoneFraction> = BTreeMap::new();
    for zone in fleets.into_iter().flatten() {
        let Some(sum) = zones.get_mut(&zone.locality) else {
            zones.insert(&zone.locality, zone.clone());
            continue;
        };
        sum.rate_per_second += zone.rate_per_second;
        sum.reporters += zone.reporters;
        sum.estimated &= zone.estimated;
    }
    shares_of(zones.into_values().collect())
}

/// Sorts zones and sets the share of each by its rate; `None` if no zone has any demand.
fn shares_of(mut zones: Vec<ZoneFraction>) -> Option<Vec<ZoneFraction>> {
    zones.sort_by(|a, b| a.locality.cmp(&b.locality));
    let rates: Vec<f64> = zones.iter().map(|zone| zone.rate_per_second).collect();
    let shares = largest_remainder_f64(&rates, BASIS_POINTS)?;
    assign_shares(&mut zones, shares);
    Some(zones)
}

/// Sets each zone's share, in basis points.
pub(super) fn assign_shares(zones: &mut [ZoneFraction], shares: Vec<u64>) {
    for (zone, share) in zones.iter_mut().zip(shares) {
        zone.fraction = BasisPoints::new(share, "fraction").unwrap_or(BasisPoints::ZERO);
    }
}

/// Returns the rate of reporting zones per healthy host there, or per reporter if the fleet's
/// assignment lists none of their hosts.
fn mean_rate_per_host(
    known: &BTreeMap<Locality, ReportedZone>,
    fleet: Option<&HostSetCounts>,
) -> f64 {
    let rate: f64 = known.values().map(|zone| zone.rate_per_second).sum();
    let slots = fleet.map_or(&[][..], |fleet| &fleet.localities);
    let hosts: u64 = slots
        .iter()
        .filter(|slot| known.contains_key(&slot.locality))
        .map(|slot| slot.healthy)
        .sum();
    let reporters: u64 = known.values().map(|zone| zone.reporters).sum();
    match (hosts, reporters) {
        (0, 0) => 0.0,
        (0, reporters) => rate / as_f64(reporters),
        (hosts, _) => rate / as_f64(hosts),
    }
}

#[expect(clippy::cast_precision_loss, reason = "host counts are far below 2^53")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fleet(zones: &[(&str, u64)]) -> HostSetCounts {
        let zone = |&(zone, hosts): &(&str, u64)| (Locality::zone_only(zone), hosts);
        HostSetCounts::all_healthy(zones.iter().map(zone))
    }

    fn known(zones: &[(&str, f64, u64)]) -> BTreeMap<Locality, ReportedZone> {
        let zone = |&(zone, rate_per_second, reporters): &(&str, f64, u64)| {
            let known = ReportedZone {
                rate_per_second,
                reporters,
            };
            (Locality::zone_only(zone), known)
        };
        zones.iter().map(zone).collect()
    }

    /// Zone, fraction and `estimated` of each entry.
    fn table(zones: &[ZoneFraction]) -> Vec<(String, u64, bool)> {
        zones
            .iter()
            .map(|zone| {
                (
                    zone.locality.to_string(),
                    zone.fraction.get(),
                    zone.estimated,
                )
            })
            .collect()
    }

    #[test]
    fn leftovers_go_to_the_largest_remainders_then_by_order() {
        // Weights, total and expected shares.
        let cases: [(&[u64], u64, &[u64]); 8] = [
            (&[50, 35, 15], 10_000, &[5000, 3500, 1500]),
            // Truncation would lose one of three (envoy-semantics §10, problem 16).
            (&[1, 1, 1], 10_000, &[3334, 3333, 3333]),
            (
                &[1, 1, 1, 1, 1, 1],
                10_000,
                &[1667, 1667, 1667, 1667, 1666, 1666],
            ),
            // 1428.57, 2857.14, 5714.29: the largest remainder is the first.
            (&[1, 2, 4], 10_000, &[1429, 2857, 5714]),
            // 0.5 and 9999.5: a tie goes to the earlier.
            (&[1, 19_999], 10_000, &[1, 9999]),
            (&[0, 7], 10_000, &[0, 10_000]),
            (&[u64::MAX, u64::MAX], u64::MAX, &[1 << 63, (1 << 63) - 1]),
            (&[3, 3], 1, &[1, 0]),
        ];
        for (weights, total, expected) in cases {
            assert_eq!(
                largest_remainder(weights, total).unwrap(),
                expected,
                "{weights:?}"
            );
        }
        assert_eq!(largest_remainder(&[0, 0], 10_000), None);
        assert_eq!(largest_remainder(&[], 10_000), None);
    }

    #[test]
    fn floating_point_noise_does_not_break_ties() {
        let third = 0.1 + 0.2;
        assert!(third > 0.3);
        let shares = largest_remainder_f64(&[0.3, third, 0.3], 10_000).unwrap();
        assert_eq!(shares, [3334, 3333, 3333]);
    }

    #[test]
    fn invalid_shares_count_as_zero() {
        let shares = largest_remainder_f64(&[f64::NAN, 1.0, -3.0, f64::INFINITY, 3.0], 100);
        assert_eq!(shares.unwrap(), [0, 25, 0, 0, 75]);
        assert_eq!(largest_remainder_f64(&[f64::NAN, 0.0], 100), None);
    }

    #[test]
    fn the_worked_example() {
        let known = known(&[("a", 500.0, 3), ("b", 350.0, 5), ("c", 150.0, 2)]);
        let zones = fractions(&known, None).unwrap();
        let expected = [("a", 5000), ("b", 3500), ("c", 1500)];
        assert_eq!(
            table(&zones),
            expected.map(|(zone, bp)| (zone.to_string(), bp, false))
        );
    }

    #[test]
    fn a_zone_without_reporters_is_estimated_as_average() {
        // 800 requests/s over 8 hosts of a and b; c has 2 hosts that are silent.
        let known = known(&[("a", 500.0, 3), ("b", 300.0, 5)]);
        let zones = fractions(&known, Some(&fleet(&[("a", 3), ("b", 5), ("c", 2)]))).unwrap();
        let expected = [("a", 5000, false), ("b", 3000, false), ("c", 2000, true)];
        assert_eq!(
            table(&zones),
            expected.map(|(zone, bp, estimated)| (zone.to_string(), bp, estimated))
        );
        assert_eq!((zones[2].rate_per_second, zones[2].reporters), (200.0, 0));
    }

    #[test]
    fn silent_zones_without_healthy_hosts_are_not_estimated() {
        let known = known(&[("a", 500.0, 3)]);
        let zones = fractions(&known, Some(&fleet(&[("a", 3), ("b", 0)]))).unwrap();
        assert_eq!(table(&zones), [("a".to_string(), 10_000, false)]);
    }

    #[test]
    fn without_listed_hosts_the_estimate_uses_reporter_counts() {
        let known = known(&[("a", 400.0, 4)]);
        let zones = fractions(&known, Some(&fleet(&[("b", 1)]))).unwrap();
        let expected = [("a", 8000, false), ("b", 2000, true)];
        assert_eq!(
            table(&zones),
            expected.map(|(zone, bp, estimated)| (zone.to_string(), bp, estimated))
        );
    }

    #[test]
    fn fleets_with_opposite_skew_are_level_together() {
        let of = |zones: &[(&str, f64, u64)]| fractions(&known(zones), None).unwrap();
        let (one, other) = (of(&[("a", 80.0, 4), ("b", 20.0, 1)]), of(&[("b", 80.0, 2)]));
        let both = combined([&one[..], &other]).unwrap();
        let expected = [("a", 4444, false), ("b", 5556, false)];
        assert_eq!(
            table(&both),
            expected.map(|(zone, bp, estimated)| (zone.to_string(), bp, estimated))
        );
        assert_eq!((both[1].rate_per_second, both[1].reporters), (100.0, 3));
        assert_eq!(
            combined([&one[..]]),
            Some(one),
            "one fleet is as it is alone"
        );
        assert_eq!(combined([]), None);
    }

    #[test]
    fn a_zone_is_estimated_if_no_fleet_knows_its_demand() {
        let estimated = |hosts: &[(&str, u64)]| {
            let known = known(&[("a", 500.0, 3)]);
            fractions(&known, Some(&fleet(hosts))).unwrap()
        };
        let one = estimated(&[("a", 1), ("b", 1), ("c", 1)]);
        let other = fractions(&known(&[("b", 100.0, 1)]), None).unwrap();
        let both = combined([&one[..], &other]).unwrap();
        let found: Vec<bool> = both.iter().map(|zone| zone.estimated).collect();
        assert_eq!(found, [false, false, true]);
    }

    #[test]
    fn known_zero_demand_is_an_explicit_zero() {
        let known = known(&[("a", 10.0, 1), ("b", 0.0, 1)]);
        let zones = fractions(&known, None).unwrap();
        let expected = [("a", 10_000), ("b", 0)];
        assert_eq!(
            table(&zones),
            expected.map(|(zone, bp)| (zone.to_string(), bp, false))
        );
    }

    #[test]
    fn without_any_demand_there_is_no_data() {
        let idle = known(&[("a", 0.0, 1), ("b", 0.0, 1)]);
        assert_eq!(fractions(&idle, None), None);
        // Idle neighbors say nothing about a silent zone.
        assert_eq!(fractions(&idle, Some(&fleet(&[("c", 3)]))), None);
        assert_eq!(fractions(&BTreeMap::new(), Some(&fleet(&[("c", 3)]))), None);
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_total_and_are_off_by_less_than_one(
            weights in prop::collection::vec(0_u64..=u64::MAX / 64, 1..40),
            total in 0_u64..1_000_000,
        ) {
            let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
            match largest_remainder(&weights, total) {
                None => prop_assert_eq!(sum, 0),
                Some(shares) => {
                    prop_assert_eq!(shares.iter().sum::<u64>(), total);
                    for (&weight, &share) in weights.iter().zip(&shares) {
                        let down = u128::from(weight) * u128::from(total) / sum;
                        prop_assert!((down..=down + 1).contains(&u128::from(share)));
                        prop_assert!(weight > 0 || share == 0);
                    }
                }
            }
        }

        #[test]
        fn a_larger_weight_never_gets_a_smaller_share(
            weights in prop::collection::vec(0_u64..1_000_000, 1..40),
        ) {
            let shares = largest_remainder(&weights, BASIS_POINTS).unwrap_or_default();
            for (&weight, &share) in weights.iter().zip(&shares) {
                for (&other, &others) in weights.iter().zip(&shares) {
                    prop_assert!(weight <= other || share >= others);
                    prop_assert!(weight != other || share.abs_diff(others) <= 1);
                }
            }
        }

        #[test]
        fn the_unit_of_rates_does_not_matter(
            rates in prop::collection::vec(0_u32..100_000, 1..20),
            exponent in -20_i32..20,
        ) {
            let plain: Vec<f64> = rates.iter().map(|&rate| f64::from(rate)).collect();
            let scaled: Vec<f64> = plain.iter().map(|rate| rate * 2_f64.powi(exponent)).collect();
            prop_assert_eq!(
                largest_remainder_f64(&plain, BASIS_POINTS),
                largest_remainder_f64(&scaled, BASIS_POINTS)
            );
        }
    }
}
