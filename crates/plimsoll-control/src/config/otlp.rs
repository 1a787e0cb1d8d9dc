//! [`Otlp`]: where metrics are exported to, beside `/metrics`.

use std::time::Duration;

use http::Uri;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoDuration;
use serde::Deserialize;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// An OpenTelemetry collector that metrics are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    pub endpoint: Uri,
    pub interval: Duration,
}

/// Export of metrics to an OpenTelemetry collector.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct OtlpYaml {
    /// Address of the collector, reached by gRPC without TLS: `http://host:port`, usually with port
    /// 4317. Must be set.
    endpoint: String,
    /// Interval of exports, 0.1s to 3600s. Default `15s`.
    interval: Option<ProtoDuration>,
}

impl OtlpYaml {
    pub(super) fn validate(&self) -> Result<Otlp, FieldError> {
        let endpoint: Option<Uri> = self.endpoint.parse().ok();
        let usable = |uri: &Uri| uri.scheme_str() == Some("http") && uri.host().is_some();
        let Some(endpoint) = endpoint.filter(usable) else {
            let reason = format!("{:?} is not http://host:port", self.endpoint);
            return Err(FieldError::new("endpoint", reason));
        };
        let interval = self
            .interval
            .map_or(DEFAULT_INTERVAL, |interval| interval.0);
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            let reason = format!("{interval:?} is outside {MIN_INTERVAL:?} to 1 h");
            return Err(FieldError::new("interval", reason));
        }
        Ok(Otlp { endpoint, interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_without_tls_are_accepted() {
        let read = |endpoint: &str| {
            let yaml = OtlpYaml {
                endpoint: endpoint.to_owned(),
                interval: None,
            };
            yaml.validate()
        };
        assert_eq!(
            read("http://collector:4317").unwrap().interval,
            DEFAULT_INTERVAL
        );
        for wrong in ["collector:4317", "https://collector:4317", "/path", ""] {
            assert_eq!(read(wrong).unwrap_err().path(), "endpoint", "{wrong}");
        }
    }
}
