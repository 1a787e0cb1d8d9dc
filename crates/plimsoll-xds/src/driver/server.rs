//! gRPC server of ADS and LRS.
//!
//! This module holds limits, transport and the dispatch by path. `ads` and `lrs` below it run the
//! streams with their state machines.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Status};

mod ads;
mod lrs;

use super::accept::{Accept, ClientInfo, ServerSocket};
use super::budget::{Account, Budget};
use super::handler::{AdsHandler, LrsHandler, Refusal};
use super::messages::{Messages, ReadError};
use super::request_limits::{Refused, RequestLimit, RequestLimits};
use super::session::{self, Outbox, Session, respond};
use super::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS};
use crate::ads::Variant;
use crate::ads::server::Limits;

/// Limits and timeouts of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Largest accepted message; default 4 MiB.
    pub max_message_size: usize,
    /// Streams per connection; default 100.
    pub max_concurrent_streams: u32,
    /// Streams of all connections; default 100000. Further ones end with RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// HTTP/2 stream window; default 64 KiB, enough for a load report of an Envoy.
    pub stream_window: u32,
    /// HTTP/2 connection window; default 64 KiB. A client that does not read responses is not read
    /// either, so that each of its connections can hold this much memory.
    pub connection_window: u32,
    /// Idle time before an HTTP/2 PING is sent; default 30 s.
    pub keepalive_interval: Duration,
    /// Time to wait for the PING ACK; default 10 s.
    pub keepalive_timeout: Duration,
    /// Time a new stream may take to send its first message; default 30 s.
    pub first_message_timeout: Duration,
    /// Time from the first byte of a message to its last; default 30 s.
    pub message_timeout: Duration,
    /// Bytes of messages that have arrived in part, over all streams; default 64 MiB. If there are
    /// more, the stream with the largest one ends, of the client whose streams hold most.
    pub unfinished_bytes: usize,
    /// Memory in bytes of subscribed names that are in no view, over all streams; default 128 MiB.
    /// If there are more, the stream with most of them ends, of the client whose streams have most.
    /// [`Limits::subscription_bytes`] limits one stream.
    pub subscription_bytes: usize,
    /// Time for connections to close after the shutdown signal; default 5 s.
    pub drain_timeout: Duration,
    pub ads: Limits,
    pub requests: RequestLimits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_message_size: 4 << 20,
            max_concurrent_streams: 100,
            max_streams: 100_000,
            stream_window: 64 << 10,
            connection_window: 64 << 10,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            first_message_timeout: Duration::from_secs(30),
            message_timeout: Duration::from_secs(30),
            unfinished_bytes: 64 << 20,
            subscription_bytes: 128 << 20,
            drain_timeout: Duration::from_secs(5),
            ads: Limits::default(),
            requests: RequestLimits::default(),
        }
    }
}

/// Serves until `shutdown` resolves; then every stream ends with UNAVAILABLE, and connections have
/// `drain_timeout` to close.
pub async fn serve<A: AdsHandler, L: LrsHandler>(
    listener: impl Accept,
    ads: A,
    lrs: L,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let drain_timeout = options.drain_timeout;
    let transport = transport(&options);
    let (stop, stopping) = watch::channel(false);
    let messages = Budget::new(
        RequestLimit::UnfinishedBytes,
        "unfinished messages",
        options.unfinished_bytes,
    );
    let unfinished =
        Arc::new(messages.with_timeout(RequestLimit::MessageTimeout, options.message_timeout));
    let late = Arc::clone(&unfinished);
    let subscribed = Arc::new(Budget::new(
        RequestLimit::SubscriptionBytes,
        "subscribed names without resources",
        options.subscription_bytes,
    ));
    let streams = Arc::new(Semaphore::new(
        options.max_streams.min(Semaphore::MAX_PERMITS),
    ));
    let service = XdsService(Arc::new(Shared {
        ads,
        lrs,
        options,
        unfinished,
        subscribed,
        streams,
        stopping,
    }));
    let (sender, accepted) = mpsc::channel(1);
    let incoming = ReceiverStream::new(accepted).map(Ok::<_, Infallible>);
    let mut stopped = stop.subscribe();
    let serving = transport.serve_with_incoming_shutdown(service, incoming, async move {
        // An error means that the sender was dropped, which is a shutdown too.
        let _ = stopped.changed().await;
    });
    let deadline = async {
        shutdown.await;
        stop.send_replace(true);
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        result = serving => result,
        () = accept(listener, sender) => Ok(()),
        () = late.expire() => Ok(()),
        () = deadline => Ok(()),
    }
}

/// Accepts connections until the receiver is dropped, which closes the listener. Never returns.
async fn accept(mut listener: impl Accept, sender: mpsc::Sender<ServerSocket>) {
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            () = sender.closed() => break,
        };
        if sender.send(ServerSocket(connection)).await.is_err() {
            break;
        }
    }
    drop(listener);
    std::future::pending::<()>().await;
}

fn transport(options: &ServerOptions) -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(options.keepalive_interval))
        .http2_keepalive_timeout(Some(options.keepalive_timeout))
        .initial_connection_window_size(options.connection_window)
        .initial_stream_window_size(options.stream_window)
        .max_concurrent_streams(options.max_concurrent_streams)
}

