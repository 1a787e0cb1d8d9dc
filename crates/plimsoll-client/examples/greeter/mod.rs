//! Client and server of `example.Greeter`, as tonic would generate them from a `.proto` file.
//!
//! Written by hand, so that the examples need no protobuf compiler; messages are plain text.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Hand-written client of `example.Greeter`.
#[derive(Debug)]
pub(crate) struct GreeterClient<C>(Grpc<C>);

impl<C> GreeterClient<C>
where
    C: GrpcService<Body>,
    C::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<BoxError> + Send,
{
    pub(crate) fn new(channel: C) -> Self {
        Self(Grpc::new(channel))
    }

    /// Unary call: returns one greeting.
    pub(crate) async fn say(&mut self, name: &str) -> Result<String, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/example.Greeter/Say");
        let request = Request::new(name.to_owned());
        let response = self.0.unary(request, path, TextCodec).await?;
        Ok(response.into_inner())
    }

    /// Server-streaming call: returns one message per letter.
    pub(crate) async fn spell(&mut self, name: &str) -> Result<Streaming<String>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/example.Greeter/Spell");
        let request = Request::new(name.to_owned());
        let response = self.0.server_streaming(request, path, TextCodec).await?;
        Ok(response.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let unready = |error: C::Error| Status::unknown(error.into().to_string());
        self.0.ready().await.map_err(unready)
    }
}

/// Starts a server on a free loopback port; it runs until its task is aborted.
pub(crate) async fn serve() -> std::io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        let server = tonic::transport::Server::builder();
        let never = std::future::pending();
        let incoming = TcpIncoming::from(listener);
        let serving = server.serve_with_incoming_shutdown(Greeter(address), incoming, never);
        drop(serving.await);
    });
    Ok((address, server))
}

/// Service that greets with its own address.
#[derive(Clone)]
struct Greeter(SocketAddr);

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;
type Letters = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

impl Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let greeter = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(TextCodec);
            Ok(match request.uri().path() {
                "/example.Greeter/Say" => grpc.unary(Say(greeter), request).await,
                "/example.Greeter/Spell" => grpc.server_streaming(Spell, request).await,
                path => Status::unimplemented(path.to_owned()).into_http(),
            })
        })
    }
}

struct Say(Greeter);

impl UnaryService<String> for Say {
    type Response = String;
    type Future = Answer<Response<String>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let (name, at) = (request.into_inner(), self.0.0);
        Box::pin(async move { Ok(Response::new(format!("hello {name} from {at}"))) })
    }
}

struct Spell;

impl ServerStreamingService<String> for Spell {
    type Response = String;
    type ResponseStream = Letters;
    type Future = Answer<Response<Letters>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let letters: Vec<_> = request.into_inner().chars().map(String::from).collect();
        let letters: Letters = Box::pin(tokio_stream::iter(letters.into_iter().map(Ok)));
        Box::pin(async move { Ok(Response::new(letters)) })
    }
}

/// Codec of plain-text messages.
#[derive(Clone, Copy)]
struct TextCodec;

impl Codec for TextCodec {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for TextCodec {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item.as_bytes());
        Ok(())
    }
}

impl Decoder for TextCodec {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = src.copy_to_bytes(src.remaining()).to_vec();
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
