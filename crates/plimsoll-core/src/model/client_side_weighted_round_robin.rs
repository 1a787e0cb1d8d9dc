//! `ClientSideWeightedRoundRobin`: hosts weighted by their own load reports (gRFC A58 and A114).
//!
//! This module holds the checked settings, each default with its source.
//! `endpoint_picking::client_side_weighted_round_robin` applies them; `plimsoll-xds` (`orca::oob`)
//! runs the out-of-band streams that [`OobReporting`] describes. Both configuration formats, xDS
//! and gRPC service config, end in [`ClientSideWeightedRoundRobin::try_new`].

use std::sync::Arc;
use std::time::Duration;

use crate::model::endpoint_policy::SlowStart;
use crate::model::orca::{MetricName, UtilizationPrecedence};
use crate::units::FieldError;

/// Default of `oob_reporting_period` (A58): interval of out-of-band reports.
pub const DEFAULT_OOB_REPORTING_PERIOD: Duration = Duration::from_secs(10);
/// Default of `blackout_period` (A58): how long a host must have reported before its weight is
/// used.
pub const DEFAULT_BLACKOUT_PERIOD: Duration = Duration::from_secs(10);
/// Default of `weight_expiration_period` (A58): age at which a weight expires.
pub const DEFAULT_WEIGHT_EXPIRATION_PERIOD: Duration = Duration::from_secs(180);
/// Default of `weight_update_period` (A58): how often weights are recomputed.
pub const DEFAULT_WEIGHT_UPDATE_PERIOD: Duration = Duration::from_secs(1);

/// The message `ClientSideWeightedRoundRobin`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSideWeightedRoundRobin {
    enable_oob_load_report: bool,
    oob_reporting: OobReporting,
    blackout_period: Duration,
    weight_expiration_period: Duration,
    weight_update_period: Duration,
    error_utilization_penalty: f64,
    metric_names: Arc<[MetricName]>,
    utilization_precedence: UtilizationPrecedence,
    slow_start: Option<SlowStart>,
}

/// The fields of `ClientSideWeightedRoundRobin`, unchecked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSideWeightedRoundRobinParts {
    /// Default false: reports arrive with responses.
    pub enable_oob_load_report: bool,
    /// Default 10 s; 0 means the default, as in Envoy.
    pub oob_reporting_period: Option<Duration>,
    pub oob_reporting_config: OobReportingConfig,
    /// Default 10 s; 0 uses the first weight at once.
    pub blackout_period: Option<Duration>,
    /// Default 180 s. 0 is literal: every weight has expired by the next update.
    pub weight_expiration_period: Option<Duration>,
    /// Default 1 s, at least 1 ms. The 100 ms of A58 apply to gRPC service configs only.
    pub weight_update_period: Option<Duration>,
    /// Finite and at least 0. Default 0.0, as Envoy does, although the comment in its proto says
    /// 1.0. The default of A58, 1.0, applies to gRPC service configs only.
    pub error_utilization_penalty: Option<f64>,
    /// Names as in A114; names that no report can have select nothing, as in Envoy.
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Order in which metrics are considered (decision 0025).
    pub utilization_precedence: UtilizationPrecedence,
    pub slow_start: Option<SlowStart>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for ClientSideWeightedRoundRobin {
    fn default() -> Self {
        Self {
            enable_oob_load_report: false,
            oob_reporting: OobReporting::default(),
            blackout_period: DEFAULT_BLACKOUT_PERIOD,
            weight_expiration_period: DEFAULT_WEIGHT_EXPIRATION_PERIOD,
            weight_update_period: DEFAULT_WEIGHT_UPDATE_PERIOD,
            error_utilization_penalty: 0.0,
            metric_names: Arc::default(),
            utilization_precedence: UtilizationPrecedence::default(),
            slow_start: None,
        }
    }
}

