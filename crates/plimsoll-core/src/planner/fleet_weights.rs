//! Endpoint weights of a fleet's own assignment that convey measured fractions to stock Envoys
//! (decision 0028, `fleet_weights`).
//!
//! With `locality_basis: HEALTHY_HOSTS_WEIGHT` Envoy takes a zone's share of demand to be `10000 ·
//! w / total` basis points, rounded down, where `w` is the sum of the weights of the fleet's
//! healthy endpoints there. Weights with the right sums therefore tell it the measured demand,
//! although Envoy does not intend them for that. This module holds the arithmetic; the control
//! plane puts the weights and the phantom endpoints into an assignment.

use std::net::SocketAddr;

use super::fractions::{ZoneFraction, largest_remainder};
use super::ramp::host_count_fractions;
use crate::counts::HostSetCounts;
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::locality::Locality;
use crate::units::BASIS_POINTS;

/// Largest factor for which the weights of one zone still fit 32 bits together, as xDS demands. It
/// serves fleets of 400 000 proxies; larger ones lose precision but stay valid.
const MAX_SCALE: u64 = u32::MAX as u64 / BASIS_POINTS;

/// Healthy priority-0 endpoints of a fleet by locality, which carry the weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetHosts {
    /// Sorted by locality, each list by address; localities without healthy endpoints are left out.
    zones: Vec<(Locality, Vec<SocketAddr>)>,
}

/// Endpoint weights for a fleet's assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetWeights {
    /// `load_balancing_weight` of every healthy priority-0 endpoint, at least 1 (Envoy refuses the
    /// whole response otherwise). Endpoints not listed are not healthy: their weight counts for
    /// nothing and may be anything from 1.
    pub endpoints: Vec<EndpointWeight>,
    /// Zones with demand but without healthy endpoint. Each needs one phantom endpoint, healthy and
    /// never dialed, of this weight; without it Envoy spreads the zone's share over the others.
    pub phantom: Vec<PhantomEndpoint>,
}

/// The `load_balancing_weight` of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointWeight {
    pub locality: Locality,
    pub address: SocketAddr,
    /// At least 1, as xDS requires.
    pub weight: u32,
}

/// A made-up endpoint that carries the weight of a zone without healthy endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhantomEndpoint {
    pub locality: Locality,
    pub weight: u32,
}

impl FleetHosts {
    /// Collects the hosts that an Envoy counts: healthy in the assignment, at priority 0.
    pub fn of_assignment(assignment: &ClusterLoadAssignment) -> Self {
        let entries = assignment
            .endpoints()
            .iter()
            .filter(|entry| entry.priority == 0);
        let zones = entries.map(|entry| {
            let healthy = entry.lb_endpoints.iter().filter(|endpoint| {
                HealthFlags::from_eds(endpoint.health_status).class() == HealthClass::Healthy
            });
            let addresses: Vec<_> = healthy.map(|endpoint| endpoint.address).collect();
            (entry.locality.clone(), addresses)
        });
        Self {
            zones: zones.filter(|(_, hosts)| !hosts.is_empty()).collect(),
        }
    }

    fn in_zone(&self, locality: &Locality) -> &[SocketAddr] {
        self.zones
            .iter()
            .find(|(zone, _)| zone == locality)
            .map_or(&[][..], |(_, hosts)| hosts)
    }
}

/// Computes the weights from which a stock Envoy derives the fractions of `zones`, which sum to
/// 10000.
///
/// The zone sums are `fraction · scale` and total `10000 · scale`, so that Envoy's rounding down
/// yields exactly the fractions. One basis point is lost only when a zone has hosts but no demand:
/// no weight may be 0, so its hosts get 1 each, which is less than a basis point in total, and this
/// is taken from the zone with the most demand, which then reads one less. `scale` is the smallest
/// factor that leaves every host at least 1.
pub fn fleet_weights(zones: &[ZoneFraction], hosts: &FleetHosts) -> FleetWeights {
    let mut sums: Vec<ZoneSum<'_>> = zones
        .iter()
        .map(|zone| ZoneSum {
            locality: &zone.locality,
            fraction: zone.fraction.get(),
            hosts: hosts.in_zone(&zone.locality),
        })
        .collect();
    for (locality, hosts) in &hosts.zones {
        if !zones.iter().any(|zone| zone.locality == *locality) {
            sums.push(ZoneSum {
                locality,
                fraction: 0,
                hosts,
            });
        }
    }
    sums.sort_by_key(|sum| sum.locality);
    // Of zones with equal demand the first pays; `max_by_key` alone would return the last.
    let payer = sums
        .iter()
        .rev()
        .max_by_key(|sum| sum.fraction)
        .map(|sum| sum.locality.clone());
    let taken: u64 = sums.iter().map(ZoneSum::idle_hosts).sum();
    let scale = scale(&sums, taken);
    let mut weights = FleetWeights {
        endpoints: Vec::new(),
        phantom: Vec::new(),
    };
    for sum in &sums {
        let pays = payer.as_ref() == Some(sum.locality);
        let total = match sum.fraction {
            0 => sum.idle_hosts(),
            fraction => (fraction * scale).saturating_sub(if pays { taken } else { 0 }),
        };
        sum.spread(total, &mut weights);
    }
    weights
}

/// Like [`fleet_weights`]; without demand (`zones` is empty), in proportion to the fleet's healthy
/// hosts.
pub fn weights_or_host_counts(
    zones: &[ZoneFraction],
    counts: &HostSetCounts,
    hosts: &FleetHosts,
) -> FleetWeights {
    if zones.is_empty() {
        return fleet_weights(&host_count_fractions(counts), hosts);
    }
    fleet_weights(zones, hosts)
}

struct ZoneSum<'a> {
    locality: &'a Locality,
    fraction: u64,
    hosts: &'a [SocketAddr],
}

impl ZoneSum<'_> {
    /// Returns the number of hosts that need a weight of 1 although the zone has no demand.
    fn idle_hosts(&self) -> u64 {
        if self.fraction == 0 {
            self.hosts.len() as u64
        } else {
            0
        }
    }

    /// Distributes `total` over the hosts as evenly as integers allow, or to a phantom endpoint.
    fn spread(&self, total: u64, weights: &mut FleetWeights) {
        let fit = |weight: u64| u32::try_from(weight).unwrap_or(u32::MAX).max(1);
        if self.hosts.is_empty() {
            if self.fraction > 0 {
                weights.phantom.push(PhantomEndpoint {
                    locality: self.locality.clone(),
                    weight: fit(total),
                });
            }
            return;
        }
        let even = largest_remainder(&vec![1; self.hosts.len()], total).unwrap_or_default();
        for (&address, weight) in self.hosts.iter().zip(even) {
            weights.endpoints.push(EndpointWeight {
                locality: self.locality.clone(),
                address,
                weight: fit(weight),
            });
        }
    }
}

/// Smallest factor that gives every host of a zone with demand at least 1, even after the zone with
/// most demand paid `taken` for idle hosts, and that keeps `taken` below one basis point.
fn scale(sums: &[ZoneSum<'_>], taken: u64) -> u64 {
    let needed = |sum: &ZoneSum<'_>| match sum.fraction {
        0 => taken + 1,
        fraction => (sum.hosts.len() as u64 + taken).div_ceil(fraction),
    };
    let scale = sums.iter().map(needed).max().unwrap_or(1);
    scale.clamp(1, MAX_SCALE)
}

#[cfg(test)]
mod tests;
