//! Tests with a collector that serves the generated service of `opentelemetry-proto` over gRPC.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use plimsoll_core::stats::{Metric, MetricKind, Value};
use plimsoll_serve::{
    ClientTlsSettings, PemSource, ServerTlsSettings, server_tls_without_resumption,
};
use plimsoll_testing::tasks::wait_for;
use plimsoll_testing::{Authority, CapturedLogs};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::Response;
use tonic::transport::server::TcpIncoming;

use super::*;
use crate::config::{ConfigFile, ControlConfig, RelayTls};
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
                    // Certificates of a test may end after 2038.
                    number_data_point::Value::AsInt(value) => value as f64,
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
        tls: None,
    }
}

/// Certificates of a collector and of its client, by one authority.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let directory = Self(tempfile::tempdir().unwrap());
        let authority = Authority::new();
        directory.write("ca.pem", &authority.pem);
        for (name, purpose) in [
            ("server", rcgen::ExtendedKeyUsagePurpose::ServerAuth),
            ("client", rcgen::ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let names = vec!["collector.example".to_owned()];
            let mut params = rcgen::CertificateParams::new(names).unwrap();
            params.extended_key_usages = vec![purpose];
            let (certificate, key) = authority.sign(params);
            directory.write(&format!("{name}.pem"), &certificate);
            directory.write(&format!("{name}.key"), &key);
        }
        directory
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn pem(&self, name: &str) -> PemSource {
        PemSource::File(self.0.path().join(name))
    }

    fn pair(&self, name: &str) -> (PemSource, PemSource) {
        let [certificate, key] = ["pem", "key"].map(|end| self.pem(&format!("{name}.{end}")));
        (certificate, key)
    }

    /// Settings of a client that trusts this authority.
    fn client(&self, certificate: Option<(PemSource, PemSource)>) -> Arc<RelayTls> {
        Arc::new(RelayTls {
            settings: ClientTlsSettings {
                ca: self.pem("ca.pem"),
                certificate,
                alpn: vec!["h2".to_owned()],
            },
            server_name: Some("collector.example".to_owned()),
        })
    }

    /// Terminates TLS in front of a collector, and demands certificates of clients.
    async fn terminate(&self, collector: SocketAddr) -> SocketAddr {
        let (certificate, key) = self.pair("server");
        let settings = ServerTlsSettings {
            certificate,
            key,
            client_ca: Some(self.pem("ca.pem")),
            require_client_certificate: true,
            alpn: vec!["h2".to_owned()],
        };
        let config = server_tls_without_resumption(&settings).unwrap();
        let acceptor = TlsAcceptor::from(config.config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut secured = acceptor.accept(socket).await?;
                    let mut plain = TcpStream::connect(collector).await?;
                    tokio::io::copy_bidirectional(&mut secured, &mut plain).await
                });
            }
        });
        address
    }
}

fn secured(address: SocketAddr, tls: Arc<RelayTls>) -> Otlp {
    Otlp {
        endpoint: format!("https://{address}").parse().unwrap(),
        tls: Some(tls),
        ..exporter(address)
    }
}

fn exports(context: &Context, result: &'static str) -> Option<u64> {
    let values = context.handle.counters().values();
    values.get(&("otlp_exports_total", result)).copied()
}

#[tokio::test]
async fn a_collector_with_tls_gets_metrics_from_a_client_with_a_certificate() {
    let (collector, received) = collect().await;
    let certificates = Certificates::new();
    let address = certificates.terminate(collector).await;
    let context = context();
    let client = certificates.client(Some(certificates.pair("client")));
    start(context.clone(), secured(address, client)).unwrap();
    wait_for("exports succeed", async || exports(&context, "ok")).await;
    let received = received.lock().unwrap().clone();
    let name = "plimsoll_control_clusters mode=SHADOW";
    assert_eq!(received.get(name), Some(&1.0));
    context.stopping.cancel();
}

