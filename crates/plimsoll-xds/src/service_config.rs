//! gRPC service config JSON: which policy `loadBalancingConfig` asks for (gRFCs A24, A58, A114).
//!
//! The same settings in xDS spelling are read in `yaml`; both end in the core's checked types.
//! Where the two worlds have different defaults this file applies those of gRPC. Nothing reads the
//! environment here: whoever calls (`ClientBuilder::service_config` of plimsoll-client) passes what
//! it found there as [`GrpcFeatures`].
//!
//! The first policy of the list that is supported wins, and the ones behind it are checked all the
//! same. gRPC ignores fields that it does not know; here they are errors, because a misspelt one
//! would be silently without effect. JSON is read by the reader of `yaml`, which takes it as the
//! subset of YAML that it is and knows lines and columns.

use std::fmt;
use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, RoundRobin};
use plimsoll_core::units::FieldError;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::yaml::proto_json::{Double, Empty, ProtoDuration};
use crate::yaml::{ConfigError, Document};

/// Shortest `weightUpdatePeriod`; shorter ones are raised to it (A58). Envoy has no such floor.
const SHORTEST_WEIGHT_UPDATE_PERIOD: Duration = Duration::from_millis(100);

/// `errorUtilizationPenalty` when it is not set (A58). Envoy's is 0.0.
const DEFAULT_ERROR_UTILIZATION_PENALTY: f64 = 1.0;

/// Policies we have, for error messages.
const SUPPORTED: &str = "weighted_round_robin, round_robin";

/// Features that gRPC guards with environment variables; off unless the caller says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcFeatures {
    /// `GRPC_EXPERIMENTAL_WRR_CUSTOM_METRICS` is `true`: `metricNamesForComputingUtilization` is
    /// honoured (A114). Otherwise the field is accepted and has no effect.
    pub wrr_custom_metrics: bool,
}

/// The policy that a service config chose.
#[derive(Clone, Debug, PartialEq)]
pub enum ServicePolicy {
    /// `round_robin`.
    RoundRobin,
    /// `weighted_round_robin`.
    WeightedRoundRobin(ClientSideWeightedRoundRobin),
}

impl From<ServicePolicy> for EndpointPolicy {
    fn from(policy: ServicePolicy) -> Self {
        match policy {
            ServicePolicy::RoundRobin => Self::RoundRobin(RoundRobin::default()),
            ServicePolicy::WeightedRoundRobin(settings) => {
                Self::ClientSideWeightedRoundRobin(settings)
            }
        }
    }
}

/// Reads a service config.
///
/// ```
/// use plimsoll_xds::service_config::{GrpcFeatures, ServicePolicy, parse_service_config};
///
/// let text = r#"{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "5s"}}]}"#;
/// let policy = parse_service_config(text, GrpcFeatures::default()).unwrap();
/// let ServicePolicy::WeightedRoundRobin(settings) = policy else { panic!("{policy:?}") };
/// assert_eq!(settings.blackout_period().as_secs(), 5);
/// assert_eq!(settings.error_utilization_penalty(), 1.0);
/// ```
pub fn parse_service_config(
    text: &str,
    features: GrpcFeatures,
) -> Result<ServicePolicy, ConfigError> {
    let document = Document::parse(text)?;
    let config: ServiceConfig = document.read()?;
    let policy = config.checked(features);
    policy.map_err(|error| document.locate(error))
}

/// `grpc.service_config.ServiceConfig`. Fields besides `load_balancing_config` do not change how
/// hosts are chosen; the deprecated `load_balancing_policy` would, and is used by gRPC only where
/// the other is missing.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct ServiceConfig {
    load_balancing_config: Vec<LoadBalancingConfig>,
    load_balancing_policy: Option<IgnoredAny>,
    method_config: Option<IgnoredAny>,
    retry_throttling: Option<IgnoredAny>,
    health_check_config: Option<IgnoredAny>,
    connection_scaling: Option<IgnoredAny>,
}

