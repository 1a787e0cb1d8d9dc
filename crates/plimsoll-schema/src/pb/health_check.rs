//! `envoy.config.core.v3.HealthCheck`: active health checks of a cluster's hosts.

use bytes::Bytes;
use plimsoll_core::model::transport::{HttpMethod, HttpVersion};
use plimsoll_schema_derive::Described;
use prost::Message;

use super::DurationMessage;
use super::route::HeaderValueOptionMessage;
use super::tls::StringMatcherMessage;

/// `HealthCheck`: an active health check of hosts.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck")]
#[schema(harmless = "13 custom_health_check")]
#[schema(unused = "17 event_log_path, 22 event_service, 25 event_logger, 27 name")]
#[schema(changes_request = "23 transport_socket_match_criteria")]
pub struct HealthCheckMessage {
    /// Timeout of a health check. Must be set.
    #[prost(message, optional, tag = "1")]
    pub timeout: Option<DurationMessage>,
    /// Interval between health checks of a host. Must be set.
    #[prost(message, optional, tag = "2")]
    pub interval: Option<DurationMessage>,
    /// Maximum random time that is added to each interval. Default `0s`.
    #[prost(message, optional, tag = "3")]
    pub interval_jitter: Option<DurationMessage>,
    /// Consecutive failures after which a host is unhealthy. Must be set.
    #[prost(message, optional, tag = "4")]
    pub unhealthy_threshold: Option<u32>,
    /// Consecutive successes after which a host is healthy. Must be set.
    #[prost(message, optional, tag = "5")]
    pub healthy_threshold: Option<u32>,
    /// Port for health checks instead of the endpoint's port.
    #[prost(message, optional, tag = "6")]
    pub alt_port: Option<u32>,
    /// Whether health checks reuse a connection. Default true.
    #[prost(message, optional, tag = "7")]
    pub reuse_connection: Option<bool>,
    /// Check by an HTTP request. One of `http_health_check`, `tcp_health_check` and
    /// `grpc_health_check` must be set.
    #[prost(message, optional, tag = "8")]
    pub http_health_check: Option<HttpCheckMessage>,
    /// Check by connecting, optionally with an exchange of bytes.
    #[prost(message, optional, tag = "9")]
    pub tcp_health_check: Option<TcpCheckMessage>,
    /// Check by calling `grpc.health.v1.Health`.
    #[prost(message, optional, tag = "11")]
    pub grpc_health_check: Option<GrpcCheckMessage>,
    /// Interval while the cluster has not received any request yet. Default `60s`.
    #[prost(message, optional, tag = "12")]
    pub no_traffic_interval: Option<DurationMessage>,
    /// Interval between checks of an unhealthy host. Default `interval`.
    #[prost(message, optional, tag = "14")]
    pub unhealthy_interval: Option<DurationMessage>,
    /// Interval after the first failure of a healthy host. Default `unhealthy_interval`.
    #[prost(message, optional, tag = "15")]
    pub unhealthy_edge_interval: Option<DurationMessage>,
    /// Interval after the first success of an unhealthy host. Default `interval`.
    #[prost(message, optional, tag = "16")]
    pub healthy_edge_interval: Option<DurationMessage>,
    /// Maximum random time that is added to each interval, in percent of the interval. Default 0.
    #[prost(uint32, tag = "18")]
    pub interval_jitter_percent: u32,
    /// Log every failed check, not only changes of health.
    #[prost(bool, tag = "19")]
    #[schema(unread = "unused")]
    pub always_log_health_check_failures: bool,
    /// Maximum random delay of the first check. Default `0s`.
    #[prost(message, optional, tag = "20")]
    pub initial_jitter: Option<DurationMessage>,
    /// ALPN protocols of connections for health checks.
    #[prost(message, optional, tag = "21")]
    #[schema(unread = "changes_request")]
    pub tls_options: Option<HealthCheckTlsMessage>,
    /// Interval between checks of a healthy host while the cluster has not received any request
    /// yet. Default `no_traffic_interval`.
    #[prost(message, optional, tag = "24")]
    pub no_traffic_healthy_interval: Option<DurationMessage>,
    /// Log every successful check.
    #[prost(bool, tag = "26")]
    #[schema(unread = "unused")]
    pub always_log_health_check_success: bool,
}

