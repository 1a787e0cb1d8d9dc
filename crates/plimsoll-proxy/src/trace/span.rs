//! [`SpanRecord`]: what a span says about a sampled request, collected while the request is served
//! and turned into OTLP on the exporter's thread.
//!
//! Names of spans and attributes are those of Envoy's OpenTelemetry tracer, all attributes are
//! text, as there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method};

use super::context::{TraceContext, tracestate};
use super::export::Exporter;
use super::messages::{ERROR, HAS_IS_REMOTE, IS_REMOTE, KeyValue, SERVER, Span, Status};
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
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (length, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (9, "aäb")] {
            assert_eq!(truncated("aäb", length), expected, "{length}");
        }
    }
}
