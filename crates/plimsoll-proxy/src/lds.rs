//! Listeners of the management server (LDS).
//!
//! A `Listener` message is converted like a listener of the file, with the same strictness: a field
//! that would have no effect is rejected (NACK).
//! `listener_manager` puts listeners into use.

use std::sync::Arc;

use plimsoll_client::Client;
use plimsoll_core::units::FieldError;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::schema::{Described as _, Impact, json, unsupported};
use prost::Message as _;
use serde_json::Value;

use crate::config::ListenerConfig;

/// A listener of the management server.
#[derive(Debug)]
pub(crate) struct DynamicListener {
    /// `None` for the API listener of a gRPC client, which a proxy has no use for.
    pub(crate) config: Option<Arc<ListenerConfig>>,
    /// The message as JSON without private keys, for `/config_dump`.
    pub(crate) json: Value,
}

impl DynamicListener {
    /// Reads a `Listener` message; the error has the path of the field.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let message = ListenerMessage::decode(bytes).map_err(DecodeError::from)?;
        let json = json::message(bytes, ListenerMessage::DESCRIPTOR)?;
        if message.api_listener.is_some() && message.address.is_none() {
            return Ok(Self { config: None, json });
        }
        unsupported::refuse(bytes, ListenerMessage::DESCRIPTOR, Impact::Unused)?;
        let config = Some(Arc::new(ListenerConfig::try_new(message, 0)?));
        Ok(Self { config, json })
    }
}

/// Returns the listeners that the management server has sent, by name.
pub(crate) fn listeners(client: &Client) -> Vec<Arc<ListenerConfig>> {
    let listeners = client.compiled_listeners::<DynamicListener>();
    listeners
        .into_iter()
        .filter_map(|(_, _, listener)| listener.config.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::schema::file::FileMessage;
    use plimsoll_xds::wire::{encode_api_listener, encode_http_listener};
    use plimsoll_xds::yaml::Document;

    use super::*;

    /// Appends a field with the given number and bytes to a message.
    fn with_field(message: &[u8], number: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(value.len()).unwrap();
        [message, &[number << 3 | 2, length], value].concat()
    }

    #[test]
    fn listeners_of_the_control_plane_are_read() {
        let address = "127.0.0.1:8080".parse().unwrap();
        let bytes = encode_http_listener("front", address, "routes", "http");
        let listener = DynamicListener::decode(&bytes).unwrap();
        let config = listener.config.unwrap();
        assert_eq!((&*config.name, config.address), ("front", address));
        assert_eq!(config.chains[0].http.stat_prefix, "http");
        let names: Vec<&str> = config.rds_names().map(|name| &**name).collect();
        assert_eq!(names, ["routes"]);
        assert_eq!(listener.json["name"], "front");
    }

    #[test]
    fn listeners_of_grpc_clients_are_passed_over() {
        let bytes = encode_api_listener("orders", "orders");
        let listener = DynamicListener::decode(&bytes).unwrap();
        assert!(listener.config.is_none());
        assert_eq!(listener.json["name"], "orders");
    }

    #[test]
    fn unsupported_fields_are_rejected_with_their_path() {
        let address = "127.0.0.1:8080".parse().unwrap();
        let bytes = encode_http_listener("front", address, "routes", "http");
        // `transparent`, and an unknown field.
        for (number, path) in [(10, "transparent"), (14, "field 14")] {
            let error = DynamicListener::decode(&with_field(&bytes, number, b"")).unwrap_err();
            assert_eq!(error.path(), path);
            assert!(error.reason().contains("is not supported"), "{error}");
        }
        // A second filter chain without filters.
        let error = DynamicListener::decode(&with_field(&bytes, 3, b"")).unwrap_err();
        assert!(error.path().starts_with("filter_chains"), "{error}");
        let error = DynamicListener::decode(b"\xff").unwrap_err();
        assert_eq!(error.path(), "");
    }

    #[test]
    fn tracing_is_read_as_in_a_file() {
        let listener = |tracing: &str| {
            let text = format!(
                "name: front
address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
filter_chains:
- filters:
  - name: http
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
                 HttpConnectionManager
      stat_prefix: front
      route_config: {{}}
      tracing: {{{tracing}, provider: {{name: t, typed_config: {{'@type': \
                 type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, grpc_service: \
                 {{envoy_grpc: {{cluster_name: c}}}}}}}}}}
"
            );
            let document = Document::parse(&text).unwrap();
            let message: FileMessage<ListenerMessage> = document.read().unwrap();
            DynamicListener::decode(message.bytes())
        };
        let config = listener("random_sampling: {value: 1.5}").unwrap().config;
        let tracing = config.unwrap().chains[0].tracing.clone().unwrap();
        assert_eq!(tracing.sampling.random, 150);
        assert_eq!(tracing.collector.as_ref().unwrap().cluster, "c");
        let error = listener("verbose: true").unwrap_err();
        let path = "filter_chains[0].filters[0].typed_config.tracing.verbose";
        assert_eq!(error.path(), path);
    }
}
