//! gRPC service configs for clusters of the program: what `ClientBuilder::service_config` does.
//!
//! JSON is read in `plimsoll_xds::service_config`; here it meets the cluster it is for, and the
//! environment variable that guards a part of it.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::service_config::{GrpcFeatures, parse_service_config};

use crate::error::{Error, ErrorKind};

/// The environment variable with which gRPC guards `metricNamesForComputingUtilization` in service
/// configs (gRFC A114). Off unless it is `true`.
pub const WRR_CUSTOM_METRICS: &str = "GRPC_EXPERIMENTAL_WRR_CUSTOM_METRICS";

/// What the environment of this process switches on.
pub(crate) fn features_of_environment() -> GrpcFeatures {
    features(|name| std::env::var(name).ok())
}

fn features(lookup: impl Fn(&str) -> Option<String>) -> GrpcFeatures {
    let is_true = |value: String| value.eq_ignore_ascii_case("true");
    GrpcFeatures {
        wrr_custom_metrics: lookup(WRR_CUSTOM_METRICS).is_some_and(is_true),
    }
}

/// The cluster balanced as `json` says.
pub(crate) fn apply(
    config: &ClusterConfig,
    json: &str,
    features: GrpcFeatures,
) -> Result<ClusterConfig, Error> {
    let policy = parse_service_config(json, features).map_err(|error| {
        let message = format!("service config of {}: {error}", config.name());
        Error::new(ErrorKind::Config, message)
    })?;
    config.with_endpoint_policy(policy.into()).map_err(|error| {
        let message = format!("service config of {}: {error}", config.name());
        Error::new(ErrorKind::Config, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_metrics_are_off_unless_the_environment_says_true() {
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
