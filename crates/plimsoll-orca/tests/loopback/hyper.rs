//! A plain hyper server with the layer, HTTP/1 and HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use plimsoll_orca::{OrcaFormat, OrcaHandle, OrcaLayer};
use tokio::net::TcpStream;
use tower::{Layer as _, service_fn};

use super::{get, listen, report};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

async fn serve(format: OrcaFormat) -> (SocketAddr, OrcaHandle) {
    let layer = OrcaLayer::builder().http_format(format).build().unwrap();
    let handle = layer.handle();
    handle.set_named_metric("queue", 7.0).unwrap();
    handle.refresh();
    let service = TowerToHyperService::new(layer.layer(service_fn(hello)));
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let service = service.clone();
            tokio::spawn(async move {
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, handle)
}

#[tokio::test]
async fn http1_responses_carry_every_format() {
    let forms = [
        (OrcaFormat::Text, "endpoint-load-metrics"),
        (OrcaFormat::Json, "endpoint-load-metrics"),
        (OrcaFormat::Bin, "endpoint-load-metrics"),
        (OrcaFormat::BinHeader, "endpoint-load-metrics-bin"),
    ];
    for (form, name) in forms {
        let (address, handle) = serve(form).await;
        let response = get(address, "/", &[]).await;
        assert_eq!(response.body(), "hello");
        assert_eq!(response.headers()["content-length"], "5");
        assert!(response.headers().contains_key(name), "{form:?}");
        let reported = report(response.headers()).unwrap();
        assert_eq!(reported.named_metrics.get("queue"), Some(7.0), "{form:?}");
        assert_eq!(handle.errors(), 0);
    }
}

#[tokio::test]
async fn http2_responses_carry_the_header() {
    let (address, _) = serve(OrcaFormat::Json).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let io = TokioIo::new(stream);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
    let (mut sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let reported = report(response.headers()).unwrap();
    assert_eq!(reported.named_metrics.get("queue"), Some(7.0));
    let body = response.into_body().collect().await.unwrap();
    assert!(body.trailers().is_none());
    assert_eq!(body.to_bytes(), "hello");
}
