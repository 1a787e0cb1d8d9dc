//! Configuration of `load_aware_locality`: fields, ranges and defaults of seed `001…`
//! (envoy-semantics §4.1), and Plimsoll's extensions (decisions 0025 and 0027).
//!
//! `locality_picking::load_aware_locality` and `locality_picking::convergent` apply the settings.

use std::time::Duration;

use super::client_side_weighted_round_robin::{OobReporting, OobReportingConfig, whole_millis};
use super::orca::{MetricName, UtilizationPrecedence};
use crate::units::FieldError;

/// Routing before the first load report (decision 0025).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdStart {
    /// Everything stays local (pseudocode of the seed, and Envoy).
    #[default]
    Local,
    /// By host counts until the first report from any locality (prose of the seed).
    HostCount,
}

/// Remote localities included in the mean that the local one is compared with (decision 0025).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteMean {
    /// All remote localities; one without reports counts as utilization 0.
    #[default]
    All,
    /// Only remote localities with reports, unless there are none.
    ReportingOnly,
}

/// Algorithm that decides how much is spilled and where (decision 0027).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpillController {
    /// The seed's rule: all stays local within the threshold and spills by headroom beyond it.
    #[default]
    Headroom,
    /// Plimsoll's own controller: converges to steady shares instead of switching.
    Convergent,
}

/// The fields of `LoadAwareLocality`, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAwareLocalityParts {
    /// How often weights are recomputed; default 1 s, at least 100 ms.
    pub weight_update_period: Option<Duration>,
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Default 0.1, 0 to 1.
    pub utilization_variance_threshold: Option<f64>,
    /// Default 5 s, above 0.
    pub smoothing_time_constant: Option<Duration>,
    /// Default 0.03, at least 0 and below 1.
    pub remote_probe_fraction: Option<f64>,
    /// Default 3 minutes; zero disables expiration.
    pub weight_expiration_period: Option<Duration>,
    pub enable_oob_load_report: bool,
    /// Default 10 s, also for 0, as in client-side weighted round robin; out-of-band only.
    pub oob_reporting_period: Option<Duration>,
    pub oob_reporting_config: OobReportingConfig,
    /// Extension: order in which metrics are considered.
    pub utilization_precedence: UtilizationPrecedence,
    /// Extension: routing before the first load report.
    pub cold_start: ColdStart,
    /// Extension: remote localities included in the mean.
    pub remote_mean: RemoteMean,
    /// Extension: algorithm that decides how much is spilled.
    pub spill_controller: SpillController,
    /// Extension: share of requests that always stays local, so that the local hosts keep
    /// reporting. Default 0 for HEADROOM (the seed); CONVERGENT keeps at least 0.03.
    pub local_probe_fraction: Option<f64>,
    /// Extension: measured demand is fed forward to CONVERGENT; default true. Not for HEADROOM.
    pub demand_feed_forward: Option<bool>,
    /// Extension: part of the influence of measured demand that is in force, in percent; default
    /// 100. Not for HEADROOM.
    pub demand_feed_forward_percent: Option<u32>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The message `LoadAwareLocality`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadAwareLocality {
    weight_update_period: Duration,
    metric_names: Vec<MetricName>,
    utilization_variance_threshold: f64,
    alpha: f64,
    smoothing_time_constant: Duration,
    remote_probe_fraction: f64,
    weight_expiration_period: Option<Duration>,
    oob_reporting: Option<OobReporting>,
    utilization_precedence: UtilizationPrecedence,
    cold_start: ColdStart,
    remote_mean: RemoteMean,
    spill_controller: SpillController,
    local_probe_fraction: f64,
    demand_feed_forward_percent: u32,
}

/// CONVERGENT always sends some requests to local hosts so that they keep reporting (the lock-out
/// of loop-quality.md).
pub const CONVERGENT_LOCAL_PROBE: f64 = 0.03;

/// Default of `remote_probe_fraction` (seed `001…`).
pub const DEFAULT_REMOTE_PROBE_FRACTION: f64 = 0.03;

