//! `tracing` of an HTTP connection manager, and the OpenTelemetry tracer.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::route::{HeaderValueMessage, HeaderValueOptionMessage};
use super::{AnyMessage, DurationMessage, PercentMessage};

/// `HttpConnectionManager.Tracing`: which requests get a span, and what becomes of it.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing"
)]
#[schema(changes_request = "10 spawn_upstream_span, 11 operation, 12 upstream_operation")]
#[schema(unused = "6 verbose")]
pub struct TracingMessage {
    /// Share of the requests with `x-client-trace-id` that are sampled, in whole percents.
    /// Default 100.
    #[prost(message, optional, tag = "3")]
    pub client_sampling: Option<PercentMessage>,
    /// Share of the other requests that are sampled, in hundredths of a percent. Default 100.
    #[prost(message, optional, tag = "4")]
    pub random_sampling: Option<PercentMessage>,
    /// Limit of all sampled requests, in whole percents. Default 100.
    #[prost(message, optional, tag = "5")]
    pub overall_sampling: Option<PercentMessage>,
    /// Longest path in `http.url`, in bytes; the rest is cut off. Default 256.
    #[prost(message, optional, tag = "7")]
    pub max_path_tag_length: Option<u32>,
    /// Further attributes of every span.
    #[prost(message, repeated, tag = "8")]
    pub custom_tags: Vec<CustomTagMessage>,
    /// Tracer, always `envoy.tracers.opentelemetry`. Must be set.
    #[prost(message, optional, tag = "9")]
    pub provider: Option<TracingProviderMessage>,
}

/// `envoy.type.tracing.v3.CustomTag`: an attribute of every span.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.tracing.v3.CustomTag")]
#[schema(changes_request = "3 environment, 5 metadata, 6 value")]
pub struct CustomTagMessage {
    /// Name of the attribute. Must be set.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// A constant value. One of `literal` and `request_header` must be set.
    #[prost(message, optional, tag = "2")]
    pub literal: Option<LiteralTagMessage>,
    /// The value of a request header.
    #[prost(message, optional, tag = "4")]
    pub request_header: Option<HeaderTagMessage>,
}

/// `CustomTag.Literal`: a constant value.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.tracing.v3.CustomTag.Literal")]
pub struct LiteralTagMessage {
    /// The value. Must be set.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// `CustomTag.Header`: the value of a request header.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.tracing.v3.CustomTag.Header")]
pub struct HeaderTagMessage {
    /// Name of the header. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value for requests without the header. Default no attribute.
    #[prost(string, tag = "2")]
    pub default_value: String,
}

/// `envoy.config.trace.v3.Tracing.Http`: selects the tracer by the type of its settings.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.trace.v3.Tracing.Http")]
pub struct TracingProviderMessage {
    /// Name of the tracer; has no effect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type and settings of the tracer: `envoy.config.trace.v3.OpenTelemetryConfig`. Must be set.
    #[prost(message, optional, tag = "3")]
    #[schema(types = TRACERS)]
    pub typed_config: Option<AnyMessage>,
}

/// `envoy.config.trace.v3.OpenTelemetryConfig`: spans are sent to a collector by OTLP.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.trace.v3.OpenTelemetryConfig")]
#[schema(changes_request = "4 resource_detectors, 5 sampler")]
pub struct OpenTelemetryConfigMessage {
    /// Collector that is reached by gRPC. Without it and `http_service`, the trace context is
    /// handed on but no span is sent.
    #[prost(message, optional, tag = "1")]
    pub grpc_service: Option<TraceGrpcServiceMessage>,
    /// `service.name` of the spans. Default `unknown_service:plimsoll`.
    #[prost(string, tag = "2")]
    pub service_name: String,
    /// Collector that is reached by HTTP, with protobuf bodies.
    #[prost(message, optional, tag = "3")]
    pub http_service: Option<TraceHttpServiceMessage>,
    /// Most spans that wait for the collector; more are dropped and counted. Default 1024.
    #[prost(message, optional, tag = "6")]
    pub max_cache_size: Option<u32>,
}

/// `envoy.config.core.v3.GrpcService`: a collector that is reached by gRPC.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.GrpcService")]
#[schema(changes_request = "2 google_grpc, 6 retry_policy")]
pub struct TraceGrpcServiceMessage {
    /// The collector, as a cluster. Must be set.
    #[prost(message, optional, tag = "1")]
    pub envoy_grpc: Option<TraceEnvoyGrpcMessage>,
    /// Timeout of an export; `0s` is the default, `10s`.
    #[prost(message, optional, tag = "3")]
    pub timeout: Option<DurationMessage>,
    /// Request headers of every export, such as a token.
    #[prost(message, repeated, tag = "5")]
    pub initial_metadata: Vec<HeaderValueMessage>,
}

/// `GrpcService.EnvoyGrpc`: the cluster of a collector.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.GrpcService.EnvoyGrpc")]
#[schema(harmless = "5 skip_envoy_headers")]
#[schema(changes_request = "3 retry_policy, 4 max_receive_message_length")]
pub struct TraceEnvoyGrpcMessage {
    /// Name of the cluster, which must use HTTP/2. Must be set.
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    /// `:authority` of the exports. Default the name of the cluster.
    #[prost(string, tag = "2")]
    pub authority: String,
}

/// `envoy.config.core.v3.HttpService`: a collector that is reached by HTTP.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HttpService")]
pub struct TraceHttpServiceMessage {
    /// Address of the collector. Must be set.
    #[prost(message, optional, tag = "1")]
    pub http_uri: Option<HttpUriMessage>,
    /// Request headers of every export, such as a token. Operators such as `%START_TIME%` are not
    /// supported.
    #[prost(message, repeated, tag = "2")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
}

/// `envoy.config.core.v3.HttpUri`: host and path of a collector, and its cluster.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HttpUri")]
pub struct HttpUriMessage {
    /// The URI, such as `http://collector:4318/v1/traces`. Its host becomes the `host` header; the
    /// cluster has the address. Must be set.
    #[prost(string, tag = "1")]
    pub uri: String,
    /// Name of the cluster. Must be set.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Timeout of an export. Must be set.
    #[prost(message, optional, tag = "3")]
    pub timeout: Option<DurationMessage>,
}
