//! Applies a gRPC service config to a cluster, for `ClientBuilder::service_config`.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::service_config::{GrpcFeatures, parse_service_config};

use crate::error::{BoxError, Error, ErrorKind};

/// Environment variable that enables `metricNamesForComputingUtilization` in service configs (gRFC
/// A114), as in gRPC. Off unless it is `true`.
pub const WRR_CUSTOM_METRICS: &str = "GRPC_EXPERIMENTAL_WRR_CUSTOM_METRICS";

pub(crate) fn features_from_env() -> GrpcFeatures {
    features(|name| std::env::var(name).ok())
}

fn features(lookup: impl Fn(&str) -> Option<String>) -> GrpcFeatures {
    let is_true = |value: String| value.eq_ignore_ascii_case("true");
    GrpcFeatures {
        wrr_custom_metrics: lookup(WRR_CUSTOM_METRICS).is_some_and(is_true),
        _non_exhaustive: (),
    }
}

pub(crate) fn apply(
    config: &ClusterConfig,
    json: &str,
    features: GrpcFeatures,
) -> Result<ClusterConfig, Error> {
    let invalid = |error: BoxError| {
        let message = format!("service config of cluster {}", config.name());
        Error::new(ErrorKind::Config, message).with_source(error)
    };
    let policy = parse_service_config(json, features).map_err(|error| invalid(error.into()))?;
    config
        .with_endpoint_policy(policy.into())
        .map_err(|error| invalid(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_metrics_need_the_environment_variable() {
        let with = |value: Option<&str>| {
            let lookup = |name: &str| {
                assert_eq!(name, "GRPC_EXPERIMENTAL_WRR_CUSTOM_METRICS");
                value.map(str::to_owned)
            };
            features(lookup).wrr_custom_metrics
        };
        assert!(with(Some("true")) && with(Some("TRUE")));
        for other in [None, Some(""), Some("1"), Some("false"), Some("yes")] {
            assert!(!with(other), "{other:?}");
        }
    }
}
