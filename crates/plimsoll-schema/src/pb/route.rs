//! `envoy.config.route.v3`. Fields of type `()` are decoded only to detect their presence.

use std::collections::BTreeMap;

use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::AppendAction;
use super::enums::RedirectCode;

use super::endpoint::FractionalPercentMessage;
use super::health_check::Int64RangeMessage;
use super::metadata::MetadataMessage;
use super::mirror::RequestMirrorPolicyMessage;
use super::tls::{DataSourceMessage, RegexMessage, StringMatcherMessage};
use super::{AnyMessage, DurationMessage};

/// `RouteConfiguration`: virtual hosts and their routes.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteConfiguration")]
#[schema(unused = "7 validate_clusters?, 3 internal_only_headers, \
          11 max_direct_response_body_size_bytes, 12 cluster_specifier_plugins, \
          15 ignore_path_parameters_in_path_matching, 17 metadata, 18 vhost_header")]
pub struct RouteConfigurationMessage {
    /// Name of the route configuration.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Virtual hosts, selected by the host of a request.
    #[prost(message, repeated, tag = "2")]
    pub virtual_hosts: Vec<VirtualHostMessage>,
    /// Headers to add to responses.
    #[prost(message, repeated, tag = "4")]
    pub response_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to remove from responses.
    #[prost(string, repeated, tag = "5")]
    pub response_headers_to_remove: Vec<String>,
    /// Headers to add to requests.
    #[prost(message, repeated, tag = "6")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to remove from requests.
    #[prost(string, repeated, tag = "8")]
    pub request_headers_to_remove: Vec<String>,
    #[prost(message, optional, tag = "9")]
    #[schema(opaque)]
    pub vhds: Option<()>,
    /// Let the most specific header rule (route) win instead of the least specific one.
    #[prost(bool, tag = "10")]
    pub most_specific_header_mutations_wins: bool,
    /// Clusters that get copies of requests of virtual hosts that have none themselves.
    #[prost(message, repeated, tag = "13")]
    pub request_mirror_policies: Vec<RequestMirrorPolicyMessage>,
    /// Ignore the port in the host of a request.
    #[prost(bool, tag = "14")]
    pub ignore_port_in_host_matching: bool,
    /// Settings of HTTP filters for all virtual hosts, by filter name; only `envoy.filters.http.cors`.
    #[prost(btree_map = "string, message", tag = "16")]
    #[schema(types = PER_FILTER_CONFIGS)]
    pub typed_per_filter_config: BTreeMap<String, AnyMessage>,
}

/// `VirtualHost`: the routes of a set of domains.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.VirtualHost")]
#[schema(unused = "4 require_tls, 5 virtual_clusters, 6 rate_limits, 8 cors, \
          14 include_request_attempt_count, 17 hedge_policy, \
          18 per_request_buffer_limit_bytes, 19 include_attempt_count_in_response, \
          20 retry_policy_typed_config, 23 include_is_timeout_retry_header, 24 metadata, \
          25 request_body_buffer_limit")]
pub struct VirtualHostMessage {
    /// Name of the virtual host.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hosts that the virtual host serves: exact, `*.suffix`, `prefix.*` or `*`.
    #[prost(string, repeated, tag = "2")]
    pub domains: Vec<String>,
    /// Routes in order; the first one that matches is used.
    #[prost(message, repeated, tag = "3")]
    pub routes: Vec<RouteMessage>,
    /// Headers to add to requests.
    #[prost(message, repeated, tag = "7")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to add to responses.
    #[prost(message, repeated, tag = "10")]
    pub response_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to remove from responses.
    #[prost(string, repeated, tag = "11")]
    pub response_headers_to_remove: Vec<String>,
    /// Headers to remove from requests.
    #[prost(string, repeated, tag = "13")]
    pub request_headers_to_remove: Vec<String>,
    /// Settings of HTTP filters for all routes, by filter name; only `envoy.filters.http.cors`.
    #[prost(btree_map = "string, message", tag = "15")]
    #[schema(types = PER_FILTER_CONFIGS)]
    pub typed_per_filter_config: BTreeMap<String, AnyMessage>,
    /// Retry policy of routes that do not set one.
    #[prost(message, optional, tag = "16")]
    pub retry_policy: Option<RetryPolicyMessage>,
    #[prost(message, optional, tag = "21")]
    #[schema(opaque)]
    pub matcher: Option<()>,
    /// Clusters that get copies of requests of routes that have none themselves.
    #[prost(message, repeated, tag = "22")]
    pub request_mirror_policies: Vec<RequestMirrorPolicyMessage>,
}

