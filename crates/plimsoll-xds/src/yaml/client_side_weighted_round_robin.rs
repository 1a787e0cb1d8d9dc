//! `client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin` in Envoy's YAML shape.
//!
//! Only names live here; defaults and ranges are those of the core's type of the same name. The
//! gRPC spelling of the same settings is read in `service_config`. Called for the `typed_config` of
//! a policy.

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReportingConfig,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::endpoint::{SlowStartConfig, slow_start};
use super::proto_json::{Double, Named, ProtoDuration, ProtoEnum, Uint};

/// The message, unchecked: becomes [`ClientSideWeightedRoundRobin`] with `try_into`. The last field
/// is ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSideWeightedRoundRobinYaml {
    enable_oob_load_report: bool,
    oob_reporting_period: Option<ProtoDuration>,
    blackout_period: Option<ProtoDuration>,
    weight_expiration_period: Option<ProtoDuration>,
    weight_update_period: Option<ProtoDuration>,
    error_utilization_penalty: Option<Double>,
    metric_names_for_computing_utilization: Vec<String>,
    slow_start_config: Option<SlowStartConfig>,
    oob_reporting_config: OrcaOobReportingConfig,
    utilization_precedence: Named<UtilizationPrecedence>,
}

/// `common.v3.OrcaOobReportingConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OrcaOobReportingConfig {
    port_value: Uint<u32>,
    authority: String,
    transport_socket_match_criteria: Option<IgnoredAny>,
}

impl TryFrom<ClientSideWeightedRoundRobinYaml> for ClientSideWeightedRoundRobin {
    type Error = FieldError;

    /// The path of an error starts inside the message.
    fn try_from(yaml: ClientSideWeightedRoundRobinYaml) -> Result<Self, FieldError> {
        let duration = |value: Option<ProtoDuration>| value.map(|value| value.0);
        Self::try_new(ClientSideWeightedRoundRobinParts {
            enable_oob_load_report: yaml.enable_oob_load_report,
            oob_reporting_period: duration(yaml.oob_reporting_period),
            oob_reporting_config: yaml.oob_reporting_config.unchecked()?,
            blackout_period: duration(yaml.blackout_period),
            weight_expiration_period: duration(yaml.weight_expiration_period),
            weight_update_period: duration(yaml.weight_update_period),
            error_utilization_penalty: yaml.error_utilization_penalty.map(Double::rounded_to_float),
            metric_names_for_computing_utilization: yaml.metric_names_for_computing_utilization,
            utilization_precedence: yaml.utilization_precedence.0,
            slow_start: slow_start(yaml.slow_start_config)?,
        })
    }
}

impl OrcaOobReportingConfig {
    fn unchecked(self) -> Result<OobReportingConfig, FieldError> {
        if self.transport_socket_match_criteria.is_some() {
            let reason = "selects one of Envoy's transport sockets; there are none here";
            let path = "oob_reporting_config.transport_socket_match_criteria";
            return Err(FieldError::new(path, reason));
        }
        Ok(OobReportingConfig {
            port_value: self.port_value.0,
            authority: self.authority,
        })
    }
}

impl Double {
    /// The value of a `float` field, which Envoy and gRPC round to a float before they use it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float is what the proto holds"
    )]
    pub(crate) fn rounded_to_float(self) -> f64 {
        f64::from(self.0 as f32)
    }
}

impl ProtoEnum for UtilizationPrecedence {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("APPLICATION_FIRST", 0, Self::ApplicationFirst),
        ("NAMED_METRICS_FIRST", 1, Self::NamedMetricsFirst),
    ];
}

#[cfg(test)]
mod tests;
