//! Locality weights per receiving zone: zone-aware routing computed by the control plane instead of
//! in every proxy (decision 0028, `locality_weights`).
//!
//! For receivers that only follow `load_balancing_weight` of localities: stock Envoy with
//! `locality_weighted_lb_config`, gRPC with `wrr_locality`. Each zone gets its own view of the
//! upstream cluster. The split is computed by `locality_picking::zone_aware`, the code that a
//! Plimsoll data plane runs; this module turns its shares into integers. Weights of the *fleet's*
//! endpoints are computed in `fleet_weights`.

use std::collections::BTreeSet;

use super::fractions::{ZoneFraction, largest_remainder, largest_remainder_f64};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::locality_picking::demand::Demand;
use crate::locality_picking::zone_aware::{Reason, ZoneState, regenerate, seen_from};
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

/// Computes the weights for every receiving zone, sorted: each one where the fleet has hosts,
/// reporters or demand. Without data (`zones` empty), demand is assumed to follow the fleet's
/// healthy hosts, as a data plane does when its fractions are stale (decision 0024). When a
/// precondition fails, weights follow capacity.
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
        .map(|receiver| for_receiver(config, receiver, upstream, &fleet, &demand))
        .collect()
}

fn for_receiver(
    config: &ZoneAware,
    receiver: &Locality,
    upstream: &HostSetCounts,
    fleet: &HostSetCounts,
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
    // Envoy's rule for "no capacity left" may pick an empty locality; a weight must not.
    for (share, slot) in shares.iter_mut().zip(&upstream.localities) {
        if slot.healthy == 0 {
            *share = 0.0;
        }
    }
    weighted(
        receiver,
        &upstream,
        largest_remainder_f64(&shares, BASIS_POINTS),
        None,
    )
}

/// Weights for a receiver without zone-aware routing: proportional to upstream capacity.
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
