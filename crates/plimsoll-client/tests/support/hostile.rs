//! [`Hostile`]: a management server that sends arbitrary bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::driver::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES};
use plimsoll_xds::wire;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::within;

/// A management server under full control of the test.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    streams: UnboundedReceiver<RawStream>,
    server: JoinHandle<()>,
}

/// One discovery stream; dropping it ends the stream.
pub(crate) struct RawStream {
    pub(crate) variant: Variant,
    requests: UnboundedReceiver<Bytes>,
    frames: UnboundedSender<Frame<Bytes>>,
}

/// A discovery request of the client.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) type_url: String,
    pub(crate) names: Vec<String>,
    pub(crate) nonce: String,
    pub(crate) error: Option<String>,
}

impl Hostile {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (opened, streams) = unbounded_channel();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let opened = opened.clone();
                let serve = service_fn(move |request| answer(request, opened.clone()));
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(stream), serve).await);
                });
            }
        });
        Self {
            address,
            streams,
            server,
        }
    }

    /// Waits for the next discovery stream.
    pub(crate) async fn stream(&mut self) -> RawStream {
        within(self.streams.recv()).await.unwrap()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl RawStream {
    /// Sends a message in a gRPC frame.
    pub(crate) fn send(&self, message: &[u8]) {
        let length = u32::try_from(message.len()).unwrap();
        self.send_framed(length, message);
    }

    /// Sends a frame whose header announces `length` bytes.
    pub(crate) fn send_framed(&self, length: u32, message: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(length);
        frame.extend_from_slice(message);
        // The client may have closed the stream.
        let _ = self.frames.send(Frame::data(frame.freeze()));
    }

    /// Ends the stream with a gRPC status.
    pub(crate) fn end(self, code: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static(code));
        let _ = self.frames.send(Frame::trailers(trailers));
    }

    /// Returns the client's next request.
    pub(crate) async fn next_request(&mut self) -> ClientRequest {
        let bytes = within(self.requests.recv())
            .await
            .expect("the stream lives");
        read(self.variant, bytes)
    }

    /// Returns the error of the NACK with this nonce, or `None` for an ACK.
    pub(crate) async fn nack_error(&mut self, nonce: &str) -> Option<String> {
        loop {
            let request = self.next_request().await;
            if request.nonce == nonce {
                return request.error;
            }
        }
    }

    /// Waits until the client subscribes to `name` of a type.
    pub(crate) async fn wait_for_subscription(&mut self, type_url: &str, name: &str) {
        loop {
            let request = self.next_request().await;
            if request.type_url == type_url && request.names.iter().any(|known| known == name) {
                return;
            }
        }
    }

    /// Waits until the client has closed the stream.
    pub(crate) async fn closed(mut self) {
        while within(self.requests.recv()).await.is_some() {}
    }
}

fn read(variant: Variant, bytes: Bytes) -> ClientRequest {
    let names = |names: &[std::sync::Arc<str>]| names.iter().map(ToString::to_string).collect();
    match variant {
        Variant::Sotw => {
            let request = wire::decode_discovery_request(bytes).unwrap();
            ClientRequest {
                type_url: request.type_url.to_string(),
                names: names(&request.resource_names),
                nonce: request.response_nonce,
                error: request.error_detail.map(|detail| detail.message),
            }
        }
        Variant::Delta => {
            let request = wire::decode_delta_discovery_request(bytes).unwrap();
            ClientRequest {
                type_url: request.type_url.to_string(),
                names: names(&request.resource_names_subscribe),
                nonce: request.response_nonce,
                error: request.error_detail.map(|detail| detail.message),
            }
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    opened: UnboundedSender<RawStream>,
) -> Result<Response<Frames>, Infallible> {
    let (frames, to_send) = unbounded_channel();
    let variant = match request.uri().path() {
        STREAM_AGGREGATED_RESOURCES => Some(Variant::Sotw),
        DELTA_AGGREGATED_RESOURCES => Some(Variant::Delta),
        // Load reports are never answered.
        _ => None,
    };
    let (said, requests) = unbounded_channel();
    let unanswered = frames.clone();
    tokio::spawn(async move {
        read_messages(request.into_body(), &said).await;
        drop(unanswered);
    });
    if let Some(variant) = variant {
        let _ = opened.send(RawStream {
            variant,
            requests,
            frames,
        });
    }
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(Frames(to_send)).unwrap())
}

/// Forwards messages until the client ends its half, or the receiver is dropped.
async fn read_messages(mut body: Incoming, said: &UnboundedSender<Bytes>) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else {
            return;
        };
        buffer.extend_from_slice(data);
        while buffer.len() >= 5 {
            let length = (&buffer[1..5]).get_u32() as usize;
            if buffer.len() < 5 + length {
                break;
            }
            let mut message = buffer.split_to(5 + length);
            message.advance(5);
            if said.send(message.freeze()).is_err() {
                return;
            }
        }
    }
}

struct Frames(UnboundedReceiver<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}
