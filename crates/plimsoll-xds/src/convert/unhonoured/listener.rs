//! Tables of what a gRPC client reads of `envoy.config.listener.v3.Listener`.
//!
//! gRFC A27 has clients ignore everything else; names are given to what servers often send.

use super::Inside::{Any, One, Value};
use super::Kind;
use super::cluster::COMMON_HTTP_OF_LISTENER;
use crate::convert::listener::HTTP_CONNECTION_MANAGER;
use crate::convert::route_unread::ROUTE_CONFIGURATION;

pub(super) static LISTENER: Kind = Kind {
    read: &[
        (1, "name", Value),
        // Of servers: a client has no use for them, and they say nothing to it.
        (2, "address", Value),
        (3, "filter_chains", Value),
        (19, "api_listener", One(&API_LISTENER)),
    ],
    ..Kind::EMPTY
};

static API_LISTENER: Kind = Kind {
    read: &[(1, "api_listener", Any(manager))],
    ..Kind::EMPTY
};

fn manager(full_name: &str) -> Option<&'static Kind> {
    (full_name == HTTP_CONNECTION_MANAGER).then_some(&CONNECTION_MANAGER)
}

static CONNECTION_MANAGER: Kind = Kind {
    read: &[
        // The codec of a server.
        (1, "codec_type", Value),
        (2, "stat_prefix", Value),
        (3, "rds", Value),
        (4, "route_config", One(&ROUTE_CONFIGURATION)),
        (5, "http_filters", Value),
        (19, "xff_num_trusted_hops", Value),
        (31, "scoped_routes", Value),
        (
            35,
            "common_http_protocol_options",
            One(&COMMON_HTTP_OF_LISTENER),
        ),
        (46, "original_ip_detection_extensions", Value),
    ],
    unread: &[
        (6, "add_user_agent"),
        (7, "tracing"),
        (8, "http_protocol_options"),
        (9, "http2_protocol_options"),
        (10, "server_name"),
        (12, "drain_timeout"),
        (13, "access_log"),
        (14, "use_remote_address"),
        (15, "generate_request_id"),
        (23, "upgrade_configs"),
        (24, "stream_idle_timeout"),
        (28, "request_timeout"),
        (30, "normalize_path"),
        (38, "local_reply_config"),
    ],
    ..Kind::EMPTY
};
