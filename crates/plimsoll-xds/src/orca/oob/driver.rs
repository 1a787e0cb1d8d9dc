//! [`OobStreams`]: runs the out-of-band streams of one cluster, one per host for all its policies,
//! and passes each report to the host.
//!
//! [`OobManager`] has the protocol. [`Connect`] opens the connections, with whatever TLS, keepalive
//! and timeouts the program uses for them.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use plimsoll_core::log_line;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::{
    ConnectionId, OobAction, OobEvent, OobHost, OobManager, OobStats, OobStream, PATH,
    ResponseHeaders,
};
use crate::clock::Clock;
use crate::log_lines;

/// Events that wait for the task; streams stop reading while it is full.
const QUEUE_CAPACITY: usize = 256;
/// Time from a panic of the task to the restart of all its streams.
const RESTART_DELAY: Duration = Duration::from_secs(1);

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends the one request of a connection, and closes the connection when it is dropped.
pub type RequestSender = SendRequest<Full<Bytes>>;

/// Opens connections to hosts.
pub trait Connect: Clone + Send + Sync + 'static {
    /// Returns the scheme of requests: https with TLS.
    fn scheme(&self) -> Scheme;

    /// Connects to `stream.dial` and performs the HTTP/2 handshake, within a timeout. The hostname
    /// is that of the assignment and may be empty.
    fn connect(
        &self,
        stream: &OobStream,
        hostname: Arc<str>,
    ) -> impl Future<Output = Result<RequestSender, BoxError>> + Send;
}

/// Out-of-band streams of one cluster; dropping it closes them.
#[derive(Debug)]
pub struct OobStreams(watch::Sender<Arc<RoutingSnapshot>>);

impl OobStreams {
    /// Returns the streams to the hosts of a snapshot, and the task that runs them; `None` if no
    /// policy of the cluster asks for out-of-band reports. The task stores statistics in `stats`;
    /// `seed` spreads attempts.
    pub fn new<C: Connect>(
        routing: Arc<RoutingSnapshot>,
        connect: C,
        stats: Arc<ArcSwap<OobStats>>,
        seed: u64,
    ) -> Option<(Self, impl Future<Output = ()> + Send + 'static)> {
        let reporting = routing.config().oob_reporting()?;
        let (sender, receiver) = watch::channel(routing);
        let start = move || {
            let (events, received) = mpsc::channel(QUEUE_CAPACITY);
            let driver = Driver {
                routing: receiver.clone(),
                connect: connect.clone(),
                manager: OobManager::new(reporting.clone(), Xoshiro256::from_seed(seed)),
                streams: BTreeMap::new(),
                events,
                received,
                stats: Arc::clone(&stats),
                clock: Clock::system(),
            };
            driver.run()
        };
        Some((Self(sender), run_restarting(start)))
    }

    /// Follows hosts and settings of a new snapshot.
    pub fn update(&self, routing: Arc<RoutingSnapshot>) {
        self.0.send_replace(routing);
    }
}

