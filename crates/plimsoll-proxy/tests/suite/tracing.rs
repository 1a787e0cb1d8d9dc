//! Tracing: trace headers, sampling, what spans say, and collectors that are slow, dead or gone.

use std::net::SocketAddr;

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, Raw};
use crate::support::collector::{Answer, Collector, attribute};
use crate::support::management::Management;
use crate::support::{
    HTTP2, Proxy, TIMEOUT, config_with, counter, free_address, route_all_to, wait_until,
};
use bytes::Bytes;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use plimsoll_xds::ads::LISTENER;
use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::yaml::Document;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
const GRPC: &str = "grpc_service: {envoy_grpc: {cluster_name: collector}}";

/// `tracing` of a connection manager with a collector and further fields.
fn tracing(service: &str, more: &str) -> String {
    format!(
        "tracing:\n  provider:\n    name: envoy.tracers.opentelemetry\n    typed_config: \
         {{'@type': type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, \
         service_name: edge, {service}}}\n{more}"
    )
}

async fn proxy(manager: &str, routes: &str, backend: SocketAddr, collector: SocketAddr) -> Proxy {
    let clusters: &[(&str, &[_], &str)] = &[
        ("a", &[backend], ""),
        ("collector", &[collector], HTTP2),
        ("collector-http1", &[collector], ""),
    ];
    let config = config_with(manager, routes, clusters);
    Proxy::start(&format!(
        "node: {{id: p1, locality: {{zone: z}}}}\n{config}"
    ))
    .await
}

/// A proxy with a backend that echoes request headers and a collector that accepts spans. Bind
/// every field: those that are dropped stop.
struct Testbed {
    backend: Backend,
    collector: Collector,
    proxy: Proxy,
}

impl Testbed {
    async fn start(manager: &str) -> Self {
        let (backend, collector) = (Backend::echo("a").await, Collector::start());
        let routes = route_all_to("a");
        let proxy = proxy(manager, &routes, backend.address, collector.address).await;
        Self {
            backend,
            collector,
            proxy,
        }
    }
}

/// Sends a request with headers; returns the headers that the backend has got.
async fn send(proxy: &Proxy, path: &str, fields: &[(&str, &str)]) -> Headers {
    let mut text = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let response = client::send(proxy.address(), &format!("{text}\r\n")).await;
    assert_eq!(response.status, 200, "{}", response.body);
    Headers(response.body)
}

/// What a backend has echoed.
struct Headers(String);

impl Headers {
    fn all(&self, name: &str) -> Vec<&str> {
        let prefix = format!("{name}: ");
        let lines = self.0.lines();
        lines
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }

    fn one(&self, name: &str) -> &str {
        let [value] = self.all(name)[..] else {
            panic!("{name} in {}", self.0);
        };
        value
    }
}

