//! Listeners to bytes: one for gRPC clients, one for Envoys. Called through `wire`.
//!
//! Both find their routes by RDS on the stream they came on. Reading listeners is in `listener_in`.

use std::net::SocketAddr;

use bytes::Bytes;
use prost::Message;

use super::pb::listener::{
    ApiListenerMessage, FilterChainMessage, FilterMessage, HttpConnectionManagerMessage,
    ListenerMessage, RdsMessage,
};
use super::pb::{AnyMessage, ConfigSourceMessage};

/// Full name of the connection manager's configuration.
pub(super) const HTTP_CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// Full name of the configuration of the filter that ends every chain.
pub(super) const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// A listener for gRPC clients: named after the target they dial, without an address.
pub fn encode_api_listener(name: &str, route_config_name: &str) -> Bytes {
    let manager = http_connection_manager(route_config_name, "");
    let listener = ListenerMessage {
        name: name.to_owned(),
        api_listener: Some(ApiListenerMessage {
            api_listener: Some(manager),
        }),
        ..Default::default()
    };
    listener.encode_to_vec().into()
}

/// A listener for Envoys, HTTP/1 and HTTP/2 without TLS. `stat_prefix` must not be empty: Envoy
/// would refuse it.
pub fn encode_http_listener(
    name: &str,
    address: SocketAddr,
    route_config_name: &str,
    stat_prefix: &str,
) -> Bytes {
    let manager = http_connection_manager(route_config_name, stat_prefix);
    let filter = FilterMessage {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        typed_config: Some(manager),
        is_optional: false,
    };
    let listener = ListenerMessage {
        name: name.to_owned(),
        address: Some(address.into()),
        filter_chains: vec![FilterChainMessage {
            filters: vec![filter],
        }],
        api_listener: None,
    };
    listener.encode_to_vec().into()
}

fn http_connection_manager(route_config_name: &str, stat_prefix: &str) -> AnyMessage {
    let router = FilterMessage {
        name: "envoy.filters.http.router".to_owned(),
        typed_config: Some(AnyMessage::pack(ROUTER, &())),
        is_optional: false,
    };
    let manager = HttpConnectionManagerMessage {
        stat_prefix: stat_prefix.to_owned(),
        rds: Some(RdsMessage {
            config_source: Some(ConfigSourceMessage::ads()),
            route_config_name: route_config_name.to_owned(),
        }),
        http_filters: vec![router],
        ..Default::default()
    };
    AnyMessage::pack(HTTP_CONNECTION_MANAGER, &manager)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::hex::message;

    #[test]
    fn listeners_are_written_as_others_write_them() {
        assert_eq!(encode_api_listener("svc", "rc"), message("api"));
        let address = "127.0.0.1:8000".parse().unwrap();
        let listener = encode_http_listener("in", address, "rc", "sp");
        assert_eq!(listener, message("http"));
    }
}
