//! Requests through the layer: what is counted, and where the report is written.

use std::convert::Infallible;
use std::pin::pin;
use std::task::Waker;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_xds::orca::{self, OrcaLimits};
use tower_layer::Layer as _;
use tower_service::Service;

use super::*;
use crate::{OrcaHandle, OrcaLayer, OrcaLayerBuilder};

/// A body of prepared frames; an `Err` makes the body fail.
struct Frames(Vec<Result<Frame<Bytes>, &'static str>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        std::task::Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// A layer that reports only what the test sets.
fn quiet() -> OrcaLayerBuilder {
    let second = std::time::Duration::from_secs(10);
    OrcaLayer::builder()
        .cpu(false)
        .memory(false)
        .tick(second)
        .window(second)
}

fn layer(builder: OrcaLayerBuilder) -> (OrcaLayer, OrcaHandle) {
    let layer = builder.build().unwrap();
    let handle = layer.handle();
    handle.set_cpu_utilization(0.5).unwrap();
    handle.refresh();
    (layer, handle)
}

/// Sends a request through the layer to `handler`.
fn send<F, E>(
    layer: &OrcaLayer,
    request: Request<()>,
    handler: F,
) -> Result<Response<crate::OrcaBody<Frames>>, E>
where
    F: Fn(&Request<()>) -> Result<Response<Frames>, E>,
{
    struct Handler<F>(F);
    impl<F, E> Service<Request<()>> for Handler<F>
    where
        F: Fn(&Request<()>) -> Result<Response<Frames>, E>,
    {
        type Response = Response<Frames>;
        type Error = E;
        type Future = std::future::Ready<Result<Response<Frames>, E>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), E>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            std::future::ready((self.0)(&request))
        }
    }
    let future = pin!(layer.layer(Handler(handler)).call(request));
    let mut cx = std::task::Context::from_waker(Waker::noop());
    match future.poll(&mut cx) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("the handler is always ready"),
    }
}

/// Reads all frames of a body.
fn drain(body: crate::OrcaBody<Frames>) -> Vec<Result<Frame<Bytes>, &'static str>> {
    let mut body = pin!(body);
    let mut cx = std::task::Context::from_waker(Waker::noop());
    let mut frames = Vec::new();
    while let std::task::Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
        frames.push(frame);
    }
    frames
}

fn response(status: u16, headers: &[(&str, &str)], frames: Frames) -> Response<Frames> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(frames).unwrap()
}

fn plain(status: u16) -> Response<Frames> {
    response(status, &[], Frames(vec![Ok(Frame::data("x".into()))]))
}

const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc+proto")];

fn grpc(status: &'static str) -> Response<Frames> {
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static(status));
    let frames = vec![Ok(Frame::data("x".into())), Ok(Frame::trailers(trailers))];
    response(200, GRPC, Frames(frames))
}

fn report(headers: &HeaderMap) -> Option<OrcaLoadReport> {
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    orca::parse(pairs, &OrcaLimits::default()).ok()
}

/// Number of errors that a layer has counted.
fn errors(layer: &OrcaLayer) -> u64 {
    layer.handle().errors()
}

#[test]
fn http_responses_carry_a_header_and_an_unchanged_body() {
    let (layer, _) = layer(quiet());
    let response = send::<_, Infallible>(&layer, Request::default(), |_| Ok(plain(200))).unwrap();
    let value = &response.headers()["endpoint-load-metrics"];
    assert_eq!(value, "TEXT cpu_utilization=0.5");
    assert_eq!(response.body().size_hint().exact(), Some(1));
    assert!(!response.body().is_end_stream());
    let frames = drain(response.into_body());
    assert_eq!(frames.len(), 1);
}

#[test]
fn grpc_responses_carry_a_trailer_and_no_header() {
    let (layer, _) = layer(quiet());
    let response = send::<_, Infallible>(&layer, Request::default(), |_| Ok(grpc("0"))).unwrap();
    assert_eq!(report(response.headers()), None);
    let mut frames = drain(response.into_body());
    let last = frames.pop().unwrap().unwrap().into_trailers();
    let trailers = last.ok().unwrap();
    assert!(trailers.contains_key(ENDPOINT_LOAD_METRICS_BIN));
    assert_eq!(report(&trailers).unwrap().cpu_utilization, 0.5);
    assert_eq!(trailers[GRPC_STATUS], "0");
    assert_eq!(errors(&layer), 0);
}

#[test]
fn trailers_only_grpc_responses_carry_a_header() {
    let (layer, _) = layer(quiet());
    let only = |_: &Request<()>| {
        let headers = [GRPC[0], ("grpc-status", "14")];
        Ok::<_, Infallible>(response(200, &headers, Frames(vec![])))
    };
    let response = send(&layer, Request::default(), only).unwrap();
    assert_eq!(report(response.headers()).unwrap().cpu_utilization, 0.5);
    assert!(response.body().is_end_stream());
    drop(response);
    assert_eq!(errors(&layer), 1);
}

#[test]
fn trailers_of_http_responses_are_left_alone() {
    let (layer, _) = layer(quiet());
    let with_trailers = |_: &Request<()>| {
        let frames = Frames(vec![Ok(Frame::trailers(HeaderMap::new()))]);
        Ok::<_, Infallible>(response(200, &[], frames))
    };
    let response = send(&layer, Request::default(), with_trailers).unwrap();
    let mut frames = drain(response.into_body());
    let trailers = frames.pop().unwrap().unwrap().into_trailers();
    assert_eq!(trailers.ok(), Some(HeaderMap::new()));
    assert_eq!(errors(&layer), 0);
}

