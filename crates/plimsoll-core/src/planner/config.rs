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
/// Default multiple of the fleet's median rate that one node counts with at most (decision 0032).
pub const DEFAULT_MAX_TIMES_MEDIAN: u32 = 20;
/// Default time that the zeros of an idle node count without another report. gRPC clients
/// report zeros once and then nothing until there is traffic again, so a short time would make
/// their zone unknown; with no end, a peer that holds a stream open keeps a zone at zero.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Default limit of upstream clusters of one fleet whose demand is kept apart.
pub const DEFAULT_MAX_UPSTREAM_CLUSTERS: usize = 4096;
/// Default reporting interval that the control plane requests (seed `000…`: 10 to 30 s).
pub const DEFAULT_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time constant; above it a change of demand would need hours to count.
const MAX_TAU: Duration = Duration::from_secs(3600);
/// A third of the largest staleness threshold; slower, every receiver would go stale.
const MAX_HEARTBEAT: Duration = Duration::from_secs(200);
/// Shortest heartbeat; a faster one would flood receivers with updates.
pub(super) const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// Upper bound of missed intervals; more would mean "never".
const MAX_MISSED_INTERVALS: u32 = 1000;
/// Range of the multiple of the median: below 2, ordinary differences between proxies would be cut;
/// above, nothing would be.
const MAX_TIMES_MEDIAN: std::ops::RangeInclusive<u32> = 2..=1_000_000;
/// Range of the time for idle nodes. Below, a node would be forgotten between two reports.
const IDLE_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(86_400);
/// Range of the limit of upstream clusters.
const MAX_UPSTREAM_CLUSTERS: std::ops::RangeInclusive<usize> = 1..=1_000_000;
/// Report intervals that are accepted. Below, a single request looks like a burst; above, the
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
    /// Multiple of the median rate of a fleet's nodes that one node counts with at most, from three
    /// nodes with demand on; default 20, 2 to 1000000 (decision 0032).
    pub max_times_median: Option<u32>,
    /// How long zeros count without another report while the stream of the node is open;
    /// default an hour, 1 s to a day (decision 0032).
    pub idle_timeout: Option<Duration>,
    /// Upstream clusters of one fleet whose demand is kept apart; default 4096, 1 to 1000000.
    pub max_upstream_clusters: Option<usize>,
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
    max_times_median: u32,
    idle_timeout: Duration,
    max_upstream_clusters: usize,
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
            max_times_median: within(
                "max_times_median",
                parts.max_times_median.unwrap_or(DEFAULT_MAX_TIMES_MEDIAN),
                MAX_TIMES_MEDIAN,
            )?,
            idle_timeout: within(
                "idle_timeout",
                parts.idle_timeout.unwrap_or(DEFAULT_IDLE_TIMEOUT),
                IDLE_TIMEOUT,
            )?,
            max_upstream_clusters: within(
                "max_upstream_clusters",
                parts
                    .max_upstream_clusters
                    .unwrap_or(DEFAULT_MAX_UPSTREAM_CLUSTERS),
                MAX_UPSTREAM_CLUSTERS,
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
        /// Multiple of the median rate of a fleet's nodes that one node counts with at most.
        max_times_median: u32,
        /// How long zeros count without another report.
        idle_timeout: Duration,
        /// Upstream clusters of one fleet whose demand is kept apart.
        max_upstream_clusters: usize,
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
        assert_eq!(config.max_times_median(), 20);
        assert_eq!(config.idle_timeout(), Duration::from_secs(3600));
        assert_eq!(config.max_upstream_clusters(), 4096);
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
        for times in [1, 1_000_001] {
            let error = error(|parts| parts.max_times_median = Some(times));
            assert_eq!(error.path(), "max_times_median");
        }
        for timeout in [zero, Some(Duration::from_secs(86_401))] {
            let error = error(|parts| parts.idle_timeout = timeout);
            assert_eq!(error.path(), "idle_timeout");
        }
        for clusters in [0, 1_000_001] {
            let error = error(|parts| parts.max_upstream_clusters = Some(clusters));
            assert_eq!(error.path(), "max_upstream_clusters");
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
            max_times_median: Some(2),
            idle_timeout: Some(Duration::from_secs(1)),
            max_upstream_clusters: Some(1),
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
        assert_eq!(config.max_times_median(), 2);
        assert_eq!(config.idle_timeout(), Duration::from_secs(1));
        assert_eq!(config.max_upstream_clusters(), 1);
    }
}
