//! Metrics of OTLP (`opentelemetry.proto`), reduced to the fields that we write, and their
//! conversion. `plimsoll_serve::otlp` has the messages around them (decision 0030).

use plimsoll_core::stats::{Families, Family, MetricKind, Value};
use plimsoll_serve::otlp::{ExportRequest, KeyValue};
use prost::Message;

/// Data points of one request: a series takes about 200 bytes, and collectors accept 4 MiB.
const MAX_POINTS: usize = 5000;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: counters since the start.
const CUMULATIVE: i32 = 2;

/// `opentelemetry.proto.metrics.v1.Metric`: a gauge or a counter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
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

/// Converts all metrics, to as many requests as needed. Times are Unix nanoseconds.
pub(super) fn requests(families: &Families, started: u64, now: u64) -> Vec<ExportRequest<Metric>> {
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

fn request(metrics: Vec<Metric>) -> ExportRequest<Metric> {
    let program = [
        ("service.name", "plimsoll-control"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    ExportRequest::new(program, metrics)
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
        let attributes = labels
            .iter()
            .map(|(name, value)| KeyValue::text(name, value));
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
