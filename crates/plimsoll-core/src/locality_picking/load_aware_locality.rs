//! load_aware_locality: from reported utilization to a weight per locality (seed `001…`,
//! envoy-semantics §4.3).
//!
//! Five stages, one function each: average, smooth, headroom, local preference, probe floor. The
//! balancer runs [`Smoother::tick`] on a timer, per priority and per source (healthy, degraded, all
//! hosts); workers choose by [`choose_locality`]. Spilling by headroom is a relay and swings in a
//! closed loop; `convergent` replaces the last three stages by a controller that settles.

use std::collections::BTreeMap;

use crate::model::load_aware_locality::{ColdStart, LoadAwareLocality, RemoteMean};
use crate::model::locality::Locality;

/// What is known of one locality slot, for one source, before smoothing (stage 1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotLoad {
    /// Where.
    pub locality: Locality,
    /// The slot has hosts of any class; one without is left out altogether.
    pub has_hosts: bool,
    /// Hosts of the source.
    pub eligible: u64,
    /// Mean utilization of those with a valid report; `None` = nobody has one.
    pub utilization: Option<f64>,
}

/// One slot after smoothing (stage 2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothedSlot {
    /// Hosts of the source.
    pub eligible: f64,
    /// Smoothed utilization; 0 for a slot that never reported.
    pub utilization: f64,
    /// It reported once, but nobody has a valid report now.
    pub stale: bool,
    /// It never reported.
    pub cold: bool,
}

/// Smoothed utilization of the localities of one priority and source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Smoother {
    smoothed: BTreeMap<Locality, f64>,
}

/// Outcome of one tick for one priority and source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityWeights {
    /// One weight per slot.
    pub weights: Vec<f64>,
    /// Everything goes to slot 0.
    pub all_local: bool,
    /// No locality had headroom: HEADROOM goes by host counts, CONVERGENT evens the overload out.
    pub all_overloaded: bool,
    /// The own locality was within the threshold.
    pub local_preferred: bool,
    /// The own locality was above the threshold.
    pub spill_active: bool,
    /// The probe floor took effect.
    pub probe_active: bool,
    /// Slots that are stale.
    pub stale_localities: u64,
}

impl Smoother {
    /// Stage 2: blends the new means into the stored ones; the first sample of a locality is taken
    /// raw. Localities that are gone are forgotten.
    pub fn smooth(&mut self, alpha: f64, slots: &[SlotLoad]) -> Vec<SmoothedSlot> {
        let mut kept = BTreeMap::new();
        let smoothed = slots.iter().map(|slot| {
            #[expect(clippy::cast_precision_loss, reason = "host counts")]
            let eligible = slot.eligible as f64;
            if !slot.has_hosts {
                return SmoothedSlot {
                    cold: true,
                    ..Default::default()
                };
            }
            let previous = self.smoothed.get(&slot.locality).copied();
            let value = match (slot.utilization, previous) {
                (Some(sample), None) => Some(sample),
                (Some(sample), Some(previous)) => Some(alpha * sample + (1.0 - alpha) * previous),
                (None, previous) => previous,
            };
            if let Some(value) = value {
                kept.insert(slot.locality.clone(), value);
            }
            SmoothedSlot {
                eligible,
                utilization: value.unwrap_or(0.0),
                stale: slot.utilization.is_none() && previous.is_some(),
                cold: value.is_none(),
            }
        });
        let smoothed = smoothed.collect();
        self.smoothed = kept;
        smoothed
    }

    /// All stages by headroom. `has_local_locality`: slot 0 is the own locality.
    pub fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        slots: &[SlotLoad],
        has_local_locality: bool,
    ) -> LocalityWeights {
        let smoothed = self.smooth(settings.alpha(), slots);
        headroom_weights(settings, &smoothed, has_local_locality)
    }
}

/// Stages 3 to 5 of the seed.
pub fn headroom_weights(
    settings: &LoadAwareLocality,
    slots: &[SmoothedSlot],
    has_local_locality: bool,
) -> LocalityWeights {
    let mut outcome = LocalityWeights {
        weights: slots.iter().map(base_weight).collect(),
        stale_localities: slots.iter().filter(|slot| slot.stale).count() as u64,
        ..Default::default()
    };
    let hosts: f64 = slots.iter().map(|slot| slot.eligible).sum();
    let cold = slots.iter().all(|slot| slot.cold);
    let by_host_count = cold && settings.cold_start() == ColdStart::HostCount;
    if outcome.weights.iter().sum::<f64>() == 0.0 || by_host_count {
        outcome.all_overloaded = hosts > 0.0 && !by_host_count;
        outcome.weights = slots.iter().map(|slot| slot.eligible).collect();
        return outcome;
    }
    if has_local_locality {
        let remote_hosts: f64 = slots.iter().skip(1).map(|slot| slot.eligible).sum();
        prefer_local(settings, slots, remote_hosts, &mut outcome);
        probe_remotes(
            settings.remote_probe_fraction(),
            slots,
            remote_hosts,
            &mut outcome,
        );
        probe_local(settings.local_probe_fraction(), &mut outcome);
    }
    outcome
}