#[tokio::test]
async fn certificates_that_do_not_fit_fail_the_export() {
    let (collector, received) = collect().await;
    let certificates = Certificates::new();
    let address = certificates.terminate(collector).await;
    let stranger = Certificates::new();
    let other_authority = stranger.client(Some(certificates.pair("client")));
    let without_certificate = certificates.client(None);
    for tls in [other_authority, without_certificate] {
        let context = context();
        start(context.clone(), secured(address, tls)).unwrap();
        wait_for("exports fail", async || exports(&context, "failed")).await;
        assert_eq!(exports(&context, "ok"), None);
        context.stopping.cancel();
    }
    assert!(received.lock().unwrap().is_empty());
    let missing = Arc::new(RelayTls {
        settings: ClientTlsSettings {
            ca: certificates.pem("missing.pem"),
            certificate: None,
            alpn: Vec::new(),
        },
        server_name: None,
    });
    let error = start(context(), secured(address, missing)).unwrap_err();
    assert!(error.to_string().contains("missing.pem"), "{error}");
}

#[tokio::test]
async fn a_collector_gets_the_metrics_of_the_page() {
    let (address, received) = collect().await;
    let context = context();
    start(context.clone(), exporter(address)).unwrap();
    let ok = "plimsoll_control_otlp_exports_total result=ok";
    wait_for("the metrics arrive", async || {
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
    let count = |result| exports(&context, result);
    wait_for("exports fail", async || count("failed")).await;
    assert_eq!(count("ok"), None);
    let Ok(listener) = TcpListener::bind(address).await else {
        // Another process took the port: nothing more to test.
        return context.stopping.cancel();
    };
    let server = tonic::transport::Server::builder()
        .add_service(MetricsServiceServer::new(Collector::default()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    wait_for("exports succeed", async || count("ok")).await;
    context.stopping.cancel();
}

/// A collector that refuses everything while it is full.
struct Overloaded(Arc<AtomicBool>);

#[tonic::async_trait]
impl MetricsService for Overloaded {
    async fn export(
        &self,
        _: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        if self.0.load(Ordering::SeqCst) {
            return Err(Status::resource_exhausted("it is full"));
        }
        // What the response says does not matter.
        let partial = ExportMetricsPartialSuccess {
            rejected_data_points: 1,
            error_message: "one is too old".to_owned(),
        };
        Ok(Response::new(ExportMetricsServiceResponse {
            partial_success: Some(partial),
        }))
    }
}

#[tokio::test]
async fn a_failure_and_the_recovery_are_logged_once() {
    let lines = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let server = tonic::transport::Server::builder()
        .add_service(MetricsServiceServer::new(Overloaded(Arc::clone(&is_full))))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    let context = context();
    // On this thread, whose log lines are captured.
    let running = tokio::spawn(run(context.clone(), exporter(address), None));
    let several = |result| exports(&context, result).filter(|count| *count > 2);
    wait_for("exports fail", async || several("failed")).await;
    is_full.store(false, Ordering::SeqCst);
    wait_for("exports succeed", async || several("ok")).await;
    context.stopping.cancel();
    running.await.unwrap();
    let lines = lines.0.lock().unwrap().clone();
    let exports = lines
        .into_iter()
        .map(|(level, text)| (level, text.trim_end().to_owned()))
        .filter(|(_, text)| text.starts_with("message=export of metrics"));
    let collector = format!("collector=http://{address}/");
    let expected = [
        (
            tracing::Level::WARN,
            format!("message=export of metrics failed {collector} reason=\"it is full\""),
        ),
        (
            tracing::Level::INFO,
            format!("message=export of metrics recovered {collector}"),
        ),
    ];
    assert_eq!(exports.collect::<Vec<_>>(), expected);
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

#[test]
fn times_are_nanoseconds_since_1970() {
    let year_2020 = Duration::from_secs(50 * 365 * 86_400);
    assert!(u128::from(unix_nanos()) > year_2020.as_nanos());
}
