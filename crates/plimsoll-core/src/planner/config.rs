//! [`PlannerConfig`]: the settings of a planner, checked once, with the clause each default is
//! from.
//!
//! What the settings do lives in the files that use them. A control plane builds one of these from
//! its configuration file; the simulator and tests from [`PlannerConfigParts`] directly.

use std::time::Duration;

use crate::model::zone_aware::{CapacityBasis, LocalityBasis, ZoneAware, ZoneAwareParts};
use crate::units::{BASIS_POINTS, FieldError};

/// Default time constant of the smoothing of zone sums (decisions D1).
pub const DEFAULT_TAU: Duration = Duration::from_secs(20);
/// Default number of intervals a node may miss before its demand leaves the sum (decisions D1).
pub const DEFAULT_MISSED_INTERVALS: u32 = 3;
/// Default move of a fraction that is worth an update, in basis points.
pub const DEFAULT_MATERIAL_CHANGE_BP: u64 = 50;
/// Default longest silence between two updates: a third of the default staleness threshold (D3).
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(20);
/// Default of the interval the control plane asks reporters for (seed `000…`: 10 to 30 s).
pub const DEFAULT_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time constant: above it a zone would need hours to be believed.
const MAX_TAU: Duration = Duration::from_secs(3600);
/// A third of the largest staleness threshold: a slower heartbeat could keep no receiver fresh.
const MAX_HEARTBEAT: Duration = Duration::from_secs(200);
/// A faster heartbeat would send updates without end.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// More missed intervals than this is "never".
const MAX_MISSED_INTERVALS: u32 = 1000;
/// Intervals at which reports are taken for what they say. Below, one request is a storm; above,
/// the interval says nothing about when to expect the next report.
pub(super) const PLAUSIBLE_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

/// Settings of a planner, unchecked. `Default` is "everything unset".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannerConfigParts {
    /// Time constant of the smoothing of zone sums; default 20 s, above 0, at most an hour.
    pub tau: Option<Duration>,
    /// Intervals a node may miss before it leaves the sum; default 3, 1 to 1000.
    pub missed_intervals: Option<u32>,
    /// Move of a fraction that is worth an update; default 50 bp, 1 to 10000.
    pub material_change_bp: Option<u64>,
    /// Longest silence between two updates; default 20 s, 100 ms to 200 s. At most a third of the
    /// receivers' staleness threshold (decisions D3).
    pub heartbeat: Option<Duration>,
    /// The interval the control plane asks reporters for; default 10 s, 10 ms to an hour. A node is
    /// held to it until two of its reports have shown another one, and whenever a report's own
    /// interval is too long to be a habit.
    pub default_report_interval: Option<Duration>,
    /// For locality weights: fewer healthy upstream hosts switch zone routing off; default 6
    /// (Envoy).
    pub min_cluster_size: Option<u64>,
    /// For locality weights: what stands for capacity; default host counts (decisions D4).
    pub upstream_locality_basis: CapacityBasis,
}

/// Settings of a planner, checked and with defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannerConfig {
    tau: Duration,
    missed_intervals: u32,
    material_change_bp: u64,
    heartbeat: Duration,
    default_report_interval: Duration,
    zone_aware: ZoneAware,
}

impl PlannerConfig {
    /// Checks the fields and applies the defaults.
    pub fn try_new(parts: PlannerConfigParts) -> Result<Self, FieldError> {
        let zone_aware = ZoneAware::try_new(ZoneAwareParts {
            locality_basis: LocalityBasis::LrsReportedRate,
            min_cluster_size: parts.min_cluster_size,
            upstream_locality_basis: parts.upstream_locality_basis,
            // A band guards a proxy against flipping its state. Weights have no state: at the edge
            // of Direct the spill is next to nothing, and grows from there without a step.
            dead_band_bp: Some(0),
            ..Default::default()
        })?;
        Ok(Self {
            tau: within(
                "tau",
                parts.tau.unwrap_or(DEFAULT_TAU),
                Duration::from_nanos(1)..=MAX_TAU,
            )?,
            missed_intervals: within(
                "missed_intervals",
                parts.missed_intervals.unwrap_or(DEFAULT_MISSED_INTERVALS),
                1..=MAX_MISSED_INTERVALS,
            )?,
            material_change_bp: within(
                "material_change_bp",
                parts
                    .material_change_bp
                    .unwrap_or(DEFAULT_MATERIAL_CHANGE_BP),
                1..=BASIS_POINTS,
            )?,
            heartbeat: within(
                "heartbeat",
                parts.heartbeat.unwrap_or(DEFAULT_HEARTBEAT),
                MIN_HEARTBEAT..=MAX_HEARTBEAT,
            )?,
            default_report_interval: check_report_interval(
                parts
                    .default_report_interval
                    .unwrap_or(DEFAULT_REPORT_INTERVAL),
            )?,
            zone_aware,
        })
    }

