//! [`SpanRecord`]: what a span says about a sampled request, collected while the request is served
//! and turned into OTLP on the exporter's thread.
//!
//! Names of spans and attributes are those of Envoy's OpenTelemetry tracer, all attributes are
//! text, as there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method};
use plimsoll_serve::otlp::KeyValue;

use super::context::{TraceContext, tracestate};
use super::export::Exporter;
use super::messages::{ERROR, HAS_IS_REMOTE, IS_REMOTE, SERVER, Span, Status};
use crate::access_log::Outcome;
use crate::config::{TagValue, TracingConfig};
use crate::headers::{X_FORWARDED_PROTO, X_REQUEST_ID};
use crate::router::{RequestView, is_grpc};

/// Name of spans of a listener without `traffic_direction`.
const OPERATION: &str = "ingress";
const DOWNSTREAM_CLUSTER: HeaderName =
    HeaderName::from_static("x-envoy-downstream-service-cluster");
const CLIENT_TRACE_ID: HeaderName = HeaderName::from_static("x-client-trace-id");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Span of a request that has not ended.
#[derive(Debug)]
pub(crate) struct PendingSpan {
    record: Box<SpanRecord>,
    exporter: Arc<Exporter>,
}

impl PendingSpan {
    pub(super) fn new(record: SpanRecord, exporter: Arc<Exporter>) -> Self {
        Self {
            record: Box::new(record),
            exporter,
        }
    }

    /// Ends the span and queues it for the exporter.
    pub(crate) fn finish(mut self, outcome: Outcome) {
        self.record.outcome = outcome;
        self.exporter.send(self.record);
    }
}

#[derive(Debug)]
pub(crate) struct SpanRecord {
    config: Arc<TracingConfig>,
    context: TraceContext,
    tracestate: String,
    start: SystemTime,
    method: Method,
    url: String,
    authority: String,
    path: String,
    request_id: Option<HeaderValue>,
    client_trace_id: Option<HeaderValue>,
    downstream_cluster: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// `content-type` and `grpc-timeout` of a gRPC request.
    grpc: Option<(Option<HeaderValue>, Option<HeaderValue>)>,
    /// Values of `custom_tags`, in their order; `None` for those that are constant or missing.
    tags: Vec<Option<HeaderValue>>,
    outcome: Outcome,
}

impl SpanRecord {
    /// Starts the span of a request now. `is_edge`: the client's `x-forwarded-proto` is not
    /// trusted.
    pub(super) fn start(
        config: &Arc<TracingConfig>,
        context: TraceContext,
        request: &RequestView<'_>,
        is_edge: bool,
    ) -> Self {
        let header = |name: &HeaderName| request.headers.get(name).cloned();
        let field = request.headers.get(&X_FORWARDED_PROTO);
        let forwarded = field.filter(|_| !is_edge).and_then(|of| of.to_str().ok());
        let (scheme, host) = (forwarded.unwrap_or(request.scheme), request.host);
        let path = truncated(request.path_and_query, config.max_path_tag_length);
        let tags = config.custom_tags.iter().map(|tag| match &tag.value {
            TagValue::Literal(_) => None,
            TagValue::RequestHeader { name, .. } => header(name),
        });
        Self {
            context,
            tracestate: tracestate(request.headers),
            start: SystemTime::now(),
            method: request.method.clone(),
            url: format!("{scheme}://{host}{path}"),
            authority: host.to_owned(),
            path: request.path.to_owned(),
            request_id: header(&X_REQUEST_ID),
            client_trace_id: header(&CLIENT_TRACE_ID),
            downstream_cluster: header(&DOWNSTREAM_CLUSTER),
            user_agent: header(&USER_AGENT),
            grpc: is_grpc(request.headers).then(|| (header(&CONTENT_TYPE), header(&GRPC_TIMEOUT))),
            tags: tags.collect(),
            outcome: Outcome::default(),
            config: Arc::clone(config),
        }
    }

    /// Converts to an OTLP span; `node` has attributes of the proxy.
    pub(super) fn into_otlp(self, node: &[KeyValue]) -> Span {
        let attributes = self.attributes(node);
        let end = self.start + self.outcome.duration;
        let remote = if self.context.parent.is_some() {
            IS_REMOTE
        } else {
            0
        };
        let parent = self.context.parent.map(|id| id.to_be_bytes().to_vec());
        Span {
            trace_id: self.context.trace_id.to_be_bytes().to_vec(),
            span_id: self.context.span_id.to_be_bytes().to_vec(),
            trace_state: self.tracestate,
            parent_span_id: parent.unwrap_or_default(),
            flags: HAS_IS_REMOTE | remote | 1,
            name: OPERATION.to_owned(),
            kind: SERVER,
            start_time_unix_nano: nanos(self.start),
            end_time_unix_nano: nanos(end),
            attributes,
            status: (self.outcome.status >= 500).then_some(Status { code: ERROR }),
        }
    }

