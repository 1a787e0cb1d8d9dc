//! `envoy.config.route.v3`. Fields of type `()` are read only to say that they are there.

use prost::Message;

use super::endpoint::FractionalPercentMessage;
use super::metadata::MetadataMessage;
use super::tls::{DataSourceMessage, RegexMessage, StringMatcherMessage};
use super::upstream::Int64RangeMessage;
use super::{AnyMessage, DurationMessage};

/// `RouteConfiguration`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RouteConfigurationMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) virtual_hosts: Vec<VirtualHostMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) response_headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) request_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) request_headers_to_remove: Vec<String>,
    #[prost(message, optional, tag = "9")]
    pub(crate) vhds: Option<()>,
    #[prost(bool, tag = "10")]
    pub(crate) most_specific_header_mutations_wins: bool,
    #[prost(bool, tag = "14")]
    pub(crate) ignore_port_in_host_matching: bool,
}

/// `VirtualHost`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VirtualHostMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) domains: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) routes: Vec<RouteMessage>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) request_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(string, repeated, tag = "11")]
    pub(crate) response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "13")]
    pub(crate) request_headers_to_remove: Vec<String>,
    #[prost(message, optional, tag = "16")]
    pub(crate) retry_policy: Option<RetryPolicyMessage>,
    #[prost(message, optional, tag = "21")]
    pub(crate) matcher: Option<()>,
}

/// `Route`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RouteMessage {
    /// `match`
    #[prost(message, optional, tag = "1")]
    pub(crate) route_match: Option<RouteMatchMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) route: Option<RouteActionMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) redirect: Option<RedirectMessage>,
    #[prost(message, optional, tag = "7")]
    pub(crate) direct_response: Option<DirectResponseMessage>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) request_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(string, repeated, tag = "11")]
    pub(crate) response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "12")]
    pub(crate) request_headers_to_remove: Vec<String>,
    #[prost(string, tag = "14")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "17")]
    pub(crate) filter_action: Option<()>,
    #[prost(message, optional, tag = "18")]
    pub(crate) non_forwarding_action: Option<()>,
}

/// `envoy.config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HeaderValueOptionMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HeaderValueMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) append: Option<bool>,
    #[prost(int32, tag = "3")]
    pub(crate) append_action: i32,
    #[prost(bool, tag = "4")]
    pub(crate) keep_empty_value: bool,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HeaderValueMessage {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `RouteMatch`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RouteMatchMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) prefix: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) path: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) case_sensitive: Option<bool>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) headers: Vec<HeaderMatcherMessage>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) query_parameters: Vec<QueryParameterMessage>,
    #[prost(message, optional, tag = "8")]
    pub(crate) grpc: Option<()>,
    #[prost(message, optional, tag = "9")]
    pub(crate) runtime_fraction: Option<RuntimeFractionMessage>,
    #[prost(message, optional, tag = "10")]
    pub(crate) safe_regex: Option<RegexMessage>,
    #[prost(message, optional, tag = "11")]
    pub(crate) tls_context: Option<()>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) dynamic_metadata: Vec<()>,
    #[prost(string, optional, tag = "14")]
    pub(crate) path_separated_prefix: Option<String>,
    #[prost(message, repeated, tag = "16")]
    pub(crate) filter_state: Vec<()>,
}

/// `HeaderMatcher`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HeaderMatcherMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "4")]
    pub(crate) exact_match: Option<String>,
    #[prost(message, optional, tag = "6")]
    pub(crate) range_match: Option<Int64RangeMessage>,
    #[prost(bool, optional, tag = "7")]
    pub(crate) present_match: Option<bool>,
    #[prost(bool, tag = "8")]
    pub(crate) invert_match: bool,
    #[prost(string, optional, tag = "9")]
    pub(crate) prefix_match: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub(crate) suffix_match: Option<String>,
    #[prost(message, optional, tag = "11")]
    pub(crate) safe_regex_match: Option<RegexMessage>,
    #[prost(string, optional, tag = "12")]
    pub(crate) contains_match: Option<String>,
    #[prost(message, optional, tag = "13")]
    pub(crate) string_match: Option<StringMatcherMessage>,
    #[prost(bool, tag = "14")]
    pub(crate) treat_missing_header_as_empty: bool,
}

/// `QueryParameterMatcher`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct QueryParameterMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) string_match: Option<StringMatcherMessage>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) present_match: Option<bool>,
}

