//! From rates to fractions: basis points per zone that sum to exactly 10000 (decisions D2).
//!
//! Pure arithmetic on the rates of one moment. Where rates come from lives in `aggregate` and
//! `smoothing`; when fractions are worth sending lives in `grain`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::units::{BASIS_POINTS, BasisPoints};

/// The largest weight that rates and shares are scaled to. Far finer than a basis point, far
/// coarser than the noise of floating point, so that equal shares stay equal.
const RESOLUTION: f64 = (1_u64 << 40) as f64;

/// Demand of a zone that reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownZone {
    /// Requests per second.
    pub rate_per_second: f64,
    /// Nodes that report there.
    pub reporters: u64,
}

/// One zone's share of demand.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneFraction {
    /// The zone.
    pub locality: Locality,
    /// Its share; an explicit 0 is known zero demand.
    pub fraction: BasisPoints,
    /// Requests per second behind it.
    pub rate_per_second: f64,
    /// Nodes that report there.
    pub reporters: u64,
    /// Nobody reports there: the rate is the other zones' mean per healthy host, times its hosts.
    pub estimated: bool,
}

/// Splits `total` in proportion to `weights` into integers that sum to exactly `total`: everybody
/// gets the rounded-down share, and what is left goes one each to the largest remainders; of equal
/// ones, to the earlier. `None` when there is nothing to go by.
pub fn largest_remainder(weights: &[u64], total: u64) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if sum == 0 {
        return None;
    }
    let quota = |weight: u64| u128::from(weight) * u128::from(total);
    let mut shares: Vec<u64> = weights
        .iter()
        .map(|&weight| u64::try_from(quota(weight) / sum).unwrap_or(total))
        .collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&index| Reverse(quota(weights[index]) % sum));
    let given: u64 = shares.iter().sum();
    // Fewer than there are weights, as every remainder is below one.
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for &index in order.iter().take(left) {
        shares[index] += 1;
    }
    Some(shares)
}

/// [`largest_remainder`] of real weights. What is negative or not finite counts as nothing.
pub fn largest_remainder_of_shares(shares: &[f64], total: u64) -> Option<Vec<u64>> {
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

/// The fractions of all zones, sorted by locality; `None` without data (no zone has any demand).
///
/// A zone where the fleet has healthy hosts but nobody reports is unknown, not zero. Receivers
/// could complete fractions by themselves (decisions D2), but stock Envoys and weights cannot, and
/// then each receiver would guess by its own view of the fleet. So the guess is made here, once,
/// and is marked: the zone's hosts are taken to be as busy as the mean host of the zones that
/// report.
pub fn fractions(
    known: &BTreeMap<Locality, KnownZone>,
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
    zones.sort_by(|a, b| a.locality.cmp(&b.locality));
    let rates: Vec<f64> = zones.iter().map(|zone| zone.rate_per_second).collect();
    let shares = largest_remainder_of_shares(&rates, BASIS_POINTS)?;
    share_out(&mut zones, shares);
    Some(zones)
}

/// Gives each zone its share, in basis points.
pub(super) fn share_out(zones: &mut [ZoneFraction], shares: Vec<u64>) {
    for (zone, share) in zones.iter_mut().zip(shares) {
        zone.fraction = BasisPoints::new(share, "fraction").unwrap_or(BasisPoints::ZERO);
    }
}

/// Rate of the zones that report, per healthy host of theirs. A fleet whose assignment lists none
/// of their hosts is counted by its reporters.
fn mean_rate_per_host(known: &BTreeMap<Locality, KnownZone>, fleet: Option<&HostSetCounts>) -> f64 {
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

    fn known(zones: &[(&str, f64, u64)]) -> BTreeMap<Locality, KnownZone> {
        let zone = |&(zone, rate_per_second, reporters): &(&str, f64, u64)| {
            let known = KnownZone {
                rate_per_second,
                reporters,
            };
            (Locality::zone_only(zone), known)
        };
        zones.iter().map(zone).collect()
    }

    /// Name, fraction, estimated.
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
    fn remainders_decide_and_then_the_order() {
        // Weights, total, expected.
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
    fn noise_of_floating_point_makes_no_difference_between_equals() {
        let third = 0.1 + 0.2;
        assert!(third > 0.3);
        let shares = largest_remainder_of_shares(&[0.3, third, 0.3], 10_000).unwrap();
        assert_eq!(shares, [3334, 3333, 3333]);
    }

    #[test]
    fn what_is_not_a_number_counts_as_nothing() {
        let shares = largest_remainder_of_shares(&[f64::NAN, 1.0, -3.0, f64::INFINITY, 3.0], 100);
        assert_eq!(shares.unwrap(), [0, 25, 0, 0, 75]);
        assert_eq!(largest_remainder_of_shares(&[f64::NAN, 0.0], 100), None);
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
    fn a_zone_where_nobody_reports_is_taken_for_average() {
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
    fn silent_zones_without_healthy_hosts_are_not_invented() {
        let known = known(&[("a", 500.0, 3)]);
        let zones = fractions(&known, Some(&fleet(&[("a", 3), ("b", 0)]))).unwrap();
        assert_eq!(table(&zones), [("a".to_string(), 10_000, false)]);
    }

    #[test]
    fn a_fleet_that_lists_no_host_of_a_reporting_zone_is_counted_by_its_reporters() {
        let known = known(&[("a", 400.0, 4)]);
        let zones = fractions(&known, Some(&fleet(&[("b", 1)]))).unwrap();
        let expected = [("a", 8000, false), ("b", 2000, true)];
        assert_eq!(
            table(&zones),
            expected.map(|(zone, bp, estimated)| (zone.to_string(), bp, estimated))
        );
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
    fn no_demand_anywhere_is_no_data() {
        let idle = known(&[("a", 0.0, 1), ("b", 0.0, 1)]);
        assert_eq!(fractions(&idle, None), None);
        // Idle neighbours say nothing about a silent zone.
        assert_eq!(fractions(&idle, Some(&fleet(&[("c", 3)]))), None);
        assert_eq!(fractions(&BTreeMap::new(), Some(&fleet(&[("c", 3)]))), None);
    }

    proptest! {
        #[test]
        fn shares_sum_up_and_are_off_by_less_than_one(
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
        fn more_weight_never_gets_less(weights in prop::collection::vec(0_u64..1_000_000, 1..40)) {
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
                largest_remainder_of_shares(&plain, BASIS_POINTS),
                largest_remainder_of_shares(&scaled, BASIS_POINTS)
            );
        }
    }
}