/// `Route`: which requests match, and what happens to them.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.Route")]
#[schema(unused = "4 metadata, 5 decorator, 15 tracing, \
          16 per_request_buffer_limit_bytes, 19 stat_prefix, 20 request_body_buffer_limit")]
pub struct RouteMessage {
    /// Conditions that a request must meet. Must be set.
    #[prost(message, optional, tag = "1")]
    #[schema(name = "match")]
    pub route_match: Option<RouteMatchMessage>,
    /// Forward matching requests to a cluster.
    #[prost(message, optional, tag = "2")]
    pub route: Option<RouteActionMessage>,
    /// Redirect the client to another URL.
    #[prost(message, optional, tag = "3")]
    pub redirect: Option<RedirectMessage>,
    /// Respond directly, without an upstream request.
    #[prost(message, optional, tag = "7")]
    pub direct_response: Option<DirectResponseMessage>,
    /// Headers to add to requests.
    #[prost(message, repeated, tag = "9")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to add to responses.
    #[prost(message, repeated, tag = "10")]
    pub response_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to remove from responses.
    #[prost(string, repeated, tag = "11")]
    pub response_headers_to_remove: Vec<String>,
    /// Headers to remove from requests.
    #[prost(string, repeated, tag = "12")]
    pub request_headers_to_remove: Vec<String>,
    /// Settings of HTTP filters for this route, by filter name; only `envoy.filters.http.cors`.
    #[prost(btree_map = "string, message", tag = "13")]
    #[schema(types = PER_FILTER_CONFIGS)]
    pub typed_per_filter_config: BTreeMap<String, AnyMessage>,
    /// Name of the route, for access logs.
    #[prost(string, tag = "14")]
    pub name: String,
    #[prost(message, optional, tag = "17")]
    #[schema(opaque)]
    pub filter_action: Option<()>,
    #[prost(message, optional, tag = "18")]
    #[schema(opaque)]
    pub non_forwarding_action: Option<()>,
}

/// `envoy.config.core.v3.HeaderValueOption`: a header to add.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HeaderValueOption")]
pub struct HeaderValueOptionMessage {
    /// Name and value of the header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValueMessage>,
    /// Deprecated: false overwrites existing values. Use `append_action`.
    #[prost(message, optional, tag = "2")]
    pub append: Option<bool>,
    /// Action if the header exists already. Default `APPEND_IF_EXISTS_OR_ADD`.
    #[prost(int32, tag = "3")]
    #[schema(values = AppendAction)]
    pub append_action: i32,
    /// Add the header even if its value is empty after substitution.
    #[prost(bool, tag = "4")]
    pub keep_empty_value: bool,
}

/// `envoy.config.core.v3.HeaderValue`: name and value of a header.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HeaderValue")]
pub struct HeaderValueMessage {
    /// Name of the header.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value of the header; may contain operators such as `%DOWNSTREAM_REMOTE_ADDRESS%`.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Value in base64, used if `value` is not set; must be UTF-8.
    #[prost(bytes = "vec", tag = "3")]
    pub raw_value: Vec<u8>,
}

/// `RouteMatch`: conditions on path, headers and query.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteMatch")]
#[schema(unused = "12 connect_matcher, 15 path_match_policy")]
pub struct RouteMatchMessage {
    /// The path starts with this text. One of `prefix`, `path`, `safe_regex` and
    /// `path_separated_prefix` must be set.
    #[prost(string, optional, tag = "1")]
    pub prefix: Option<String>,
    /// The path equals this text.
    #[prost(string, optional, tag = "2")]
    pub path: Option<String>,
    /// Whether the comparison of paths is case-sensitive. Default true.
    #[prost(message, optional, tag = "4")]
    pub case_sensitive: Option<bool>,
    /// Conditions on headers; all must be met.
    #[prost(message, repeated, tag = "6")]
    pub headers: Vec<HeaderMatcherMessage>,
    /// Conditions on query parameters; all must be met.
    #[prost(message, repeated, tag = "7")]
    pub query_parameters: Vec<QueryParameterMessage>,
    /// Match only gRPC requests.
    #[prost(message, optional, tag = "8")]
    #[schema(opaque)]
    pub grpc: Option<()>,
    /// Match only a random fraction of the requests.
    #[prost(message, optional, tag = "9")]
    pub runtime_fraction: Option<RuntimeFractionMessage>,
    /// The whole path, without the query, matches this regular expression.
    #[prost(message, optional, tag = "10")]
    pub safe_regex: Option<RegexMessage>,
    #[prost(message, optional, tag = "11")]
    #[schema(opaque)]
    pub tls_context: Option<()>,
    #[prost(message, repeated, tag = "13")]
    pub dynamic_metadata: Vec<()>,
    /// The path equals this text or continues with a slash after it.
    #[prost(string, optional, tag = "14")]
    pub path_separated_prefix: Option<String>,
    #[prost(message, repeated, tag = "16")]
    pub filter_state: Vec<()>,
}

