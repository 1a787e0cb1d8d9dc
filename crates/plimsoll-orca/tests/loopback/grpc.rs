//! gRPC without generated code: messages are bytes.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use plimsoll_orca::{OpenRcaService, OrcaLoadReport};
use plimsoll_xds::orca::oob::encode_request;
use plimsoll_xds::orca::{OrcaLimits, parse_message};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

/// Codec that passes `Bytes` through.
#[derive(Clone, Copy, Default)]
pub(crate) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

async fn connect(address: SocketAddr) -> Grpc<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    client
}

/// Makes a server-streaming call, so that its trailers can be read.
pub(crate) async fn call(
    address: SocketAddr,
    path: &'static str,
    message: &'static str,
) -> Result<Response<Streaming<Bytes>>, Status> {
    let mut client = connect(address).await;
    let request = Request::new(Bytes::from_static(message.as_bytes()));
    let path = PathAndQuery::from_static(path);
    client.server_streaming(request, path, BytesCodec).await
}

/// A stream of out-of-band reports.
pub(crate) struct Reports(Streaming<Bytes>);

/// Requests a report every `seconds`.
pub(crate) async fn ask(address: SocketAddr, seconds: u64) -> Reports {
    let mut client = connect(address).await;
    let message = encode_request(Duration::from_secs(seconds));
    let request = Request::new(Bytes::from(message));
    let path = PathAndQuery::from_static(OpenRcaService::PATH);
    let response = client.server_streaming(request, path, BytesCodec).await;
    Reports(response.unwrap().into_inner())
}

impl Reports {
    pub(crate) async fn next(&mut self) -> Result<OrcaLoadReport, Status> {
        let message = self
            .0
            .message()
            .await?
            .ok_or_else(|| Status::ok("the stream ended"))?;
        Ok(parse_message(&message, &OrcaLimits::default()).unwrap())
    }

    /// Skips pending reports and returns the status of the stream.
    pub(crate) async fn end(mut self) -> Code {
        loop {
            if let Err(status) = self.next().await {
                return status.code();
            }
        }
    }
}
