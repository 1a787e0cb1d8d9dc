//! Spans of OTLP (`opentelemetry.proto`) and the response to an export, reduced to the fields that
//! we use. `plimsoll_serve::otlp` has the messages around spans; tests decode what we send with the
//! generated crate.

use plimsoll_serve::otlp::KeyValue;
use prost::Message;

/// `opentelemetry.proto.trace.v1.Span`: one request, as this proxy saw it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
    /// Flags of `traceparent`, and [`HAS_IS_REMOTE`] and [`IS_REMOTE`].
    #[prost(fixed32, tag = "16")]
    pub(super) flags: u32,
}

/// `SPAN_KIND_SERVER`: the span is of the side that answers.
pub(super) const SERVER: i32 = 2;
/// `STATUS_CODE_ERROR`: the only status that a proxy states.
pub(super) const ERROR: i32 = 2;
/// The next flag has a meaning.
pub(super) const HAS_IS_REMOTE: u32 = 0x100;
/// The parent of the span is in another process.
pub(super) const IS_REMOTE: u32 = 0x200;

/// `opentelemetry.proto.trace.v1.Status`: whether the request failed; unset if it did not.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceResponse`: the answer to an export.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `opentelemetry.proto.collector.trace.v1.ExportTracePartialSuccess`:
/// says that some spans were not accepted.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
}