    /// Time constant of the smoothing of zone sums.
    pub const fn tau(&self) -> Duration {
        self.tau
    }

    /// Intervals a node may miss before it leaves the sum.
    pub const fn missed_intervals(&self) -> u32 {
        self.missed_intervals
    }

    /// Move of a fraction that is worth an update, basis points.
    pub const fn material_change_bp(&self) -> u64 {
        self.material_change_bp
    }

    /// Longest silence between two updates.
    pub const fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// The interval the control plane asks reporters for.
    pub const fn default_report_interval(&self) -> Duration {
        self.default_report_interval
    }

    /// The same with another [`PlannerConfig::default_report_interval`].
    pub fn with_default_report_interval(self, interval: Duration) -> Result<Self, FieldError> {
        Ok(Self {
            default_report_interval: check_report_interval(interval)?,
            ..self
        })
    }

    /// The same with another [`PlannerConfig::heartbeat`].
    pub fn with_heartbeat(self, heartbeat: Duration) -> Result<Self, FieldError> {
        Ok(Self {
            heartbeat: within("heartbeat", heartbeat, MIN_HEARTBEAT..=MAX_HEARTBEAT)?,
            ..self
        })
    }

    /// The rules by which locality weights are computed.
    pub const fn zone_aware(&self) -> &ZoneAware {
        &self.zone_aware
    }
}

impl Default for PlannerConfig {
    fn default() -> Self {
        Self::try_new(PlannerConfigParts::default()).expect("every default is inside its range")
    }
}

fn check_report_interval(interval: Duration) -> Result<Duration, FieldError> {
    within("default_report_interval", interval, PLAUSIBLE_INTERVAL)
}

fn within<T: PartialOrd + Copy + std::fmt::Debug>(
    field: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, FieldError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = (range.start(), range.end());
    Err(FieldError::new(
        field,
        format!("{value:?} is outside {low:?} to {high:?}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut PlannerConfigParts)) -> FieldError {
        let mut parts = PlannerConfigParts::default();
        change(&mut parts);
        PlannerConfig::try_new(parts).unwrap_err()
    }

    #[test]
    fn defaults_are_those_of_the_decisions() {
        let config = PlannerConfig::default();
        assert_eq!(config.tau(), Duration::from_secs(20));
        assert_eq!(config.missed_intervals(), 3);
        assert_eq!(config.material_change_bp(), 50);
        let threshold = ZoneAware::default().staleness_threshold();
        assert_eq!(config.heartbeat(), threshold / 3);
        assert_eq!(config.default_report_interval(), Duration::from_secs(10));
        assert_eq!(config.zone_aware().min_cluster_size(), 6);
        assert_eq!(config.zone_aware().dead_band().get(), 0);
        assert_eq!(
            config.zone_aware().locality_basis(),
            LocalityBasis::LrsReportedRate
        );
    }

    #[test]
    fn what_is_out_of_range_names_its_field() {
        let zero = Some(Duration::ZERO);
        let hours = Some(Duration::from_secs(7200));
        for tau in [zero, hours] {
            assert_eq!(error(|parts| parts.tau = tau).path(), "tau");
        }
        for heartbeat in [zero, Some(Duration::from_secs(201))] {
            assert_eq!(
                error(|parts| parts.heartbeat = heartbeat).path(),
                "heartbeat"
            );
        }
        for interval in [zero, hours] {
            let error = error(|parts| parts.default_report_interval = interval);
            assert_eq!(error.path(), "default_report_interval");
        }
        for missed in [0, 1001] {
            let error = error(|parts| parts.missed_intervals = Some(missed));
            assert_eq!(error.path(), "missed_intervals");
        }
        let error = error(|parts| parts.material_change_bp = Some(0));
        assert_eq!(
            error.to_string(),
            "material_change_bp: 0 is outside 1 to 10000"
        );
    }

    #[test]
    fn what_is_set_is_kept() {
        let config = PlannerConfig::try_new(PlannerConfigParts {
            tau: Some(Duration::from_nanos(1)),
            missed_intervals: Some(5),
            material_change_bp: Some(10_000),
            heartbeat: Some(Duration::from_secs(200)),
            default_report_interval: Some(Duration::from_millis(10)),
            min_cluster_size: Some(1),
            upstream_locality_basis: CapacityBasis::HealthyHostsWeight,
        })
        .unwrap();
        assert_eq!(config.tau(), Duration::from_nanos(1));
        assert_eq!(
            (config.missed_intervals(), config.material_change_bp()),
            (5, 10_000)
        );
        assert_eq!(config.heartbeat(), Duration::from_secs(200));
        assert_eq!(config.default_report_interval(), Duration::from_millis(10));
        assert_eq!(config.zone_aware().min_cluster_size(), 1);
        assert_eq!(
            config.zone_aware().upstream_locality_basis(),
            CapacityBasis::HealthyHostsWeight
        );
    }
}
