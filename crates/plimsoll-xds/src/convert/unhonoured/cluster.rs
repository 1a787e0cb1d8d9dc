//! Tables of `envoy.config.cluster.v3.Cluster` and of what it holds: discovery, connections, HTTP,
//! limits and judges of hosts.

use super::Class::{Host, Request};
use super::Inside::{Any, AnyMap, DefaultOr, Many, One, Value};
use super::endpoint::INLINE_ASSIGNMENT;
use super::policy::{
    CONSISTENT_HASHING, LOAD_BALANCING_POLICY, RUNTIME_DOUBLE, SLOW_START, SUBSET,
};
use super::{Kind, tls};
use crate::convert::cluster::HTTP_PROTOCOL_OPTIONS;

pub(in super::super) static CLUSTER: Kind = Kind {
    read: &[
        (1, "name", Value),
        (2, "type", Value),
        (3, "eds_cluster_config", One(&EDS_CLUSTER_CONFIG)),
        (4, "connect_timeout", Value),
        (6, "lb_policy", Value),
        (8, "health_checks", Many(&HEALTH_CHECK)),
        (9, "max_requests_per_connection", Value),
        (10, "circuit_breakers", One(&CIRCUIT_BREAKERS)),
        (13, "http_protocol_options", One(&HTTP1)),
        (14, "http2_protocol_options", One(&HTTP2)),
        (16, "dns_refresh_rate", Value),
        (17, "dns_lookup_family", Value),
        (19, "outlier_detection", One(&OUTLIER_DETECTION)),
        (22, "lb_subset_config", One(&SUBSET)),
        (23, "ring_hash_lb_config", One(&RING_HASH_LB_CONFIG)),
        (24, "transport_socket", One(&TRANSPORT_SOCKET)),
        (27, "common_lb_config", One(&COMMON_LB_CONFIG)),
        (29, "common_http_protocol_options", One(&COMMON_HTTP)),
        (30, "upstream_connection_options", One(&CONNECTION_OPTIONS)),
        (31, "close_connections_on_host_health_failure", Value),
        (33, "load_assignment", One(&INLINE_ASSIGNMENT)),
        (36, "typed_extension_protocol_options", AnyMap(protocol)),
        (37, "least_request_lb_config", One(&LEAST_REQUEST_LB_CONFIG)),
        (41, "load_balancing_policy", One(&LOAD_BALANCING_POLICY)),
        (42, "lrs_server", One(&CONFIG_SOURCE)),
        (46, "upstream_http_protocol_options", One(&UPSTREAM_HTTP)),
        (52, "maglev_lb_config", One(&MAGLEV_LB_CONFIG)),
        (56, "round_robin_lb_config", One(&ROUND_ROBIN_LB_CONFIG)),
        (57, "lrs_report_endpoint_metrics", Value),
        (50001, "locality_sampling", Value),
    ],
    // Statistics, metadata of filters, buffers, Envoy's order of start, and how names are resolved.
    unread: &[
        (5, "per_connection_buffer_limit_bytes"),
        (18, "dns_resolvers"),
        (20, "cleanup_interval"),
        (25, "metadata"),
        (26, "protocol_selection"),
        (28, "alt_stat_name"),
        (32, "ignore_health_on_host_removal"),
        (39, "respect_dns_ttl"),
        (44, "dns_failure_refresh_rate"),
        (45, "use_tcp_for_dns_lookups"),
        (47, "track_timeout_budgets"),
        (49, "track_cluster_stats"),
        (53, "dns_resolution_config"),
        (54, "wait_for_warm_on_init"),
        (55, "typed_dns_resolver_config"),
        (58, "dns_jitter"),
        (60, "per_connection_buffer_high_watermark_timeout"),
        (61, "stats_matcher"),
    ],
    refused: &[
        (21, "upstream_bind_config", Request),
        (34, "original_dst_lb_config", Host),
        (38, "cluster_type", Request),
        (40, "filters", Request),
        (43, "transport_socket_matches", Request),
        (48, "upstream_config", Request),
        (50, "preconnect_policy", Request),
        (51, "connection_pool_per_downstream_connection", Request),
        (59, "transport_socket_matcher", Request),
        (62, "queuing_policies", Request),
    ],
};

