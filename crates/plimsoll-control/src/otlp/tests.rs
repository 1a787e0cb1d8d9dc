//! Tests with a collector that serves the generated service of `opentelemetry-proto` over gRPC.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use plimsoll_core::stats::{Metric, MetricKind, Value};
use tokio::net::TcpListener;
use tonic::Response;
use tonic::transport::server::TcpIncoming;

use super::*;
use crate::config::{ConfigFile, ControlConfig};
use crate::run::{Bound, Context};

/// Names of series with labels, and their latest values.
type Received = Arc<Mutex<BTreeMap<String, f64>>>;

#[derive(Clone, Default)]
struct Collector(Received);

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let resources = request.into_inner().resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        let mut received = self.0.lock().unwrap();
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let points = match metric.data {
                Some(metric::Data::Gauge(gauge)) => gauge.data_points,
                Some(metric::Data::Sum(sum)) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
                    assert!(metric.name.ends_with("_total"), "{}", metric.name);
                    sum.data_points
                }
                other => panic!("{other:?}"),
            };
            for point in points {
                let pairs = point.attributes.iter().map(|attribute| {
                    let value = attribute
                        .value
                        .as_ref()
                        .and_then(|value| value.value.as_ref());
                    let Some(any_value::Value::StringValue(value)) = value else {
                        panic!("{attribute:?}");
                    };
                    format!("{}={value}", attribute.key)
                });
                let labels: Vec<String> = pairs.collect();
                let value = match point.value.unwrap() {
                    number_data_point::Value::AsDouble(value) => value,
                    number_data_point::Value::AsInt(value) => {
                        f64::from(i32::try_from(value).unwrap())
                    }
                };
                assert!(point.time_unix_nano >= point.start_time_unix_nano);
                received.insert(format!("{} {}", metric.name, labels.join(",")), value);
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

const CUMULATIVE: i32 = 2;

async fn collect() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = Collector::default();
    let received = Arc::clone(&collector.0);
    let server = tonic::transport::Server::builder()
        .add_service(MetricsServiceServer::new(collector))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    (address, received)
}

fn context() -> Context {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: "services: [{cluster: {name: orders}, mode: SHADOW}]".to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let (writer, handle) = crate::server::start(Arc::new(config));
    tokio::spawn(writer.run());
    let bound = Bound {
        xds: "127.0.0.1:18000".parse().unwrap(),
        admin: None,
        read_only: None,
    };
    Context::new(handle, bound)
}

fn exporter(address: SocketAddr) -> Otlp {
    Otlp {
        endpoint: format!("http://{address}").parse().unwrap(),
        interval: Duration::from_millis(20),
    }
}

async fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let work = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(30), work).await;
    found.expect("the condition holds in time")
}

#[tokio::test]
async fn a_collector_gets_the_metrics_of_the_page() {
    let (address, received) = collect().await;
    let context = context();
    start(context.clone(), exporter(address)).unwrap();
    let ok = "plimsoll_control_otlp_exports_total result=ok";
    wait_for(|| {
        received
            .lock()
            .unwrap()
            .get(ok)
            .copied()
            .filter(|count| *count > 0.0)
    })
    .await;
    let page = families(&context).await.unwrap();
    let received = received.lock().unwrap().clone();
    let mut compared = 0;
    for (name, family) in page.iter() {
        for (labels, value) in family.samples() {
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let found = received.get(&format!("{name} {}", labels.join(",")));
            let got = found.unwrap_or_else(|| panic!("{name} {labels:?} is missing"));
            // Values that change by themselves are only compared by name.
            if name.starts_with("plimsoll_control_clusters") {
                let Value::Integer(value) = value else {
                    panic!("{value:?}")
                };
                assert_eq!(*got, f64::from(u32::try_from(*value).unwrap()));
            }
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared} series");
    context.stopping.cancel();
}

#[tokio::test]
async fn failures_are_counted_and_exports_recover() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let context = context();
    start(context.clone(), exporter(address)).unwrap();
    let count = |result| {
        let values = context.handle.counters().values();
        values.get(&("otlp_exports_total", result)).copied()
    };
    wait_for(|| count("failed")).await;
    assert_eq!(count("ok"), None);
    let Ok(listener) = TcpListener::bind(address).await else {
        // Another process took the port: nothing more to test.
        return context.stopping.cancel();
    };
    let server = tonic::transport::Server::builder()
        .add_service(MetricsServiceServer::new(Collector::default()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    wait_for(|| count("ok")).await;
    context.stopping.cancel();
}

#[test]
fn many_series_are_divided_into_requests() {
    const METRIC: Metric = Metric::new("x", MetricKind::Gauge, &["n"], "Help");
    let mut families = plimsoll_core::stats::Families::default();
    for n in 0..12_000_u64 {
        families.add("x", &METRIC, &[&n.to_string()], n);
        families.add("y", &METRIC, &[&n.to_string()], n);
    }
    let requests = messages::requests(&families, 1, 2);
    assert_eq!(requests.len(), 5, "24000 points, 5000 each");
    let largest = requests.iter().map(prost::Message::encoded_len).max();
    assert!(largest.unwrap() < 4 << 20);
}