/// `HeaderMatcher`: a condition on one request header.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.HeaderMatcher")]
pub struct HeaderMatcherMessage {
    /// Name of the header, or `:method`, `:path`, `:authority`, `:scheme`. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Deprecated: the value equals this text. Use `string_match`.
    #[prost(string, optional, tag = "4")]
    pub exact_match: Option<String>,
    /// The value is a whole number in this range.
    #[prost(message, optional, tag = "6")]
    pub range_match: Option<Int64RangeMessage>,
    /// Whether the header must be present (true) or absent (false).
    #[prost(bool, optional, tag = "7")]
    pub present_match: Option<bool>,
    /// Invert the result of the condition.
    #[prost(bool, tag = "8")]
    pub invert_match: bool,
    /// Deprecated: the value starts with this text. Use `string_match`.
    #[prost(string, optional, tag = "9")]
    pub prefix_match: Option<String>,
    /// Deprecated: the value ends with this text. Use `string_match`.
    #[prost(string, optional, tag = "10")]
    pub suffix_match: Option<String>,
    /// Deprecated: the whole value matches this regular expression. Use `string_match`.
    #[prost(message, optional, tag = "11")]
    pub safe_regex_match: Option<RegexMessage>,
    /// Deprecated: the value contains this text. Use `string_match`.
    #[prost(string, optional, tag = "12")]
    pub contains_match: Option<String>,
    /// Condition on the value of the header.
    #[prost(message, optional, tag = "13")]
    pub string_match: Option<StringMatcherMessage>,
    /// Treat a missing header as one with an empty value.
    #[prost(bool, tag = "14")]
    pub treat_missing_header_as_empty: bool,
}

/// `QueryParameterMatcher`: a condition on one query parameter.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.QueryParameterMatcher")]
pub struct QueryParameterMessage {
    /// Name of the query parameter. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Condition on the value of the parameter.
    #[prost(message, optional, tag = "5")]
    pub string_match: Option<StringMatcherMessage>,
    /// The parameter must be present; only true is supported.
    #[prost(bool, optional, tag = "6")]
    pub present_match: Option<bool>,
}

/// `envoy.config.core.v3.RuntimeFractionalPercent`: a fraction of requests.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.RuntimeFractionalPercent")]
#[schema(unused = "2 runtime_key")]
pub struct RuntimeFractionMessage {
    /// Fraction of requests that match. Must be set.
    #[prost(message, optional, tag = "1")]
    pub default_value: Option<FractionalPercentMessage>,
}

