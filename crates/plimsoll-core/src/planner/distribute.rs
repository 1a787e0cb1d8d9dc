//! Locality weights in whole percent, for receivers that take no others: the `distribute` of
//! Istio's `localityLbSetting`, which applies to every client of a service, whatever its fleet.

use std::collections::BTreeMap;

use super::fractions::{ReportedZone, fractions, largest_remainder};
use super::weights::{RampStart, ramped_weights};
use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::model::zone_aware::ZoneAware;

/// Where requests of one zone go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Distribution {
    pub from: Locality,
    /// Zones with a share above zero, sorted, in percent; the sum is 100.
    pub to: Vec<(Locality, u32)>,
}

/// Computes the distribution for every zone with demand. `demand` is that of all fleets together;
/// `percent` of the requests follow it, and the others go to all hosts, as without a distribution.
/// Zones from which nothing can be sent (the service has no healthy host) are left out.
pub fn distributions(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    demand: &BTreeMap<Locality, ReportedZone>,
    percent: u32,
) -> Vec<Distribution> {
    let Some(zones) = fractions(demand, None) else {
        return Vec::new();
    };
    let start = RampStart::Hosts;
    let receivers = ramped_weights(config, start, upstream, None, &zones, percent);
    receivers
        .into_iter()
        .filter_map(|receiver| {
            let weights = receiver.weights.iter();
            let shares: Vec<u64> = weights
                .map(|(_, weight)| u64::from(weight.unwrap_or(0)))
                .collect();
            let percents = largest_remainder(&shares, 100)?;
            let to = receiver.weights.into_iter().zip(percents);
            Some(Distribution {
                from: receiver.receiver,
                to: to
                    .filter_map(|((zone, _), percent)| {
                        let percent = u32::try_from(percent).ok()?;
                        (percent > 0).then_some((zone, percent))
                    })
                    .collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
    use crate::model::zone_aware::{FractionSource, LocalityBasis};

    fn zone(name: &str) -> Locality {
        Locality::zone_only(name)
    }

    fn upstream(hosts: &[(&str, u8)]) -> HostSetCounts {
        let localities = hosts.iter().enumerate().map(|(index, (name, hosts))| {
            let net = u8::try_from(index).unwrap();
            let address = |host| SocketAddr::from(([10, 0, net, host + 1], 80));
            LocalityParts::new(zone(name), (0..*hosts).map(address))
        });
        let parts = AssignmentParts::new("orders", localities);
        let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
        HostSetCounts::of_assignment(&assignment, 0, None)
    }

    fn demand(rates: &[(&str, f64)]) -> BTreeMap<Locality, ReportedZone> {
        let reported = |rate_per_second| ReportedZone {
            rate_per_second,
            reporters: 1,
        };
        let rates = rates.iter();
        rates
            .map(|(name, rate)| (zone(name), reported(*rate)))
            .collect()
    }

    fn rules() -> ZoneAware {
        ZoneAware::default()
            .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
            .without_dead_band()
    }

    fn shown(distributions: &[Distribution]) -> Vec<String> {
        let shown = distributions.iter().map(|one| {
            let to = one.to.iter();
            let to: Vec<_> = to
                .map(|(zone, percent)| format!("{}={percent}", zone.zone()))
                .collect();
            format!("{}: {}", one.from.zone(), to.join(" "))
        });
        shown.collect()
    }

    #[test]
    fn the_worked_example_in_percent() {
        let upstream = upstream(&[("a", 3), ("b", 5), ("c", 2)]);
        let demand = demand(&[("a", 500.0), ("b", 350.0), ("c", 150.0)]);
        let found = distributions(&rules(), &upstream, &demand, 100);
        assert_eq!(shown(&found), ["a: a=60 b=30 c=10", "b: b=100", "c: c=100"]);
    }

    #[test]
    fn a_ramp_of_50_is_half_way_from_capacity() {
        let upstream = upstream(&[("a", 3), ("b", 5), ("c", 2)]);
        let demand = demand(&[("a", 500.0), ("b", 350.0), ("c", 150.0)]);
        let at = |percent| shown(&distributions(&rules(), &upstream, &demand, percent));
        let capacity = "a=30 b=50 c=20";
        let start = ["a", "b", "c"].map(|zone| format!("{zone}: {capacity}"));
        assert_eq!(at(0), start);
        assert_eq!(
            at(50),
            [
                "a: a=45 b=40 c=15",
                "b: a=15 b=75 c=10",
                "c: a=15 b=25 c=60"
            ]
        );
    }

    #[test]
    fn nothing_without_demand_or_hosts() {
        let hosts = upstream(&[("a", 3), ("b", 3)]);
        assert!(distributions(&rules(), &hosts, &demand(&[]), 100).is_empty());
        let idle = demand(&[("a", 0.0)]);
        assert!(distributions(&rules(), &hosts, &idle, 100).is_empty());
        let none = upstream(&[("a", 0)]);
        let some = demand(&[("a", 1.0)]);
        assert!(distributions(&rules(), &none, &some, 100).is_empty());
    }

    #[test]
    fn percents_sum_to_one_hundred() {
        let mut rng = 7_u64;
        let mut draw = |below: u64| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (rng >> 33) % below
        };
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        for _ in 0..200 {
            let hosts: Vec<_> = names
                .iter()
                .map(|name| (*name, u8::try_from(1 + draw(9)).unwrap()))
                .collect();
            let rates: Vec<_> = names
                .iter()
                .map(|name| (*name, draw(1000) as f64))
                .collect();
            let percent = u32::try_from(draw(101)).unwrap();
            let found = distributions(&rules(), &upstream(&hosts), &demand(&rates), percent);
            for one in &found {
                let sum: u32 = one.to.iter().map(|(_, percent)| percent).sum();
                assert_eq!(sum, 100, "{one:?}");
                assert!(one.to.iter().all(|(_, percent)| *percent > 0));
            }
        }
    }
}
