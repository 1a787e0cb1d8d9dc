//! The load_aware_locality policy: from reported utilization to a weight per locality (seed `001…`,
//! envoy-semantics §4.3).
//!
//! Five stages, one function each: average, smooth, headroom, local preference, probe floor. The
//! balancer runs [`Smoother::tick`] on a timer, per priority and class (healthy, degraded, all
//! hosts); workers choose with [`choose_locality`]. Spilling by headroom oscillates in a closed
//! loop; `convergent` replaces the last three stages by a controller that settles.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::load_aware_locality::{ColdStart, LoadAwareLocality, RemoteMean};
use crate::model::locality::Locality;

/// Load of one locality slot, for one class of hosts, before smoothing (stage 1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotLoad {
    pub locality: Locality,
    /// Whether the slot has hosts of any class; a slot without hosts is left out.
    pub has_hosts: bool,
    /// Number of hosts of the class.
    pub eligible: u64,
    /// Mean utilization of the hosts with a valid report; `None` if there are none.
    pub utilization: Option<f64>,
}

/// Load of one slot after smoothing (stage 2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothedSlot {
    pub eligible: f64,
    /// Smoothed utilization; 0 for a slot that never reported.
    pub utilization: f64,
    /// The slot reported earlier, but no host has a valid report now.
    pub stale: bool,
    /// How long the slot has been stale.
    pub silent: Duration,
    pub cold: bool,
}

/// How long an expired utilization is still compared, as in Envoy: a gap in the reports must not
/// send requests across zones.
const COMPARED: Duration = Duration::from_secs(30);
/// How long the hosts of a silent slot are weighed whole, as in Envoy. Whole hosts attract more
/// than those that report some load: within a minute, a silent zone must neither attract nor repel.
const WHOLE: Duration = Duration::from_secs(55);

impl SmoothedSlot {
    /// Whether the last reports expired so long ago that they say nothing any more.
    pub fn is_forgotten(&self) -> bool {
        self.silent > COMPARED
    }

    /// Whether the silence has lasted so long that the slot counts as an average one.
    fn is_average(&self) -> bool {
        self.silent > WHOLE
    }

    /// Whether a host of the slot has a valid report.
    pub const fn is_measured(&self) -> bool {
        !self.cold && !self.stale
    }
}

/// Smoothed utilization of the localities of one priority and class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Smoother {
    smoothed: BTreeMap<Locality, Smoothed>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Smoothed {
    utilization: f64,
    silent: Duration,
}

/// Result of one tick for one priority and class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityWeights {
    pub weights: Vec<f64>,
    /// All requests go to slot 0.
    pub all_local: bool,
    /// No locality had headroom: HEADROOM uses host counts, CONVERGENT evens the overload out.
    pub all_overloaded: bool,
    /// The local locality kept its requests, except for probes.
    pub local_preferred: bool,
    /// The local locality spilled requests beyond its probes.
    pub spill_active: bool,
    pub probe_active: bool,
    pub stale_localities: u64,
}

impl Smoother {
    /// Takes the next sample of these localities as it is: their smoothed value is as old as the
    /// silence of their hosts was long.
    pub fn restart<'a>(&mut self, slots: impl Iterator<Item = &'a SlotLoad>) {
        for slot in slots {
            if let Some(sample) = slot.utilization {
                let smoothed = Smoothed {
                    utilization: sample,
                    silent: Duration::ZERO,
                };
                self.smoothed.insert(slot.locality.clone(), smoothed);
            }
        }
    }

    /// Stage 2: blends the new means into the stored ones; the first sample of a locality is taken
    /// as it is. Removed localities are forgotten.
    pub fn smooth(
        &mut self,
        alpha: f64,
        period: Duration,
        slots: &[SlotLoad],
    ) -> Vec<SmoothedSlot> {
        let mut kept = BTreeMap::new();
        let smooth = |slot: &SlotLoad| {
            #[expect(clippy::cast_precision_loss, reason = "host counts")]
            let eligible = slot.eligible as f64;
            if !slot.has_hosts {
                return SmoothedSlot {
                    cold: true,
                    ..Default::default()
                };
            }
            let previous = self.smoothed.get(&slot.locality).copied();
            let next = match (slot.utilization, previous) {
                (Some(sample), previous) => Some(Smoothed {
                    utilization: previous.map_or(sample, |previous| {
                        alpha * sample + (1.0 - alpha) * previous.utilization
                    }),
                    silent: Duration::ZERO,
                }),
                (None, previous) => previous.map(|previous| Smoothed {
                    silent: previous.silent.saturating_add(period),
                    ..previous
                }),
            };
            if let Some(next) = next {
                kept.insert(slot.locality.clone(), next);
            }
            let Smoothed {
                utilization,
                silent,
            } = next.unwrap_or_default();
            SmoothedSlot {
                eligible,
                utilization,
                stale: !silent.is_zero(),
                silent,
                cold: next.is_none(),
            }
        };
        let smoothed = slots.iter().map(smooth).collect();
        self.smoothed = kept;
        smoothed
    }

    /// Runs all stages with the HEADROOM rule. Slot 0 is the local locality if
    /// `has_local_locality`.
    pub fn tick(
        &mut self,
        settings: &LoadAwareLocality,
        slots: &[SlotLoad],
        has_local_locality: bool,
    ) -> LocalityWeights {
        let period = settings.weight_update_period();
        let smoothed = self.smooth(settings.alpha(), period, slots);
        headroom_weights(settings, &smoothed, has_local_locality)
    }
}

