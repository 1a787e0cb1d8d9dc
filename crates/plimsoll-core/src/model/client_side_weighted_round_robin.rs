//! `ClientSideWeightedRoundRobin`: hosts weighted by their own load reports (gRFC A58 and A114).
//!
//! Here live the checked settings, each default with its clause. The rules they drive live in
//! `endpoint_picking::client_side_weighted_round_robin`; the out-of-band streams that
//! [`OobReporting`] describes are run by `plimsoll-xds` (`orca::oob`). Both ways to configure, xDS
//! and gRPC service config, end in [`ClientSideWeightedRoundRobin::try_new`].

use std::sync::Arc;
use std::time::Duration;

use crate::model::endpoint_policy::SlowStart;
use crate::model::orca::{MetricName, UtilizationPrecedence};
use crate::units::FieldError;

/// Interval asked of a host when none is configured (A58 `oob_reporting_period`).
pub const DEFAULT_OOB_REPORTING_PERIOD: Duration = Duration::from_secs(10);
/// How long a host must have reported before its weight counts (A58 `blackout_period`).
pub const DEFAULT_BLACKOUT_PERIOD: Duration = Duration::from_secs(10);
/// Age at which a weight is forgotten (A58 `weight_expiration_period`).
pub const DEFAULT_WEIGHT_EXPIRATION_PERIOD: Duration = Duration::from_secs(180);
/// How often weights are recomputed (A58 `weight_update_period`).
pub const DEFAULT_WEIGHT_UPDATE_PERIOD: Duration = Duration::from_secs(1);

/// `ClientSideWeightedRoundRobin`, checked.
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
    /// Default false: reports ride on responses.
    pub enable_oob_load_report: bool,
    /// Default 10 s; 0 means the default, as in Envoy.
    pub oob_reporting_period: Option<Duration>,
    /// Where and as whom to dial; read only while out-of-band reporting is enabled.
    pub oob_reporting_config: OobReportingConfig,
    /// Default 10 s; 0 uses the first weight at once.
    pub blackout_period: Option<Duration>,
    /// Default 180 s. 0 is taken at its word: every weight has expired by the next tick.
    pub weight_expiration_period: Option<Duration>,
    /// Default 1 s, at least 1 ms. The floor of 100 ms that A58 has is applied by the reader of
    /// gRPC service configs; Envoy has none.
    pub weight_update_period: Option<Duration>,
    /// Finite and at least 0. Default 0.0: what Envoy does, although the comment in its proto says
    /// 1.0. The default of A58, 1.0, is set by the reader of gRPC service configs.
    pub error_utilization_penalty: Option<f64>,
    /// Names as in A114; those that no report can have select nothing, as in Envoy.
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Which utilization wins when a report has several (decisions D6).
    pub utilization_precedence: UtilizationPrecedence,
    /// Raise new hosts slowly.
    pub slow_start: Option<SlowStart>,
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
    /// Checks the fields and applies the defaults. Durations are cut to whole milliseconds, as
    /// Envoy reads them.
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

    /// Whether hosts are asked for reports on a stream of their own.
    pub const fn enable_oob_load_report(&self) -> bool {
        self.enable_oob_load_report
    }

    /// How to ask hosts out of band; `None` while that is not enabled.
    pub fn oob_reporting(&self) -> Option<&OobReporting> {
        self.enable_oob_load_report.then_some(&self.oob_reporting)
    }

    /// Interval asked of hosts when out-of-band reporting is enabled.
    pub const fn oob_reporting_period(&self) -> Duration {
        self.oob_reporting.period
    }

    /// How long a host must have reported before its weight counts.
    pub const fn blackout_period(&self) -> Duration {
        self.blackout_period
    }

    /// Age at which a weight is forgotten.
    pub const fn weight_expiration_period(&self) -> Duration {
        self.weight_expiration_period
    }

    /// How often weights are recomputed; at least 1 ms.
    pub const fn weight_update_period(&self) -> Duration {
        self.weight_update_period
    }

    /// Utilization added per unit of error rate; finite, at least 0.
    pub const fn error_utilization_penalty(&self) -> f64 {
        self.error_utilization_penalty
    }

    /// The metrics whose largest value is the utilization.
    pub fn metric_names(&self) -> &[MetricName] {
        &self.metric_names
    }

    /// Which utilization wins when a report has several.
    pub const fn utilization_precedence(&self) -> UtilizationPrecedence {
        self.utilization_precedence
    }

    /// Settings of slow start.
    pub const fn slow_start(&self) -> Option<&SlowStart> {
        self.slow_start.as_ref()
    }
}

/// `common.v3.OrcaOobReportingConfig`, unchecked. `transport_socket_match_criteria` is not here:
/// transport sockets are Envoy's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OobReportingConfig {
    /// Port to dial instead of the host's; 0 is the host's.
    pub port_value: u32,
    /// `:authority` of the stream; empty is derived from the host.
    pub authority: String,
}

/// How hosts are asked for out-of-band reports, checked. Load-aware locality has the same fields.
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
    /// `period` unset or shorter than a millisecond is 10 s (Envoy: a non-positive period is the
    /// default).
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
        let period = period.map(whole_millis).filter(|period| !period.is_zero());
        Ok(Self {
            period: period.unwrap_or(DEFAULT_OOB_REPORTING_PERIOD),
            port: (port != 0).then_some(port),
            authority: (!authority.is_empty()).then(|| authority.into()),
        })
    }

    /// One stream for two consumers of the same hosts (decisions D6): the shorter period, and the
    /// first one's port and authority where it has them.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> Self {
        Self {
            period: self.period.min(other.period),
            port: self.port.or(other.port),
            authority: self.authority.clone().or_else(|| other.authority.clone()),
        }
    }

    /// Interval to ask for: whole milliseconds, at least one.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Port to dial instead of the host's.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// `:authority` of every stream, instead of what is derived from the host.
    pub const fn authority(&self) -> Option<&Arc<str>> {
        self.authority.as_ref()
    }
}

/// Durations as Envoy reads them: what is left of a millisecond does not count.
pub(super) fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
