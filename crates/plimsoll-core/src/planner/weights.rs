//! Locality weights per receiving zone: zone-aware routing computed by the control plane instead of
//! in every proxy (decision 0028, `locality_weights`).
//!
//! For receivers that only follow `load_balancing_weight` of localities: stock Envoy with
//! `locality_weighted_lb_config`, gRPC with `wrr_locality`. Each zone gets its own view of the
//! upstream cluster. The split is computed by `locality_picking::zone_aware`, the code that a
//! Plimsoll data plane runs; this module turns its shares into integers. Weights of the *fleet's*
//! endpoints are computed in `fleet_weights`.

use std::collections::{BTreeMap, BTreeSet};

use super::fractions::{ZoneFraction, largest_remainder_f64};
use super::zone_plan::ZonePlan;
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::locality_picking::demand::Demand;
use crate::locality_picking::zone_aware::{
    Reason, ZoneRouting, is_forced_local, regenerate, seen_from,
};
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, ZoneAware};
use crate::units::BASIS_POINTS;

/// Locality weights of an upstream cluster for the proxies of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverWeights {
    /// Locality of the receiving proxies.
    pub receiver: Locality,
    /// Priority-0 localities of the upstream cluster, sorted, with weights that sum to 10000.
    /// `None` is a share of zero: xDS has no weight 0, so the field is left out. All are `None`
    /// when the cluster has no healthy host.
    pub weights: Vec<(Locality, Option<u32>)>,
    /// Why the weights follow capacity alone; `None` if zone-aware routing applies.
    pub off: Option<Reason>,
}

/// How receivers spread their requests without measured demand, from where a ramp leads to where
/// demand sends them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RampStart<'a> {
    /// Over all healthy hosts, by their weight: receivers do not look at zones.
    Hosts,
    /// By these weights of the zones, in any unit. A zone without healthy hosts gets nothing.
    Weights(&'a [(Locality, f64)]),
    /// By zone-aware routing with these rules and the numbers of hosts.
    HostCounts(&'a ZoneAware),
}

/// Computes the weights for every receiving zone, sorted: each one where the fleet has hosts,
/// reporters or demand. Without data (`zones` empty), demand is assumed to follow the fleet's
/// healthy hosts, as a data plane does when its fractions are stale (decision 0024). When a
/// precondition fails, weights follow capacity. What `routing_enabled` leaves out goes to all
/// hosts.
pub fn locality_weights(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    fleet: Option<&HostSetCounts>,
    zones: &[ZoneFraction],
) -> Vec<ReceiverWeights> {
    ramped_weights(config, RampStart::Hosts, upstream, fleet, zones, 100)
}

/// Like [`locality_weights`], with `percent` of each receiver's requests sent by demand, and the
/// others as `start` sends them.
pub fn ramped_weights(
    config: &ZoneAware,
    start: RampStart<'_>,
    upstream: &HostSetCounts,
    fleet: Option<&HostSetCounts>,
    zones: &[ZoneFraction],
    percent: u32,
) -> Vec<ReceiverWeights> {
    let target = Target { zones, plan: None };
    weights_towards(config, start, upstream, fleet, target, percent)
}

/// Like [`ramped_weights`], with the rows of a plan where zone-aware routing applies: its
/// preconditions, `routing_enabled` and `force_local_zone` count as with measured demand. A
/// receiver that the plan does not know routes by its virtual demand.
pub fn planned_weights(
    config: &ZoneAware,
    start: RampStart<'_>,
    upstream: &HostSetCounts,
    fleet: Option<&HostSetCounts>,
    plan: &ZonePlan,
    percent: u32,
) -> Vec<ReceiverWeights> {
    let target = Target {
        zones: plan.virtual_demand(),
        plan: Some(plan),
    };
    weights_towards(config, start, upstream, fleet, target, percent)
}

/// Where requests go once a ramp is complete.
#[derive(Clone, Copy)]
struct Target<'a> {
    zones: &'a [ZoneFraction],
    plan: Option<&'a ZonePlan>,
}

impl Target<'_> {
    /// Returns the row of the plan for a receiver, in the order of the slots of `upstream`.
    fn row(&self, receiver: &Locality, upstream: &HostSetCounts) -> Option<Vec<f64>> {
        let row: BTreeMap<&Locality, u64> = self.plan?.row(receiver)?.collect();
        let slots = upstream.localities.iter();
        let parts = slots.map(|slot| row.get(&slot.locality).copied().unwrap_or(0));
        Some(parts.map(as_f64).collect())
    }
}

fn weights_towards(
    config: &ZoneAware,
    start: RampStart<'_>,
    upstream: &HostSetCounts,
    fleet: Option<&HostSetCounts>,
    target: Target<'_>,
    percent: u32,
) -> Vec<ReceiverWeights> {
    let zones = target.zones;
    // Receivers that count hosts do not know reporters that their assignment does not list.
    let listed = fleet.cloned().unwrap_or_default();
    let fleet = with_reporters(fleet, zones);
    let receivers: BTreeSet<&Locality> = fleet
        .localities
        .iter()
        .map(|slot| &slot.locality)
        .chain(zones.iter().map(|zone| &zone.locality))
        .collect();
    let measured = zones
        .iter()
        .map(|zone| (zone.locality.clone(), zone.fraction.get()));
    let demand = if zones.is_empty() {
        Demand::from_host_counts(&fleet)
    } else {
        Demand::from_weights(measured)
    };
    let for_receiver = |receiver: &Locality| {
        let upstream = seen_from(receiver, upstream);
        let routing = regenerate(config, &upstream, &seen_from(receiver, &fleet), &demand);
        let row = target.row(receiver, &upstream);
        let target = routed(config, &routing, &upstream, row)
            .unwrap_or_else(|| normalized(by_capacity(config, &upstream)));
        let shares = if percent >= 100 {
            target
        } else {
            let before = before_ramp(start, &upstream, &seen_from(receiver, &listed));
            blended(&before, &target, percent)
        };
        weighted(receiver, &upstream, &shares, routing.state.reason())
    };
    receivers.into_iter().map(for_receiver).collect()
}

