//! `tracing` of a connection manager: sampling, attributes of spans, and the collector.

use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue, Uri};
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::route::HeaderValueMessage;
use plimsoll_xds::pb::trace::{
    CustomTagMessage, OpenTelemetryConfigMessage, TraceGrpcServiceMessage, TraceHttpServiceMessage,
    TracingMessage, TracingProviderMessage,
};
use plimsoll_xds::pb::{DurationMessage, PercentMessage, duration};

use super::extension::typed_config;

const DEFAULT_SERVICE_NAME: &str = "unknown_service:plimsoll";
/// Longest path in `http.url`, as in Envoy.
const MAX_PATH_TAG_LENGTH: u32 = 256;
/// Spans that may wait for the collector, as in Envoy.
const MAX_CACHE_SIZE: u32 = 1024;
/// Timeout of an export by gRPC. Envoy has none by default; a collector that accepts connections
/// and never answers would then stop all exports.
const TIMEOUT: Duration = Duration::from_secs(10);
const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Tracing of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingConfig {
    pub sampling: Sampling,
    /// Longest path in `http.url`, in bytes.
    pub max_path_tag_length: usize,
    pub custom_tags: Vec<CustomTag>,
    /// `None` hands the trace context on without sending spans.
    pub collector: Option<Arc<CollectorConfig>>,
}

/// Shares of requests that are sampled, with the precision that they have in Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Percent of the requests with `x-client-trace-id`.
    pub client: u64,
    /// Hundredths of a percent of the other requests.
    pub random: u64,
    /// Percent of all requests.
    pub overall: u64,
}

/// An attribute that every span gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomTag {
    pub name: String,
    pub value: TagValue,
}

/// Source of the value of a custom tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagValue {
    Literal(String),
    RequestHeader {
        name: HeaderName,
        /// For requests without the header; empty is no attribute.
        default: String,
    },
}

/// Address of an OTLP collector. Listeners with equal collectors share one exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorConfig {
    pub protocol: OtlpProtocol,
    /// Cluster that has the address.
    pub cluster: String,
    /// Value of `host`; `None` is the cluster's own.
    pub authority: Option<Authority>,
    pub path: PathAndQuery,
    /// Request headers of every export.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Time limit of one attempt to export.
    pub timeout: Duration,
    pub service_name: String,
    /// Most spans that wait to be exported.
    pub max_cache_size: usize,
}

impl CollectorConfig {
    /// Path of the cluster's name in `OpenTelemetryConfig`.
    pub(super) const fn cluster_field(&self) -> &'static str {
        match self.protocol {
            OtlpProtocol::Grpc => "grpc_service.envoy_grpc.cluster_name",
            OtlpProtocol::Http => "http_service.http_uri.cluster",
        }
    }
}

/// How OTLP is spoken to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    Grpc,
    /// A protobuf message per POST request.
    Http,
}

/// Converts a `Tracing` message; error paths are relative to it.
pub(super) fn tracing(message: TracingMessage) -> Result<TracingConfig, FieldError> {
    let sampling = Sampling {
        client: percent(message.client_sampling, 1.0, "client_sampling")?,
        random: percent(message.random_sampling, 100.0, "random_sampling")?,
        overall: percent(message.overall_sampling, 1.0, "overall_sampling")?,
    };
    let mut custom_tags = Vec::new();
    for (index, tag) in message.custom_tags.into_iter().enumerate() {
        let tag = custom_tag(tag).map_err(|error| error.under(&format!("custom_tags[{index}]")))?;
        custom_tags.push(tag);
    }
    let length = message.max_path_tag_length.unwrap_or(MAX_PATH_TAG_LENGTH);
    Ok(TracingConfig {
        sampling,
        max_path_tag_length: length.try_into().unwrap_or(usize::MAX),
        custom_tags,
        collector: provider(message.provider).map_err(|error| error.under("provider"))?,
    })
}

