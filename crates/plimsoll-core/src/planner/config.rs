//! [`PlannerConfig`]: the validated settings of a planner, with the source of each default.
//!
//! A control plane builds it from its configuration file; the simulator and tests from
//! [`PlannerConfigParts`] directly.

use std::time::Duration;

use crate::units::{BASIS_POINTS, FieldError};

/// Default time constant of the smoothing of zone sums (decision 0022).
pub const DEFAULT_TAU: Duration = Duration::from_secs(20);
/// Default number of intervals a node may miss before its demand is removed (decision 0022).
pub const DEFAULT_MISSED_INTERVALS: u32 = 3;
/// Default change of a fraction that is worth an update, in basis points.
pub const DEFAULT_MATERIAL_CHANGE_BP: u64 = 50;
/// Default longest time between two updates: a third of the default staleness threshold (0024).
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(20);
/// Default reporting interval that the control plane requests (seed `000…`: 10 to 30 s).
pub const DEFAULT_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time constant; above it a zone would need hours to be believed.
const MAX_TAU: Duration = Duration::from_secs(3600);
/// A third of the largest staleness threshold; slower, every receiver would go stale.
const MAX_HEARTBEAT: Duration = Duration::from_secs(200);
/// Shortest heartbeat; a faster one would flood receivers with updates.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// Upper bound of missed intervals; more would mean "never".
const MAX_MISSED_INTERVALS: u32 = 1000;
/// Report intervals that are believed. Below, a single request looks like a burst; above, the
/// interval does not predict the next report.
pub(super) const PLAUSIBLE_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

/// Settings of a planner, unchecked. `None` stands for the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannerConfigParts {
    /// Time constant of the smoothing of zone sums; default 20 s, above 0, at most an hour.
    pub tau: Option<Duration>,
    /// Intervals a node may miss before its demand is removed; default 3, 1 to 1000.
    pub missed_intervals: Option<u32>,
    /// Change of a fraction that is worth an update; default 50 bp, 1 to 10000.
    pub material_change_bp: Option<u64>,
    /// Longest time between two updates; default 20 s, 100 ms to 200 s. At most a third of the
    /// receivers' staleness threshold (decision 0024).
    pub heartbeat: Option<Duration>,
    /// Interval that the control plane requests; default 10 s, 10 ms to an hour. Applies to a node
    /// until two reports show another, and whenever a report's own interval is implausibly long.
    pub default_report_interval: Option<Duration>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Settings of a planner, checked and with defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannerConfig {
    tau: Duration,
    missed_intervals: u32,
    material_change_bp: u64,
    heartbeat: Duration,
    default_report_interval: Duration,
}

impl PlannerConfig {
    /// Checks the fields and applies the defaults.
    pub fn try_new(parts: PlannerConfigParts) -> Result<Self, FieldError> {
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
        })
    }

    getters! {
        /// Time constant of the smoothing of zone sums.
        tau: Duration,
        /// Intervals a node may miss before its demand is removed.
        missed_intervals: u32,
        /// Change of a fraction that is worth an update, in basis points.
        material_change_bp: u64,
        /// Longest time between two updates.
        heartbeat: Duration,
        /// Reporting interval that the control plane requests.
        default_report_interval: Duration,
    }

    /// Returns the settings with another [`PlannerConfig::default_report_interval`].
    pub fn with_default_report_interval(self, interval: Duration) -> Result<Self, FieldError> {
        Ok(Self {
            default_report_interval: check_report_interval(interval)?,
            ..self
        })
    }

    /// Returns the settings with another [`PlannerConfig::heartbeat`].
    pub fn with_heartbeat(self, heartbeat: Duration) -> Result<Self, FieldError> {
        Ok(Self {
            heartbeat: within("heartbeat", heartbeat, MIN_HEARTBEAT..=MAX_HEARTBEAT)?,
            ..self
        })
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
    use crate::model::zone_aware::ZoneAware;

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
            _non_exhaustive: (),
        })
        .unwrap();
        assert_eq!(config.tau(), Duration::from_nanos(1));
        assert_eq!(
            (config.missed_intervals(), config.material_change_bp()),
            (5, 10_000)
        );
        assert_eq!(config.heartbeat(), Duration::from_secs(200));
        assert_eq!(config.default_report_interval(), Duration::from_millis(10));
    }
}
