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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{Cluster, Policy};

    fn reporting(policy: impl Into<Policy>) -> Option<OobReporting> {
        let cluster = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        merged_settings(&cluster.policy(policy).try_build().unwrap().config)
    }

    #[test]
    fn one_stream_serves_weights_and_localities() {
        let seconds = Duration::from_secs;
        let weights = |period| Policy::client_side_weighted_round_robin().out_of_band(period);
        let localities = |period| Policy::load_aware().out_of_band(period).oob_port(9000);
        assert_eq!(reporting(Policy::round_robin()), None);
        assert_eq!(reporting(Policy::load_aware()), None);
        let in_band = Policy::client_side_weighted_round_robin();
        assert_eq!(reporting(in_band.clone()), None);
        let only_weights = reporting(weights(seconds(20))).unwrap();
        assert_eq!(
            (only_weights.period(), only_weights.port()),
            (seconds(20), None)
        );
        let only_localities = reporting(localities(seconds(30)).over(in_band)).unwrap();
        let found = (only_localities.period(), only_localities.port());
        assert_eq!(found, (seconds(30), Some(9000)));
        // The shorter period, and the port of either.
        for (of_weights, of_localities) in [(20, 30), (30, 20)] {
            let policy = localities(seconds(of_localities)).over(weights(seconds(of_weights)));
            let both = reporting(policy).unwrap();
            assert_eq!((both.period(), both.port()), (seconds(20), Some(9000)));
        }
    }

    #[test]
    fn the_grpc_status_is_a_number() {
        let status = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", http::HeaderValue::from_static(value));
            grpc_status(&headers)
        };
        assert_eq!(status("0"), Some(0));
        assert_eq!(status("12"), Some(12));
        assert_eq!(status("x"), None);
        assert_eq!(grpc_status(&HeaderMap::new()), None);
    }

    fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let head = [0, 0, length, kind, 0, 0, 0, 0, stream];
        [&head[..], payload].concat()
    }

    /// Returns the event of a stream whose server sends `end` after the request.
    async fn event_of(end: Vec<u8>) -> Event {
        const SETTINGS: u8 = 4;
        const HEADERS: u8 = 1;
        const PREFACE: usize = 24;
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let served = tokio::spawn(async move {
            server.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
            server.read_exact(&mut [0; PREFACE]).await.unwrap();
            let mut head = [0; 9];
            while head[3] != HEADERS {
                server.read_exact(&mut head).await.unwrap();
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                server.read_exact(&mut vec![0; length]).await.unwrap();
            }
            server.write_all(&end).await.unwrap();
            server
        });
        let limits: Arc<ConnectionLimits> = Arc::default();
        let permit = limits.try_acquire_connection(&Arc::default(), &CircuitBreakers::default());
        let state = ConnectionState::new(None, permit.unwrap(), Clock::system().now());
        let options = UpstreamOptions {
            http_version: HttpVersion::Http2,
            ..UpstreamOptions::default()
        };
        let tasks = Arc::default();
        let opened = HttpConnection::open(Box::new(client), Arc::new(state), &options, &tasks);
        let mut connection = opened.await.unwrap();
        let body = RequestBody::new(Full::new(Bytes::new()));
        let request = Request::post("http://host/").body(body).unwrap();
        let sent = connection.try_send(request);
        let server = served.await.unwrap();
        // Closes the connection if nothing else has ended the stream.
        drop(server);
        end_event(&sent.await.unwrap_err().into_error())
    }

    #[tokio::test]
    async fn the_end_of_a_stream_says_how_the_host_ended_it() {
        let (reset, go_away) = (3, 7);
        let code = |reason: h2::Reason| u32::from(reason).to_be_bytes();
        let cancel = frame(reset, 1, &code(h2::Reason::CANCEL));
        assert!(matches!(event_of(cancel).await, Event::Reset));
        for (reason, no_error) in [
            (h2::Reason::NO_ERROR, true),
            (h2::Reason::ENHANCE_YOUR_CALM, false),
        ] {
            let last_stream = [0; 4];
            let frame = frame(go_away, 0, &[last_stream, code(reason)].concat());
            let Event::GoAway(graceful) = event_of(frame).await else {
                panic!("no GOAWAY: {reason:?}");
            };
            assert_eq!(graceful, no_error, "{reason:?}");
        }
        assert!(matches!(event_of(Vec::new()).await, Event::Closed));
    }
}