/// Runs a task until it ends; one that panics is started again, so that reports do not end for the
/// rest of the process.
async fn run_restarting<F: Future<Output = ()>>(start: impl Fn() -> F) {
    while let Err(panic) = catch(start()).await {
        let reason = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or_default();
        log_line!(log_lines::OOB_PANICKED, reason);
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Runs a future until it ends or panics.
async fn catch(run: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
    let mut run = pin!(run);
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

struct Driver<C> {
    routing: watch::Receiver<Arc<RoutingSnapshot>>,
    connect: C,
    manager: OobManager<Xoshiro256>,
    streams: BTreeMap<ConnectionId, Stream>,
    events: mpsc::Sender<(ConnectionId, Event)>,
    received: mpsc::Receiver<(ConnectionId, Event)>,
    stats: Arc<ArcSwap<OobStats>>,
    clock: Clock,
}

/// Task of a stream; dropping it closes the connection.
struct Stream(AbortHandle);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Event of one stream; the owned form of [`OobEvent`].
enum Event {
    Closed,
    ConnectFailed,
    Data(Bytes, bool),
    GoAway(bool),
    Headers {
        status: u16,
        content_type: Option<String>,
        grpc_status: Option<u32>,
        end_stream: bool,
    },
    Reset,
    Trailers(Option<u32>),
}

impl<C: Connect> Driver<C> {
    async fn run(mut self) {
        self.apply_routing();
        loop {
            self.drain();
            tokio::select! {
                changed = self.routing.changed() => {
                    if changed.is_err() {
                        // The cluster is gone.
                        return;
                    }
                    self.apply_routing();
                }
                Some((connection, event)) = self.received.recv() => {
                    let now = self.clock.now();
                    self.manager.handle_event(connection, event.borrowed(), now);
                }
                () = self.clock.sleep_until(self.manager.poll_timeout()) => {
                    self.manager.handle_timeout(self.clock.now());
                }
            }
        }
    }

    fn apply_routing(&mut self) {
        let now = self.clock.now();
        let routing = Arc::clone(&self.routing.borrow_and_update());
        if let Some(reporting) = routing.config().oob_reporting() {
            self.manager.handle_settings(reporting, now);
        }
        let hosts = routing.hosts().map(|host| OobHost {
            address: host.address(),
            hostname: Arc::clone(host.hostname()),
        });
        self.manager.handle_hosts(hosts, now);
    }

    fn drain(&mut self) {
        while let Some(action) = self.manager.poll_action() {
            match action {
                OobAction::Open(stream) => self.open(stream),
                OobAction::Close {
                    connection,
                    host,
                    reason,
                } => {
                    log_line!(log_lines::OOB_STREAM_CLOSED, %host, %reason);
                    self.streams.remove(&connection);
                }
            }
        }
        let now = self.clock.now();
        while let Some((address, report)) = self.manager.poll_report() {
            let routing = Arc::clone(&self.routing.borrow());
            let mut used = false;
            for host in routing.hosts().filter(|host| host.address() == address) {
                used |= host.observe_orca(&report, routing.config(), now);
            }
            if !used {
                self.manager.handle_undelivered();
            }
        }
        let stats = self.manager.stats();
        if **self.stats.load() != stats {
            self.stats.store(Arc::new(stats));
        }
    }

    fn open(&mut self, stream: OobStream) {
        let connection = stream.connection;
        let routing = Arc::clone(&self.routing.borrow());
        let mut hosts = routing.hosts();
        let host = hosts.find(|host| host.address() == stream.host);
        let hostname = host.map(|host| Arc::clone(host.hostname()));
        let (connect, events) = (self.connect.clone(), self.events.clone());
        let task = tokio::spawn(async move {
            let connected = connect.connect(&stream, hostname.unwrap_or_default());
            let last = match connected.await {
                Ok(requests) => exchange(requests, &stream, connect.scheme(), &events).await,
                Err(_) => Event::ConnectFailed,
            };
            // The receiver may have been dropped; ignore the error.
            let _ = events.send((connection, last)).await;
        });
        self.streams.insert(connection, Stream(task.abort_handle()));
    }
}

/// Sends the request, passes on what the host answers, and returns the event that ends the stream.
async fn exchange(
    mut requests: RequestSender,
    stream: &OobStream,
    scheme: Scheme,
    events: &mpsc::Sender<(ConnectionId, Event)>,
) -> Event {
    let request = Request::post(format!("{scheme}://{}{PATH}", stream.authority))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(stream.request.clone()));
    let Ok(request) = request else {
        return Event::ConnectFailed;
    };
    let response = match requests.send_request(request).await {
        Ok(response) => response,
        Err(error) => return end_event(&error),
    };
    let content_type = response
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    let head = Event::Headers {
        status: response.status().as_u16(),
        content_type: content_type.map(ToOwned::to_owned),
        grpc_status: grpc_status(response.headers()),
        end_stream: response.body().is_end_stream(),
    };
    // The driver outlives its streams, so it takes every event.
    let _ = events.send((stream.connection, head)).await;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return end_event(&error),
        };
        if let Some(trailers) = frame.trailers_ref() {
            return Event::Trailers(grpc_status(trailers));
        }
        if let Ok(data) = frame.into_data() {
            let event = Event::Data(data, body.is_end_stream());
            let _ = events.send((stream.connection, event)).await;
        }
    }
    Event::Data(Bytes::new(), true)
}

fn end_event(error: &hyper::Error) -> Event {
    let source = error.source();
    match source.and_then(|source| source.downcast_ref::<h2::Error>()) {
        Some(error) if error.is_go_away() => {
            Event::GoAway(error.reason() == Some(h2::Reason::NO_ERROR))
        }
        Some(error) if error.is_reset() => Event::Reset,
        _ => Event::Closed,
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

impl Event {
    fn borrowed(&self) -> OobEvent<'_> {
        match self {
            Self::Closed => OobEvent::Closed,
            Self::ConnectFailed => OobEvent::ConnectFailed,
            Self::Data(bytes, end_stream) => OobEvent::Data {
                bytes,
                end_stream: *end_stream,
            },
            Self::GoAway(no_error) => OobEvent::GoAway {
                no_error: *no_error,
            },
            Self::Headers {
                status,
                content_type,
                grpc_status,
                end_stream,
            } => OobEvent::Headers(ResponseHeaders {
                status: *status,
                content_type: content_type.as_deref(),
                grpc_status: *grpc_status,
                end_stream: *end_stream,
            }),
            Self::Reset => OobEvent::Reset,
            Self::Trailers(grpc_status) => OobEvent::Trailers {
                grpc_status: *grpc_status,
            },
        }
    }
}

#[cfg(test)]
mod tests;