/// `HealthCheck.TlsOptions`: TLS of connections for health checks.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.TlsOptions")]
pub struct HealthCheckTlsMessage {
    /// ALPN protocols to offer.
    #[prost(string, repeated, tag = "1")]
    pub alpn_protocols: Vec<String>,
}

/// `HealthCheck.HttpHealthCheck`: check by an HTTP request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.HttpHealthCheck")]
#[schema(changes_request = "15 use_alpn_protocol")]
pub struct HttpCheckMessage {
    /// `Host` header. Default the hostname of the endpoint, else the name of the cluster.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Path of the check; must start with a slash.
    #[prost(string, tag = "2")]
    pub path: String,
    /// Body of the check; needs a method with a body.
    #[prost(message, optional, tag = "3")]
    #[schema(unread = "changes_request")]
    pub send: Option<PayloadMessage>,
    /// Byte sequences that the response must contain, in this order.
    #[prost(message, repeated, tag = "4")]
    #[schema(unread = "changes_request")]
    pub receive: Vec<PayloadMessage>,
    /// Headers to add to the check.
    #[prost(message, repeated, tag = "6")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Names of headers to remove from the check.
    #[prost(string, repeated, tag = "8")]
    #[schema(unread = "changes_request")]
    pub request_headers_to_remove: Vec<String>,
    /// Statuses of a healthy host. Default 200.
    #[prost(message, repeated, tag = "9")]
    pub expected_statuses: Vec<Int64RangeMessage>,
    /// HTTP version of the check. Default `HTTP1`.
    #[prost(int32, tag = "10")]
    #[schema(values = HttpVersion)]
    pub codec_client_type: i32,
    /// The name that a host must have in the header `x-envoy-upstream-healthchecked-cluster`.
    #[prost(message, optional, tag = "11")]
    #[schema(unread = "changes_request")]
    pub service_name_matcher: Option<StringMatcherMessage>,
    /// Statuses that count toward `unhealthy_threshold` instead of failing immediately.
    #[prost(message, repeated, tag = "12")]
    pub retriable_statuses: Vec<Int64RangeMessage>,
    /// HTTP method of the check. Default `GET`.
    #[prost(int32, tag = "13")]
    #[schema(values = HttpMethod)]
    pub method: i32,
    /// Bytes of the response that are compared with `receive`. Default 1024.
    #[prost(message, optional, tag = "14")]
    #[schema(unread = "unused")]
    pub response_buffer_size: Option<u64>,
}

/// `HealthCheck.TcpHealthCheck`: check by a TCP connection.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.TcpHealthCheck")]
#[schema(changes_request = "3 proxy_protocol_config")]
pub struct TcpCheckMessage {
    /// Bytes to send; if not set, a successful connection is enough.
    #[prost(message, optional, tag = "1")]
    pub send: Option<PayloadMessage>,
    /// Byte sequences that the response must contain, in this order.
    #[prost(message, repeated, tag = "2")]
    pub receive: Vec<PayloadMessage>,
}

/// `HealthCheck.Payload`: bytes to send or expect.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.Payload")]
pub struct PayloadMessage {
    /// Bytes in hexadecimal notation.
    #[prost(string, optional, tag = "1")]
    pub text: Option<String>,
    /// Bytes in base64 encoding.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub binary: Option<Bytes>,
}

/// `HealthCheck.GrpcHealthCheck`: check by `grpc.health.v1.Health`.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.GrpcHealthCheck")]
pub struct GrpcCheckMessage {
    /// Name of the service to check; empty checks the server as a whole.
    #[prost(string, tag = "1")]
    pub service_name: String,
    /// `:authority` of the check. Default the name of the cluster.
    #[prost(string, tag = "2")]
    pub authority: String,
    /// Headers to add to the check.
    #[prost(message, repeated, tag = "3")]
    pub initial_metadata: Vec<HeaderValueOptionMessage>,
}

/// `envoy.type.v3.Int64Range`: a half-open range of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.v3.Int64Range")]
pub struct Int64RangeMessage {
    /// First number of the range.
    #[prost(int64, tag = "1")]
    pub start: i64,
    /// First number after the range.
    #[prost(int64, tag = "2")]
    pub end: i64,
}
