//! [`OobStreams`]: out-of-band ORCA reports, one stream per host for all policies (gRFC A51).
//!
//! The protocol is `plimsoll_xds::orca::oob`. This module runs the task and the connections (with
//! the cluster's TLS settings), and stores each report in its host.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use plimsoll_core::log_line;
use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::orca::oob::{
    ConnectionId, OobAction, OobEvent, OobHost, OobManager, OobStats, OobStream, PATH,
    ResponseHeaders,
};
use plimsoll_xds::upstream::{CircuitBreakers, HttpVersion, UpstreamOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::error::BoxError;
use crate::log_lines;
use crate::request::body::RequestBody;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::connection::{ConnectionLimits, ConnectionState};
use crate::upstream::pool::HttpConnection;

const QUEUE_CAPACITY: usize = 256;

/// Out-of-band report streams of one cluster; dropping the struct closes them.
#[derive(Debug)]
pub(crate) struct OobStreams {
    inputs: watch::Sender<Input>,
    task: AbortHandle,
}

#[derive(Clone, Debug)]
struct Input {
    reporting: OobReporting,
    routing: Arc<RoutingSnapshot>,
}

#[derive(Clone, Debug)]
pub(crate) struct OobContext {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) stats: Arc<ArcSwap<OobStats>>,
    pub(crate) seed: u64,
}

/// Merges the out-of-band settings of the cluster's policies; `None` if no policy enables them.
pub(crate) fn merged_settings(config: &ClusterConfig) -> Option<OobReporting> {
    let weights = match config.endpoint_policy() {
        EndpointPolicy::ClientSideWeightedRoundRobin(settings) => settings.oob_reporting().cloned(),
        _ => None,
    };
    let locality = config
        .load_aware_locality()
        .and_then(|settings| settings.oob_reporting().cloned());
    match (weights, locality) {
        (Some(weights), Some(locality)) => Some(weights.merge(&locality)),
        (weights, locality) => weights.or(locality),
    }
}

impl OobStreams {
    pub(crate) fn start(
        reporting: OobReporting,
        routing: Arc<RoutingSnapshot>,
        context: OobContext,
    ) -> Self {
        let (inputs, receiver) = watch::channel(Input { reporting, routing });
        let task = tokio::spawn(Driver::new(receiver, context).run()).abort_handle();
        Self { inputs, task }
    }

    pub(crate) fn update(&self, reporting: OobReporting, routing: Arc<RoutingSnapshot>) {
        self.inputs.send_replace(Input { reporting, routing });
    }
}

impl Drop for OobStreams {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Driver {
    inputs: watch::Receiver<Input>,
    input: Input,
    context: OobContext,
    manager: OobManager<Xoshiro256>,
    streams: BTreeMap<ConnectionId, Stream>,
    events: mpsc::Sender<(ConnectionId, Event)>,
    event_receiver: mpsc::Receiver<(ConnectionId, Event)>,
    clock: Clock,
}

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

impl Driver {
    fn new(mut inputs: watch::Receiver<Input>, context: OobContext) -> Self {
        let input = inputs.borrow_and_update().clone();
        let (events, event_receiver) = mpsc::channel(QUEUE_CAPACITY);
        let rng = Xoshiro256::from_seed(context.seed);
        let mut driver = Self {
            manager: OobManager::new(input.reporting.clone(), rng),
            inputs,
            input,
            context,
            streams: BTreeMap::new(),
            events,
            event_receiver,
            clock: Clock::system(),
        };
        driver.apply_input();
        driver
    }

    async fn run(mut self) {
        loop {
            self.drain();
            tokio::select! {
                changed = self.inputs.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.input = self.inputs.borrow_and_update().clone();
                    self.apply_input();
                }
                Some((connection, event)) = self.event_receiver.recv() => {
                    let now = self.clock.now();
                    self.manager.handle_event(connection, event.borrowed(), now);
                }
                () = self.clock.sleep_until(self.manager.poll_timeout()) => {
                    self.manager.handle_timeout(self.clock.now());
                }
            }
        }
    }

    fn apply_input(&mut self) {
        let now = self.clock.now();
        self.manager
            .handle_settings(self.input.reporting.clone(), now);
        let hosts = self.input.routing.hosts().map(|host| OobHost {
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
            let routing = &self.input.routing;
            let mut used = false;
            for host in routing.hosts().filter(|host| host.address() == address) {
                used |= host.observe_orca(&report, routing.config(), now);
            }
            if !used {
                self.manager.handle_undelivered();
            }
        }
        let stats = self.manager.stats();
        if **self.context.stats.load() != stats {
            self.context.stats.store(Arc::new(stats));
        }
    }

    fn open(&mut self, stream: OobStream) {
        let connection = stream.connection;
        let mut hosts = self.input.routing.hosts();
        let host = hosts.find(|host| host.address() == stream.host);
        let hostname = host.map(|host| Arc::clone(host.hostname()));
        let target = DialTarget {
            addresses: [stream.dial].into(),
            hostname: hostname.unwrap_or_default(),
            server_name: None,
        };
        let (context, events) = (self.context.clone(), self.events.clone());
        let task = tokio::spawn(async move {
            let ended = run_stream(stream, target, &context, &events).await;
            let last = ended.unwrap_or(Event::ConnectFailed);
            // The receiver may have been dropped; ignore the error.
            let _ = events.send((connection, last)).await;
        });
        self.streams.insert(connection, Stream(task.abort_handle()));
    }
}

/// Returns the event that ends the stream; an error means that the stream never started.
async fn run_stream(
    stream: OobStream,
    target: DialTarget,
    context: &OobContext,
    events: &mpsc::Sender<(ConnectionId, Event)>,
) -> Result<Event, BoxError> {
    let mut connection = connect(&target, context).await?;
    let scheme = match context.options.tls {
        Some(_) => "https",
        None => "http",
    };
    let body = Full::new(stream.request.clone());
    let request = Request::post(format!("{scheme}://{}{PATH}", stream.authority))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(RequestBody::new(body))?;
    let sent = connection.try_send(request).await;
    let response = match sent {
        Ok(response) => response,
        Err(error) => return Ok(end_event(&error.into_error())),
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
    let id = stream.connection;
    events.send((id, head)).await?;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Ok(end_event(&error)),
        };
        if let Some(trailers) = frame.trailers_ref() {
            return Ok(Event::Trailers(grpc_status(trailers)));
        }
        if let Ok(data) = frame.into_data() {
            events
                .send((id, Event::Data(data, body.is_end_stream())))
                .await?;
        }
    }
    Ok(Event::Data(Bytes::new(), true))
}

async fn connect(target: &DialTarget, context: &OobContext) -> Result<HttpConnection, BoxError> {
    let options = UpstreamOptions {
        http_version: HttpVersion::Http2,
        ..(*context.options).clone()
    };
    let dialed = context.dialer.dial(target, HttpVersion::Http2).await;
    let socket = dialed.map_err(|error| error.source)?;
    let limits: Arc<ConnectionLimits> = Arc::default();
    let permit = limits
        .try_acquire_connection(&Arc::default(), &CircuitBreakers::default())
        .ok_or("connection limit reached")?;
    let state = ConnectionState::new(None, permit, Clock::system().now());
    HttpConnection::open(socket, Arc::new(state), &options, &Arc::default()).await
}

fn end_event(error: &hyper::Error) -> Event {
    let source = std::error::Error::source(error);
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
