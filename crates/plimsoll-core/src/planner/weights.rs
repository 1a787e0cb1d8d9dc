//! Locality weights per receiving zone: v2 approach A, the residual algorithm run here instead of
//! in every proxy (decisions D9, `locality_weights`).
//!
//! For receivers that only follow `load_balancing_weight` of localities: stock Envoy with
//! `locality_weighted_lb_config`, gRPC with `wrr_locality`. Each zone gets its own view of the
//! upstream cluster. Splitting lives in `locality_picking::zone_aware`, the very code a Plimsoll
//! data plane runs; here its shares become integers. Weights of the *fleet's* endpoints are another
//! thing and live in `fleet_weights`.

use std::collections::BTreeSet;

use super::fractions::{ZoneFraction, largest_remainder, largest_remainder_of_shares};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::locality_picking::demand::Demand;
use crate::locality_picking::zone_aware::{Reason, ZoneState, regenerate, seen_from};
use crate::model::locality::Locality;
use crate::model::zone_aware::{CapacityBasis, ZoneAware};
use crate::units::BASIS_POINTS;

/// What the proxies of one zone are told about an upstream cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverWeights {
    /// Where the receiving proxies are.
    pub receiver: Locality,
    /// Priority-0 localities of the upstream cluster, sorted, and their `load_balancing_weight`.
    /// The weights sum to 10000. `None` is a share of nothing: xDS has no weight 0, the field is
    /// left out and the locality gets no traffic. All are `None` when the cluster has no healthy
    /// host.
    pub weights: Vec<(Locality, Option<u32>)>,
    /// Why zones play no part and the weights follow capacity; `None` when they do.
    pub off: Option<Reason>,
}

/// The weights for every receiving zone: each one where the fleet has hosts, reporters or demand,
/// sorted. Without data (`zones` empty) demand is taken to follow the fleet's healthy hosts, as a
/// data plane does when its fractions are stale (decisions D3); when a precondition fails, weights
/// follow capacity.
pub fn locality_weights(
    config: &ZoneAware,
    upstream: &HostSetCounts,
    fleet: Option<&HostSetCounts>,
    zones: &[ZoneFraction],
) -> Vec<ReceiverWeights> {
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
    receivers
        .into_iter()
        .map(|receiver| for_receiver(config, receiver, (upstream, &fleet), &demand))
        .collect()
}

fn for_receiver(
    config: &ZoneAware,
    receiver: &Locality,
    (upstream, fleet): (&HostSetCounts, &HostSetCounts),
    demand: &Demand,
) -> ReceiverWeights {
    let upstream = seen_from(receiver, upstream);
    let routing = regenerate(config, &upstream, &seen_from(receiver, fleet), demand);
    let mut shares = match &routing.state {
        ZoneState::NoLocalityRouting(reason) => {
            return by_capacity(config, receiver, &upstream, *reason);
        }
        _ => routing.expected_shares().unwrap_or_default(),
    };
    // The classic rule for "no capacity left" picks any slot, empty ones too; a weight must not.
    for (share, slot) in shares.iter_mut().zip(&upstream.localities) {
        if slot.healthy == 0 {
            *share = 0.0;
        }
    }
    weighted(
        receiver,
        &upstream,
        largest_remainder_of_shares(&shares, BASIS_POINTS),
        None,
    )
}

/// Zones play no part: every receiver spreads over the upstream cluster as its capacity does.
fn by_capacity(
    config: &ZoneAware,
    receiver: &Locality,
    upstream: &HostSetCounts,
    reason: Reason,
) -> ReceiverWeights {
    let capacity = |slot: &LocalityCounts| match config.upstream_locality_basis() {
        CapacityBasis::HealthyHostsNum => slot.healthy,
        CapacityBasis::HealthyHostsWeight => slot.healthy_weight,
    };
    let hosts: Vec<u64> = upstream.localities.iter().map(capacity).collect();
    let weights = largest_remainder(&hosts, BASIS_POINTS);
    weighted(receiver, upstream, weights, Some(reason))
}

/// Names the weights and puts them into the order of localities.
fn weighted(
    receiver: &Locality,
    upstream: &HostSetCounts,
    weights: Option<Vec<u64>>,
    off: Option<Reason>,
) -> ReceiverWeights {
    let weights = weights.unwrap_or_else(|| vec![0; upstream.localities.len()]);
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

/// A node that reports is a host of the fleet, whether an assignment lists it or not: a gRPC fleet
/// usually has none, and its zones must count in the preconditions all the same.
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