/// Stage 3: hosts × headroom; a stale slot counts by its hosts.
fn base_weight(slot: &SmoothedSlot) -> f64 {
    if slot.stale {
        slot.eligible
    } else {
        slot.eligible * (1.0 - slot.utilization).max(0.0)
    }
}

/// Stage 4: everything stays local unless the own locality is hotter than the others by more than
/// the threshold.
fn prefer_local(
    settings: &LoadAwareLocality,
    slots: &[SmoothedSlot],
    remote_hosts: f64,
    outcome: &mut LocalityWeights,
) {
    let Some(own) = slots.first() else { return };
    if own.eligible <= 0.0 || remote_hosts <= 0.0 {
        return;
    }
    let mean = remote_mean(settings.remote_mean(), &slots[1..], remote_hosts);
    if own.utilization <= mean + settings.utilization_variance_threshold() {
        outcome.weights.iter_mut().for_each(|weight| *weight = 0.0);
        outcome.weights[0] = 1.0;
        outcome.all_local = true;
        outcome.local_preferred = true;
    } else {
        outcome.spill_active = true;
    }
}

/// Mean utilization of the remote slots by hosts.
fn remote_mean(rule: RemoteMean, remotes: &[SmoothedSlot], remote_hosts: f64) -> f64 {
    let reporting: f64 = remotes
        .iter()
        .filter(|slot| !slot.cold)
        .map(|slot| slot.eligible)
        .sum();
    let hosts = match rule {
        RemoteMean::ReportingOnly if reporting > 0.0 => reporting,
        _ => remote_hosts,
    };
    remotes
        .iter()
        .map(|slot| slot.utilization * slot.eligible)
        .sum::<f64>()
        / hosts
}

/// Stage 5: remotes get at least their probe, by hosts, so that they keep reporting.
fn probe_remotes(
    probe: f64,
    slots: &[SmoothedSlot],
    remote_hosts: f64,
    outcome: &mut LocalityWeights,
) {
    if remote_hosts <= 0.0 || probe <= 0.0 {
        return;
    }
    let total: f64 = outcome.weights.iter().sum();
    let wanted = total * probe;
    let remote = total - outcome.weights[0];
    if remote >= wanted {
        return;
    }
    let taken = (wanted - remote).min(outcome.weights[0]);
    outcome.weights[0] -= taken;
    for (weight, slot) in outcome.weights.iter_mut().zip(slots).skip(1) {
        *weight += taken * slot.eligible / remote_hosts;
    }
    outcome.probe_active = true;
    outcome.all_local = false;
}

/// Ours: the own locality gets at least its probe, taken from the remotes in proportion.
fn probe_local(probe: f64, outcome: &mut LocalityWeights) {
    let total: f64 = outcome.weights.iter().sum();
    let wanted = total * probe;
    let Some(&own) = outcome.weights.first() else {
        return;
    };
    if probe <= 0.0 || own >= wanted || total <= own {
        return;
    }
    let scale = (total - wanted) / (total - own);
    outcome
        .weights
        .iter_mut()
        .skip(1)
        .for_each(|weight| *weight *= scale);
    outcome.weights[0] = wanted;
}

/// splitmix64: turns the draw that chose the priority into an independent one for the locality.
pub const fn mix(hash: u64) -> u64 {
    let mut x = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The slot for a fraction of 2^64 (§4.4): the first whose prefix sum is greater. With one slot, no
/// weight at all or no table it is slot 0.
#[expect(clippy::cast_precision_loss, reason = "as Envoy converts")]
pub fn choose_locality(fraction: u64, prefix_sums: &[f64]) -> usize {
    let total = prefix_sums.last().copied().unwrap_or(0.0);
    if prefix_sums.len() < 2 || total <= 0.0 {
        return 0;
    }
    let x = (fraction as f64 / u64::MAX as f64) * total;
    prefix_sums
        .partition_point(|&upto| upto <= x)
        .min(prefix_sums.len() - 1)
}

/// The next slot from `index` on that can be used, wrapping around.
pub fn usable_slot(index: usize, slots: usize, usable: impl Fn(usize) -> bool) -> Option<usize> {
    (0..slots)
        .map(|step| (index + step) % slots)
        .find(|&slot| usable(slot))
}

#[cfg(test)]
mod tests;