/// `envoy.config.core.v3.RuntimeFractionalPercent`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RuntimeFractionMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) default_value: Option<FractionalPercentMessage>,
}

/// `RouteAction`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RouteActionMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) cluster: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) cluster_header: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) weighted_clusters: Option<WeightedClusterMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) metadata_match: Option<MetadataMessage>,
    #[prost(string, tag = "5")]
    pub(crate) prefix_rewrite: String,
    #[prost(string, tag = "6")]
    pub(crate) host_rewrite_literal: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) auto_host_rewrite: Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub(crate) timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "9")]
    pub(crate) retry_policy: Option<RetryPolicyMessage>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) hash_policy: Vec<HashPolicyMessage>,
    #[prost(message, optional, tag = "24")]
    pub(crate) idle_timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "36")]
    pub(crate) max_stream_duration: Option<MaxStreamDurationMessage>,
    #[prost(string, optional, tag = "37")]
    pub(crate) cluster_specifier_plugin: Option<String>,
    #[prost(bool, tag = "38")]
    pub(crate) append_x_forwarded_host: bool,
}

/// `RouteAction.HashPolicy`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HashPolicyMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HashHeaderMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) connection_properties: Option<ConnectionPropertiesMessage>,
    #[prost(bool, tag = "4")]
    pub(crate) terminal: bool,
    #[prost(message, optional, tag = "6")]
    pub(crate) filter_state: Option<FilterStateMessage>,
}

/// `RouteAction.HashPolicy.Header`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HashHeaderMessage {
    #[prost(string, tag = "1")]
    pub(crate) header_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) regex_rewrite: Option<()>,
}

/// `RouteAction.HashPolicy.ConnectionProperties`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConnectionPropertiesMessage {
    #[prost(bool, tag = "1")]
    pub(crate) source_ip: bool,
}

/// `RouteAction.HashPolicy.FilterState`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FilterStateMessage {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
}

/// `RouteAction.MaxStreamDuration`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MaxStreamDurationMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) max_stream_duration: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) grpc_timeout_header_max: Option<DurationMessage>,
}

/// `RedirectAction`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RedirectMessage {
    #[prost(string, tag = "1")]
    pub(crate) host_redirect: String,
    #[prost(string, tag = "2")]
    pub(crate) path_redirect: String,
    #[prost(int32, tag = "3")]
    pub(crate) response_code: i32,
    #[prost(bool, tag = "4")]
    pub(crate) https_redirect: bool,
    #[prost(string, tag = "5")]
    pub(crate) prefix_rewrite: String,
    #[prost(bool, tag = "6")]
    pub(crate) strip_query: bool,
    #[prost(string, tag = "7")]
    pub(crate) scheme_redirect: String,
    #[prost(uint32, tag = "8")]
    pub(crate) port_redirect: u32,
    #[prost(message, optional, tag = "9")]
    pub(crate) regex_rewrite: Option<()>,
}

/// `DirectResponseAction`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DirectResponseMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) status: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) body: Option<DataSourceMessage>,
}

/// `WeightedCluster`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WeightedClusterMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clusters: Vec<ClusterWeightMessage>,
}

/// `WeightedCluster.ClusterWeight`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterWeightMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) weight: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata_match: Option<MetadataMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) request_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) response_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) response_headers_to_remove: Vec<String>,
    #[prost(string, repeated, tag = "9")]
    pub(crate) request_headers_to_remove: Vec<String>,
}

/// `RetryPolicy`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RetryPolicyMessage {
    #[prost(string, tag = "1")]
    pub(crate) retry_on: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) num_retries: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) per_try_timeout: Option<DurationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) retry_host_predicate: Vec<RetryHostPredicateMessage>,
    #[prost(int64, tag = "6")]
    pub(crate) host_selection_retry_max_attempts: i64,
    #[prost(uint32, repeated, tag = "7")]
    pub(crate) retriable_status_codes: Vec<u32>,
    #[prost(message, optional, tag = "8")]
    pub(crate) retry_back_off: Option<RetryBackOffMessage>,
}

/// `RetryPolicy.RetryHostPredicate`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RetryHostPredicateMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) typed_config: Option<AnyMessage>,
}

/// `RetryPolicy.RetryBackOff`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RetryBackOffMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) base_interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) max_interval: Option<DurationMessage>,
}
