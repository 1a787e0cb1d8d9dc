//! Messages of OTLP (`opentelemetry.proto`), reduced to the fields that we write, and the
//! conversion of metrics.
//!
//! Declared by hand as those of traces (decision 0030); the test decodes them with the official
//! crate.

use plimsoll_core::stats::{Families, Family, MetricKind, Value};
use prost::Message;

/// Data points of one request: a series takes about 200 bytes, and collectors accept 4 MiB.
const MAX_POINTS: usize = 5000;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: counters since the start.
const CUMULATIVE: i32 = 2;

/// `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest`: the request of the
/// method `Export`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

/// `opentelemetry.proto.metrics.v1.ResourceMetrics`: metrics of one program.
#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

/// `opentelemetry.proto.resource.v1.Resource`: the program that the metrics are of.
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

/// `opentelemetry.proto.metrics.v1.ScopeMetrics`: metrics of one library.
#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

/// `opentelemetry.proto.common.v1.InstrumentationScope`: the library that counts.
#[derive(Clone, PartialEq, Eq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// `opentelemetry.proto.metrics.v1.Metric`: a gauge or a counter.
#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Sum>,
}

/// `opentelemetry.proto.metrics.v1.Gauge`: values at one moment.
#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
}

/// `opentelemetry.proto.metrics.v1.Sum`: a counter since the start.
#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

/// `opentelemetry.proto.metrics.v1.NumberDataPoint`: the value of one series.
#[derive(Clone, PartialEq, Message)]
struct Point {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    as_int: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

/// `opentelemetry.proto.common.v1.KeyValue`: a label, or an attribute of the program.
#[derive(Clone, PartialEq, Eq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// `opentelemetry.proto.common.v1.AnyValue`, of which we only use strings.
#[derive(Clone, PartialEq, Eq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

/// Converts all metrics, to as many requests as needed. Times are Unix nanoseconds.
pub(super) fn requests(families: &Families, started: u64, now: u64) -> Vec<ExportRequest> {
    let mut requests = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for (name, family) in families.iter() {
        let mut all = data_points(family, started, now);
        while !all.is_empty() {
            let rest = all.split_off(all.len().min(MAX_POINTS - points));
            points += all.len();
            metrics.push(metric(name, family, all));
            if points >= MAX_POINTS {
                requests.push(request(std::mem::take(&mut metrics)));
                points = 0;
            }
            all = rest;
        }
    }
    if !metrics.is_empty() {
        requests.push(request(metrics));
    }
    requests
}

fn request(metrics: Vec<Metric>) -> ExportRequest {
    let scope = Scope {
        name: "plimsoll".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let resource = Resource {
        attributes: vec![
            attribute("service.name", "plimsoll-control"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ],
    };
    ExportRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
            }],
        }],
    }
}

fn metric(name: &str, family: &Family, data_points: Vec<Point>) -> Metric {
    let is_counter = family.metric.kind == MetricKind::Counter;
    let (gauge, sum) = if is_counter {
        let sum = Sum {
            data_points,
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        };
        (None, Some(sum))
    } else {
        (Some(Gauge { data_points }), None)
    };
    Metric {
        name: name.to_owned(),
        description: family.metric.help.to_owned(),
        gauge,
        sum,
    }
}

fn data_points(family: &Family, started: u64, now: u64) -> Vec<Point> {
    let point = |(labels, value): (Vec<(&'static str, String)>, &Value)| {
        let (as_int, as_double) = match value {
            Value::Integer(value) => (Some(i64::try_from(*value).unwrap_or(i64::MAX)), None),
            Value::Float(value) => (None, Some(*value)),
            // The control plane has none.
            Value::Histogram(..) => return None,
        };
        let attributes = labels.iter().map(|(name, value)| attribute(name, value));
        Some(Point {
            start_time_unix_nano: started,
            time_unix_nano: now,
            as_double,
            as_int,
            attributes: attributes.collect(),
        })
    };
    family.samples().filter_map(point).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(value.to_owned()),
        }),
    }
}