/// Returns the shares of a receiver without measured demand.
fn before_ramp(start: RampStart<'_>, upstream: &HostSetCounts, fleet: &HostSetCounts) -> Vec<f64> {
    let shares = match start {
        RampStart::Hosts => None,
        RampStart::Weights(weights) => {
            let weight = |slot: &LocalityCounts| {
                let own = weights.iter().find(|(zone, _)| *zone == slot.locality);
                own.filter(|_| slot.healthy > 0)
                    .map_or(0.0, |(_, weight)| *weight)
            };
            Some(normalized(upstream.localities.iter().map(weight).collect()))
        }
        RampStart::HostCounts(rules) => {
            let demand = Demand::from_host_counts(fleet);
            routed(
                rules,
                &regenerate(rules, upstream, fleet, &demand),
                upstream,
                None,
            )
        }
    };
    let usable = |shares: &Vec<f64>| shares.iter().any(|share| *share > 0.0);
    shares
        .filter(usable)
        .unwrap_or_else(|| over_all_hosts(upstream))
}

/// Returns the shares of a receiver under zone-aware routing, or its row of a plan; `None` while
/// that is off.
fn routed(
    config: &ZoneAware,
    routing: &ZoneRouting,
    upstream: &HostSetCounts,
    row: Option<Vec<f64>>,
) -> Option<Vec<f64>> {
    let by_demand = routing.expected_shares()?;
    let row = row.filter(|_| !is_forced_local(config, upstream));
    let mut shares = row.unwrap_or(by_demand);
    // Envoy's rule for "no capacity left" may pick an empty locality; a weight must not.
    for (share, slot) in shares.iter_mut().zip(&upstream.localities) {
        if slot.healthy == 0 {
            *share = 0.0;
        }
    }
    let enabled = config.routing_enabled();
    Some(if enabled >= 100 {
        normalized(shares)
    } else {
        blended(&over_all_hosts(upstream), &normalized(shares), enabled)
    })
}

/// Returns `percent` of `target` and the rest of `start`. Both sum to 1, or are all 0.
fn blended(start: &[f64], target: &[f64], percent: u32) -> Vec<f64> {
    let part = f64::from(percent.min(100)) / 100.0;
    let pairs = start.iter().zip(target);
    pairs
        .map(|(start, target)| start * (1.0 - part) + target * part)
        .collect()
}

fn over_all_hosts(upstream: &HostSetCounts) -> Vec<f64> {
    let slots = upstream.localities.iter();
    normalized(slots.map(|slot| as_f64(slot.healthy_weight)).collect())
}

/// Returns the capacity of each zone, for receivers without zone-aware routing.
fn by_capacity(config: &ZoneAware, upstream: &HostSetCounts) -> Vec<f64> {
    let capacity = |slot: &LocalityCounts| match config.upstream_locality_basis() {
        CapacityBasis::HealthyHostsNum => slot.healthy,
        CapacityBasis::HealthyHostsWeight => slot.healthy_weight,
    };
    let slots = upstream.localities.iter();
    slots.map(|slot| as_f64(capacity(slot))).collect()
}

fn normalized(mut shares: Vec<f64>) -> Vec<f64> {
    let total: f64 = shares.iter().sum();
    if total > 0.0 {
        shares.iter_mut().for_each(|share| *share /= total);
    }
    shares
}

#[expect(clippy::cast_precision_loss, reason = "host counts are far below 2^53")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

fn weighted(
    receiver: &Locality,
    upstream: &HostSetCounts,
    shares: &[f64],
    off: Option<Reason>,
) -> ReceiverWeights {
    let weights = largest_remainder_f64(shares, BASIS_POINTS)
        .unwrap_or_else(|| vec![0; upstream.localities.len()]);
    let weight = |weight| u32::try_from(weight).ok().filter(|&weight| weight > 0);
    let mut weights: Vec<_> = upstream
        .localities
        .iter()
        .zip(weights)
        .map(|(slot, share)| (slot.locality.clone(), weight(share)))
        .collect();
    weights.sort();
    ReceiverWeights {
        receiver: receiver.clone(),
        weights,
        off,
    }
}

/// Adds reporting nodes to the fleet's hosts, whether an assignment lists them or not: a gRPC fleet
/// usually has no assignment, and its zones must still count in the preconditions.
fn with_reporters(fleet: Option<&HostSetCounts>, zones: &[ZoneFraction]) -> HostSetCounts {
    let mut fleet = fleet.cloned().unwrap_or_default();
    for zone in zones.iter().filter(|zone| zone.reporters > 0) {
        match fleet
            .localities
            .iter_mut()
            .find(|slot| slot.locality == zone.locality)
        {
            Some(slot) => slot.all = slot.all.max(zone.reporters),
            None => fleet.localities.push(LocalityCounts {
                locality: zone.locality.clone(),
                all: zone.reporters,
                healthy: zone.reporters,
                ..Default::default()
            }),
        }
    }
    fleet
}

#[cfg(test)]
mod tests;
