//! Host weights from load reports (envoy-semantics §5.2 to §5.4, gRFC A58): the weight of a report,
//! how long it is valid, and the weight of hosts without one.
//!
//! Each host has an [`OrcaWeightSlot`]: any worker writes it when a report arrives, and the
//! balancer's tick reads it through [`WeightUpdater`] and sets the weights that schedules use. Once
//! weights are set, the policy is plain round robin. Settings are in
//! `model::client_side_weighted_round_robin`, the utilization of a report in `model::orca`.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use crate::model::orca::OrcaLoadReport;
use crate::time::Instant;

mod slot;

pub use slot::OrcaWeightSlot;

/// Reason why a report yields no weight. The previous weight stays in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightError {
    /// `rps_fractional` is missing: zero, negative, NaN or infinite.
    QpsNotPositive,
    /// There is neither a utilization nor a penalty for errors.
    UtilizationNotPositive,
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QpsNotPositive => "QPS must be positive",
            Self::UtilizationNotPositive => "Utilization must be positive",
        })
    }
}

impl Error for WeightError {}

/// Returns the weight of a report: requests per second at full utilization, truncated to an integer
/// that may be 0 and saturates at `u32::MAX`.
///
/// Errors count as utilization, and the sum must be positive, so that errors alone yield a weight
/// (A58 tests the utilization before it adds the penalty). Values that are NaN, infinite, zero or
/// negative are missing (decision 0026).
pub fn weight(
    report: &OrcaLoadReport,
    settings: &ClientSideWeightedRoundRobin,
) -> Result<u32, WeightError> {
    let qps = positive(report.rps_fractional).ok_or(WeightError::QpsNotPositive)?;
    let eps = positive(report.eps).unwrap_or(0.0);
    let names = settings.metric_names();
    let utilization = report.utilization(names, settings.utilization_precedence())
        + settings.error_utilization_penalty() * eps / qps;
    if utilization <= 0.0 {
        return Err(WeightError::UtilizationNotPositive);
    }
    Ok(truncated(qps / utilization))
}

/// Weight of one host and its age: the contents of an [`OrcaWeightSlot`] as plain values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWeight {
    pub weight: u32,
    /// First valid report since the host was new or its weight expired; starts the blackout.
    pub non_empty_since: Option<Instant>,
    pub last_update: Option<Instant>,
}

impl ClientWeight {
    /// Stores the weight of a report that arrived at `now`.
    pub fn on_report(&mut self, weight: u32, now: Instant) {
        self.weight = weight;
        self.last_update = Some(now);
        self.non_empty_since.get_or_insert(now);
    }

    /// Returns the weight if it is valid at `now`. An expired weight starts over: the next valid
    /// report begins a new blackout.
    pub fn if_valid(
        &mut self,
        blackout: Duration,
        expiration: Duration,
        now: Instant,
    ) -> Option<u32> {
        match self.status(blackout, expiration, now) {
            WeightStatus::Valid(weight) => Some(weight),
            WeightStatus::Blackout => None,
            WeightStatus::Expired => {
                self.non_empty_since = None;
                None
            }
        }
    }

    /// Tests validity in the order of envoy-semantics §5.3; both limits are inclusive on the valid
    /// side. Adds to the stored instants: subtracting a period from `now` could pass the origin.
    fn status(&self, blackout: Duration, expiration: Duration, now: Instant) -> WeightStatus {
        let reached = |start: Instant, period: Duration| start.saturating_add(period) <= now;
        let Some(since) = self.non_empty_since else {
            return WeightStatus::Blackout;
        };
        if !reached(since, blackout) {
            return WeightStatus::Blackout;
        }
        let fresh = |last: Instant| last.saturating_add(expiration) >= now;
        match self.last_update {
            Some(last) if fresh(last) => WeightStatus::Valid(self.weight),
            _ => WeightStatus::Expired,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightStatus {
    /// The host has not reported yet, or not for as long as the blackout period.
    Blackout,
    Expired,
    Valid(u32),
}

/// Returns the weight for hosts without a valid one: the median of the `valid` weights, or 1 if
/// there are none. Reorders `valid`.
pub fn default_weight(valid: &mut [u32]) -> u32 {
    let middle = valid.len() / 2;
    if valid.is_empty() {
        return 1;
    }
    let even = valid.len().is_multiple_of(2);
    let (below, &mut upper, _) = valid.select_nth_unstable(middle);
    match below.iter().max() {
        Some(&lower) if even => lower.midpoint(upper),
        _ => upper,
    }
}

/// Sets the weights of one priority's hosts. Reuses its buffers from tick to tick.
#[derive(Debug, Default)]
pub struct WeightUpdater {
    own: Vec<Option<u32>>,
    valid: Vec<u32>,
}

impl WeightUpdater {
    /// Sets the weight of every host to its own or else the default. Returns whether any differed
    /// from the previous weight, so that schedules must be rebuilt. `hosts` are **all** hosts of
    /// one priority, each with its slot and the weight that schedules read.
    ///
    /// To be called every `weight_update_period` and after every change of the hosts. As in Envoy a
    /// schedule's weight is at least 1, but a reported 0 takes part in the median and counts as
    /// different at every call.
    pub fn update<'a>(
        &mut self,
        hosts: impl Iterator<Item = (&'a OrcaWeightSlot, &'a AtomicU32)> + Clone,
        settings: &ClientSideWeightedRoundRobin,
        now: Instant,
    ) -> bool {
        let blackout = settings.blackout_period();
        let expiration = settings.weight_expiration_period();
        self.own.clear();
        let slots = hosts.clone().map(|(slot, _)| slot);
        self.own
            .extend(slots.map(|slot| slot.if_valid(blackout, expiration, now)));
        self.valid.clear();
        self.valid.extend(self.own.iter().flatten());
        let default = default_weight(&mut self.valid);
        let mut changed = false;
        for ((_, in_force), own) in hosts.zip(&self.own) {
            let weight = own.unwrap_or(default);
            // Relaxed: the balancer is the only writer, and readers need only the number itself.
            changed |= in_force.load(Ordering::Relaxed) != weight;
            in_force.store(weight.max(1), Ordering::Relaxed);
        }
        changed
    }
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and `as` ends at the bounds"
)]
const fn truncated(weight: f64) -> u32 {
    weight as u32
}

#[cfg(test)]
mod tests;