    fn attributes(&self, node: &[KeyValue]) -> Vec<KeyValue> {
        let outcome = &self.outcome;
        let mut all = node.to_vec();
        let mut add = |key: &str, value: &str| all.push(KeyValue::text(key, value));
        let mut add_header = |key, value: Option<&HeaderValue>| {
            if let Some(value) = value {
                add(key, &String::from_utf8_lossy(value.as_bytes()));
            }
        };
        const NONE: HeaderValue = HeaderValue::from_static("-");
        add_header("guid:x-request-id", self.request_id.as_ref());
        add_header("guid:x-client-trace-id", self.client_trace_id.as_ref());
        let named = |value: &Option<HeaderValue>| value.clone().unwrap_or(NONE);
        add_header("downstream_cluster", Some(&named(&self.downstream_cluster)));
        add_header("user_agent", Some(&named(&self.user_agent)));
        if let Some((content_type, timeout)) = &self.grpc {
            add_header("grpc.content_type", content_type.as_ref());
            add_header("grpc.timeout", timeout.as_ref());
            add_header("grpc.status_code", outcome.grpc_status.as_ref());
        }
        if self.grpc.is_some() {
            add("grpc.path", &self.path);
            add("grpc.authority", &self.authority);
        }
        add("http.url", &self.url);
        add("http.method", self.method.as_str());
        add("http.protocol", outcome.protocol);
        if let Some(peer) = outcome.peer {
            add("peer.address", &peer.ip().to_string());
        }
        add("request_size", &outcome.bytes_received.to_string());
        add("response_size", &outcome.bytes_sent.to_string());
        add("component", "proxy");
        if let Some(cluster) = &outcome.cluster {
            add("upstream_cluster", cluster);
            add("upstream_cluster.name", cluster);
        }
        if let Some(host) = outcome.upstream_host {
            add("upstream_address", &host.to_string());
        }
        add("http.status_code", &outcome.status.to_string());
        let flags = if outcome.flags.is_empty() {
            "-"
        } else {
            outcome.flags
        };
        add("response_flags", flags);
        if outcome.status >= 500 || outcome.grpc_status.as_ref().is_some_and(|of| of != "0") {
            add("error", "true");
        }
        self.add_tags(&mut all);
        all
    }

    fn add_tags(&self, all: &mut Vec<KeyValue>) {
        for (tag, value) in self.config.custom_tags.iter().zip(&self.tags) {
            let text = match (&tag.value, value) {
                (TagValue::Literal(text), _) => text.into(),
                (_, Some(value)) => String::from_utf8_lossy(value.as_bytes()),
                (TagValue::RequestHeader { default, .. }, None) if default.is_empty() => continue,
                (TagValue::RequestHeader { default, .. }, None) => default.into(),
            };
            all.push(KeyValue::text(&tag.name, &text));
        }
    }
}

