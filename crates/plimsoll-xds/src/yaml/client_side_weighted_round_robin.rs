//! `client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin` in Envoy's YAML shape.
//!
//! Only names live here; defaults and ranges are those of the core's type of the same name. The
//! gRPC spelling of the same settings is read in `service_config`. Called for the `typed_config` of
//! a policy.

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReportingConfig,
};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::endpoint::{SlowStartConfig, Typed, locality, slow_start};
use super::locality::LocalityLbConfig;
use super::proto_json::{Double, Ignored, Named, ProtoDuration, ProtoEnum, Uint};

/// `client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin`. Checked by `try_into`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ClientSideWeightedRoundRobinYaml {
    /// Ask hosts for reports on a stream of their own instead of reading those of responses.
    enable_oob_load_report: bool,
    /// How often, then; `0s` is the default. Default `10s`.
    oob_reporting_period: Option<ProtoDuration>,
    /// How long a host must have reported before its weight counts. Default `10s`.
    blackout_period: Option<ProtoDuration>,
    /// Age at which a weight is forgotten. Default `180s`.
    weight_expiration_period: Option<ProtoDuration>,
    /// How often weights are computed, at least 0.001s. Default `1s`.
    weight_update_period: Option<ProtoDuration>,
    /// Utilization that is added per unit of error rate, at least 0. Default 0.
    error_utilization_penalty: Option<Double>,
    /// Metrics that tell utilization, such as `named_metrics.foo`; the largest counts.
    metric_names_for_computing_utilization: Vec<String>,
    /// Raise new hosts slowly.
    slow_start_config: Option<SlowStartConfig>,
    /// Where reports are asked for.
    oob_reporting_config: OrcaOobReportingConfig,
    /// Ours: which metric wins when a report has both. Default `APPLICATION_FIRST`.
    utilization_precedence: Named<UtilizationPrecedence>,
    /// Ours: how a locality is chosen, as in the other policies. Envoy's message has no such field.
    locality_lb_config: Option<LocalityLbConfig>,
}

impl ClientSideWeightedRoundRobinYaml {
    /// The policy and its choice of a locality; the path of an error starts inside the message.
    pub(super) fn checked(mut self) -> Result<Typed, FieldError> {
        let locality = locality(self.locality_lb_config.take())?;
        let policy = EndpointPolicy::ClientSideWeightedRoundRobin(self.try_into()?);
        Ok((policy, locality))
    }
}

/// `common.v3.OrcaOobReportingConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct OrcaOobReportingConfig {
    /// Port to ask instead of the host's; 0 is the host's.
    port_value: Uint<u32>,
    /// `:authority` of the stream; empty is that of the host.
    authority: String,
    /// Refused: it selects a transport socket of Envoy.
    transport_socket_match_criteria: Option<Ignored>,
}

impl TryFrom<ClientSideWeightedRoundRobinYaml> for ClientSideWeightedRoundRobin {
    type Error = FieldError;

    /// The path of an error starts inside the message.
    fn try_from(yaml: ClientSideWeightedRoundRobinYaml) -> Result<Self, FieldError> {
        if yaml.locality_lb_config.is_some() {
            let reason = "is not a setting of the endpoint policy";
            return Err(FieldError::new("locality_lb_config", reason));
        }
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
    /// The fields; paths of errors start at the policy.
    pub(super) fn unchecked(self) -> Result<OobReportingConfig, FieldError> {
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
