//! Weights from load reports (envoy-semantics §5.2 to §5.4, gRFC A58): one host's report to a
//! weight, how long that weight counts, and what the hosts without one get.
//!
//! [`OrcaWeightSlot`] is the memory of one host, for `host` to hold: any worker writes it when a
//! report arrives, the balancer's tick reads it through [`WeightUpdater`] and sets the weights that
//! schedules use. Once weights are set the policy is plain round robin. Settings live in
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

/// Why a report gives no weight. What the host had before stays in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightError {
    /// `rps_fractional` is missing: zero, negative, NaN or infinite.
    QpsNotPositive,
    /// No utilization and no penalty for errors.
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

/// The weight that a report asks for: requests per second at full utilization, a whole number that
/// may be 0 and ends at `u32::MAX`.
///
/// Errors count as utilization, and the sum must be positive, so that errors alone make a weight
/// (A58 tests the utilization before it adds the penalty). Values that are NaN, infinite, zero or
/// negative are missing (decisions D7).
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

/// The weight of one host and its age: what a slot holds, as plain values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWeight {
    /// Weight of the last valid report.
    pub weight: u32,
    /// First valid report since the host was new or its weight expired; starts the blackout.
    pub non_empty_since: Option<Instant>,
    /// Last valid report.
    pub last_update: Option<Instant>,
}

impl ClientWeight {
    /// Takes the weight of a report that arrived at `now`.
    pub fn on_report(&mut self, weight: u32, now: Instant) {
        self.weight = weight;
        self.last_update = Some(now);
        self.non_empty_since.get_or_insert(now);
    }

    /// The weight, while it counts at `now`. One that has expired starts over: the next valid
    /// report begins a new blackout.
    pub fn if_valid(
        &mut self,
        blackout: Duration,
        expiration: Duration,
        now: Instant,
    ) -> Option<u32> {
        match self.standing(blackout, expiration, now) {
            Standing::Valid(weight) => Some(weight),
            Standing::Blackout => None,
            Standing::Expired => {
                self.non_empty_since = None;
                None
            }
        }
    }

    /// The rule itself, in the order of envoy-semantics §5.3; both limits still belong to the
    /// valid side. Sums instead of differences, because time may be closer to its origin than a
    /// period.
    fn standing(&self, blackout: Duration, expiration: Duration, now: Instant) -> Standing {
        let reached = |start: Instant, period: Duration| start.saturating_add(period) <= now;
        let Some(since) = self.non_empty_since else {
            return Standing::Blackout;
        };
        if !reached(since, blackout) {
            return Standing::Blackout;
        }
        let fresh = |last: Instant| last.saturating_add(expiration) >= now;
        match self.last_update {
            Some(last) if fresh(last) => Standing::Valid(self.weight),
            _ => Standing::Expired,
        }
    }
}

/// What a stored weight is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was ever reported, or not for long enough.
    Blackout,
    /// The last report is too old.
    Expired,
    /// The weight counts.
    Valid(u32),
}

/// The weight of hosts that have none of their own: the median of those that have, 1 if nobody has.
/// The list is reordered.
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

/// Sets the weights of one priority's hosts. Keeps its lists from tick to tick.
#[derive(Debug, Default)]
pub struct WeightUpdater {
    own: Vec<Option<u32>>,
    valid: Vec<u32>,
}

impl WeightUpdater {
    /// Gives every host its own weight or else the default one, and tells whether any differed from
    /// what it had, so that schedules must be rebuilt. `hosts` are **all** hosts of one priority,
    /// each with its slot and the weight that schedules read.
    ///
    /// To be called every `weight_update_period` and after every change of the hosts. As in Envoy
    /// a schedule's weight is at least 1, but a reported 0 takes part in the median and counts as
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
            // One writer (the balancer); readers only want the number itself.
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
