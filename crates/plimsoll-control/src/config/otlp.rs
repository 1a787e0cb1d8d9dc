//! [`Otlp`]: where metrics are exported to, beside `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoDuration;
use serde::Deserialize;

use super::security::{RelayTls, RelayTlsYaml};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// An OpenTelemetry collector that metrics are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    pub endpoint: Uri,
    pub interval: Duration,
    /// `None` for plain text.
    pub tls: Option<Arc<RelayTls>>,
}

/// Export of metrics to an OpenTelemetry collector.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct OtlpYaml {
    /// Address of the collector, reached by gRPC: `http://host:port`, or `https://host:port` with
    /// `tls`; usually with port 4317. Must be set.
    endpoint: String,
    /// Certificates for connections to the collector. Required with `https`. The files are watched.
    tls: Option<RelayTlsYaml>,
    /// Interval of exports, 0.1s to 3600s. Default `15s`.
    interval: Option<ProtoDuration>,
}

impl OtlpYaml {
    pub(super) fn validate(&self) -> Result<Otlp, FieldError> {
        let endpoint: Option<Uri> = self.endpoint.parse().ok();
        let usable =
            |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        let Some(endpoint) = endpoint.filter(usable) else {
            let reason = format!(
                "{:?} is neither http://host:port nor https://host:port",
                self.endpoint
            );
            return Err(FieldError::new("endpoint", reason));
        };
        match (endpoint.scheme_str(), &self.tls) {
            (Some("https"), None) => {
                let reason = "https needs tls, with the certificate authorities of the collector";
                return Err(FieldError::new("endpoint", reason));
            }
            (Some("http"), Some(_)) => {
                let reason = "needs an endpoint with https";
                return Err(FieldError::new("tls", reason));
            }
            _ => {}
        }
        let tls = self.tls.as_ref().map(RelayTlsYaml::validate).transpose();
        let tls = tls.map_err(|error| error.under("tls"))?;
        let interval = self
            .interval
            .map_or(DEFAULT_INTERVAL, |interval| interval.0);
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            let reason = format!("{interval:?} is outside {MIN_INTERVAL:?} to 1 h");
            return Err(FieldError::new("interval", reason));
        }
        Ok(Otlp {
            endpoint,
            interval,
            tls: tls.map(Arc::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Otlp, FieldError> {
        let yaml: OtlpYaml = plimsoll_xds::yaml::Document::parse(text)
            .unwrap()
            .read()
            .unwrap();
        yaml.validate()
    }

    #[test]
    fn addresses_are_http_or_https_with_tls() {
        let plain = read("endpoint: 'http://collector:4317'").unwrap();
        assert_eq!((plain.interval, plain.tls), (DEFAULT_INTERVAL, None));
        let tls = "tls: {ca: ca.pem, certificate: c.pem, private_key: k.pem, server_name: x}";
        let secure = read(&format!("{{endpoint: 'https://collector:4317', {tls}}}")).unwrap();
        let settings = secure.tls.unwrap();
        assert_eq!(settings.server_name.as_deref(), Some("x"));
        assert_eq!(settings.settings.files().count(), 3);
        for (wrong, field) in [
            ("endpoint: 'collector:4317'".to_owned(), "endpoint"),
            ("endpoint: '/path'".to_owned(), "endpoint"),
            ("endpoint: ''".to_owned(), "endpoint"),
            ("endpoint: 'https://collector:4317'".to_owned(), "endpoint"),
            (format!("{{endpoint: 'http://collector', {tls}}}"), "tls"),
            (
                "{endpoint: 'https://c', tls: {ca: c.pem, certificate: c.pem}}".to_owned(),
                "tls.certificate",
            ),
        ] {
            assert_eq!(read(&wrong).unwrap_err().path(), field, "{wrong}");
        }
    }
}