/// `RouteAction`: forwarding to an upstream cluster.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction")]
#[schema(
    unused = "11 priority, 13 rate_limits, 14 include_vh_rate_limits, 17 cors, \
          20 cluster_not_found_response_code, 23 max_grpc_timeout, 25 upgrade_configs, \
          26 internal_redirect_action, 27 hedge_policy, 28 grpc_timeout_offset, \
          29 host_rewrite_header, 31 max_internal_redirects, \
          32 regex_rewrite, 33 retry_policy_typed_config, 34 internal_redirect_policy, \
          35 host_rewrite_path_regex, 39 inline_cluster_specifier_plugin, 40 early_data_policy, \
          41 path_rewrite_policy, 42 flush_timeout, 44 host_rewrite, 45 path_rewrite"
)]
pub struct RouteActionMessage {
    /// Name of the upstream cluster.
    #[prost(string, optional, tag = "1")]
    pub cluster: Option<String>,
    /// Request header that contains the name of the upstream cluster.
    #[prost(string, optional, tag = "2")]
    pub cluster_header: Option<String>,
    /// Several upstream clusters with weights.
    #[prost(message, optional, tag = "3")]
    pub weighted_clusters: Option<WeightedClusterMessage>,
    /// Metadata that hosts must have; selects a subset in clusters with subset load balancing.
    #[prost(message, optional, tag = "4")]
    pub metadata_match: Option<MetadataMessage>,
    /// Replaces the matched prefix of the path before the request is forwarded.
    #[prost(string, tag = "5")]
    pub prefix_rewrite: String,
    /// Replaces the host of the request before it is forwarded.
    #[prost(string, tag = "6")]
    pub host_rewrite_literal: String,
    #[prost(message, optional, tag = "7")]
    pub auto_host_rewrite: Option<bool>,
    /// Timeout until the end of the response, including retries; `0s` disables it. Default `15s`.
    #[prost(message, optional, tag = "8")]
    pub timeout: Option<DurationMessage>,
    /// When and how often a request is retried.
    #[prost(message, optional, tag = "9")]
    pub retry_policy: Option<RetryPolicyMessage>,
    /// Request attributes that are hashed for `RING_HASH` and `MAGLEV`.
    #[prost(message, repeated, tag = "15")]
    pub hash_policy: Vec<HashPolicyMessage>,
    /// Timeout for a request without activity in either direction. Default that of the listener.
    #[prost(message, optional, tag = "24")]
    pub idle_timeout: Option<DurationMessage>,
    /// Clusters that get copies of requests.
    #[prost(message, repeated, tag = "30")]
    pub request_mirror_policies: Vec<RequestMirrorPolicyMessage>,
    #[prost(message, optional, tag = "36")]
    pub max_stream_duration: Option<MaxStreamDurationMessage>,
    #[prost(string, optional, tag = "37")]
    pub cluster_specifier_plugin: Option<String>,
    /// Add the original host to `x-forwarded-host` when the host is rewritten.
    #[prost(bool, tag = "38")]
    pub append_x_forwarded_host: bool,
}

/// `RouteAction.HashPolicy`: a source of the request hash.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.HashPolicy")]
#[schema(unused = "2 cookie, 5 query_parameter")]
pub struct HashPolicyMessage {
    /// Hash a request header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HashHeaderMessage>,
    /// Hash the IP address of the client.
    #[prost(message, optional, tag = "3")]
    pub connection_properties: Option<ConnectionPropertiesMessage>,
    /// Skip the remaining hash policies if this one produced a hash.
    #[prost(bool, tag = "4")]
    pub terminal: bool,
    #[prost(message, optional, tag = "6")]
    pub filter_state: Option<FilterStateMessage>,
}

/// `RouteAction.HashPolicy.Header`: hashes a request header.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.HashPolicy.Header")]
pub struct HashHeaderMessage {
    /// Name of the request header to hash.
    #[prost(string, tag = "1")]
    pub header_name: String,
    #[prost(message, optional, tag = "2")]
    #[schema(opaque)]
    pub regex_rewrite: Option<()>,
}

/// `RouteAction.HashPolicy.ConnectionProperties`: hashes the client's address.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.HashPolicy.ConnectionProperties")]
pub struct ConnectionPropertiesMessage {
    /// Hash the source address; must be true.
    #[prost(bool, tag = "1")]
    pub source_ip: bool,
}

/// `RouteAction.HashPolicy.FilterState`: hashes an attribute of the channel.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.HashPolicy.FilterState")]
pub struct FilterStateMessage {
    #[prost(string, tag = "1")]
    pub key: String,
}

/// `RouteAction.MaxStreamDuration`: deadlines of gRPC clients.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RouteAction.MaxStreamDuration")]
#[schema(unused = "3 grpc_timeout_header_offset")]
pub struct MaxStreamDurationMessage {
    #[prost(message, optional, tag = "1")]
    pub max_stream_duration: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub grpc_timeout_header_max: Option<DurationMessage>,
}

/// `RedirectAction`: a redirect response.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RedirectAction")]
pub struct RedirectMessage {
    /// Host of the new URL. Default the host of the request.
    #[prost(string, tag = "1")]
    pub host_redirect: String,
    /// Path of the new URL. Default the path of the request.
    #[prost(string, tag = "2")]
    pub path_redirect: String,
    /// Status of the response. Default `MOVED_PERMANENTLY`.
    #[prost(int32, tag = "3")]
    #[schema(values = RedirectCode)]
    pub response_code: i32,
    /// Redirect to the `https` scheme.
    #[prost(bool, tag = "4")]
    pub https_redirect: bool,
    /// Replaces the matched prefix of the path.
    #[prost(string, tag = "5")]
    pub prefix_rewrite: String,
    /// Remove the query string.
    #[prost(bool, tag = "6")]
    pub strip_query: bool,
    /// Scheme of the new URL.
    #[prost(string, tag = "7")]
    pub scheme_redirect: String,
    /// Port of the new URL.
    #[prost(uint32, tag = "8")]
    pub port_redirect: u32,
    #[prost(message, optional, tag = "9")]
    #[schema(opaque)]
    pub regex_rewrite: Option<()>,
}

