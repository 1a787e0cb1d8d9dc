//! gRPC server of ADS and LRS.
//!
//! This module holds limits, transport and the dispatch by path. `ads` and `lrs` below it run the
//! streams with their state machines.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;

mod ads;
mod connections;
mod lrs;
mod open_streams;

pub(super) use open_streams::StreamPermit;

use super::accept::{Accept, ClientInfo};
use super::budget::{Account, Budget};
use super::handler::{AdsHandler, LrsHandler, Refusal};
use super::messages::{Messages, ReadError};
use super::request_limits::{Refused, RequestLimit, RequestLimits};
use super::session::{self, Outbox, Session, respond};
use super::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS};
use crate::ads::Variant;
use crate::ads::server::Limits;
use connections::Ending;
use open_streams::OpenStreams;

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
    /// Streams of one IPv4 address or IPv6 network of 64 bits; default 20000. Loopback, where all
    /// clients of a local proxy come from, may have three quarters of `max_streams`.
    pub max_streams_per_peer: usize,
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
            max_streams_per_peer: 20_000,
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
) {
    let drain_timeout = options.drain_timeout;
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
    let streams = OpenStreams::new(options.max_streams, options.max_streams_per_peer);
    let shared = Arc::new(Shared {
        ads,
        lrs,
        options,
        unfinished,
        subscribed,
        streams: Arc::new(streams),
    });
    let service = |client, ending| XdsService {
        shared: Arc::clone(&shared),
        client,
        ending,
    };
    let serving = connections::serve(listener, &shared.options, stopping, service);
    let deadline = async {
        shutdown.await;
        stop.send_replace(true);
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        () = serving => (),
        () = late.expire() => (),
        () = deadline => (),
    }
}

/// Dispatches the requests of one connection by path; all methods are streaming.
struct XdsService<A, L> {
    shared: Arc<Shared<A, L>>,
    client: ClientInfo,
    ending: watch::Receiver<Ending>,
}

struct Shared<A, L> {
    ads: A,
    lrs: L,
    options: ServerOptions,
    unfinished: Arc<Budget>,
    subscribed: Arc<Budget>,
    streams: Arc<OpenStreams>,
}

/// New stream before its first message.
struct Stream {
    messages: Messages,
    /// Names that the client subscribes to.
    subscribed: Account,
    outbox: Outbox,
    client: ClientInfo,
    ending: watch::Receiver<Ending>,
}

impl<A: AdsHandler, L: LrsHandler> hyper::service::Service<Request<Incoming>> for XdsService<A, L> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let variant = match request.uri().path() {
            STREAM_AGGREGATED_RESOURCES => Some(Variant::Sotw),
            DELTA_AGGREGATED_RESOURCES => Some(Variant::Delta),
            STREAM_LOAD_STATS => None,
            path => {
                let status = Status::unimplemented(format!("unknown method {path}"));
                return ready(Ok(status.into_http()));
            }
        };
        let shared = Arc::clone(&self.shared);
        let peer = self.client.peer;
        let permit = match shared.streams.open(peer.map(|peer| peer.ip())) {
            Ok(permit) => permit,
            Err((limit, text)) => {
                shared.ads.refused(&Refusal::new(limit, peer, &text));
                return ready(Ok(Status::resource_exhausted(text).into_http()));
            }
        };
        let refused = shared.refused(peer, variant.is_some());
        let body = Body::new(request.into_body());
        let response = match variant {
            Some(variant) => respond(refused, Some(permit), |outbox, session| {
                ads::run(self.stream(body, outbox, session), variant, shared)
            }),
            None => respond(refused, Some(permit), |outbox, session| {
                lrs::run(self.stream(body, outbox, session), shared)
            }),
        };
        ready(Ok(response))
    }
}

impl<A: AdsHandler, L: LrsHandler> Shared<A, L> {
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
}

impl<A, L> XdsService<A, L> {
    fn stream(&self, body: Body, outbox: Outbox, session: Weak<Session>) -> Stream {
        let shared = &self.shared;
        let address = self.client.peer.map(|peer| peer.ip());
        Stream {
            subscribed: shared.subscribed.account(address, Weak::clone(&session)),
            messages: Messages::new(
                body,
                shared.options.max_message_size,
                shared.unfinished.account(address, session),
            ),
            client: self.client.clone(),
            outbox,
            ending: self.ending.clone(),
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
            status = Ending::wait(&mut self.ending) => Err(status.into()),
        }
    }
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