static EDS_CLUSTER_CONFIG: Kind = Kind {
    read: &[
        (1, "eds_config", One(&CONFIG_SOURCE)),
        (2, "service_name", Value),
    ],
    ..Kind::EMPTY
};

/// Where nothing else is named, the server in `api_config_source` is an error of its own.
pub(super) static CONFIG_SOURCE: Kind = Kind {
    read: &[
        (1, "path", Value),
        (2, "api_config_source", Value),
        (3, "ads", Value),
        (5, "self", Value),
        (6, "resource_api_version", Value),
        (8, "path_config_source", Value),
    ],
    unread: &[(4, "initial_fetch_timeout"), (7, "authorities")],
    ..Kind::EMPTY
};

pub(super) static COMMON_LB_CONFIG: Kind = Kind {
    read: &[
        (1, "healthy_panic_threshold", Value),
        (2, "zone_aware_lb_config", One(&LEGACY_ZONE_AWARE)),
        (3, "locality_weighted_lb_config", Value),
        // Updates take effect at once here.
        (4, "update_merge_window", Value),
        (5, "ignore_new_hosts_until_first_hc", Value),
        (7, "consistent_hashing_lb_config", One(&CONSISTENT_HASHING)),
    ],
    // The last is about hosts that a filter asks for, of which there is none.
    unread: &[
        (6, "close_connections_on_host_set_change"),
        (8, "override_host_status"),
    ],
    ..Kind::EMPTY
};