#[test]
fn errors_are_counted_once() {
    let broken = || {
        let frames = vec![Ok(Frame::data(Bytes::new())), Err("cut")];
        response(200, &[], Frames(frames))
    };
    type Case = (&'static str, fn() -> Response<Frames>, u64);
    let cases: [Case; 7] = [
        ("200", || plain(200), 0),
        ("404", || plain(404), 0),
        ("500", || plain(500), 1),
        ("503", || plain(503), 1),
        ("grpc 0", || grpc("0"), 0),
        ("grpc 5", || grpc("5"), 1),
        ("a failed body", broken, 1),
    ];
    for (name, answer, expected) in cases {
        let (layer, handle) = layer(quiet());
        let response = send::<_, Infallible>(&layer, Request::default(), |_| Ok(answer())).unwrap();
        assert_eq!(handle.in_flight(), 1, "{name}: until the body ends");
        drain(response.into_body());
        assert_eq!(handle.in_flight(), 0, "{name}");
        assert_eq!(errors(&layer), expected, "{name}");
    }
}

#[test]
fn service_errors_count_and_client_cancellations_do_not() {
    let (layer, handle) = layer(quiet());
    let failed = send(&layer, Request::default(), |_| Err("no"));
    assert_eq!(failed.err(), Some("no"));
    assert_eq!((handle.in_flight(), errors(&layer)), (0, 1));
    let left = send::<_, Infallible>(&layer, Request::default(), |_| Ok(grpc("0"))).unwrap();
    drop(left);
    assert_eq!((handle.in_flight(), errors(&layer)), (0, 1));
}

fn asking(format: &str) -> Request<()> {
    let request = Request::builder().header("endpoint-load-metrics-format", format);
    request.body(()).unwrap()
}

#[test]
fn a_request_may_choose_the_format() {
    let (layer, _) = layer(quiet().http_format(OrcaFormat::BinHeader));
    let header = |format| {
        let answer = send::<_, Infallible>(&layer, asking(format), |_| Ok(plain(200))).unwrap();
        let headers = answer.headers();
        let value = headers.get(ENDPOINT_LOAD_METRICS)?;
        Some(value.to_str().unwrap()[..4].to_owned())
    };
    assert_eq!(header("TEXT").as_deref(), Some("TEXT"));
    assert_eq!(header("json").as_deref(), Some("JSON"));
    assert_eq!(header("BIN").as_deref(), Some("BIN "));
    assert_eq!(header("XML"), None, "the configured format applies");
}

#[test]
fn on_request_reports_only_when_asked() {
    let (layer, _) = layer(quiet().when(When::OnRequest));
    let reported = |request| {
        let answer = send::<_, Infallible>(&layer, request, |_| Ok(plain(200))).unwrap();
        report(answer.headers()).is_some()
    };
    assert!(!reported(Request::default()));
    assert!(!reported(asking("XML")));
    assert!(reported(asking("JSON")));
}

#[test]
fn recorded_metrics_affect_one_response() {
    let (layer, _) = layer(quiet());
    let costly = |request: &Request<()>| {
        let recorder = request.extensions().get::<OrcaRecorder>().unwrap();
        recorder.set_request_cost("rows", 3.0).unwrap();
        Ok::<_, Infallible>(plain(200))
    };
    let answer = send(&layer, Request::default(), costly).unwrap();
    let reported = report(answer.headers()).unwrap();
    assert_eq!(reported.request_cost.get("rows"), Some(3.0));
    assert_eq!(reported.cpu_utilization, 0.5);
    let next = send::<_, Infallible>(&layer, Request::default(), |_| Ok(plain(200))).unwrap();
    assert!(report(next.headers()).unwrap().request_cost.is_empty());
}

#[test]
fn a_report_written_by_the_handler_is_kept() {
    let (layer, _) = layer(quiet());
    for name in [ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN] {
        let own = |_: &Request<()>| {
            let headers = [(name.as_str(), "own")];
            Ok::<_, Infallible>(response(200, &headers, Frames(vec![])))
        };
        let answer = send(&layer, Request::default(), own).unwrap();
        assert_eq!(answer.headers().len(), 1);
        assert_eq!(answer.headers()[&name], "own");
    }
}

#[test]
fn an_empty_report_adds_no_header() {
    let layer = quiet().build().unwrap();
    let answer = send::<_, Infallible>(&layer, Request::default(), |_| Ok(plain(200))).unwrap();
    assert!(answer.headers().is_empty());
}

#[test]
fn report_streams_do_not_count_as_load() {
    let (layer, handle) = layer(quiet());
    let request = Request::builder().uri(PATH).body(()).unwrap();
    let stream = send::<_, Infallible>(&layer, request, |_| Ok(grpc("0"))).unwrap();
    assert_eq!(handle.in_flight(), 0);
    let mut frames = drain(stream.into_body());
    let trailers = frames.pop().unwrap().unwrap().into_trailers().ok().unwrap();
    assert_eq!(report(&trailers), None);
}

#[test]
fn grpc_web_is_not_grpc() {
    let cases = [
        ("application/grpc", true),
        ("application/grpc+json", true),
        ("application/grpc;charset=utf-8", true),
        ("application/grpc-web", false),
        ("application/grpc-web+proto", false),
        ("application/json", false),
        ("", false),
    ];
    for (content_type, expected) in cases {
        let mut headers = HeaderMap::new();
        assert!(!is_grpc(&headers));
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        assert_eq!(is_grpc(&headers), expected, "{content_type}");
    }
}