impl LoadAwareLocality {
    /// Checks the fields, in Envoy's order, and applies the defaults. Durations are truncated to
    /// whole milliseconds, as in Envoy.
    pub fn try_new(parts: LoadAwareLocalityParts) -> Result<Self, FieldError> {
        let or = |value: Option<Duration>, default| value.map_or(default, whole_millis);
        let period = or(parts.weight_update_period, Duration::from_secs(1));
        if period < Duration::from_millis(100) {
            let reason = format!("{period:?} is too short: at least 100ms");
            return Err(FieldError::new("weight_update_period", reason));
        }
        let tau = or(parts.smoothing_time_constant, Duration::from_secs(5));
        if tau.is_zero() {
            return Err(FieldError::new(
                "smoothing_time_constant",
                "must be greater than 0",
            ));
        }
        let threshold = fraction(
            parts.utilization_variance_threshold.unwrap_or(0.1),
            "utilization_variance_threshold",
            true,
        )?;
        let probe = fraction(
            parts
                .remote_probe_fraction
                .unwrap_or(DEFAULT_REMOTE_PROBE_FRACTION),
            "remote_probe_fraction",
            false,
        )?;
        let local_floor = match parts.spill_controller {
            SpillController::Headroom => 0.0,
            SpillController::Convergent => CONVERGENT_LOCAL_PROBE,
        };
        let local_probe = fraction(
            parts.local_probe_fraction.unwrap_or(0.0),
            "local_probe_fraction",
            false,
        )?
        .max(local_floor);
        if probe + local_probe > 1.0 {
            let reason =
                format!("{local_probe} and remote_probe_fraction {probe} exceed the whole");
            return Err(FieldError::new("local_probe_fraction", reason));
        }
        let convergent = parts.spill_controller == SpillController::Convergent;
        if parts.demand_feed_forward == Some(true) && !convergent {
            let reason = "needs spill_controller: CONVERGENT";
            return Err(FieldError::new("demand_feed_forward", reason));
        }
        let percent = feed_forward_percent(&parts, convergent)?;
        let expiration = or(parts.weight_expiration_period, Duration::from_secs(180));
        let oob = OobReporting::try_new(parts.oob_reporting_period, parts.oob_reporting_config)?;
        let names = parts.metric_names_for_computing_utilization.iter();
        Ok(Self {
            weight_update_period: period,
            metric_names: names.map(|name| MetricName::new(name)).collect(),
            utilization_variance_threshold: threshold,
            // Computed once, because `exp` may differ in its last bit between platforms.
            alpha: 1.0 - (-millis(period) / 1000.0 / (millis(tau) / 1000.0)).exp(),
            smoothing_time_constant: tau,
            remote_probe_fraction: probe,
            weight_expiration_period: (!expiration.is_zero()).then_some(expiration),
            oob_reporting: parts.enable_oob_load_report.then_some(oob),
            utilization_precedence: parts.utilization_precedence,
            cold_start: parts.cold_start,
            remote_mean: parts.remote_mean,
            spill_controller: parts.spill_controller,
            local_probe_fraction: local_probe,
            demand_feed_forward_percent: percent,
        })
    }

    /// Returns the settings with values that no configuration can have: a smoothing factor instead
    /// of a time constant, a threshold or a probe out of range. Only for test cases taken from
    /// implementations whose own tests bypass the checks.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_unchecked(
        mut self,
        alpha: f64,
        utilization_variance_threshold: f64,
        remote_probe_fraction: f64,
    ) -> Self {
        self.alpha = alpha;
        self.utilization_variance_threshold = utilization_variance_threshold;
        self.remote_probe_fraction = remote_probe_fraction;
        self
    }

    /// Returns the settings with at most `percent` of the influence of measured demand; at 0, host
    /// reports alone decide.
    #[must_use]
    pub fn with_demand_feed_forward(mut self, percent: u32) -> Self {
        self.demand_feed_forward_percent = self.demand_feed_forward_percent.min(percent);
        self
    }

    /// Whether measured demand is fed forward while it is fresh (decision 0027); never with
    /// HEADROOM.
    pub const fn demand_feed_forward(&self) -> bool {
        self.demand_feed_forward_percent > 0
    }

    /// Part of the influence of measured demand that is in force, 0.0 to 1.0.
    pub(crate) fn feed_forward_part(&self) -> f64 {
        f64::from(self.demand_feed_forward_percent) / 100.0
    }

    getters! {
        /// Part of the influence of measured demand that is in force, in percent; 0 = host reports
        /// alone decide, as always with HEADROOM.
        demand_feed_forward_percent: u32,
        /// How often weights are recomputed.
        weight_update_period: Duration,
        /// Metrics from which utilization is computed, resolved.
        metric_names: &[MetricName],
        /// How far above the remote mean the local utilization may be before requests spill.
        utilization_variance_threshold: f64,
        /// Smoothing factor of one update period.
        alpha: f64,
        /// Time constant of the smoothing.
        smoothing_time_constant: Duration,
        /// Minimum share of requests sent to other localities.
        remote_probe_fraction: f64,
        /// Age at which a host's report expires; `None` = never.
        weight_expiration_period: Option<Duration>,
        /// Settings of out-of-band reporting; `None` = in-band reports only.
        oob_reporting: Option<&OobReporting>,
        /// Order in which metrics are considered.
        utilization_precedence: UtilizationPrecedence,
        /// Routing before the first load report.
        cold_start: ColdStart,
        /// Remote localities included in the mean.
        remote_mean: RemoteMean,
        /// Algorithm that decides how much is spilled and where.
        spill_controller: SpillController,
        /// Minimum share of requests that stays local.
        local_probe_fraction: f64,
    }

    /// Returns the out-of-band reporting interval; `None` = in-band reports only.
    pub fn oob_reporting_period(&self) -> Option<Duration> {
        self.oob_reporting.as_ref().map(OobReporting::period)
    }
}