impl ClientSideWeightedRoundRobin {
    /// Checks the fields and applies the defaults. Durations are truncated to whole milliseconds,
    /// as in Envoy.
    pub fn try_new(parts: ClientSideWeightedRoundRobinParts) -> Result<Self, FieldError> {
        let or = |period: Option<Duration>, default| period.map_or(default, whole_millis);
        let weight_update_period = or(parts.weight_update_period, DEFAULT_WEIGHT_UPDATE_PERIOD);
        if weight_update_period.is_zero() {
            let reason = "less than 1 ms: weights would be recomputed without a pause";
            return Err(FieldError::new("weight_update_period", reason));
        }
        let penalty = parts.error_utilization_penalty.unwrap_or(0.0);
        if !(penalty.is_finite() && penalty >= 0.0) {
            let reason = format!("{penalty} is not a finite number of at least 0");
            return Err(FieldError::new("error_utilization_penalty", reason));
        }
        let names = parts.metric_names_for_computing_utilization;
        Ok(Self {
            enable_oob_load_report: parts.enable_oob_load_report,
            oob_reporting: OobReporting::try_new(
                parts.oob_reporting_period,
                parts.oob_reporting_config,
            )?,
            blackout_period: or(parts.blackout_period, DEFAULT_BLACKOUT_PERIOD),
            weight_expiration_period: or(
                parts.weight_expiration_period,
                DEFAULT_WEIGHT_EXPIRATION_PERIOD,
            ),
            weight_update_period,
            error_utilization_penalty: penalty,
            metric_names: names.iter().map(|name| MetricName::new(name)).collect(),
            utilization_precedence: parts.utilization_precedence,
            slow_start: parts.slow_start,
        })
    }

    getters! {
        /// Whether load reports are received on out-of-band streams.
        enable_oob_load_report: bool,
        /// How long a host must have reported before its weight is used.
        blackout_period: Duration,
        /// Age at which a weight expires.
        weight_expiration_period: Duration,
        /// How often weights are recomputed; at least 1 ms.
        weight_update_period: Duration,
        /// Utilization added per unit of error rate; finite, at least 0.
        error_utilization_penalty: f64,
        /// Metrics of which the largest is the utilization.
        metric_names: &[MetricName],
        /// Order in which metrics are considered.
        utilization_precedence: UtilizationPrecedence,
        /// Settings of slow start.
        slow_start: Option<&SlowStart>,
    }

    /// Returns the settings of out-of-band reporting; `None` if it is disabled.
    pub fn oob_reporting(&self) -> Option<&OobReporting> {
        self.enable_oob_load_report.then_some(&self.oob_reporting)
    }

    /// Returns the reporting interval used if out-of-band reporting is enabled.
    pub const fn oob_reporting_period(&self) -> Duration {
        self.oob_reporting.period
    }
}

/// The message `common.v3.OrcaOobReportingConfig`, unchecked. It lacks
/// `transport_socket_match_criteria`, which is specific to Envoy's transport sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OobReportingConfig {
    /// Port to dial instead of the host's; 0 = the host's.
    pub port_value: u32,
    /// `:authority` of the stream; empty = derived from the host.
    pub authority: String,
}

/// Settings of out-of-band reporting, checked. `load_aware_locality` has the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobReporting {
    period: Duration,
    port: Option<u16>,
    authority: Option<Arc<str>>,
}

impl Default for OobReporting {
    fn default() -> Self {
        Self {
            period: DEFAULT_OOB_REPORTING_PERIOD,
            port: None,
            authority: None,
        }
    }
}

impl OobReporting {
    /// Checks the settings. An unset `period`, or one below a millisecond, is 10 s (Envoy: a
    /// non-positive period is the default).
    pub fn try_new(
        period: Option<Duration>,
        config: OobReportingConfig,
    ) -> Result<Self, FieldError> {
        let OobReportingConfig {
            port_value,
            authority,
        } = config;
        let Ok(port) = u16::try_from(port_value) else {
            let reason = format!("{port_value} is above 65535");
            return Err(FieldError::new("oob_reporting_config.port_value", reason));
        };
        if !authority.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = format!("{authority:?} has characters that a header cannot carry");
            return Err(FieldError::new("oob_reporting_config.authority", reason));
        }
        Ok(Self {
            period: period
                .map(whole_millis)
                .filter(|period| !period.is_zero())
                .unwrap_or(DEFAULT_OOB_REPORTING_PERIOD),
            port: (port != 0).then_some(port),
            authority: (!authority.is_empty()).then(|| authority.into()),
        })
    }

    /// Merges the settings of two consumers that share one stream per host (decision 0025): the
    /// shorter period, and the port and authority of `self` where it has them.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        Self {
            period: self.period.min(other.period),
            port: self.port.or(other.port),
            authority: self.authority.clone().or_else(|| other.authority.clone()),
        }
    }

    getters! {
        /// Requested interval in whole milliseconds, at least one.
        period: Duration,
        /// Port to dial instead of the host's.
        port: Option<u16>,
        /// `:authority` of every stream, if it is not derived from the host.
        authority: Option<&Arc<str>>,
    }
}

/// Truncates to whole milliseconds, as Envoy reads durations.
pub(super) fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
