//! Out-of-band load reports (ORCA): one gRPC stream per host of a cluster, over plain text, on a
//! thread of the module.
//!
//! The protocol is `plimsoll_xds::orca::oob`; this module runs connections and passes reports to
//! the hosts. The streams of a cluster follow its hosts, which the load balancer of the main thread
//! feeds, and end with the cluster.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http::{HeaderMap, Request};
use plimsoll_core::model::client_side_weighted_round_robin::OobReporting;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::orca::oob::{
    ConnectionId, OobAction, OobEvent, OobHost, OobManager, OobStream, PATH, ResponseHeaders,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Events that wait for the task; streams stop reading while it is full.
const QUEUE_CAPACITY: usize = 256;
/// Time for connecting and for the HTTP/2 handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The streams of one cluster; dropping it ends them.
#[derive(Debug)]
pub struct OobStreams {
    routing: watch::Sender<Arc<RoutingSnapshot>>,
}

/// Merges the out-of-band settings of the cluster's policies; `None` if no policy enables them.
pub fn settings(config: &ClusterConfig) -> Option<OobReporting> {
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
    /// Starts the thread of a cluster's streams, for the hosts of a snapshot.
    pub fn start(
        reporting: OobReporting,
        routing: Arc<RoutingSnapshot>,
        clock: Clock,
        seed: u64,
    ) -> io::Result<Self> {
        let (sender, receiver) = watch::channel(routing);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = thread::Builder::new().name("plimsoll-oob".to_owned());
        thread.spawn(move || {
            runtime.block_on(Driver::new(reporting, receiver, clock, seed).run());
        })?;
        Ok(Self { routing: sender })
    }

    /// Follows the hosts of a new snapshot.
    pub fn update(&self, routing: Arc<RoutingSnapshot>) {
        self.routing.send_replace(routing);
    }
}

struct Driver {
    routing: watch::Receiver<Arc<RoutingSnapshot>>,
    manager: OobManager<Xoshiro256>,
    streams: BTreeMap<ConnectionId, Stream>,
    events: mpsc::Sender<(ConnectionId, Event)>,
    received: mpsc::Receiver<(ConnectionId, Event)>,
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
    Ended(End),
    Data(bytes::Bytes),
    Headers {
        status: u16,
        content_type: Option<String>,
        grpc_status: Option<u32>,
        end_stream: bool,
    },
}

/// How a stream ended.
enum End {
    Closed,
    ConnectFailed,
    GoAway { no_error: bool },
    Reset,
    Trailers(Option<u32>),
}

impl Driver {
    fn new(
        reporting: OobReporting,
        routing: watch::Receiver<Arc<RoutingSnapshot>>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let (events, received) = mpsc::channel(QUEUE_CAPACITY);
        Self {
            routing,
            manager: OobManager::new(reporting, Xoshiro256::from_seed(seed)),
            streams: BTreeMap::new(),
            events,
            received,
            clock,
        }
    }

    async fn run(mut self) {
        self.apply_hosts();
        loop {
            self.drain();
            tokio::select! {
                changed = self.routing.changed() => {
                    if changed.is_err() {
                        // The cluster is gone.
                        return;
                    }
                    self.apply_hosts();
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

    fn apply_hosts(&mut self) {
        let routing = Arc::clone(&self.routing.borrow_and_update());
        let hosts = routing.hosts().map(|host| OobHost {
            address: host.address(),
            hostname: Arc::clone(host.hostname()),
        });
        self.manager.handle_hosts(hosts, self.clock.now());
    }

    fn drain(&mut self) {
        while let Some(action) = self.manager.poll_action() {
            match action {
                OobAction::Open(stream) => self.open(stream),
                OobAction::Close { connection, .. } => drop(self.streams.remove(&connection)),
            }
        }
        let now = self.clock.now();
        while let Some((address, report)) = self.manager.poll_report() {
            let routing = self.routing.borrow();
            let mut used = false;
            for host in routing.hosts().filter(|host| host.address() == address) {
                used |= host.observe_orca(&report, routing.config(), now);
            }
            drop(routing);
            if !used {
                self.manager.handle_undelivered();
            }
        }
    }

    fn open(&mut self, stream: OobStream) {
        let connection = stream.connection;
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let end = run_stream(stream, &events).await;
            // The receiver may have been dropped; ignore the error.
            let _ = events.send((connection, Event::Ended(end))).await;
        });
        self.streams.insert(connection, Stream(task.abort_handle()));
    }
}

/// Runs a stream until it ends.
async fn run_stream(stream: OobStream, events: &mpsc::Sender<(ConnectionId, Event)>) -> End {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
        let socket = TcpStream::connect(stream.dial).await.ok()?;
        socket.set_nodelay(true).ok()?;
        h2::client::handshake(socket).await.ok()
    });
    let Ok(Some((requests, connection))) = connected.await else {
        return End::ConnectFailed;
    };
    tokio::select! {
        end = exchange(stream, requests, events) => end,
        // The connection does the reading and writing for the stream.
        ended = connection => ended.map_or_else(|error| End::of(&error), |()| End::Closed),
    }
}

/// Sends the request and passes on what the host answers.
async fn exchange(
    stream: OobStream,
    requests: h2::client::SendRequest<bytes::Bytes>,
    events: &mpsc::Sender<(ConnectionId, Event)>,
) -> End {
    let request = Request::post(format!("http://{}{PATH}", stream.authority))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(());
    let (Ok(request), Ok(mut ready)) = (request, requests.ready().await) else {
        return End::ConnectFailed;
    };
    let (response, mut body) = match ready.send_request(request, false) {
        Ok(sent) => sent,
        Err(error) => return End::of(&error),
    };
    if let Err(error) = body.send_data(stream.request.clone(), true) {
        return End::of(&error);
    }
    let received = async {
        let response = response.await?;
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
        // The driver outlives its streams, so it takes every event.
        let _ = events.send((id, head)).await;
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            let _ = events.send((id, Event::Data(data))).await;
        }
        let trailers = body.trailers().await?;
        Ok(End::Trailers(trailers.as_ref().and_then(grpc_status)))
    };
    received
        .await
        .unwrap_or_else(|error: h2::Error| End::of(&error))
}

fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

impl End {
    fn of(error: &h2::Error) -> Self {
        if error.is_go_away() {
            let no_error = error.reason() == Some(h2::Reason::NO_ERROR);
            return Self::GoAway { no_error };
        }
        if error.is_reset() {
            return Self::Reset;
        }
        Self::Closed
    }
}

impl Event {
    fn borrowed(&self) -> OobEvent<'_> {
        match self {
            Self::Ended(End::Closed) => OobEvent::Closed,
            Self::Ended(End::ConnectFailed) => OobEvent::ConnectFailed,
            Self::Ended(End::GoAway { no_error }) => OobEvent::GoAway {
                no_error: *no_error,
            },
            Self::Ended(End::Reset) => OobEvent::Reset,
            Self::Ended(End::Trailers(grpc_status)) => OobEvent::Trailers {
                grpc_status: *grpc_status,
            },
            Self::Data(bytes) => OobEvent::Data {
                bytes,
                end_stream: false,
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
        }
    }
}

#[cfg(test)]
mod tests;
