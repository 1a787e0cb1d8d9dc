//! A tonic server that reports its load in response trailers and out of band.
//!
//! Run it with `cargo run -p plimsoll-orca --example tonic`. The service is written by hand, so
//! that the example needs no protobuf compiler: `example.Hello/Say` answers an empty message with
//! an empty message.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
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
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // With generated code, use `extensions()` of the tonic request.
        if let Some(orca) = request.extensions().get::<OrcaRecorder>() {
            let _ = orca.set_request_cost("greetings", 1.0);
        }
        let empty = Full::from(&[0; 5][..]);
        let trailers = async {
            let ok = ("grpc-status", HeaderValue::from_static("0"));
            let name = http::HeaderName::from_static(ok.0);
            Some(Ok(HeaderMap::from_iter([(name, ok.1)])))
        };
        let mut response = Response::new(Body::new(empty.with_trailers(trailers)));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, grpc);
        ready(Ok(response))
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
