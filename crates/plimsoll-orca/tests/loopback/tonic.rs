//! A tonic server with the layer.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use plimsoll_orca::{OrcaHandle, OrcaLayer, OrcaLoadReport, OrcaRecorder};
use plimsoll_testing::tasks::wait_until;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use super::grpc::{self, BytesCodec};
use super::{listen, report};

/// Echoes the request; returns an error for `fail`.
#[derive(Clone, Copy)]
struct Echo;

const PATH: &str = "/test.Echo/Call";

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let recorder = request.extensions().get::<OrcaRecorder>().cloned();
        let Some(recorder) = recorder else {
            return ready(Err(Status::internal("no recorder")));
        };
        let length = request.get_ref().len();
        #[expect(clippy::cast_precision_loss, reason = "messages are short")]
        let cost = recorder.set_request_cost("bytes", length as f64);
        match &request.get_ref()[..] {
            b"fail" => ready(Err(Status::unavailable("as asked"))),
            _ if cost.is_err() => ready(Err(Status::internal("refused"))),
            _ => ready(Ok(Response::new(request.into_inner()))),
        }
    }
}

impl tower::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = *self;
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(BytesCodec);
            Ok(grpc.unary(echo, request).await)
        })
    }
}

async fn serve() -> (SocketAddr, OrcaHandle) {
    let layer = OrcaLayer::builder().concurrency_limit(100).build().unwrap();
    let handle = layer.handle();
    handle.set_cpu_utilization(0.375).unwrap();
    handle.refresh();
    let server = Server::builder()
        .layer(layer)
        .add_service(Echo)
        .add_service(handle.open_rca_service());
    let (listener, address) = listen().await;
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await });
    (address, handle)
}

#[tokio::test]
async fn grpc_responses_carry_the_report_in_trailers() {
    let (address, handle) = serve().await;
    let response = grpc::call(address, PATH, "hello").await.unwrap();
    let headers = response.metadata().clone().into_headers();
    assert_eq!(report(&headers), None);
    let mut stream = response.into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap(), "hello");
    assert!(stream.message().await.unwrap().is_none());
    let trailers = stream.trailers().await.unwrap().unwrap().into_headers();
    assert!(trailers.contains_key("endpoint-load-metrics-bin"));
    let reported = report(&trailers).unwrap();
    assert_eq!(reported.cpu_utilization, 0.375);
    assert_eq!(reported.request_cost.get("bytes"), Some(5.0));
    wait_until("a rate", async || handle.report().rps_fractional > 0.0).await;
    assert_eq!(handle.errors(), 0);
}

#[tokio::test]
async fn error_statuses_count_and_carry_a_report() {
    let (address, handle) = serve().await;
    let status = grpc::call(address, PATH, "fail").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let headers = status.metadata().clone().into_headers();
    assert_eq!(report(&headers).unwrap().cpu_utilization, 0.375);
    wait_until("an error", async || handle.errors() == 1).await;
    let missing = grpc::call(address, "/test.Echo2/Call", "x").await;
    assert_eq!(missing.unwrap_err().code(), Code::Unimplemented);
    wait_until("another", async || handle.errors() == 2).await;
}

#[tokio::test]
async fn several_clients_stream_reports() {
    let (address, handle) = serve().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut reports = grpc::ask(address, 1).await;
        let first = reports.next().await.unwrap();
        assert_eq!(first.cpu_utilization, 0.375);
        streams.push(reports);
    }
    handle.set_cpu_utilization(0.625).unwrap();
    handle.refresh();
    let changed = |report: &OrcaLoadReport| report.cpu_utilization == 0.625;
    for reports in &mut streams {
        while !changed(&reports.next().await.unwrap()) {}
    }
    assert_eq!(
        (handle.in_flight(), handle.report().rps_fractional),
        (0, 0.0)
    );
    handle.shutdown();
    for reports in streams {
        assert_eq!(reports.end().await, Code::Unavailable);
    }
}
