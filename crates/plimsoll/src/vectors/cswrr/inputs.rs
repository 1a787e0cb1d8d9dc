//! Inputs of the suite `cswrr` and their translation to core types.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::{
    ClientWeight, OrcaWeightSlot,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReportingConfig,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::time::Instant;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::vectors::CaseError;
use crate::vectors::report::{ReportInput, number};

/// `kind.utilization`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UtilizationInputs {
    pub(super) report: ReportInput,
    #[serde(default)]
    pub(super) metric_names: Vec<String>,
    #[serde(default = "yes")]
    pub(super) named_metrics_first: bool,
}

/// `kind.weight`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WeightInputs {
    pub(super) report: ReportInput,
    #[serde(default)]
    pub(super) metric_names: Vec<String>,
    #[serde(default = "yes")]
    pub(super) named_metrics_first: bool,
    #[serde(default, deserialize_with = "number")]
    pub(super) error_utilization_penalty: f64,
}

/// `kind.report`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportInputs {
    pub(super) report: ReportInput,
    #[serde(default)]
    pub(super) metric_names: Vec<String>,
    #[serde(default = "yes")]
    pub(super) named_metrics_first: bool,
    #[serde(default, deserialize_with = "number")]
    pub(super) error_utilization_penalty: f64,
    pub(super) now_s: Seconds,
    #[serde(default)]
    pub(super) weight: u32,
    pub(super) non_empty_since_s: Option<Seconds>,
    pub(super) last_update_s: Option<Seconds>,
}

/// `kind.validity`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidityInputs {
    #[serde(default = "yes")]
    pub(super) has_data: bool,
    #[serde(default)]
    pub(super) weight: u32,
    pub(super) non_empty_since_s: Option<Seconds>,
    pub(super) last_update_s: Option<Seconds>,
    pub(super) max_non_empty_since_s: Seconds,
    pub(super) min_last_update_s: Seconds,
}

/// `kind.update_weights`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateInputs {
    pub(super) priorities: Vec<Vec<HostInput>>,
    pub(super) now_s: Ticks,
    pub(super) blackout_s: Seconds,
    pub(super) expiration_s: Seconds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostInput {
    #[serde(default = "yes")]
    has_data: bool,
    #[serde(default)]
    weight: u32,
    non_empty_since_s: Option<Seconds>,
    last_update_s: Option<Seconds>,
    /// The balancer's weight before.
    #[serde(default = "one")]
    lb_weight: u32,
}

impl HostInput {
    /// What was reported, and the weight in force.
    pub(super) fn host(&self) -> (OrcaWeightSlot, AtomicU32) {
        let times = (self.non_empty_since_s, self.last_update_s);
        let slot = if self.has_data {
            slot(self.weight, times)
        } else {
            OrcaWeightSlot::default()
        };
        (slot, AtomicU32::new(self.lb_weight))
    }
}

/// One moment or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Ticks {
    One(Seconds),
    Several(Vec<Seconds>),
}

impl Ticks {
    pub(super) fn all(&self) -> &[Seconds] {
        match self {
            Self::One(tick) => std::slice::from_ref(tick),
            Self::Several(ticks) => ticks,
        }
    }
}

/// `kind.config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigInputs {
    pub(super) proto: ProtoInput,
}

/// The message; keys that are left out are unset.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProtoInput {
    enable_oob_load_report: bool,
    oob_reporting_period_ms: Option<i64>,
    oob_reporting_config: OobConfigInput,
    blackout_period_ms: Option<u64>,
    weight_expiration_period_ms: Option<u64>,
    weight_update_period_ms: Option<u64>,
    error_utilization_penalty: Option<f64>,
    metric_names_for_computing_utilization: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OobConfigInput {
    port_value: u32,
    authority: String,
}

impl ProtoInput {
    pub(super) fn parts(self) -> ClientSideWeightedRoundRobinParts {
        let millis = |period: Option<u64>| period.map(Duration::from_millis);
        ClientSideWeightedRoundRobinParts {
            enable_oob_load_report: self.enable_oob_load_report,
            oob_reporting_period: self.oob_reporting_period_ms.map(not_negative_millis),
            oob_reporting_config: OobReportingConfig {
                port_value: self.oob_reporting_config.port_value,
                authority: self.oob_reporting_config.authority,
            },
            blackout_period: millis(self.blackout_period_ms),
            weight_expiration_period: millis(self.weight_expiration_period_ms),
            weight_update_period: millis(self.weight_update_period_ms),
            error_utilization_penalty: self.error_utilization_penalty,
            metric_names_for_computing_utilization: self.metric_names_for_computing_utilization,
            ..ClientSideWeightedRoundRobinParts::default()
        }
    }
}

/// A moment or a duration, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds(pub(super) Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("{seconds} seconds: {error}")))
    }
}

impl Seconds {
    pub(super) fn instant(self) -> Instant {
        Instant::ORIGIN.saturating_add(self.0)
    }
}

/// A moment as cases write it; null is never.
pub(super) fn seconds(moment: Option<Instant>) -> Value {
    let since = moment.map(|moment| moment.saturating_duration_since(Instant::ORIGIN));
    since.map(|since| since.as_secs_f64()).into()
}

/// The settings that decide about a report.
pub(super) fn rules(
    metric_names: Vec<String>,
    named_metrics_first: bool,
    error_utilization_penalty: f64,
) -> Result<ClientSideWeightedRoundRobin, CaseError> {
    let parts = ClientSideWeightedRoundRobinParts {
        error_utilization_penalty: Some(error_utilization_penalty),
        metric_names_for_computing_utilization: metric_names,
        utilization_precedence: if named_metrics_first {
            UtilizationPrecedence::NamedMetricsFirst
        } else {
            UtilizationPrecedence::ApplicationFirst
        },
        ..ClientSideWeightedRoundRobinParts::default()
    };
    Ok(ClientSideWeightedRoundRobin::try_new(parts)?)
}

/// A host's memory: begin of the blackout, then the last update.
pub(super) fn slot(weight: u32, times: (Option<Seconds>, Option<Seconds>)) -> OrcaWeightSlot {
    OrcaWeightSlot::from(ClientWeight {
        weight,
        non_empty_since: times.0.map(Seconds::instant),
        last_update: times.1.map(Seconds::instant),
    })
}

/// Envoy's durations may be negative, ours not: both mean the default.
pub(super) fn not_negative_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}