/// Runs stages 3 to 5: headroom, local preference, probe floor.
pub fn headroom_weights(
    settings: &LoadAwareLocality,
    slots: &[SmoothedSlot],
    has_local_locality: bool,
) -> LocalityWeights {
    let mut outcome = LocalityWeights {
        weights: base_weights(slots),
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

/// Stage 3: hosts × headroom; a stale slot counts by its hosts, and after a while as one with the
/// mean utilization of those that report.
fn base_weights(slots: &[SmoothedSlot]) -> Vec<f64> {
    let measured = || slots.iter().filter(|slot| slot.is_measured());
    let hosts: f64 = measured().map(|slot| slot.eligible).sum();
    let used: f64 = measured()
        .map(|slot| slot.eligible * slot.utilization)
        .sum();
    let mean = if hosts > 0.0 { used / hosts } else { 0.0 };
    let headroom = |slot: &SmoothedSlot| {
        let utilization = match (slot.is_average(), slot.stale) {
            (true, _) => mean,
            (false, true) => 0.0,
            (false, false) => slot.utilization,
        };
        slot.eligible * (1.0 - utilization).max(0.0)
    };
    slots.iter().map(headroom).collect()
}

/// Stage 4: all stays local unless the local locality is hotter by more than the threshold. If the
/// reports of the local locality expired a while ago, nothing is known of that, and hosts decide:
/// Envoy compares its last utilization forever, and a zone that was cool then stays local however
/// hot it is (decision 0025). After a while without a report from any other locality, there is
/// nothing to compare with, and hosts decide as well.
fn prefer_local(
    settings: &LoadAwareLocality,
    slots: &[SmoothedSlot],
    remote_hosts: f64,
    outcome: &mut LocalityWeights,
) {
    let Some(own) = slots.first() else { return };
    if own.eligible <= 0.0 || remote_hosts <= 0.0 || own.is_forgotten() {
        return;
    }
    let remotes = &slots[1..];
    let is_known = |slot: &SmoothedSlot| !slot.cold && !slot.is_average();
    if remotes.iter().any(SmoothedSlot::is_average) && !remotes.iter().any(is_known) {
        outcome.weights = slots.iter().map(|slot| slot.eligible).collect();
        return;
    }
    let mean = remote_mean(settings.remote_mean(), remotes, remote_hosts);
    if own.utilization <= mean + settings.utilization_variance_threshold() {
        outcome.weights.iter_mut().for_each(|weight| *weight = 0.0);
        outcome.weights[0] = 1.0;
        outcome.all_local = true;
        outcome.local_preferred = true;
    } else {
        outcome.spill_active = true;
    }
}

/// Returns the mean utilization of the remote slots. Reports that expired a while ago do not count,
/// unless there are no others.
fn remote_mean(rule: RemoteMean, remotes: &[SmoothedSlot], remote_hosts: f64) -> f64 {
    let is_any_known = remotes
        .iter()
        .any(|slot| !slot.cold && !slot.is_forgotten());
    let used = || {
        let slots = remotes.iter();
        slots.filter(|slot| !is_any_known || !slot.is_forgotten())
    };
    let hosts: f64 = used().map(|slot| slot.eligible).sum();
    let reporting = used().filter(|slot| !slot.cold);
    let reporting: f64 = reporting.map(|slot| slot.eligible).sum();
    let counted = match rule {
        RemoteMean::ReportingOnly if reporting > 0.0 => reporting,
        _ if hosts > 0.0 => hosts,
        _ => remote_hosts,
    };
    used()
        .map(|slot| slot.utilization * slot.eligible)
        .sum::<f64>()
        / counted
}

/// Stage 5: remote slots get at least their probe share, by hosts, so that they keep reporting.
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

/// Extension: the local locality gets at least its probe share, from the others in proportion.
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

/// Returns the slot for a fraction of 2^64 (§4.4): the first whose prefix sum is greater. Returns
/// slot 0 if there is one slot, no weight at all, or no table.
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

/// Returns the first usable slot from `index` on, wrapping around.
pub fn usable_slot(index: usize, slots: usize, usable: impl Fn(usize) -> bool) -> Option<usize> {
    (0..slots)
        .map(|step| (index + step) % slots)
        .find(|&slot| usable(slot))
}

#[cfg(test)]
mod tests;