/// Returns the part of the influence of measured demand that is in force, in percent.
fn feed_forward_percent(
    parts: &LoadAwareLocalityParts,
    is_convergent: bool,
) -> Result<u32, FieldError> {
    let error = |reason: String| FieldError::new("demand_feed_forward_percent", reason);
    match parts.demand_feed_forward_percent {
        Some(_) if !is_convergent => Err(error("needs spill_controller: CONVERGENT".to_owned())),
        Some(percent) if percent > 100 => Err(error(format!(
            "{percent} is not a percentage between 0 and 100"
        ))),
        _ if !is_convergent || parts.demand_feed_forward == Some(false) => Ok(0),
        percent => Ok(percent.unwrap_or(100)),
    }
}

/// Converts to whole milliseconds, as Envoy reads durations.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a period")]
fn millis(duration: Duration) -> f64 {
    duration.as_millis() as f64
}

fn fraction(value: f64, field: &str, whole_allowed: bool) -> Result<f64, FieldError> {
    let range = if whole_allowed { "[0, 1]" } else { "[0, 1)" };
    if value >= 0.0 && (value < 1.0 || (whole_allowed && value <= 1.0)) {
        return Ok(value);
    }
    Err(FieldError::new(
        field,
        format!("{value} is outside {range}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(
        change: impl FnOnce(&mut LoadAwareLocalityParts),
    ) -> Result<LoadAwareLocality, FieldError> {
        let mut parts = LoadAwareLocalityParts::default();
        change(&mut parts);
        LoadAwareLocality::try_new(parts)
    }

    #[test]
    fn defaults_are_those_of_the_seed() {
        let settings = checked(|_| ()).unwrap();
        assert_eq!(settings.weight_update_period(), Duration::from_secs(1));
        assert_eq!(settings.alpha(), 0.181_269_246_922_018_18);
        assert_eq!(settings.remote_probe_fraction(), 0.03);
        assert_eq!(
            settings.weight_expiration_period(),
            Some(Duration::from_secs(180))
        );
        assert_eq!(settings.local_probe_fraction(), 0.0);
        assert_eq!(settings.oob_reporting_period(), None);
    }

    #[test]
    fn out_of_band_reports_may_use_another_port() {
        let config = OobReportingConfig {
            port_value: 9001,
            authority: "orca.example".into(),
        };
        let on = |enabled| {
            let config = config.clone();
            checked(|parts| {
                parts.enable_oob_load_report = enabled;
                parts.oob_reporting_config = config;
            })
            .unwrap()
        };
        let settings = on(true);
        let oob = settings.oob_reporting().unwrap();
        assert_eq!(
            (oob.port(), oob.authority().map(|a| &**a)),
            (Some(9001), Some("orca.example"))
        );
        assert_eq!(on(false).oob_reporting(), None);
        let bad = checked(|parts| parts.oob_reporting_config.port_value = 65_536);
        assert_eq!(bad.unwrap_err().path(), "oob_reporting_config.port_value");
    }

    #[test]
    fn out_of_range_values_name_their_field() {
        let path =
            |result: Result<LoadAwareLocality, FieldError>| result.unwrap_err().path().to_owned();
        let short = Some(Duration::from_millis(99));
        assert_eq!(
            path(checked(|p| p.weight_update_period = short)),
            "weight_update_period"
        );
        let zero = Some(Duration::ZERO);
        assert_eq!(
            path(checked(|p| p.smoothing_time_constant = zero)),
            "smoothing_time_constant"
        );
        for bad in [-0.1, 1.1, f64::NAN] {
            let field = "utilization_variance_threshold";
            assert_eq!(
                path(checked(|p| p.utilization_variance_threshold = Some(bad))),
                field
            );
        }
        for bad in [-0.1, 1.0, f64::NAN] {
            assert_eq!(
                path(checked(|p| p.remote_probe_fraction = Some(bad))),
                "remote_probe_fraction"
            );
            assert_eq!(
                path(checked(|p| p.local_probe_fraction = Some(bad))),
                "local_probe_fraction"
            );
        }
        let both = checked(|p| {
            p.remote_probe_fraction = Some(0.6);
            p.local_probe_fraction = Some(0.6);
        });
        assert_eq!(path(both), "local_probe_fraction");
    }

    #[test]
    fn feed_forward_has_one_percentage() {
        let percent = |controller, on, percent| {
            let settings = checked(|p| {
                p.spill_controller = controller;
                (p.demand_feed_forward, p.demand_feed_forward_percent) = (on, percent);
            });
            settings.map(|settings| settings.demand_feed_forward_percent())
        };
        let convergent = |on, part| percent(SpillController::Convergent, on, part);
        assert_eq!(convergent(None, None), Ok(100));
        assert_eq!(convergent(Some(true), Some(1)), Ok(1));
        assert_eq!(convergent(None, Some(0)), Ok(0));
        assert_eq!(convergent(Some(false), Some(50)), Ok(0));
        assert_eq!(percent(SpillController::Headroom, None, None), Ok(0));
        for (controller, bad) in [
            (SpillController::Convergent, 101),
            (SpillController::Headroom, 100),
        ] {
            let error = percent(controller, None, Some(bad)).unwrap_err();
            assert_eq!(error.path(), "demand_feed_forward_percent");
        }
    }

    #[test]
    fn convergent_always_keeps_a_local_probe() {
        let settings = checked(|p| p.spill_controller = SpillController::Convergent).unwrap();
        assert_eq!(settings.local_probe_fraction(), CONVERGENT_LOCAL_PROBE);
    }

    #[test]
    fn a_zero_oob_period_is_the_default() {
        let enabled = |period| {
            let settings = checked(|p| {
                p.enable_oob_load_report = true;
                p.oob_reporting_period = period;
            });
            settings.unwrap().oob_reporting_period()
        };
        let ten = Some(Duration::from_secs(10));
        assert_eq!(enabled(None), ten);
        assert_eq!(enabled(Some(Duration::ZERO)), ten);
        assert_eq!(enabled(Some(Duration::from_micros(999))), ten);
        assert_eq!(
            enabled(Some(Duration::from_micros(2_500))),
            Some(Duration::from_millis(2))
        );
    }

    #[test]
    fn durations_are_truncated_to_milliseconds() {
        let micros = |micros| Some(Duration::from_micros(micros));
        let settings = checked(|p| {
            p.weight_update_period = micros(100_999);
            p.smoothing_time_constant = micros(1_999);
            p.weight_expiration_period = micros(2_001);
        })
        .unwrap();
        let millis = Duration::from_millis;
        assert_eq!(settings.weight_update_period(), millis(100));
        assert_eq!(settings.smoothing_time_constant(), millis(1));
        assert_eq!(settings.weight_expiration_period(), Some(millis(2)));
        let same = checked(|p| {
            p.weight_update_period = micros(100_000);
            p.smoothing_time_constant = micros(1_000);
        });
        assert_eq!(settings.alpha(), same.unwrap().alpha());
        for below in [
            checked(|p| p.weight_update_period = micros(99_999)),
            checked(|p| p.smoothing_time_constant = micros(999)),
        ] {
            assert!(below.is_err());
        }
        let never = checked(|p| p.weight_expiration_period = micros(999)).unwrap();
        assert_eq!(never.weight_expiration_period(), None);
    }

    #[test]
    fn zero_disables_expiration() {
        let never = checked(|p| p.weight_expiration_period = Some(Duration::ZERO)).unwrap();
        assert_eq!(never.weight_expiration_period(), None);
    }
}