async fn spans(collector: &Collector, count: usize) -> Vec<Span> {
    wait_until(&format!("{count} spans arrive"), || async {
        collector.spans().len() >= count
    })
    .await;
    let spans = collector.spans();
    assert_eq!(spans.len(), count, "{spans:?}");
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(span: &Span, key: &str) -> String {
    attribute(&span.attributes, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_headers_pass_unchanged_without_tracing() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &route_all_to("a"), backend.address, free_address()).await;
    for parent in [&*format!("00-{TRACE}-{SPAN}-01"), "nonsense"] {
        let fields = [
            ("traceparent", parent),
            ("tracestate", "a=1"),
            ("baggage", "k=v"),
        ];
        let seen = send(&proxy, "/", &fields).await;
        for (name, value) in fields {
            assert_eq!(seen.one(name), value);
        }
    }
    let seen = send(&proxy, "/", &[]).await;
    assert_eq!(seen.all("traceparent"), [""; 0]);
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_continues_the_trace_of_the_client() {
    let more = "  max_path_tag_length: 6\n  custom_tags: [{tag: lit, literal: {value: v}}, \
                {tag: hdr, request_header: {name: x-hdr}}, \
                {tag: none, request_header: {name: x-none}}, \
                {tag: dflt, request_header: {name: x-none, default_value: d}}]\n";
    let manager = tracing(GRPC, more);
    let Testbed {
        backend,
        collector,
        proxy,
    } = Testbed::start(&manager).await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let fields = [
        ("traceparent", &*parent),
        ("tracestate", "a=1"),
        ("baggage", "k=v"),
        ("x-hdr", "h"),
        ("user-agent", "test"),
    ];
    let seen = send(&proxy, "/path?query", &fields).await;
    let [span] = &spans(&collector, 1).await[..] else {
        panic!()
    };
    assert_eq!(
        (hex(&span.trace_id), hex(&span.parent_span_id)),
        (TRACE.into(), SPAN.into())
    );
    let own = format!("00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(seen.one("traceparent"), own);
    assert_eq!(
        (seen.one("tracestate"), seen.one("baggage")),
        ("a=1", "k=v")
    );
    assert_eq!(
        (&*span.name, span.kind),
        ("ingress", SpanKind::Server.into())
    );
    assert_eq!((&*span.trace_state, span.flags), ("a=1", 0x301));
    assert!(span.start_time_unix_nano > 0 && span.status.is_none());
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    for (key, value) in [
        ("node_id", "p1"),
        ("zone", "z"),
        ("guid:x-request-id", seen.one("x-request-id")),
        ("http.url", "http://example.com/path?"),
        ("http.method", "GET"),
        ("http.protocol", "HTTP/1.1"),
        ("http.status_code", "200"),
        ("downstream_cluster", "-"),
        ("user_agent", "test"),
        ("peer.address", "127.0.0.1"),
        ("component", "proxy"),
        ("upstream_cluster", "a"),
        ("upstream_cluster.name", "a"),
        ("upstream_address", &backend.address.to_string()),
        ("request_size", "0"),
        ("response_flags", "-"),
        ("error", ""),
        ("lit", "v"),
        ("hdr", "h"),
        ("none", ""),
        ("dflt", "d"),
    ] {
        assert_eq!(text(span, key), value, "{key}");
    }
    assert_ne!(text(span, "response_size"), "0");
    let (path, headers, resource) = collector.last();
    assert_eq!(
        path,
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    );
    assert_eq!(headers["te"], "trailers");
    assert_eq!(attribute(&resource, "service.name"), "edge");
    // Envoys behind this one see that the request is sampled.
    assert_eq!(seen.one("x-request-id").as_bytes()[14], b'9');
    wait_until("the span is counted", || async {
        counter(&proxy, "tracing.opentelemetry.spans_sent").await == 1
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_contexts_start_a_new_trace() {
    let manager = tracing(GRPC, "");
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    let valid = format!("00-{TRACE}-{SPAN}-01");
    let upper = valid.to_uppercase();
    let cases: [&[&str]; 4] = [&[], &["nonsense"], &[&upper], &[&valid, &valid]];
    for parents in cases {
        let mut fields = vec![("tracestate", "a=1"), ("baggage", "k=v")];
        fields.extend(parents.iter().map(|parent| ("traceparent", *parent)));
        let seen = send(&proxy, "/", &fields).await;
        let parent = seen.one("traceparent");
        assert!(
            !parent.contains(TRACE) && parent.ends_with("-01"),
            "{parent}"
        );
        assert_eq!(seen.all("tracestate"), [""; 0]);
        assert_eq!(seen.one("baggage"), "k=v");
    }
    for span in spans(&collector, 4).await {
        assert_eq!(hex(&span.parent_span_id), "");
        assert_eq!((span.flags, &*span.trace_state), (0x101, ""));
    }
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_sampled_have_no_span() {
    let manager = tracing(GRPC, "  random_sampling: {value: 0}\n");
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    for fields in [&[][..], &[("traceparent", &*parent)]] {
        let seen = send(&proxy, "/", fields).await;
        assert!(seen.one("traceparent").ends_with("-00"), "{}", seen.0);
        assert_eq!(seen.one("x-request-id").as_bytes()[14], b'4');
    }
    // Only the last two requests are sampled: by an earlier proxy, and by the client.
    let id = "75236891-db07-9796-b5e8-9d878ea88b23";
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    let fields = [("x-request-id", id), ("traceparent", &*unsampled)];
    assert!(
        send(&proxy, "/", &fields)
            .await
            .one("traceparent")
            .ends_with("-00")
    );
    let fields = [("x-request-id", id), ("traceparent", &*parent)];
    assert!(
        send(&proxy, "/", &fields)
            .await
            .one("traceparent")
            .ends_with("-01")
    );
    let fields = [("x-client-trace-id", "77")];
    assert!(
        send(&proxy, "/", &fields)
            .await
            .one("traceparent")
            .ends_with("-01")
    );
    let spans = spans(&collector, 2).await;
    let mut clients = spans
        .iter()
        .map(|span| text(span, "guid:x-client-trace-id"));
    assert!(clients.any(|id| id == "77"));
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_proxy_does_not_believe_the_request_id() {
    let more = "  random_sampling: {value: 0}\nuse_remote_address: true\n";
    let manager = tracing(GRPC, more);
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    let id = "75236891-db07-9796-b5e8-9d878ea88b23";
    let seen = send(&proxy, "/", &[("x-request-id", id)]).await;
    assert_ne!(seen.one("x-request-id"), id);
    assert!(seen.one("traceparent").ends_with("-00"), "{}", seen.0);
    proxy.shut_down().await;
    assert_eq!(collector.exports(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_go_to_an_http_collector() {
    let service = "http_service: {http_uri: {uri: 'http://otel.example:4318/v1/traces', \
                   cluster: collector-http1, timeout: 5s}, request_headers_to_add: \
                   [{header: {key: authorization, value: token}}]}";
    let manager = tracing(service, "");
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    send(&proxy, "/", &[]).await;
    spans(&collector, 1).await;
    let (path, headers, _) = collector.last();
    assert_eq!(path, "/v1/traces");
    assert_eq!(headers["host"], "otel.example:4318");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    assert_eq!(headers["authorization"], "token");
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_say_how_requests_failed() {
    let backend = Backend::start(|request| async move {
        match request.uri().path() {
            "/503" => reply(503, "busy"),
            _ => std::future::pending().await,
        }
    })
    .await;
    let collector = Collector::start();
    let routes = "- match: {prefix: /slow}\n  route: {cluster: a, timeout: 0.1s}\n\
                  - match: {prefix: /known}\n  direct_response: {status: 204}\n\
                  - match: {prefix: /503}\n  route: {cluster: a, retry_policy: {num_retries: 0}}\n\
                  - match: {prefix: /hang}\n  route: {cluster: a, timeout: 0s}\n";
    let manager = tracing(GRPC, "");
    let proxy = proxy(&manager, routes, backend.address, collector.address).await;
    for (path, status) in [
        ("/503", 503),
        ("/slow", 504),
        ("/none", 404),
        ("/known", 204),
    ] {
        let response = client::get(proxy.address(), path).await;
        assert_eq!(response.status, status, "{path}");
    }
    let mut gone = Raw::connect(proxy.address()).await;
    gone.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let before = backend.count();
    wait_until("the request is at the backend", || async {
        backend.count() >= before.max(3)
    })
    .await;
    drop(gone);
    let spans = spans(&collector, 5).await;
    let by_path = |path: &str| {
        let found = spans
            .iter()
            .find(|span| text(span, "http.url").ends_with(path));
        let span = found.unwrap();
        let is_error = span.status.as_ref().map(|status| status.code);
        let attributes = ["http.status_code", "response_flags", "error"];
        (attributes.map(|key| text(span, key)).join(" "), is_error)
    };
    assert_eq!(by_path("/503"), ("503 - true".to_owned(), Some(2)));
    assert_eq!(by_path("/slow"), ("504 UT true".to_owned(), Some(2)));
    assert_eq!(by_path("/none"), ("404 NR ".to_owned(), None));
    assert_eq!(by_path("/known"), ("204 - ".to_owned(), None));
    assert_eq!(by_path("/hang"), ("0 DC ".to_owned(), None));
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_a_tunnel_ends_with_it() {
    let backend = Backend::start(|request| async move {
        tokio::spawn(hyper::upgrade::on(request));
        http::Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .body(reply(200, "").into_body())
            .unwrap()
    })
    .await;
    let collector = Collector::start();
    let manager = tracing(GRPC, "upgrade_configs: [{upgrade_type: websocket}]\n");
    let proxy = proxy(
        &manager,
        &route_all_to("a"),
        backend.address,
        collector.address,
    )
    .await;
    let mut tunnel = Raw::connect(proxy.address()).await;
    tunnel
        .send("GET /t HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    assert_eq!(tunnel.response().await.status, 101);
    drop(tunnel);
    let spans = spans(&collector, 1).await;
    assert_eq!(text(&spans[0], "http.status_code"), "101");
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_delays_neither_requests_nor_the_end() {
    let service = format!("max_cache_size: 1, {GRPC}").replace("}}", "}, timeout: 600s}");
    let manager = tracing(&service, "");
    // One worker.
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    collector.answer(Answer::Hang);
    send(&proxy, "/", &[]).await;
    wait_until("the export hangs", || async { collector.exports() == 1 }).await;
    for _ in 0..10 {
        send(&proxy, "/", &[]).await;
    }
    wait_until("the queue of one span is full", || async {
        counter(&proxy, "tracing.opentelemetry.spans_dropped").await == 9
    })
    .await;
    // Within the time limit of `shut_down`.
    proxy.shut_down().await;
    assert_eq!(collector.spans().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_repeated_until_the_collector_is_back() {
    let manager = tracing(GRPC, "");
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    collector.answer(Answer::Unavailable);
    send(&proxy, "/", &[]).await;
    wait_until("an export fails", || async { collector.exports() >= 1 }).await;
    collector.answer(Answer::Accept);
    spans(&collector, 1).await;
    collector.answer(Answer::Unavailable);
    send(&proxy, "/", &[]).await;
    wait_until("the span is given up", || async {
        counter(&proxy, "tracing.opentelemetry.spans_dropped").await == 1
    })
    .await;
    assert_eq!(counter(&proxy, "tracing.opentelemetry.spans_sent").await, 1);
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_exports_the_last_spans() {
    let manager = tracing(GRPC, "");
    let Testbed {
        proxy,
        collector,
        backend: _backend,
    } = Testbed::start(&manager).await;
    for _ in 0..3 {
        send(&proxy, "/", &[]).await;
    }
    proxy.shut_down().await;
    assert_eq!(collector.spans().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn tracing_can_be_switched_on_and_off_by_an_edit() {
    let (backend, collector) = (Backend::echo("a").await, Collector::start());
    let clusters: &[(&str, &[_], &str)] = &[
        ("a", &[backend.address], ""),
        ("collector", &[collector.address], HTTP2),
    ];
    let config = |manager: &str| config_with(manager, &route_all_to("a"), clusters);
    let proxy = Proxy::start(&config("")).await;
    let is_traced = async || {
        let seen = send(&proxy, "/", &[]).await;
        !seen.all("traceparent").is_empty()
    };
    for on in [true, false, true] {
        let manager = if on { tracing(GRPC, "") } else { String::new() };
        proxy.edit(&config(&manager)).await;
        wait_until(&format!("tracing: {on}"), || async {
            is_traced().await == on
        })
        .await;
    }
    wait_until("both exporters send", || async {
        collector.spans().len() >= 2
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_the_management_server_is_traced() {
    let (backend, collector) = (Backend::echo("a").await, Collector::start());
    let address = free_address();
    let listener = config_with(&tracing(GRPC, ""), &route_all_to("a"), &[]);
    let (_, listener) = listener.split_once("  - name: front\n").unwrap();
    let (listener, _) = listener.split_once("  clusters:").unwrap();
    let port = format!("port_value: {}", address.port());
    let listener = format!("    name: front\n{listener}").replace("port_value: 0", &port);
    let document = Document::parse(&listener).unwrap();
    let message: FileMessage<ListenerMessage> = document.read().unwrap();
    let body = Bytes::copy_from_slice(message.bytes());
    let server = Management::start(&[(LISTENER, "front".to_owned(), body)]);
    let clusters: &[(&str, &[_], &str)] = &[
        ("server", &[server.address], HTTP2),
        ("a", &[backend.address], ""),
        ("collector", &[collector.address], HTTP2),
    ];
    let config = config_with("", "", clusters);
    let (_, clusters) = config.split_once("  clusters:").unwrap();
    let config = format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}\n\
         node: {{id: p1, cluster: edge}}\ndynamic_resources:\n  ads_config: {{api_type: GRPC, \
         grpc_services: [{{envoy_grpc: {{cluster_name: server}}}}]}}\n  \
         lds_config: {{ads: {{}}}}\nstatic_resources:\n  clusters:{clusters}"
    );
    let proxy = Proxy::start_with(&config, 1, TIMEOUT).await;
    wait_until("the listener answers", || async {
        client::try_get(address, "/")
            .await
            .is_some_and(|response| response.status == 200)
    })
    .await;
    assert_eq!(
        attribute(&spans(&collector, 1).await[0].attributes, "node_id"),
        "p1"
    );
    proxy.shut_down().await;
}
