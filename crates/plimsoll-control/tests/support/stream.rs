//! A gRPC stream over a socket, of encoded messages.

use std::net::SocketAddr;

use bytes::Bytes;
use http::uri::PathAndQuery;
use plimsoll_xds::driver::BytesCodec;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Streaming};

/// Opens a connection and a stream, which is closed when both ends are dropped.
pub(crate) async fn open(
    address: SocketAddr,
    path: &'static str,
) -> (mpsc::Sender<Bytes>, Streaming<Bytes>) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let (requests, receiver) = mpsc::channel(16);
    let stream = Request::new(ReceiverStream::new(receiver));
    let path = PathAndQuery::from_static(path);
    let response = grpc.streaming(stream, path, BytesCodec).await.unwrap();
    (requests, response.into_inner())
}
