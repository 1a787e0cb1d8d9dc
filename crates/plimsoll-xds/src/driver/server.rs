//! [`serve`]: discovery and load reporting on a listening socket.
//!
//! Here are the limits, the transport and the choice of the conversation by path. What is said is
//! in `ads` and `lrs` below this folder, and decided by the machines.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::{Code, Status};

mod ads;
mod lrs;

use super::handler::{AdsHandler, LrsHandler};
use super::messages::Messages;
use super::session::{Outbox, respond};
use super::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS};
use crate::ads::Variant;
use crate::ads::server::Limits;

/// Limits and timers of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Longest message that is read; 4 MiB.
    pub max_message_size: usize,
    /// Streams per connection; 100.
    pub max_concurrent_streams: u32,
    /// Unread bytes per stream; 128 KiB, room for two reports of an Envoy.
    pub stream_window: u32,
    /// Unread bytes per connection; 256 KiB.
    pub connection_window: u32,
    /// Silence after which a connection is asked for a sign of life; 30 s.
    pub keepalive_interval: Duration,
    /// How long that sign may take; 10 s.
    pub keepalive_timeout: Duration,
    /// How long a stream may take to say who it is; 30 s.
    pub first_message_timeout: Duration,
    /// How long connections may take to end after the shutdown signal; 5 s.
    pub drain_timeout: Duration,
    /// Limits of a discovery stream.
    pub ads: Limits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_message_size: 4 << 20,
            max_concurrent_streams: 100,
            stream_window: 128 << 10,
            connection_window: 256 << 10,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            first_message_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            ads: Limits::default(),
        }
    }
}

/// Serves until `shutdown` is done; then every stream ends with UNAVAILABLE, and connections get
/// some time to take leave.
pub async fn serve<A: AdsHandler, L: LrsHandler>(
    listener: TcpListener,
    (ads, lrs): (A, L),
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let drain_timeout = options.drain_timeout;
    let transport = transport(&options);
    let (stop, stopping) = watch::channel(false);
    let service = XdsService(Arc::new(Shared {
        ads,
        lrs,
        options,
        stopping,
    }));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let mut stopped = stop.subscribe();
    let serving = transport.serve_with_incoming_shutdown(service, incoming, async move {
        // An error means that the sender is gone, which is a signal too.
        let _ = stopped.changed().await;
    });
    let deadline = async {
        shutdown.await;
        stop.send_replace(true);
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        result = serving => result,
        () = deadline => Ok(()),
    }
}

fn transport(options: &ServerOptions) -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(options.keepalive_interval))
        .http2_keepalive_timeout(Some(options.keepalive_timeout))
        .initial_connection_window_size(options.connection_window)
        .initial_stream_window_size(options.stream_window)
        .max_concurrent_streams(options.max_concurrent_streams)
}

/// Answers one request after the other; all of them are streams.
struct XdsService<A, L>(Arc<Shared<A, L>>);

struct Shared<A, L> {
    ads: A,
    lrs: L,
    options: ServerOptions,
    stopping: watch::Receiver<bool>,
}

/// One stream before anything was said on it.
struct Stream {
    messages: Messages,
    outbox: Outbox,
    peer: Option<SocketAddr>,
    stopping: watch::Receiver<bool>,
}

impl<A, L> Clone for XdsService<A, L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: AdsHandler, L: LrsHandler> tower_service::Service<Request<Body>> for XdsService<A, L> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        let variant = match request.uri().path() {
            STREAM_AGGREGATED_RESOURCES => Variant::Sotw,
            DELTA_AGGREGATED_RESOURCES => Variant::Delta,
            STREAM_LOAD_STATS => {
                let start = |outbox| lrs::run(shared.stream(request, outbox), shared);
                return ready(Ok(respond(start)));
            }
            path => {
                let status = Status::unimplemented(format!("no method {path} here"));
                return ready(Ok(status.into_http()));
            }
        };
        let start = |outbox| ads::run(shared.stream(request, outbox), variant, shared);
        ready(Ok(respond(start)))
    }
}

impl<A, L> Shared<A, L> {
    fn stream(&self, request: Request<Body>, outbox: Outbox) -> Stream {
        let connection = request.extensions().get::<TcpConnectInfo>();
        Stream {
            peer: connection.and_then(TcpConnectInfo::remote_addr),
            messages: Messages::new(request.into_body(), self.options.max_message_size),
            outbox,
            stopping: self.stopping.clone(),
        }
    }
}

impl Stream {
    /// The first message, for which a client has limited time. `None` = it left without a word.
    async fn first(&mut self, patience: Duration) -> Result<Option<bytes::Bytes>, Status> {
        tokio::select! {
            message = tokio::time::timeout(patience, self.messages.next()) => {
                let late = |_| Status::deadline_exceeded("no message on a new stream");
                message.map_err(late)?
            }
            status = stopped(&mut self.stopping) => Err(status),
        }
    }
}

/// Done when the server stops, with the status for the stream.
async fn stopped(stopping: &mut watch::Receiver<bool>) -> Status {
    // An error means that the server itself is gone.
    let _ = stopping.wait_for(|stop| *stop).await;
    Status::new(Code::Unavailable, "server is shutting down")
}

/// A message that could not be read ends its stream, and no other.
fn malformed(error: &crate::error::DecodeError) -> Status {
    Status::invalid_argument(error.to_string())
}
