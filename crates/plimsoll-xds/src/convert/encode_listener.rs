//! Encoding of listeners for gRPC clients and for Envoy. Called through `wire`.
//!
//! Both kinds get their routes by RDS on the same ADS stream. `decode_listener` reads listeners.

use std::net::SocketAddr;

use bytes::Bytes;
use prost::Message;

use plimsoll_schema::pb::http_filter::HttpFilterMessage;
use plimsoll_schema::pb::listener::{
    ApiListenerMessage, FilterChainMessage, FilterMessage, HttpConnectionManagerMessage,
    ListenerMessage, RdsMessage,
};
use plimsoll_schema::pb::{AnyMessage, ConfigSourceMessage};

/// Full name of the `HttpConnectionManager` message.
pub(super) const HTTP_CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// Full name of the router filter's message, which ends every filter chain.
pub(super) const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// Encodes an API listener for gRPC clients, named after the target they dial.
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

/// Encodes a plaintext HTTP/1.1 and HTTP/2 listener for Envoy, which rejects an empty
/// `stat_prefix`.
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
    };
    let listener = ListenerMessage {
        name: name.to_owned(),
        address: Some(address.into()),
        filter_chains: vec![FilterChainMessage {
            filters: vec![filter],
            ..Default::default()
        }],
        ..Default::default()
    };
    listener.encode_to_vec().into()
}

fn http_connection_manager(route_config_name: &str, stat_prefix: &str) -> AnyMessage {
    let router = HttpFilterMessage {
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
    fn listeners_match_another_encoder() {
        assert_eq!(encode_api_listener("svc", "rc"), message("api"));
        let address = "127.0.0.1:8000".parse().unwrap();
        let listener = encode_http_listener("in", address, "rc", "sp");
        assert_eq!(listener, message("http"));
    }
}
