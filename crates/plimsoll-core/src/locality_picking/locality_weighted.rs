//! Locality-weighted balancing: the weights of the assignment, scaled by availability and scheduled
//! earliest deadline first (envoy-semantics §3.1).
//!
//! [`effective_weights`] is computed once per change; the schedules belong to workers (`picker`),
//! one each for healthy and degraded hosts, with the same seed. wrr_locality works the same way.

use crate::edf::Edf;

/// Inputs of the weight of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightedSlot {
    /// Weight in the assignment; 0 means none.
    pub weight: u32,
    /// All hosts except excluded ones.
    pub considered: u64,
    pub eligible: u64,
}

/// Returns the weight of every slot scaled by its availability; `None` if no slot can be chosen, so
/// that the pick falls through to zone-aware routing or the flat list.
#[expect(clippy::cast_precision_loss, reason = "host counts")]
pub fn effective_weights(slots: &[WeightedSlot], overprovisioning_factor: u32) -> Option<Vec<f64>> {
    let overprovisioning = f64::from(overprovisioning_factor) / 100.0;
    let effective = |slot: &WeightedSlot| {
        if slot.considered == 0 {
            return 0.0;
        }
        let availability = slot.eligible as f64 / slot.considered as f64;
        f64::from(slot.weight) * (overprovisioning * availability).min(1.0)
    };
    let weights: Vec<f64> = slots.iter().map(effective).collect();
    weights
        .iter()
        .any(|&weight| weight > 0.0)
        .then_some(weights)
}

/// Builds a schedule over the slots with weight, as if `seed` picks had already been made.
pub fn schedule(effective_weights: &[f64], seed: u64) -> Edf {
    let items: Vec<(u32, f64)> = (0..)
        .zip(effective_weights.iter().copied())
        .filter(|&(_, weight)| weight > 0.0)
        .collect();
    Edf::with_emulated_picks(&items, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(weight: u32, considered: u64, eligible: u64) -> WeightedSlot {
        WeightedSlot {
            weight,
            considered,
            eligible,
        }
    }

    #[test]
    fn availability_scales_only_below_the_overprovisioning_factor() {
        let weights = effective_weights(&[slot(1, 100, 72), slot(2, 100, 50)], 140).unwrap();
        assert_eq!(weights, [1.0, 2.0 * 0.7]);
    }

    #[test]
    fn without_weights_there_is_no_schedule() {
        assert_eq!(effective_weights(&[], 140), None);
        assert_eq!(effective_weights(&[slot(0, 5, 5)], 140), None);
        assert_eq!(
            effective_weights(&[slot(3, 5, 0), slot(3, 0, 0)], 140),
            None
        );
    }

    #[test]
    fn slots_without_weight_are_never_scheduled() {
        let weights =
            effective_weights(&[slot(1, 1, 1), slot(0, 1, 1), slot(1, 1, 1)], 140).unwrap();
        let mut edf = schedule(&weights, 0);
        let picks: Vec<_> = (0..6)
            .filter_map(|_| edf.pick(|i| weights[i as usize]))
            .collect();
        assert_eq!(picks, [0, 2, 0, 2, 0, 2]);
    }
}
