//! [`Oob`]: out-of-band load reports, one stream per host for all who want them (gRFC A51).
//!
//! The protocol is plimsoll-xds' `orca::oob`; here are the task, the connections (with TLS like
//! those of requests) and the way of a report into its host.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use plimsoll_core::host::Host;
use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::orca::oob::{
    ConnectionId, OobAction, OobEvent, OobHost, OobManager, OobStats, OobStream, PATH,
    ResponseHeaders,
};
use plimsoll_xds::upstream::{CircuitBreakers, HttpVersion, UpstreamOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::body::RequestBody;
use crate::connect::{Callee, Dialer};
use crate::connection::{Connection, Limits};
use crate::error::BoxError;
use crate::pool::Channel;

/// Events of streams that may wait.
const QUEUE: usize = 256;

/// The out-of-band reports of one cluster; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Oob {
    inputs: watch::Sender<Input>,
    task: AbortHandle,
}

/// Who is asked, how and for whom.
#[derive(Clone, Debug)]
struct Input {
    reporting: OobReporting,
    config: Arc<ClusterConfig>,
    hosts: Arc<[Arc<Host>]>,
}

/// How streams connect.
#[derive(Clone, Debug)]
pub(crate) struct OobContext {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) stats: Arc<ArcSwap<OobStats>>,
    pub(crate) seed: u64,
}

/// What the policies of a cluster ask for; `None` if none wants reports of its own.
pub(crate) fn wanted(config: &ClusterConfig) -> Option<OobReporting> {
    let weights = match config.endpoint_policy() {
        EndpointPolicy::ClientSideWeightedRoundRobin(settings) => settings.oob_reporting().cloned(),
        _ => None,
    };
    let locality = config.load_aware_locality();
    let locality = locality.and_then(|settings| settings.oob_reporting().cloned());
    match (weights, locality) {
        (Some(weights), Some(locality)) => Some(weights.shared_with(&locality)),
        (weights, locality) => weights.or(locality),
    }
}

impl Oob {
    /// Starts to ask the hosts of `snapshot`.
    pub(crate) fn start(
        reporting: OobReporting,
        snapshot: &RoutingSnapshot,
        context: OobContext,
    ) -> Self {
        let (inputs, receiver) = watch::channel(Input::new(reporting, snapshot));
        let task = tokio::spawn(Driver::new(receiver, context).run()).abort_handle();
        Self { inputs, task }
    }

    /// Other hosts, or other settings.
    pub(crate) fn update(&self, reporting: OobReporting, snapshot: &RoutingSnapshot) {
        self.inputs.send_replace(Input::new(reporting, snapshot));
    }
}

impl Drop for Oob {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Input {
    fn new(reporting: OobReporting, snapshot: &RoutingSnapshot) -> Self {
        Self {
            reporting,
            config: Arc::clone(snapshot.config()),
            hosts: snapshot.hosts().cloned().collect(),
        }
    }
}

/// The task.
struct Driver {
    inputs: watch::Receiver<Input>,
    input: Input,
    context: OobContext,
    manager: OobManager<Xoshiro256>,
    streams: BTreeMap<ConnectionId, Stream>,
    events: mpsc::Sender<(ConnectionId, Event)>,
    inbox: mpsc::Receiver<(ConnectionId, Event)>,
    clock: Clock,
}

/// A stream ends when it is forgotten.
struct Stream(AbortHandle);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What happened on a stream.
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
        let (events, inbox) = mpsc::channel(QUEUE);
        let rng = Xoshiro256::from_seed(context.seed);
        let mut driver = Self {
            manager: OobManager::new(input.reporting.clone(), rng),
            inputs,
            input,
            context,
            streams: BTreeMap::new(),
            events,
            inbox,
            clock: Clock::system(),
        };
        driver.handle_input();
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
                    self.handle_input();
                }
                Some((connection, event)) = self.inbox.recv() => {
                    let now = self.clock.now();
                    self.manager.handle_event(connection, event.borrowed(), now);
                }
                () = self.clock.sleep_until(self.manager.poll_timeout()) => {
                    self.manager.handle_timeout(self.clock.now());
                }
            }
        }
    }

    fn handle_input(&mut self) {
        let now = self.clock.now();
        self.manager
            .handle_settings(self.input.reporting.clone(), now);
        let hosts = self.input.hosts.iter().map(|host| OobHost {
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
                    tracing::debug!(%host, %reason, "out-of-band reports end");
                    self.streams.remove(&connection);
                }
            }
        }
        let now = self.clock.now();
        while let Some((address, report)) = self.manager.poll_report() {
            let hosts = self.input.hosts.iter();
            let mut used = false;
            for host in hosts.filter(|host| host.address() == address) {
                used |= host.observe_orca(&report, &self.input.config, now);
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
        let mut hosts = self.input.hosts.iter();
        let host = hosts.find(|host| host.address() == stream.host);
        let hostname = host.map(|host| Arc::clone(host.hostname()));
        let callee = Callee {
            addresses: [stream.dial].into(),
            hostname: hostname.unwrap_or_default(),
            server_name: None,
        };
        let (context, events) = (self.context.clone(), self.events.clone());
        let task = tokio::spawn(async move {
            let ended = converse(stream, callee, &context, &events).await;
            let last = ended.unwrap_or(Event::ConnectFailed);
            // Whoever listened may have gone.
            let _ = events.send((connection, last)).await;
        });
        self.streams.insert(connection, Stream(task.abort_handle()));
    }
}

/// Dials, asks and passes on what comes back. Returns how it ended; an error is that it never
/// began.
async fn converse(
    stream: OobStream,
    callee: Callee,
    context: &OobContext,
    events: &mpsc::Sender<(ConnectionId, Event)>,
) -> Result<Event, BoxError> {
    let mut channel = connect(&callee, context).await?;
    let scheme = match context.options.tls {
        Some(_) => "https",
        None => "http",
    };
    let body = Full::new(Bytes::copy_from_slice(&stream.request));
    let request = Request::post(format!("{scheme}://{}{PATH}", stream.authority))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(RequestBody::new(body))?;
    let sent = channel.try_send(request).await;
    let response = match sent {
        Ok(response) => response,
        Err(error) => return Ok(how_it_ended(&error.into_error())),
    };
    let content_type = response.headers().get("content-type");
    let content_type = content_type.and_then(|kind| kind.to_str().ok());
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
            Err(error) => return Ok(how_it_ended(&error)),
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

async fn connect(callee: &Callee, context: &OobContext) -> Result<Channel, BoxError> {
    let options = UpstreamOptions {
        http_version: HttpVersion::Http2,
        ..(*context.options).clone()
    };
    let dialled = context.dialer.dial(callee, HttpVersion::Http2).await;
    let socket = dialled.map_err(|error| error.source)?;
    let limits: Arc<Limits> = Arc::default();
    let slot = limits.connect(&Arc::default(), &CircuitBreakers::default());
    let slot = slot.ok_or("no connection allowed")?;
    let connection = Connection::new(None, slot, Clock::system().now());
    Channel::open(socket, Arc::new(connection), &options, &Arc::default()).await
}

fn how_it_ended(error: &hyper::Error) -> Event {
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
