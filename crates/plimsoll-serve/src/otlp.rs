//! Messages of OTLP (`opentelemetry.proto`) that requests for metrics and for traces share, reduced
//! to the fields that we write.
//!
//! Declared by hand like those of the xDS API: the generated crate brings the OpenTelemetry SDK
//! along. The control plane declares metrics and the proxy spans; their tests decode what is sent
//! with the generated crate.

use std::fmt::Debug;

use prost::Message;

const SCOPE: &str = "plimsoll";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `ExportMetricsServiceRequest` of metrics, `ExportTraceServiceRequest` of spans: the request of
/// the method `Export`. Both have the same shape and field numbers.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest<T: Message + Default + Debug> {
    #[prost(message, repeated, tag = "1")]
    pub resource_items: Vec<ResourceItems<T>>,
}

/// `ResourceMetrics` or `ResourceSpans`: what one program exports.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceItems<T: Message + Default + Debug> {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_items: Vec<ScopeItems<T>>,
}

/// `opentelemetry.proto.resource.v1.Resource`: the program that the metrics or spans are of.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// `ScopeMetrics` or `ScopeSpans`: what one library of the program exports.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeItems<T: Message + Default + Debug> {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<T>,
}

/// `opentelemetry.proto.common.v1.InstrumentationScope`: the library that counts or traces.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `opentelemetry.proto.common.v1.KeyValue`: an attribute of a program, a metric or a span.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// `opentelemetry.proto.common.v1.AnyValue`: a oneof, of which we write texts only.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
}

impl<T: Message + Default + Debug> ExportRequest<T> {
    /// Creates a request with the attributes of the program and its metrics or spans.
    pub fn new<const N: usize>(program: [(&str, &str); N], items: Vec<T>) -> Self {
        let attributes = program.map(|(key, value)| KeyValue::text(key, value));
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: VERSION.to_owned(),
        };
        Self {
            resource_items: vec![ResourceItems {
                resource: Some(Resource {
                    attributes: attributes.into(),
                }),
                scope_items: vec![ScopeItems {
                    scope: Some(scope),
                    items,
                }],
            }],
        }
    }
}

impl KeyValue {
    /// Creates an attribute whose value is a text.
    pub fn text(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(AnyValue {
                string_value: Some(value.to_owned()),
            }),
        }
    }
}
