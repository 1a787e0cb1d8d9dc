//! A tonic server that reports its load in response trailers and out of band.
//!
//! Run it with `cargo run -p plimsoll-orca --example tonic`. The service is written by hand, so
//! that the example needs no protobuf compiler: `example.Hello/Say` answers an empty message with
//! an empty message.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use plimsoll_orca::{OrcaLayer, OrcaRecorder};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tower::Service;

#[derive(Clone)]
struct Hello;

impl NamedService for Hello {
    const NAME: &'static str = "example.Hello";
}

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // With generated code, use `extensions()` of the tonic request.
        if let Some(orca) = request.extensions().get::<OrcaRecorder>() {
            let _ = orca.set_request_cost("greetings", 1.0);
        }
        Box::pin(async move {
            // A server that does not read the request resets the stream after its response.
            let _ = request.into_body().collect().await;
            let message = Frame::data(Bytes::from_static(&[0; 5]));
            let status = (
                HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            );
            let trailers = Frame::trailers(HeaderMap::from_iter([status]));
            let frames = [message, trailers].map(Ok::<_, tonic::Status>);
            let body = StreamBody::new(tokio_stream::iter(frames));
            let mut response = Response::new(Body::new(body));
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(header::CONTENT_TYPE, grpc);
            Ok(response)
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layer = OrcaLayer::builder().concurrency_limit(200).build()?;
    let orca = layer.handle();
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    Server::builder()
        .layer(layer)
        .add_service(Hello)
        .add_service(orca.open_rca_service())
        .serve(address.parse()?)
        .await?;
    Ok(())
}
