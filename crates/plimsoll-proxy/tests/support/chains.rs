//! Listeners with several filter chains, in flow style.

use std::net::SocketAddr;

pub(crate) const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                                  http_connection_manager.v3.HttpConnectionManager";

/// The TLS inspector as files of Envoy have it.
pub(crate) const INSPECTOR: &str = "listener_filters: [{name: tls_inspector, typed_config: \
    {'@type': type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}\
    }]";

/// A filter chain. `more` has further fields, such as a transport socket.
pub(crate) fn chain(criteria: &str, manager: &str, more: &str) -> String {
    format!("{{filter_chain_match: {{{criteria}}}, {more} filters: [{{typed_config: {manager}}}]}}")
}

/// A connection manager that answers every request with its `stat_prefix`.
pub(crate) fn answer(prefix: &str) -> String {
    format!(
        "{{'@type': {MANAGER}, stat_prefix: {prefix}, route_config: {{virtual_hosts: [{{name: all, \
         domains: ['*'], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200, body: \
         {{inline_string: 'by {prefix}'}}}}}}]}}]}}}}"
    )
}

/// A connection manager whose routes come from RDS.
pub(crate) fn from_rds(prefix: &str, routes: &str) -> String {
    format!(
        "{{'@type': {MANAGER}, stat_prefix: {prefix}, rds: {{route_config_name: {routes}, \
         config_source: {{ads: {{}}, resource_api_version: V3}}}}}}"
    )
}

/// A transport socket with a certificate and its key, inline.
pub(crate) fn tls((certificate, key): &(String, String)) -> String {
    socket(
        &format!("inline_string: {}", serde_json::json!(certificate)),
        &format!("inline_string: {}", serde_json::json!(key)),
    )
}

/// A transport socket with the given sources of certificate and key.
pub(crate) fn socket(certificate: &str, key: &str) -> String {
    format!(
        "transport_socket: {{typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
         transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: {{tls_certificates: \
         [{{certificate_chain: {{{certificate}}}, private_key: {{{key}}}}}]}}}}}},"
    )
}

/// A listener; `more` has further fields.
pub(crate) fn listener(address: SocketAddr, chains: &[String], more: &str) -> String {
    format!(
        "{{name: front, address: {{socket_address: {{address: {}, port_value: {}}}}}, \
         filter_chains: [{}], {more}}}",
        address.ip(),
        address.port(),
        chains.join(", "),
    )
}

/// A bootstrap file with one listener on any port.
pub(crate) fn config(chains: &[String], more: &str) -> String {
    let any = ([127, 0, 0, 1], 0).into();
    format!(
        "{{admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}, \
         static_resources: {{listeners: [{}]}}}}",
        listener(any, chains, more)
    )
}