/// Converts a percentage to a whole number of `1 / scale` percents; Envoy rounds down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is from 0 to 100"
)]
fn percent(value: Option<PercentMessage>, scale: f64, field: &str) -> Result<u64, FieldError> {
    let value = value.map_or(100.0, |percent| percent.value);
    if (0.0..=100.0).contains(&value) {
        return Ok((value * scale) as u64);
    }
    let reason = format!("must be from 0 to 100, not {value}");
    Err(FieldError::new(format!("{field}.value"), reason))
}

fn custom_tag(tag: CustomTagMessage) -> Result<CustomTag, FieldError> {
    let name = required(tag.tag, "tag")?;
    let value = match (tag.literal, tag.request_header) {
        (Some(literal), None) => TagValue::Literal(required(literal.value, "literal.value")?),
        (None, Some(header)) => TagValue::RequestHeader {
            name: HeaderName::try_from(&header.name).map_err(|error| {
                let reason = format!("{:?}: {error}", header.name);
                FieldError::new("request_header.name", reason)
            })?,
            default: header.default_value,
        },
        _ => {
            let reason = "must have exactly one of literal and request_header";
            return Err(FieldError::new("", reason));
        }
    };
    Ok(CustomTag { name, value })
}

fn provider(
    provider: Option<TracingProviderMessage>,
) -> Result<Option<Arc<CollectorConfig>>, FieldError> {
    let provider = provider.ok_or_else(|| FieldError::new("", "must be set"))?;
    let config = typed_config(provider.typed_config)?;
    collector(config).map_err(|error| error.under("typed_config"))
}

fn collector(
    config: OpenTelemetryConfigMessage,
) -> Result<Option<Arc<CollectorConfig>>, FieldError> {
    let mut collector = match (config.grpc_service, config.http_service) {
        (None, None) => return Ok(None),
        (Some(grpc), None) => grpc_collector(grpc).map_err(|error| error.under("grpc_service"))?,
        (None, Some(http)) => http_collector(http).map_err(|error| error.under("http_service"))?,
        (Some(_), Some(_)) => {
            let reason = "cannot be combined with grpc_service";
            return Err(FieldError::new("http_service", reason));
        }
    };
    if !config.service_name.is_empty() {
        collector.service_name = config.service_name;
    }
    let size = config.max_cache_size.unwrap_or(MAX_CACHE_SIZE);
    if size == 0 {
        return Err(FieldError::new("max_cache_size", "must be at least 1"));
    }
    collector.max_cache_size = size.try_into().unwrap_or(usize::MAX);
    Ok(Some(Arc::new(collector)))
}

fn grpc_collector(service: TraceGrpcServiceMessage) -> Result<CollectorConfig, FieldError> {
    let envoy = service
        .envoy_grpc
        .ok_or_else(|| FieldError::new("envoy_grpc", "must be set"))?;
    let cluster = required(envoy.cluster_name, "envoy_grpc.cluster_name")?;
    let authority = match &*envoy.authority {
        "" => None,
        written => Some(Authority::try_from(written).map_err(|error| {
            FieldError::new("envoy_grpc.authority", format!("{written:?}: {error}"))
        })?),
    };
    let mut headers = Vec::new();
    for (index, header) in service.initial_metadata.into_iter().enumerate() {
        let path = format!("initial_metadata[{index}]");
        headers.push(literal_header(header).map_err(|error| error.under(&path))?);
    }
    Ok(CollectorConfig {
        protocol: OtlpProtocol::Grpc,
        cluster,
        authority,
        path: PathAndQuery::from_static(EXPORT_PATH),
        headers,
        timeout: timeout(service.timeout, "timeout")?.unwrap_or(TIMEOUT),
        service_name: DEFAULT_SERVICE_NAME.to_owned(),
        max_cache_size: 0,
    })
}