pub(super) static LEGACY_ZONE_AWARE: Kind = Kind {
    read: &[
        (1, "routing_enabled", Value),
        (2, "min_cluster_size", Value),
        (3, "fail_traffic_on_panic", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static ROUND_ROBIN_LB_CONFIG: Kind = Kind {
    read: &[(1, "slow_start_config", One(&SLOW_START))],
    ..Kind::EMPTY
};

pub(super) static LEAST_REQUEST_LB_CONFIG: Kind = Kind {
    read: &[
        (1, "choice_count", Value),
        (2, "active_request_bias", One(&RUNTIME_DOUBLE)),
        (3, "slow_start_config", One(&SLOW_START)),
    ],
    ..Kind::EMPTY
};

pub(super) static RING_HASH_LB_CONFIG: Kind = Kind {
    read: &[
        (1, "minimum_ring_size", Value),
        (3, "hash_function", Value),
        (4, "maximum_ring_size", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static MAGLEV_LB_CONFIG: Kind = Kind {
    read: &[(1, "table_size", Value)],
    ..Kind::EMPTY
};

pub(super) static CIRCUIT_BREAKERS: Kind = Kind {
    read: &[(1, "thresholds", Many(&THRESHOLDS))],
    refused: &[(2, "per_host_thresholds", Request)],
    ..Kind::EMPTY
};

pub(super) static THRESHOLDS: Kind = Kind {
    read: &[
        (1, "priority", Value),
        (2, "max_connections", Value),
        (3, "max_pending_requests", Value),
        (4, "max_requests", Value),
        (5, "max_retries", Value),
        (8, "retry_budget", One(&RETRY_BUDGET)),
    ],
    unread: &[(6, "track_remaining")],
    refused: &[(7, "max_connection_pools", Request)],
};

pub(super) static RETRY_BUDGET: Kind = Kind {
    read: &[
        (1, "budget_percent", Value),
        (2, "min_retry_concurrency", Value),
    ],
    refused: &[(3, "budget_interval", Request)],
    ..Kind::EMPTY
};

pub(super) static OUTLIER_DETECTION: Kind = Kind {
    read: &[
        (1, "consecutive_5xx", Value),
        (2, "interval", Value),
        (3, "base_ejection_time", Value),
        (4, "max_ejection_percent", Value),
        (5, "enforcing_consecutive_5xx", Value),
        (6, "enforcing_success_rate", Value),
        (7, "success_rate_minimum_hosts", Value),
        (8, "success_rate_request_volume", Value),
        (9, "success_rate_stdev_factor", Value),
        (11, "enforcing_consecutive_gateway_failure", Value),
        (12, "split_external_local_origin_errors", Value),
        (16, "failure_percentage_threshold", Value),
        (17, "enforcing_failure_percentage", Value),
        (19, "failure_percentage_minimum_hosts", Value),
        (20, "failure_percentage_request_volume", Value),
        (21, "max_ejection_time", Value),
        (22, "max_ejection_time_jitter", Value),
        (24, "monitors", Value),
        (25, "always_eject_one_host", Value),
        (26, "detect_degraded_hosts", DefaultOr(Host)),
    ],
    // Counted only unless enforced, or of errors that are split, both of which is refused. A host
    // returns when its time is over, whatever active checks say.
    unread: &[
        (10, "consecutive_gateway_failure"),
        (13, "consecutive_local_origin_failure"),
        (14, "enforcing_consecutive_local_origin_failure"),
        (15, "enforcing_local_origin_success_rate"),
        (18, "enforcing_failure_percentage_local_origin"),
        (23, "successful_active_health_check_uneject_host"),
    ],
    ..Kind::EMPTY
};

pub(super) static HEALTH_CHECK: Kind = Kind {
    read: &[
        (1, "timeout", Value),
        (2, "interval", Value),
        (3, "interval_jitter", Value),
        (4, "unhealthy_threshold", Value),
        (5, "healthy_threshold", Value),
        (6, "alt_port", Value),
        (7, "reuse_connection", Value),
        (8, "http_health_check", One(&HTTP_CHECK)),
        (9, "tcp_health_check", One(&TCP_CHECK)),
        (11, "grpc_health_check", One(&GRPC_CHECK)),
        (12, "no_traffic_interval", Value),
        // A check of none of the three kinds is an error of its own.
        (13, "custom_health_check", Value),
        (14, "unhealthy_interval", Value),
        (15, "unhealthy_edge_interval", Value),
        (16, "healthy_edge_interval", Value),
        (18, "interval_jitter_percent", Value),
        (20, "initial_jitter", Value),
        (24, "no_traffic_healthy_interval", Value),
    ],
    unread: &[
        (17, "event_log_path"),
        (19, "always_log_health_check_failures"),
        (22, "event_service"),
        (25, "event_logger"),
        (26, "always_log_health_check_success"),
        (27, "name"),
    ],
    refused: &[
        (21, "tls_options", Request),
        (23, "transport_socket_match_criteria", Request),
    ],
};

pub(super) static HTTP_CHECK: Kind = Kind {
    read: &[
        (1, "host", Value),
        (2, "path", Value),
        (6, "request_headers_to_add", Value),
        (9, "expected_statuses", Value),
        (10, "codec_client_type", Value),
        (12, "retriable_statuses", Value),
        (13, "method", Value),
    ],
    unread: &[(14, "response_buffer_size")],
    refused: &[
        (3, "send", Request),
        (4, "receive", Request),
        (8, "request_headers_to_remove", Request),
        (11, "service_name_matcher", Request),
        (15, "use_alpn_protocol", Request),
    ],
};

pub(super) static TCP_CHECK: Kind = Kind {
    read: &[(1, "send", Value), (2, "receive", Value)],
    refused: &[(3, "proxy_protocol_config", Request)],
    ..Kind::EMPTY
};

pub(super) static GRPC_CHECK: Kind = Kind {
    read: &[
        (1, "service_name", Value),
        (2, "authority", Value),
        (3, "initial_metadata", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static CONNECTION_OPTIONS: Kind = Kind {
    read: &[(1, "tcp_keepalive", One(&TCP_KEEPALIVE))],
    unread: &[(2, "set_local_interface_name_on_upstream_connections")],
    refused: &[(3, "happy_eyeballs_config", Request)],
};

pub(super) static TCP_KEEPALIVE: Kind = Kind {
    read: &[
        (1, "keepalive_probes", Value),
        (2, "keepalive_time", Value),
        (3, "keepalive_interval", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static TRANSPORT_SOCKET: Kind = Kind {
    read: &[(1, "name", Value), (3, "typed_config", Any(tls::kind))],
    ..Kind::EMPTY
};

fn protocol(full_name: &str) -> Option<&'static Kind> {
    (full_name == HTTP_PROTOCOL_OPTIONS).then_some(&HTTP_OPTIONS)
}

pub(super) static HTTP_OPTIONS: Kind = Kind {
    read: &[
        (1, "common_http_protocol_options", One(&COMMON_HTTP)),
        (2, "upstream_http_protocol_options", One(&UPSTREAM_HTTP)),
        (3, "explicit_http_config", One(&EXPLICIT_HTTP)),
        // Without explicit_http_config they are errors of their own.
        (4, "use_downstream_protocol_config", Value),
        (5, "auto_config", Value),
    ],
    unread: &[(7, "header_validation_config")],
    refused: &[
        (6, "http_filters", Request),
        (8, "outlier_detection", Request),
        (9, "request_mirror_policies", Request),
        (10, "hash_policy", Host),
        (11, "retry_policy", Request),
    ],
};

pub(super) static EXPLICIT_HTTP: Kind = Kind {
    read: &[
        (1, "http_protocol_options", One(&HTTP1)),
        (2, "http2_protocol_options", One(&HTTP2)),
        // Alone it is an error of its own.
        (3, "http3_protocol_options", Value),
    ],
    ..Kind::EMPTY
};

/// hyper decides how HTTP/1.1 is spoken.
static HTTP1: Kind = Kind {
    unread: &[
        (1, "allow_absolute_url"),
        (2, "accept_http_10"),
        (3, "default_host_for_http_10"),
        (4, "header_key_format"),
        (5, "enable_trailers"),
        (6, "allow_chunked_length"),
        (7, "override_stream_error_on_invalid_http_message"),
        (8, "send_fully_qualified_url"),
        (9, "use_balsa_parser"),
        (10, "allow_custom_methods"),
        (11, "ignore_http_11_upgrade"),
    ],
    ..Kind::EMPTY
};

pub(super) static HTTP2: Kind = Kind {
    read: &[
        (2, "max_concurrent_streams", Value),
        (3, "initial_stream_window_size", Value),
        (4, "initial_connection_window_size", Value),
        (15, "connection_keepalive", One(&KEEPALIVE)),
    ],
    // Limits of Envoy's codecs.
    unread: &[
        (1, "hpack_table_size"),
        (5, "allow_connect"),
        (6, "allow_metadata"),
        (7, "max_outbound_frames"),
        (8, "max_outbound_control_frames"),
        (9, "max_consecutive_inbound_frames_with_empty_payload"),
        (10, "max_inbound_priority_frames_per_stream"),
        (11, "max_inbound_window_update_frames_per_data_frame_sent"),
        (12, "stream_error_on_invalid_http_messaging"),
        (13, "custom_settings_parameters"),
        (14, "override_stream_error_on_invalid_http_message"),
        (16, "use_oghttp2_codec"),
        (17, "max_metadata_size"),
        (18, "enable_huffman_encoding"),
        (19, "max_header_field_size_kb"),
        (20, "disallow_obs_text"),
        (21, "stream_reset_burst"),
        (22, "stream_reset_rate"),
    ],
    ..Kind::EMPTY
};

pub(super) static KEEPALIVE: Kind = Kind {
    read: &[(1, "interval", Value), (2, "timeout", Value)],
    unread: &[(3, "interval_jitter"), (4, "connection_idle_interval")],
    ..Kind::EMPTY
};

pub(super) static COMMON_HTTP: Kind = Kind {
    read: &[
        (1, "idle_timeout", Value),
        (3, "max_connection_duration", Value),
        (4, "max_stream_duration", Value),
        (6, "max_requests_per_connection", Value),
    ],
    unread: &[
        (2, "max_headers_count"),
        (5, "headers_with_underscores_action"),
        (7, "max_response_headers_kb"),
        (8, "max_connection_duration_jitter"),
    ],
    ..Kind::EMPTY
};

/// Of a listener a client reads the longest duration of a stream only.
pub(super) static COMMON_HTTP_OF_LISTENER: Kind = Kind {
    read: &[(4, "max_stream_duration", Value)],
    unread: &[
        (1, "idle_timeout"),
        (2, "max_headers_count"),
        (3, "max_connection_duration"),
        (5, "headers_with_underscores_action"),
        (6, "max_requests_per_connection"),
        (7, "max_response_headers_kb"),
        (8, "max_connection_duration_jitter"),
    ],
    ..Kind::EMPTY
};

pub(super) static UPSTREAM_HTTP: Kind = Kind {
    read: &[(1, "auto_sni", Value), (2, "auto_san_validation", Value)],
    refused: &[(3, "override_auto_sni_header", Request)],
    ..Kind::EMPTY
};
