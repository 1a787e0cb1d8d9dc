//! Filter chains of a listener: `filter_chains`, `default_filter_chain` and `listener_filters`.

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::FilterChainConfig;
use super::bootstrap::expect_type;
use super::listener::HttpConnectionManagerYaml;
use super::tls::TransportSocketYaml;
use crate::filter_chain::{FilterChainMatch, FilterChainSelector, TransportProtocol};

const TLS_INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct FilterChainYaml {
    /// Name of the filter chain; has no effect.
    #[serde(rename = "name", default)]
    _name: String,
    /// Connections that use the filter chain. Default all.
    #[serde(default)]
    filter_chain_match: FilterChainMatchYaml,
    /// Network filters; exactly one `HttpConnectionManager`.
    filters: Vec<FilterYaml>,
    /// TLS settings. Default plain text.
    transport_socket: Option<TransportSocketYaml>,
}

/// Connections that use a filter chain (`FilterChainMatch`). The most specific server name decides
/// first, then the transport protocol, then the application protocols.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct FilterChainMatchYaml {
    /// Server names (SNI): exact, or with a wildcard in front, such as `*.example.com`. Default
    /// all.
    server_names: Vec<String>,
    /// `tls` or `raw_buffer`. Default both.
    transport_protocol: String,
    /// ALPN protocols, of which the client offers one, such as `h2`. Default all.
    application_protocols: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FilterYaml {
    /// Name of the filter; has no effect.
    #[serde(rename = "name", default)]
    _name: String,
    /// Type and settings of the filter.
    typed_config: HttpConnectionManagerYaml,
}

/// A listener filter (`ListenerFilter`): only the TLS inspector, which is implied by filter chains
/// that need it.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerFilterYaml {
    /// Name of the filter; has no effect.
    #[serde(rename = "name", default)]
    _name: String,
    /// Type of the filter.
    typed_config: ListenerFilterConfigYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ListenerFilterConfigYaml {
    /// Type of the filter, always
    /// `type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector`.
    #[serde(rename = "@type")]
    type_url: String,
}

/// Checks the listener filters; error paths are relative to the listener.
pub(super) fn check_listener_filters(filters: &[ListenerFilterYaml]) -> Result<(), FieldError> {
    for (index, filter) in filters.iter().enumerate() {
        let path = format!("listener_filters[{index}].typed_config");
        let checked = expect_type(&filter.typed_config.type_url, TLS_INSPECTOR);
        checked.map_err(|error| error.under(&path))?;
    }
    Ok(())
}

/// Validates the filter chains; the default one is the last. Error paths are relative to the
/// listener.
pub(super) fn validate(
    chains: Vec<FilterChainYaml>,
    default: Option<FilterChainYaml>,
) -> Result<(Vec<FilterChainConfig>, FilterChainSelector), FieldError> {
    if chains.is_empty() && default.is_none() {
        return Err(FieldError::new("filter_chains", "must not be empty"));
    }
    let mut matches = Vec::new();
    let mut configs = Vec::new();
    for (index, chain) in chains.into_iter().enumerate() {
        let (criteria, config) = chain
            .validate()
            .map_err(|error| error.under(&format!("filter_chains[{index}]")))?;
        matches.push(criteria);
        configs.push(config);
    }
    let last = default.is_some().then_some(configs.len());
    if let Some(default) = default {
        let (criteria, config) = default
            .validate()
            .map_err(|error| error.under("default_filter_chain"))?;
        if criteria != FilterChainMatch::default() {
            let path = "default_filter_chain.filter_chain_match";
            let reason = "must be empty: it would have no effect";
            return Err(FieldError::new(path, reason));
        }
        configs.push(config);
    }
    Ok((configs, FilterChainSelector::try_new(&matches, last)?))
}

impl FilterChainYaml {
    fn validate(self) -> Result<(FilterChainMatch, FilterChainConfig), FieldError> {
        let criteria = self.filter_chain_match.validate()?;
        let tls = self.transport_socket.map(|socket| {
            let validated = socket.validate();
            validated.map_err(|error| error.under("transport_socket"))
        });
        let count = self.filters.len();
        let mut filters = self.filters.into_iter();
        let (Some(filter), 1) = (filters.next(), count) else {
            let reason = format!("must have exactly one entry, not {count}");
            return Err(FieldError::new("filters", reason));
        };
        let manager = filter.typed_config.validate();
        let mut config = manager.map_err(|error| error.under("filters[0].typed_config"))?;
        config.tls = tls.transpose()?;
        Ok((criteria, config))
    }
}

impl FilterChainMatchYaml {
    fn validate(self) -> Result<FilterChainMatch, FieldError> {
        let transport_protocol = match self.transport_protocol.as_str() {
            "" => None,
            "tls" => Some(TransportProtocol::Tls),
            "raw_buffer" => Some(TransportProtocol::RawBuffer),
            other => {
                let path = "filter_chain_match.transport_protocol";
                let reason = format!("{other:?} is not supported; supported: tls, raw_buffer");
                return Err(FieldError::new(path, reason));
            }
        };
        Ok(FilterChainMatch {
            server_names: self.server_names,
            transport_protocol,
            application_protocols: self.application_protocols,
        })
    }
}