/// Dispatches each request by path; all methods are streaming.
struct XdsService<A, L>(Arc<Shared<A, L>>);

struct Shared<A, L> {
    ads: A,
    lrs: L,
    options: ServerOptions,
    unfinished: Arc<Budget>,
    subscribed: Arc<Budget>,
    /// One permit for each stream that may be opened.
    streams: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

/// New stream before its first message.
struct Stream {
    messages: Messages,
    /// Names that the client subscribes to.
    subscribed: Account,
    outbox: Outbox,
    client: ClientInfo,
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
            STREAM_AGGREGATED_RESOURCES => Some(Variant::Sotw),
            DELTA_AGGREGATED_RESOURCES => Some(Variant::Delta),
            STREAM_LOAD_STATS => None,
            path => {
                let status = Status::unimplemented(format!("unknown method {path}"));
                return ready(Ok(status.into_http()));
            }
        };
        let Ok(permit) = Arc::clone(&shared.streams).try_acquire_owned() else {
            return ready(Ok(shared.refuse_stream(&request).into_http()));
        };
        let known = request.extensions().get::<ClientInfo>();
        let client = known.cloned().unwrap_or_default();
        let refused = shared.refused(client.peer, variant.is_some());
        let body = request.into_body();
        let response = match variant {
            Some(variant) => respond(refused, Some(permit), |outbox, session| {
                ads::run(
                    shared.stream(body, client, outbox, session),
                    variant,
                    shared,
                )
            }),
            None => respond(refused, Some(permit), |outbox, session| {
                lrs::run(shared.stream(body, client, outbox, session), shared)
            }),
        };
        ready(Ok(response))
    }
}

impl<A: AdsHandler, L: LrsHandler> Shared<A, L> {
    fn refuse_stream(&self, request: &Request<Body>) -> Status {
        let peer = request.extensions().get::<ClientInfo>();
        let peer = peer.and_then(|client| client.peer);
        let text = format!("{} streams are open", self.options.max_streams);
        let refusal = Refusal::new(RequestLimit::Streams, peer, &text);
        self.ads.refused(&refusal);
        Status::resource_exhausted(text)
    }

    /// Tells the handler about a stream that is ended while its client does not read.
    fn refused(self: &Arc<Self>, peer: Option<SocketAddr>, is_ads: bool) -> session::Refused {
        let shared = Arc::clone(self);
        Box::new(move |limit, reason| {
            let refusal = Refusal::new(limit, peer, reason);
            if is_ads {
                shared.ads.refused(&refusal);
            } else {
                shared.lrs.refused(&refusal);
            }
        })
    }

    fn stream(
        &self,
        body: Body,
        client: ClientInfo,
        outbox: Outbox,
        session: Weak<Session>,
    ) -> Stream {
        let address = client.peer.map(|peer| peer.ip());
        Stream {
            subscribed: self.subscribed.account(address, Weak::clone(&session)),
            messages: Messages::new(
                body,
                self.options.max_message_size,
                self.unfinished.account(address, session),
            ),
            client,
            outbox,
            stopping: self.stopping.clone(),
        }
    }
}

impl Stream {
    /// Returns the first message within the timeout, or `None` if the client closes the stream.
    async fn first(&mut self, timeout: Duration) -> Result<Option<bytes::Bytes>, ReadError> {
        tokio::select! {
            message = tokio::time::timeout(timeout, self.messages.next()) => {
                message.map_err(|_| ReadError::Refused(Refused::Limit {
                    limit: RequestLimit::FirstMessageTimeout,
                    text: format!("no message on a new stream within {timeout:?}"),
                }))?
            }
            status = stopped(&mut self.stopping) => Err(status.into()),
        }
    }
}

/// Resolves when the server shuts down, with the status for the stream.
async fn stopped(stopping: &mut watch::Receiver<bool>) -> Status {
    // An error means that the server was dropped.
    let _ = stopping.wait_for(|stop| *stop).await;
    Status::new(Code::Unavailable, "server is shutting down")
}

/// Status of a stream that ends because of an error; `tell` passes on which limit was exceeded.
/// Strings of a node are its identity, so a node with a longer one is invalid; other limits are of
/// the server's resources.
fn unread(error: ReadError, peer: Option<SocketAddr>, tell: impl Fn(&Refusal<'_>)) -> Status {
    let refused = match error {
        ReadError::Failed(status) => return status,
        // Not sent: the stream has a status already.
        ReadError::Evicted => return Status::cancelled("stream has ended"),
        ReadError::Refused(refused) => refused,
    };
    let status_text = refused.to_string();
    let Refused::Limit { limit, text } = &refused else {
        return Status::invalid_argument(status_text);
    };
    tell(&Refusal::new(*limit, peer, text));
    match limit {
        RequestLimit::NodeStringBytes | RequestLimit::ClientFeatures => {
            Status::invalid_argument(status_text)
        }
        RequestLimit::FirstMessageTimeout => Status::deadline_exceeded(status_text),
        _ => Status::resource_exhausted(status_text),
    }
}

/// A malformed message ends its own stream only.
fn malformed(error: &plimsoll_schema::error::DecodeError) -> Status {
    Status::invalid_argument(error.to_string())
}