fn http_collector(service: TraceHttpServiceMessage) -> Result<CollectorConfig, FieldError> {
    let uri = service
        .http_uri
        .ok_or_else(|| FieldError::new("http_uri", "must be set"))?;
    let parts = Uri::try_from(&uri.uri)
        .map_err(|error| FieldError::new("http_uri.uri", format!("{:?}: {error}", uri.uri)))?
        .into_parts();
    let (Some(authority), Some(path)) = (parts.authority, parts.path_and_query) else {
        let reason = format!(
            "{:?} must have a host, as in http://host/v1/traces",
            uri.uri
        );
        return Err(FieldError::new("http_uri.uri", reason));
    };
    let mut headers = Vec::new();
    for (index, option) in service.request_headers_to_add.into_iter().enumerate() {
        let path = format!("request_headers_to_add[{index}].header");
        let header = option.header.unwrap_or_default();
        headers.push(literal_header(header).map_err(|error| error.under(&path))?);
    }
    Ok(CollectorConfig {
        protocol: OtlpProtocol::Http,
        cluster: required(uri.cluster, "http_uri.cluster")?,
        authority: Some(authority),
        path,
        headers,
        timeout: timeout(uri.timeout, "http_uri.timeout")?
            .ok_or_else(|| FieldError::new("http_uri.timeout", "must be set and not be zero"))?,
        service_name: DEFAULT_SERVICE_NAME.to_owned(),
        max_cache_size: 0,
    })
}

/// Converts a header with a constant value: an export has no request that operators could refer to.
fn literal_header(header: HeaderValueMessage) -> Result<(HeaderName, HeaderValue), FieldError> {
    let name = HeaderName::try_from(&header.key)
        .map_err(|error| FieldError::new("key", format!("{:?}: {error}", header.key)))?;
    let invalid = |reason: &str| FieldError::new("value", reason);
    let value = match (header.value.is_empty(), header.raw_value) {
        (false, _) if header.value.contains('%') => {
            return Err(invalid("operators (%) are not supported"));
        }
        (false, _) => header.value.into_bytes(),
        (true, raw) => raw,
    };
    let value = HeaderValue::try_from(value).map_err(|_| invalid("is no valid header value"))?;
    Ok((name, value))
}

fn timeout(value: Option<DurationMessage>, path: &str) -> Result<Option<Duration>, FieldError> {
    Ok(duration(value, path)?.filter(|timeout| !timeout.is_zero()))
}

