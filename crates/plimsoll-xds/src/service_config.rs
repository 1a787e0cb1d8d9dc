//! Load-balancing policy of a gRPC service config (gRFCs A24, A58, A114).
//!
//! `yaml` reads the same settings in xDS spelling. Where defaults differ, this module applies those
//! of gRPC. The caller reads the environment and passes [`GrpcFeatures`].
//!
//! The first supported policy wins, and the policies after it are checked too. Unlike in gRPC,
//! unknown fields are errors, because a misspelled one would silently have no effect.

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

/// Lower bound of `weightUpdatePeriod` (A58). Envoy has none.
const SHORTEST_WEIGHT_UPDATE_PERIOD: Duration = Duration::from_millis(100);

/// Default of `errorUtilizationPenalty` (A58). Envoy's is 0.0.
const DEFAULT_ERROR_UTILIZATION_PENALTY: f64 = 1.0;

const SUPPORTED: &str = "weighted_round_robin, round_robin";

/// Features that gRPC guards with environment variables; off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcFeatures {
    /// `GRPC_EXPERIMENTAL_WRR_CUSTOM_METRICS` is `true`: `metricNamesForComputingUtilization` is
    /// honored (A114). Otherwise the field is accepted and has no effect.
    pub wrr_custom_metrics: bool,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Load-balancing policy of a service config.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServicePolicy {
    RoundRobin,
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

/// Parses a service config and returns its policy.
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

/// Only `load_balancing_config` affects load balancing; gRPC uses the deprecated
/// `load_balancing_policy` only if `load_balancing_config` is missing.
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

/// Entry of `load_balancing_config`: a map from one policy name to its settings.
#[derive(Clone, Debug)]
enum LoadBalancingConfig {
    RoundRobin,
    WeightedRoundRobin(Box<WeightedRoundRobinLbConfig>),
    /// Name of a policy that only other clients support.
    Unsupported(String),
}

/// JSON shape of `WeightedRoundRobinLbConfig`.
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
