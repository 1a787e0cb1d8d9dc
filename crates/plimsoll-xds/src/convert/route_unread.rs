//! Tables of `envoy.config.route.v3`: which fields of a route configuration are read.
//!
//! The walk is in `unhonoured`. gRPC ignores what is not read; a proxy refuses it. What is read is
//! read in `route_in`.

use super::unhonoured::Inside::{Default, Many, One, Value};
use super::unhonoured::{self, Kind};
use crate::error::DecodeError;

/// Paths of fields of a `RouteConfiguration` that are set and not read.
pub(super) fn unread(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    unhonoured::unread(bytes, &ROUTE_CONFIGURATION)
}

pub(super) static ROUTE_CONFIGURATION: Kind = Kind {
    read: &[
        (1, "name", Value),
        (2, "virtual_hosts", Many(&VIRTUAL_HOST)),
        (4, "response_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (5, "response_headers_to_remove", Value),
        (6, "request_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        // False is the default of route configurations that come by RDS.
        (7, "validate_clusters", Default),
        (8, "request_headers_to_remove", Value),
        (9, "vhds", Value),
        (10, "most_specific_header_mutations_wins", Value),
        (14, "ignore_port_in_host_matching", Value),
    ],
    unread: &[
        (3, "internal_only_headers"),
        (11, "max_direct_response_body_size_bytes"),
        (12, "cluster_specifier_plugins"),
        (13, "request_mirror_policies"),
        (15, "ignore_path_parameters_in_path_matching"),
        (16, "typed_per_filter_config"),
        (17, "metadata"),
        (18, "vhost_header"),
    ],
    ..Kind::EMPTY
};

static VIRTUAL_HOST: Kind = Kind {
    read: &[
        (1, "name", Value),
        (2, "domains", Value),
        (3, "routes", Many(&ROUTE)),
        (7, "request_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (10, "response_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (11, "response_headers_to_remove", Value),
        (13, "request_headers_to_remove", Value),
        (16, "retry_policy", One(&RETRY_POLICY)),
        (21, "matcher", Value),
    ],
    unread: &[
        (4, "require_tls"),
        (5, "virtual_clusters"),
        (6, "rate_limits"),
        (8, "cors"),
        (14, "include_request_attempt_count"),
        (15, "typed_per_filter_config"),
        (17, "hedge_policy"),
        (18, "per_request_buffer_limit_bytes"),
        (19, "include_attempt_count_in_response"),
        (20, "retry_policy_typed_config"),
        (22, "request_mirror_policies"),
        (23, "include_is_timeout_retry_header"),
        (24, "metadata"),
        (25, "request_body_buffer_limit"),
    ],
    ..Kind::EMPTY
};

static ROUTE: Kind = Kind {
    read: &[
        (1, "match", One(&ROUTE_MATCH)),
        (2, "route", One(&ROUTE_ACTION)),
        (3, "redirect", One(&REDIRECT)),
        (7, "direct_response", One(&DIRECT_RESPONSE)),
        (9, "request_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (10, "response_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (11, "response_headers_to_remove", Value),
        (12, "request_headers_to_remove", Value),
        (14, "name", Value),
        (17, "filter_action", Value),
        (18, "non_forwarding_action", Value),
    ],
    unread: &[
        (4, "metadata"),
        (5, "decorator"),
        (13, "typed_per_filter_config"),
        (15, "tracing"),
        (16, "per_request_buffer_limit_bytes"),
        (19, "stat_prefix"),
        (20, "request_body_buffer_limit"),
    ],
    ..Kind::EMPTY
};

static ROUTE_MATCH: Kind = Kind {
    read: &[
        (1, "prefix", Value),
        (2, "path", Value),
        (4, "case_sensitive", Value),
        (6, "headers", Many(&HEADER_MATCHER)),
        (7, "query_parameters", Many(&QUERY_PARAMETER)),
        // What kinds of gRPC there are was never said.
        (8, "grpc", Default),
        (9, "runtime_fraction", One(&RUNTIME_FRACTION)),
        (10, "safe_regex", Value),
        (11, "tls_context", Value),
        (13, "dynamic_metadata", Value),
        (14, "path_separated_prefix", Value),
        (16, "filter_state", Value),
    ],
    unread: &[(12, "connect_matcher"), (15, "path_match_policy")],
    ..Kind::EMPTY
};

static HEADER_MATCHER: Kind = Kind {
    read: &[
        (1, "name", Value),
        (4, "exact_match", Value),
        (6, "range_match", Value),
        (7, "present_match", Value),
        (8, "invert_match", Value),
        (9, "prefix_match", Value),
        (10, "suffix_match", Value),
        (11, "safe_regex_match", Value),
        (12, "contains_match", Value),
        (13, "string_match", Value),
        (14, "treat_missing_header_as_empty", Value),
    ],
    ..Kind::EMPTY
};

static QUERY_PARAMETER: Kind = Kind {
    read: &[
        (1, "name", Value),
        (5, "string_match", Value),
        (6, "present_match", Value),
    ],
    ..Kind::EMPTY
};

static RUNTIME_FRACTION: Kind = Kind {
    read: &[(1, "default_value", Value)],
    unread: &[(2, "runtime_key")],
    ..Kind::EMPTY
};

static ROUTE_ACTION: Kind = Kind {
    read: &[
        (1, "cluster", Value),
        (2, "cluster_header", Value),
        (3, "weighted_clusters", One(&WEIGHTED_CLUSTER)),
        (4, "metadata_match", Value),
        (5, "prefix_rewrite", Value),
        (6, "host_rewrite_literal", Value),
        (7, "auto_host_rewrite", Value),
        (8, "timeout", Value),
        (9, "retry_policy", One(&RETRY_POLICY)),
        (15, "hash_policy", Many(&HASH_POLICY)),
        (24, "idle_timeout", Value),
        (36, "max_stream_duration", One(&MAX_STREAM_DURATION)),
        (37, "cluster_specifier_plugin", Value),
        (38, "append_x_forwarded_host", Value),
    ],
    unread: &[
        (11, "priority"),
        (13, "rate_limits"),
        (14, "include_vh_rate_limits"),
        (17, "cors"),
        (20, "cluster_not_found_response_code"),
        (23, "max_grpc_timeout"),
        (25, "upgrade_configs"),
        (26, "internal_redirect_action"),
        (27, "hedge_policy"),
        (28, "grpc_timeout_offset"),
        (29, "host_rewrite_header"),
        (30, "request_mirror_policies"),
        (31, "max_internal_redirects"),
        (32, "regex_rewrite"),
        (33, "retry_policy_typed_config"),
        (34, "internal_redirect_policy"),
        (35, "host_rewrite_path_regex"),
        (39, "inline_cluster_specifier_plugin"),
        (40, "early_data_policy"),
        (41, "path_rewrite_policy"),
        (42, "flush_timeout"),
        (44, "host_rewrite"),
        (45, "path_rewrite"),
    ],
    ..Kind::EMPTY
};

static HASH_POLICY: Kind = Kind {
    read: &[
        (1, "header", One(&HASH_HEADER)),
        (3, "connection_properties", Value),
        (4, "terminal", Value),
        (6, "filter_state", Value),
    ],
    unread: &[(2, "cookie"), (5, "query_parameter")],
    ..Kind::EMPTY
};

static HASH_HEADER: Kind = Kind {
    read: &[(1, "header_name", Value)],
    unread: &[(2, "regex_rewrite")],
    ..Kind::EMPTY
};

static MAX_STREAM_DURATION: Kind = Kind {
    read: &[
        (1, "max_stream_duration", Value),
        (2, "grpc_timeout_header_max", Value),
    ],
    unread: &[(3, "grpc_timeout_header_offset")],
    ..Kind::EMPTY
};

static WEIGHTED_CLUSTER: Kind = Kind {
    read: &[
        (1, "clusters", Many(&CLUSTER_WEIGHT)),
        // The sum of the weights is what counts, also for Envoy.
        (3, "total_weight", Value),
    ],
    unread: &[
        (2, "runtime_key_prefix"),
        (4, "header_name"),
        (5, "use_hash_policy"),
    ],
    ..Kind::EMPTY
};

static CLUSTER_WEIGHT: Kind = Kind {
    read: &[
        (1, "name", Value),
        (2, "weight", Value),
        (3, "metadata_match", Value),
        (4, "request_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (5, "response_headers_to_add", Many(&HEADER_VALUE_OPTION)),
        (6, "response_headers_to_remove", Value),
        (9, "request_headers_to_remove", Value),
    ],
    unread: &[
        (10, "typed_per_filter_config"),
        (11, "host_rewrite_literal"),
        (12, "cluster_header"),
    ],
    ..Kind::EMPTY
};

static RETRY_POLICY: Kind = Kind {
    read: &[
        (1, "retry_on", Value),
        (2, "num_retries", Value),
        (3, "per_try_timeout", Value),
        (5, "retry_host_predicate", Many(&RETRY_HOST_PREDICATE)),
        (6, "host_selection_retry_max_attempts", Value),
        (7, "retriable_status_codes", Value),
        (8, "retry_back_off", Value),
    ],
    unread: &[
        (4, "retry_priority"),
        (9, "retriable_headers"),
        (10, "retriable_request_headers"),
        (11, "rate_limited_retry_back_off"),
        (12, "retry_options_predicates"),
        (13, "per_try_idle_timeout"),
    ],
    ..Kind::EMPTY
};

static RETRY_HOST_PREDICATE: Kind = Kind {
    read: &[(1, "name", Value), (3, "typed_config", Value)],
    ..Kind::EMPTY
};

static REDIRECT: Kind = Kind {
    read: &[
        (1, "host_redirect", Value),
        (2, "path_redirect", Value),
        (3, "response_code", Value),
        (4, "https_redirect", Value),
        (5, "prefix_rewrite", Value),
        (6, "strip_query", Value),
        (7, "scheme_redirect", Value),
        (8, "port_redirect", Value),
        (9, "regex_rewrite", Value),
    ],
    ..Kind::EMPTY
};

static DIRECT_RESPONSE: Kind = Kind {
    read: &[(1, "status", Value), (2, "body", Value)],
    unread: &[(3, "body_format")],
    ..Kind::EMPTY
};

static HEADER_VALUE_OPTION: Kind = Kind {
    read: &[
        (1, "header", One(&HEADER_VALUE)),
        (2, "append", Value),
        (3, "append_action", Value),
        (4, "keep_empty_value", Value),
    ],
    ..Kind::EMPTY
};

static HEADER_VALUE: Kind = Kind {
    read: &[(1, "key", Value), (2, "value", Value)],
    unread: &[(3, "raw_value")],
    ..Kind::EMPTY
};

#[cfg(test)]
mod tests {
    use super::super::field::put_field;
    use super::*;

    /// A message with one field that has a length.
    fn message(number: u32, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_field(&mut out, number, value);
        out
    }

    /// A configuration whose second route has these fields.
    fn with_route(route: &[u8]) -> Vec<u8> {
        let mut host = message(2, b"*");
        put_field(&mut host, 3, &message(14, b"first"));
        put_field(&mut host, 3, route);
        message(2, &host)
    }

    #[test]
    fn what_is_read_is_not_listed() {
        let bytes = with_route(&message(2, &message(1, b"cluster")));
        assert_eq!(unread(&bytes), Ok(Vec::new()));
        let full = crate::convert::hex::message("route_full");
        assert_eq!(unread(&full), Ok(Vec::new()));
        assert_eq!(unread(&message(7, b"")), Ok(Vec::new()), "false");
    }

    #[test]
    fn everything_else_is_listed_by_its_path() {
        let place = "virtual_hosts[0].routes[1]";
        let cases = [
            (message(5, b""), format!("{place}.decorator")),
            (message(99, b""), format!("{place}.field 99")),
            (
                message(2, &message(30, b"")),
                format!("{place}.route.request_mirror_policies"),
            ),
            (
                message(2, &message(3, &message(1, &message(11, b"x")))),
                format!("{place}.route.weighted_clusters.clusters[0].host_rewrite_literal"),
            ),
            (
                message(2, &message(9, &message(4, b""))),
                format!("{place}.route.retry_policy.retry_priority"),
            ),
            (
                message(2, &message(9, &message(5, &message(2, b"")))),
                format!("{place}.route.retry_policy.retry_host_predicate[0].field 2"),
            ),
            (
                message(9, &message(1, &message(3, b"raw"))),
                format!("{place}.request_headers_to_add[0].header.raw_value"),
            ),
        ];
        for (route, path) in cases {
            assert_eq!(unread(&with_route(&route)), Ok(vec![path]));
        }
        assert_eq!(
            unread(&message(7, b"\x08\x01")).unwrap(),
            ["validate_clusters"]
        );
    }

    #[test]
    fn no_number_stands_twice() {
        for kind in [
            &ROUTE_CONFIGURATION,
            &VIRTUAL_HOST,
            &ROUTE,
            &ROUTE_MATCH,
            &ROUTE_ACTION,
            &RETRY_POLICY,
            &CLUSTER_WEIGHT,
        ] {
            let read = kind.read.iter().map(|&(number, ..)| number);
            let mut all: Vec<u32> = read
                .chain(kind.unread.iter().map(|&(number, _)| number))
                .collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{all:?}");
        }
    }
}
