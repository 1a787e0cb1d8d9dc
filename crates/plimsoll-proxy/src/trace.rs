//! Tracing: continues the W3C trace context of requests, and sends spans of sampled ones to an OTLP
//! collector.
//!
//! Without `tracing` in the configuration, trace headers pass through unchanged. With it, every
//! forwarded request gets a `traceparent` of this proxy, and a request that is not sampled costs
//! nothing more. `context` reads and writes the headers, `sampling` decides, `span` collects what a
//! span says, `export` sends spans from a thread of its own.

mod context;
mod export;
mod messages;
mod otlp;
mod sampling;
mod span;

use std::io;
use std::sync::Arc;

use http::HeaderMap;

pub(crate) use context::{TRACEPARENT, TraceContext};
pub(crate) use export::Exporters;
pub(crate) use span::PendingSpan;

use crate::config::{HttpOptions, TracingConfig};
use crate::headers;
use crate::router::RequestView;
use export::Exporter;
use span::SpanRecord;

/// Tracing of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    config: Arc<TracingConfig>,
    exporter: Option<Arc<Exporter>>,
}

impl Tracer {
    pub(crate) fn open(config: &Arc<TracingConfig>, exporters: &Exporters) -> io::Result<Self> {
        let collector = config.collector.as_ref();
        Ok(Self {
            config: Arc::clone(config),
            exporter: collector.map(|of| exporters.open(of)).transpose()?,
        })
    }

    /// Continues the trace of a request or starts one. Sets `x-request-id`, by which proxies agree
    /// on what is sampled, and removes a `tracestate` that must not be handed on.
    pub(crate) fn begin(
        &self,
        fields: &mut HeaderMap,
        options: &HttpOptions,
        draw: impl Fn() -> u64,
    ) -> TraceContext {
        headers::add_request_id(fields, options, &draw);
        let decision = sampling::decide(fields, self.config.sampling, &draw);
        let parent = context::extract(fields);
        // Ids of zero are invalid.
        let id = || draw().max(1);
        match parent {
            Some(parent) => TraceContext {
                trace_id: parent.trace_id,
                span_id: id(),
                parent: Some(parent.span_id),
                sampled: decision && parent.sampled,
            },
            None => TraceContext {
                trace_id: u128::from(id()) << 64 | u128::from(draw()),
                span_id: id(),
                parent: None,
                sampled: decision,
            },
        }
    }

    /// Starts the span of a request; `None` if it is not sampled, or answered by the health check
    /// filter.
    pub(crate) fn start_span(
        &self,
        context: TraceContext,
        request: &RequestView<'_>,
        options: &HttpOptions,
    ) -> Option<PendingSpan> {
        let exporter = self.exporter.as_ref().filter(|_| context.sampled)?;
        if options.health_check_path.as_deref() == Some(request.path_and_query) {
            return None;
        }
        let is_edge = options.use_remote_address;
        let record = SpanRecord::start(&self.config, context, request, is_edge);
        Some(PendingSpan::new(record, Arc::clone(exporter)))
    }
}
