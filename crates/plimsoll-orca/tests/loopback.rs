//! The layer in real servers: axum, tonic and plain hyper over loopback.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "loopback/axum.rs"]
mod axum_server;
#[path = "loopback/grpc.rs"]
mod grpc;
#[path = "loopback/handle.rs"]
mod handle;
#[path = "loopback/hyper.rs"]
mod hyper_server;
#[path = "loopback/tonic.rs"]
mod tonic_server;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use plimsoll_orca::OrcaLoadReport;
use plimsoll_xds::orca::{OrcaLimits, parse};
use tokio::net::{TcpListener, TcpStream};

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends an HTTP/1.1 request and reads the whole response.
async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::get(path).header("host", "backend");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    connection.abort();
    Response::from_parts(head, body)
}

fn report(headers: &HeaderMap) -> Option<OrcaLoadReport> {
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    parse(pairs, &OrcaLimits::default()).ok()
}