/// Returns the first `length` bytes of a text, or fewer rather than part of a character.
fn truncated(text: &str, length: usize) -> &str {
    let mut lengths = (0..=length.min(text.len())).rev();
    let length = lengths.find(|length| text.is_char_boundary(*length));
    &text[..length.unwrap_or_default()]
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::config::{CustomTag, Sampling};

    #[test]
    fn texts_are_cut_between_characters() {
        for (length, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (9, "aäb")] {
            assert_eq!(truncated("aäb", length), expected, "{length}");
        }
    }

    fn config() -> Arc<TracingConfig> {
        let tag = |name: &str, value| CustomTag {
            name: name.to_owned(),
            value,
        };
        let header = |default: &str| TagValue::RequestHeader {
            name: HeaderName::from_static("x-tenant"),
            default: default.to_owned(),
        };
        Arc::new(TracingConfig {
            sampling: Sampling {
                client: 100,
                random: 10_000,
                overall: 100,
            },
            max_path_tag_length: 4,
            custom_tags: vec![
                tag("literal", TagValue::Literal("l".to_owned())),
                tag("with default", header("d")),
                tag("without default", header("")),
            ],
            collector: None,
        })
    }

    fn span(headers: &HeaderMap, parent: Option<u64>, is_edge: bool, outcome: Outcome) -> Span {
        let context = TraceContext {
            trace_id: 0x0102,
            span_id: 3,
            parent,
            sampled: true,
        };
        let view = RequestView {
            host: "shop.example",
            path: "/a/b",
            path_and_query: "/a/b?c",
            method: &Method::GET,
            scheme: "http",
            headers,
        };
        let mut record = SpanRecord::start(&config(), context, &view, is_edge);
        record.outcome = outcome;
        record.into_otlp(&[KeyValue::text("zone", "a")])
    }

    fn value<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
        let mut attributes = span.attributes.iter();
        let found = attributes.find(|attribute| attribute.key == key)?;
        found.value.as_ref()?.string_value.as_deref()
    }

    #[test]
    fn responses_from_500_on_and_grpc_errors_are_errors() {
        for (status, grpc_status, code, error) in [
            (200, None, None, None),
            (499, None, None, None),
            (500, None, Some(ERROR), Some("true")),
            (200, Some("0"), None, None),
            (200, Some("5"), None, Some("true")),
        ] {
            let outcome = Outcome {
                status,
                grpc_status: grpc_status.map(HeaderValue::from_static),
                ..Default::default()
            };
            let span = span(&HeaderMap::new(), None, true, outcome);
            assert_eq!(span.status.as_ref().map(|of| of.code), code, "{status}");
            assert_eq!(value(&span, "error"), error, "{status} {grpc_status:?}");
        }
    }

    #[test]
    fn spans_have_their_parent_and_their_times() {
        let outcome = || Outcome {
            duration: Duration::from_millis(7),
            ..Default::default()
        };
        let started = nanos(SystemTime::now());
        let root = span(&HeaderMap::new(), None, true, outcome());
        assert_eq!(root.flags, HAS_IS_REMOTE | 1);
        assert!(root.parent_span_id.is_empty());
        assert_eq!(root.trace_id[14..], [1, 2]);
        assert_eq!(root.span_id, [0, 0, 0, 0, 0, 0, 0, 3]);
        assert!(root.start_time_unix_nano >= started);
        let lasted = root.end_time_unix_nano - root.start_time_unix_nano;
        assert_eq!(lasted, 7_000_000);
        let child = span(&HeaderMap::new(), Some(9), true, outcome());
        assert_eq!(child.flags, HAS_IS_REMOTE | IS_REMOTE | 1);
        assert_eq!(child.parent_span_id, [0, 0, 0, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn attributes_say_what_is_known_of_the_request() {
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
        let outcome = || Outcome {
            protocol: "HTTP/2",
            bytes_received: 3,
            bytes_sent: 5,
            ..Default::default()
        };
        let edge = span(&headers, None, true, outcome());
        let url = |span: &Span| value(span, "http.url").map(ToOwned::to_owned);
        assert_eq!(url(&edge).as_deref(), Some("http://shop.example/a/b"));
        for (key, expected) in [
            ("zone", Some("a")),
            ("user_agent", Some("-")),
            ("response_flags", Some("-")),
            ("request_size", Some("3")),
            ("response_size", Some("5")),
            ("peer.address", None),
            ("upstream_cluster", None),
            ("grpc.path", None),
            ("literal", Some("l")),
            ("with default", Some("d")),
            ("without default", None),
        ] {
            assert_eq!(value(&edge, key), expected, "{key}");
        }
        headers.insert("x-tenant", HeaderValue::from_static("t"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        let failed = Outcome {
            flags: "UH",
            peer: Some(([1, 2, 3, 4], 5).into()),
            upstream_host: Some(([5, 6, 7, 8], 9).into()),
            cluster: Some("orders".into()),
            ..outcome()
        };
        let inner = span(&headers, None, false, failed);
        assert_eq!(url(&inner).as_deref(), Some("https://shop.example/a/b"));
        for (key, expected) in [
            ("response_flags", "UH"),
            ("peer.address", "1.2.3.4"),
            ("upstream_address", "5.6.7.8:9"),
            ("upstream_cluster.name", "orders"),
            ("grpc.path", "/a/b"),
            ("grpc.authority", "shop.example"),
            ("grpc.timeout", "1S"),
            ("with default", "t"),
            ("without default", "t"),
        ] {
            assert_eq!(value(&inner, key), Some(expected), "{key}");
        }
    }
}