/// `DirectResponseAction`: a response that the proxy sends itself.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.DirectResponseAction")]
#[schema(unused = "3 body_format")]
pub struct DirectResponseMessage {
    /// HTTP status of the response, 200 to 599. Must be set.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// Body of the response. Default empty.
    #[prost(message, optional, tag = "2")]
    pub body: Option<DataSourceMessage>,
}

/// `WeightedCluster`: upstream clusters with weights.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.WeightedCluster")]
#[schema(harmless = "3 total_weight")]
#[schema(unused = "2 runtime_key_prefix, 4 header_name, 5 use_hash_policy")]
pub struct WeightedClusterMessage {
    /// Clusters among which requests are split by weight.
    #[prost(message, repeated, tag = "1")]
    pub clusters: Vec<ClusterWeightMessage>,
}

/// `WeightedCluster.ClusterWeight`: one cluster and its weight.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.route.v3.WeightedCluster.ClusterWeight")]
#[schema(unused = "10 typed_per_filter_config, 11 host_rewrite_literal, 12 cluster_header")]
pub struct ClusterWeightMessage {
    /// Name of the cluster. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Weight of the cluster relative to the others. Must be set.
    #[prost(message, optional, tag = "2")]
    pub weight: Option<u32>,
    /// Metadata that hosts of this cluster must have; merged over the criteria of the route.
    #[prost(message, optional, tag = "3")]
    pub metadata_match: Option<MetadataMessage>,
    /// Headers to add to requests to this cluster.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to add to responses from this cluster.
    #[prost(message, repeated, tag = "5")]
    pub response_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Headers to remove from responses from this cluster.
    #[prost(string, repeated, tag = "6")]
    pub response_headers_to_remove: Vec<String>,
    /// Headers to remove from requests to this cluster.
    #[prost(string, repeated, tag = "9")]
    pub request_headers_to_remove: Vec<String>,
}

/// `RetryPolicy`: when and how often a request is retried.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RetryPolicy")]
#[schema(
    unused = "4 retry_priority, 9 retriable_headers, 10 retriable_request_headers, \
          11 rate_limited_retry_back_off, 12 retry_options_predicates, 13 per_try_idle_timeout"
)]
pub struct RetryPolicyMessage {
    /// Comma-separated retry conditions of Envoy, such as `5xx,connect-failure`.
    #[prost(string, tag = "1")]
    pub retry_on: String,
    /// Maximum number of retries after the first attempt. Default 1.
    #[prost(message, optional, tag = "2")]
    pub num_retries: Option<u32>,
    /// Timeout of each attempt; `0s` means no limit. Default no limit.
    #[prost(message, optional, tag = "3")]
    pub per_try_timeout: Option<DurationMessage>,
    /// Hosts that retries avoid; only `envoy.retry_host_predicates.previous_hosts` is supported.
    #[prost(message, repeated, tag = "5")]
    pub retry_host_predicate: Vec<RetryHostPredicateMessage>,
    /// Attempts to select a host that was not tried yet. Accepted and ignored: one selection avoids
    /// all tried hosts.
    #[prost(int64, tag = "6")]
    pub host_selection_retry_max_attempts: i64,
    /// Statuses that are retried with the condition `retriable-status-codes`.
    #[prost(uint32, repeated, tag = "7")]
    pub retriable_status_codes: Vec<u32>,
    /// Delay between retries (exponential backoff).
    #[prost(message, optional, tag = "8")]
    pub retry_back_off: Option<RetryBackOffMessage>,
}

/// `RetryPolicy.RetryHostPredicate`: excludes hosts from retries.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RetryPolicy.RetryHostPredicate")]
pub struct RetryHostPredicateMessage {
    /// Name of the extension.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Configuration of the extension, which has no fields.
    #[prost(message, optional, tag = "3")]
    pub typed_config: Option<AnyMessage>,
}

/// `RetryPolicy.RetryBackOff`: delays between retries.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.route.v3.RetryPolicy.RetryBackOff")]
pub struct RetryBackOffMessage {
    /// Delay before the first retry, above 0. Default `0.025s` without the message.
    #[prost(message, optional, tag = "1")]
    pub base_interval: Option<DurationMessage>,
    /// Maximum delay between retries. Default ten times the first.
    #[prost(message, optional, tag = "2")]
    pub max_interval: Option<DurationMessage>,
}
