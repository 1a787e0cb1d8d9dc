//! Spans of the client: trace context to the host, attributes, retries, and export by OTLP from a
//! program with one worker.
#![cfg(feature = "opentelemetry")]

use std::sync::{Arc, Mutex};

use crate::support::actor::{Actor, get};
use crate::support::collector::{Collector, attribute};
use crate::support::{refused_address, within};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry::trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::trace::{SpanContext, TracerProvider as _};
use opentelemetry::{Context, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use plimsoll_client::{
    Client, ClientBuilder, Cluster, ExportRuntime, RequestOptions, RetryOn, RetryPolicy,
};
use tokio::net::TcpListener;
use tower_service::Service as _;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Starts a server that notes the headers of its requests.
async fn recorder() -> (std::net::SocketAddr, Arc<Mutex<Vec<HeaderMap>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let noted = Arc::clone(&noted);
            let serve = service_fn(move |request: Request<hyper::body::Incoming>| {
                noted.lock().unwrap().push(request.headers().clone());
                async { Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default())) }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), serve).await);
            });
        }
    });
    (address, seen)
}

fn recording() -> (SdkTracerProvider, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
    (provider.build(), exporter)
}

fn client(builder: ClientBuilder, addresses: &[std::net::SocketAddr]) -> Client {
    let addresses = addresses.iter().map(ToString::to_string);
    let orders = Cluster::new("orders").zone("zone-a", addresses);
    builder.zone("zone-a").cluster(orders).build().unwrap()
}

/// Sends a request with trace headers.
async fn send_with_headers(client: &Client) {
    let request = Request::get("http://orders:80/path?q=1")
        .header("traceparent", PARENT)
        .header("tracestate", "a=1")
        .header("baggage", "k=v")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let mut service = client.service("orders").unwrap();
    let response = within(service.call(request)).await.unwrap();
    within(response.into_body().collect()).await.unwrap();
}

fn value(span: &SpanData, key: &str) -> Option<Value> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| attribute.value.clone())
}

#[tokio::test]
async fn trace_headers_pass_unchanged_without_a_provider() {
    let (address, seen) = recorder().await;
    let client = client(Client::builder(), &[address]);
    send_with_headers(&client).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0]["traceparent"], PARENT);
    assert_eq!(seen[0]["tracestate"], "a=1");
    assert_eq!(seen[0]["baggage"], "k=v");
}

#[tokio::test]
async fn a_span_continues_the_trace_of_the_headers() {
    let (address, seen) = recorder().await;
    let (provider, exporter) = recording();
    let client = client(Client::builder().tracer_provider(&provider), &[address]);
    send_with_headers(&client).await;
    let spans = exporter.get_finished_spans().unwrap();
    let [span] = spans.as_slice() else {
        panic!("{spans:?}");
    };
    assert_eq!(span.name, "GET");
    assert_eq!(span.span_kind, SpanKind::Client);
    assert_eq!(span.span_context.trace_id().to_string(), &PARENT[3..35]);
    assert_eq!(span.parent_span_id.to_string(), &PARENT[36..52]);
    assert_eq!(span.status, Status::Unset);
    for (key, expected) in [
        ("http.request.method", Value::from("GET")),
        ("url.full", "http://orders:80/path?q=1".into()),
        ("server.address", "orders".into()),
        ("server.port", 80_i64.into()),
        ("http.response.status_code", 200_i64.into()),
        ("network.peer.address", "127.0.0.1".into()),
        ("network.peer.port", i64::from(address.port()).into()),
        ("plimsoll.cluster", "orders".into()),
        ("plimsoll.upstream.zone", "zone-a".into()),
    ] {
        assert_eq!(value(span, key), Some(expected), "{key}");
    }
    assert_eq!(value(span, "http.request.resend_count"), None);
    let own: &SpanContext = &span.span_context;
    let expected = format!("00-{}-{}-01", own.trace_id(), own.span_id());
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0]["traceparent"], expected);
    assert_eq!(seen[0]["tracestate"], "a=1");
    assert_eq!(seen[0]["baggage"], "k=v");
}

#[tokio::test]
async fn the_active_span_of_the_caller_is_the_parent() {
    let (address, _) = recorder().await;
    let (provider, exporter) = recording();
    let client = client(Client::builder().tracer_provider(&provider), &[address]);
    let outer = provider.tracer("test").start("outer");
    let context = Context::current_with_span(outer);
    let id = context.span().span_context().span_id();
    send_with_headers(&client).with_context(context).await;
    let spans = exporter.get_finished_spans().unwrap();
    let span = spans.iter().find(|span| span.name == "GET").unwrap();
    assert_eq!(span.parent_span_id, id);
}

#[tokio::test]
async fn every_attempt_has_its_span() {
    let actor = Actor::start().await;
    let (provider, exporter) = recording();
    let client = client(
        Client::builder().tracer_provider(&provider),
        &[actor.address],
    );
    let once = RetryPolicy::new()
        .retry_on(RetryOn::SERVER_ERROR)
        .num_retries(1);
    let options = RequestOptions::new().retry(once);
    let mut service = client.service("orders").unwrap().with_defaults(options);
    within(get(&mut service, "/503")).await.unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 2, "{spans:?}");
    let resends = spans
        .iter()
        .map(|span| value(span, "http.request.resend_count"));
    assert_eq!(resends.collect::<Vec<_>>(), [None, Some(1_i64.into())]);
    for span in &spans {
        assert_eq!(value(span, "error.type"), Some("503".into()));
        assert!(matches!(span.status, Status::Error { .. }));
    }
}

#[tokio::test]
async fn attempts_without_a_response_are_errors() {
    let (provider, exporter) = recording();
    let dead = [refused_address()];
    let client = client(Client::builder().tracer_provider(&provider), &dead);
    let options = RequestOptions::new().retry(RetryPolicy::new().num_retries(0));
    let mut service = client.service("orders").unwrap().with_defaults(options);
    assert!(within(get(&mut service, "/")).await.is_err());
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(value(&spans[0], "error.type"), Some("Connect".into()));
    assert!(matches!(spans[0].status, Status::Error { .. }));
}

/// With the exporter on this runtime, the flush would wait for itself: it blocks the only worker.
#[tokio::test(flavor = "current_thread")]
async fn spans_are_exported_from_a_runtime_of_their_own() {
    let collector = Collector::start();
    let (address, _) = recorder().await;
    let exporting = ExportRuntime::start().unwrap();
    let exporter = exporting.enter(|| {
        let endpoint = format!("http://{}", collector.address);
        let builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        builder.build().unwrap()
    });
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .build();
    let client = client(Client::builder().tracer_provider(&provider), &[address]);
    send_with_headers(&client).await;
    provider.force_flush().unwrap();
    let spans = collector.spans();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(
        attribute(&spans[0].attributes, "plimsoll.cluster"),
        "orders"
    );
    send_with_headers(&client).await;
    provider.shutdown().unwrap();
    assert_eq!(collector.spans().len(), 2);
}