fn required(text: String, path: &str) -> Result<String, FieldError> {
    if text.is_empty() {
        return Err(FieldError::new(path, "must not be empty"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::schema::Described as _;
    use plimsoll_xds::schema::file::FileMessage;
    use plimsoll_xds::yaml::Document;

    use super::*;

    const OPEN_TELEMETRY: &str = OpenTelemetryConfigMessage::DESCRIPTOR.name;

    fn read(text: &str) -> Result<TracingConfig, String> {
        let document = Document::parse(text).unwrap();
        let written = document
            .read::<FileMessage<TracingMessage>>()
            .map_err(|error| format!("{}: {}", error.path(), error.reason()))?;
        written
            .message()
            .and_then(tracing)
            .map_err(|error| format!("{}: {}", error.path(), error.reason()))
    }

    fn provider(settings: &str) -> String {
        format!(
            "provider: {{name: envoy.tracers.opentelemetry, typed_config: {{'@type': \
             type.googleapis.com/{OPEN_TELEMETRY}, {settings}}}}}"
        )
    }

    #[test]
    fn defaults_are_those_of_envoy() {
        let config = read(&provider("grpc_service: {envoy_grpc: {cluster_name: c}}")).unwrap();
        let Sampling {
            client,
            random,
            overall,
        } = config.sampling;
        assert_eq!((client, random, overall), (100, 10_000, 100));
        assert_eq!(config.max_path_tag_length, 256);
        let collector = config.collector.unwrap();
        assert_eq!(collector.protocol, OtlpProtocol::Grpc);
        assert_eq!((&*collector.cluster, collector.max_cache_size), ("c", 1024));
        assert_eq!(collector.path, EXPORT_PATH);
        assert!(
            read(&provider("service_name: s"))
                .unwrap()
                .collector
                .is_none()
        );
    }

    #[test]
    fn all_settings_are_read() {
        let text = "random_sampling: {value: 12.345}\nclient_sampling: {value: 7.9}\n\
                    overall_sampling: {value: 50}\nmax_path_tag_length: 9\n\
                    custom_tags: [{tag: a, literal: {value: b}}, \
                    {tag: c, request_header: {name: X-D, default_value: e}}]\n";
        let http = "service_name: edge, max_cache_size: 5, http_service: {http_uri: \
                    {uri: 'https://otel.example:4318/v1/traces?x=1', cluster: c, timeout: 3s}, \
                    request_headers_to_add: [{header: {key: Authorization, value: t}}]}";
        let config = read(&format!("{text}{}", provider(http))).unwrap();
        let Sampling {
            client,
            random,
            overall,
        } = config.sampling;
        assert_eq!((client, random, overall), (7, 1234, 50));
        let header = TagValue::RequestHeader {
            name: HeaderName::from_static("x-d"),
            default: "e".to_owned(),
        };
        assert_eq!(config.custom_tags[1].value, header);
        let collector = config.collector.unwrap();
        assert_eq!(collector.protocol, OtlpProtocol::Http);
        assert_eq!(collector.authority.as_ref().unwrap(), "otel.example:4318");
        assert_eq!(collector.path, "/v1/traces?x=1");
        assert_eq!(collector.timeout, Duration::from_secs(3));
        assert_eq!(
            (&*collector.service_name, collector.max_cache_size),
            ("edge", 5)
        );
        assert_eq!(collector.headers[0].0, "authorization");
    }

    #[test]
    fn what_has_no_effect_is_refused_by_name() {
        let grpc = provider("grpc_service: {envoy_grpc: {cluster_name: c}}");
        let cases = [
            (
                format!("verbose: true\n{grpc}"),
                "verbose: is not supported",
            ),
            (
                format!("spawn_upstream_span: true\n{grpc}"),
                "spawn_upstream_span: is not supported",
            ),
            (
                format!("operation: '%PATH%'\n{grpc}"),
                "operation: is not supported",
            ),
            (
                format!("random_sampling: {{value: 101}}\n{grpc}"),
                "random_sampling.value: must be",
            ),
            (
                format!("custom_tags: [{{tag: a}}]\n{grpc}"),
                "custom_tags[0]: must have exactly one",
            ),
            (
                format!("custom_tags: [{{tag: a, environment: {{name: b}}}}]\n{grpc}"),
                "custom_tags[0].environment: is not supported",
            ),
            (
                "random_sampling: {value: 1}".to_owned(),
                "provider: must be set",
            ),
            (
                "provider: {name: a}".to_owned(),
                "provider.typed_config: must be set",
            ),
            (
                provider("sampler: {name: s}"),
                "provider.typed_config.sampler: is not supported",
            ),
            (
                provider("resource_detectors: [{name: s}]"),
                "provider.typed_config.resource_detectors: is not supported",
            ),
            (
                provider("grpc_service: {google_grpc: {target_uri: u}}"),
                "provider.typed_config.grpc_service.google_grpc: is not supported",
            ),
            (
                provider("grpc_service: {}"),
                "provider.typed_config.grpc_service.envoy_grpc: must be set",
            ),
            (
                provider("http_service: {http_uri: {uri: '/v1', cluster: c, timeout: 1s}}"),
                "provider.typed_config.http_service.http_uri.uri: \"/v1\" must have a host",
            ),
            (
                provider("http_service: {http_uri: {uri: 'http://a/', cluster: c}}"),
                "provider.typed_config.http_service.http_uri.timeout: must be set",
            ),
            (
                provider("max_cache_size: 0, grpc_service: {envoy_grpc: {cluster_name: c}}"),
                "provider.typed_config.max_cache_size: must be at least 1",
            ),
        ];
        for (text, expected) in cases {
            let error = read(&text).unwrap_err();
            assert!(
                error.starts_with(expected),
                "{error:?}, expected {expected:?}"
            );
        }
    }
}