/// One entry of the list: a map of one policy's name to its settings.
#[derive(Clone, Debug)]
enum LoadBalancingConfig {
    RoundRobin,
    WeightedRoundRobin(Box<WeightedRoundRobinLbConfig>),
    /// Somebody else may have it.
    Unsupported(String),
}

/// `WeightedRoundRobinLbConfig`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WeightedRoundRobinLbConfig {
    enable_oob_load_report: bool,
    oob_reporting_period: Option<ProtoDuration>,
    blackout_period: Option<ProtoDuration>,
    weight_expiration_period: Option<ProtoDuration>,
    weight_update_period: Option<ProtoDuration>,
    error_utilization_penalty: Option<Double>,
    metric_names_for_computing_utilization: Vec<String>,
}

impl ServiceConfig {
    fn checked(self, features: GrpcFeatures) -> Result<ServicePolicy, FieldError> {
        let (mut first, mut unsupported) = (None, Vec::new());
        for (index, entry) in self.load_balancing_config.into_iter().enumerate() {
            let policy = match entry {
                LoadBalancingConfig::RoundRobin => ServicePolicy::RoundRobin,
                LoadBalancingConfig::WeightedRoundRobin(config) => {
                    let path = format!("load_balancing_config[{index}].weighted_round_robin");
                    let checked = config.checked(features);
                    ServicePolicy::WeightedRoundRobin(checked.map_err(|error| error.under(&path))?)
                }
                LoadBalancingConfig::Unsupported(name) => {
                    unsupported.push(name);
                    continue;
                }
            };
            first = first.or(Some(policy));
        }
        first.ok_or_else(|| {
            let reason = if unsupported.is_empty() {
                "must have at least one policy".to_owned()
            } else {
                let names = unsupported.join(", ");
                format!("none of {names} is supported; supported are {SUPPORTED}")
            };
            FieldError::new("load_balancing_config", reason)
        })
    }
}

impl WeightedRoundRobinLbConfig {
    fn checked(self, features: GrpcFeatures) -> Result<ClientSideWeightedRoundRobin, FieldError> {
        let duration = |value: Option<ProtoDuration>| value.map(|value| value.0);
        let penalty = self.error_utilization_penalty.map(Double::rounded_to_float);
        let mut metric_names = self.metric_names_for_computing_utilization;
        if !features.wrr_custom_metrics {
            metric_names.clear();
        }
        let update = duration(self.weight_update_period);
        ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
            enable_oob_load_report: self.enable_oob_load_report,
            oob_reporting_period: duration(self.oob_reporting_period),
            blackout_period: duration(self.blackout_period),
            weight_expiration_period: duration(self.weight_expiration_period),
            weight_update_period: update.map(|period| period.max(SHORTEST_WEIGHT_UPDATE_PERIOD)),
            error_utilization_penalty: penalty.or(Some(DEFAULT_ERROR_UTILIZATION_PENALTY)),
            metric_names_for_computing_utilization: metric_names,
            ..ClientSideWeightedRoundRobinParts::default()
        })
    }
}

impl<'de> Deserialize<'de> for LoadBalancingConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;

        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = LoadBalancingConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of one policy's name to its settings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let one = "must name exactly one policy";
                let name: String = map.next_key()?.ok_or_else(|| A::Error::custom(one))?;
                let entry = match name.as_str() {
                    "round_robin" => {
                        map.next_value::<Empty>()?;
                        LoadBalancingConfig::RoundRobin
                    }
                    "weighted_round_robin" => {
                        LoadBalancingConfig::WeightedRoundRobin(map.next_value()?)
                    }
                    _ => {
                        map.next_value::<IgnoredAny>()?;
                        LoadBalancingConfig::Unsupported(name)
                    }
                };
                match map.next_key::<String>()? {
                    None => Ok(entry),
                    Some(_) => Err(A::Error::custom(one)),
                }
            }
        }

        deserializer.deserialize_map(EntryVisitor)
    }
}

#[cfg(test)]
mod tests;
