//! Servers and clients over loopback sockets; shared helpers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use super::codec::BytesCodec;
use super::*;
use crate::ads::Variant;
use crate::ads::message::NodeMessage;
use crate::ads::server::{ServerStream, StreamEvent};
use crate::ads::view::View;
use crate::lrs::{LrsSettings, LrsTraffic};
use crate::node::NodeInfo;

mod discovery;
mod faults;
mod reporting;
mod subscribing;

/// Long enough for a busy machine; reached only by failing tests.
const DEADLINE: Duration = Duration::from_secs(30);

/// Events seen by the control plane of a test.
#[derive(Debug, PartialEq)]
enum Event {
    AdsOpened(Arc<str>, Variant),
    Ads(StreamEvent),
    AdsClosed(Arc<str>),
    LrsOpened(Arc<str>),
    Reported(Arc<str>, Vec<ClusterStats>),
    LrsClosed(Arc<str>),
    Refused(&'static str, String),
}

/// Control plane that passes all events to the test.
#[derive(Clone)]
struct Control {
    views: watch::Sender<Arc<View>>,
    instructions: watch::Sender<LrsInstructions>,
    seen: mpsc::UnboundedSender<Event>,
    /// Reports of nodes whose id starts with `slow` need one permit each.
    gate: Arc<Semaphore>,
}

struct Observer(Arc<str>, Control);
struct Reporter(Arc<str>, Control);

impl AdsHandler for Control {
    type Observer = Observer;

    async fn open(&self, opening: AdsOpening) -> Result<AdsSession<Observer>, Status> {
        let AdsOpening {
            node,
            variant,
            peer,
            ..
        } = opening;
        assert!(peer.unwrap().ip().is_loopback() && !node.raw.is_empty());
        let id = node.info.node.id;
        if &*id == "unknown" {
            return Err(Status::permission_denied("who are you"));
        }
        self.notify(Event::AdsOpened(Arc::clone(&id), variant));
        let views = match &*id {
            "orphan" => watch::Sender::new(Arc::new(View::new(0))).subscribe(),
            _ => self.views.subscribe(),
        };
        Ok(AdsSession {
            views,
            observer: Observer(id, self.clone()),
        })
    }

    fn refused(&self, refusal: &Refusal<'_>) {
        assert!(refusal.peer.unwrap().ip().is_loopback());
        self.notify(Event::Refused(
            refusal.limit.name(),
            refusal.reason.to_owned(),
        ));
    }
}

impl AdsObserver for Observer {
    fn handle_event(&mut self, event: StreamEvent, stream: &ServerStream) {
        assert_eq!(stream.node().unwrap().node.id, self.0);
        self.1.notify(Event::Ads(event));
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.1.notify(Event::AdsClosed(Arc::clone(&self.0)));
    }
}

impl LrsHandler for Control {
    type Reporter = Reporter;

    async fn open(&self, node: &NodeInfo, _: &ClientInfo) -> Result<LrsSession<Reporter>, Status> {
        self.notify(Event::LrsOpened(Arc::clone(&node.node.id)));
        Ok(LrsSession {
            instructions: self.instructions.subscribe(),
            reporter: Reporter(Arc::clone(&node.node.id), self.clone()),
        })
    }

    fn refused(&self, refusal: &Refusal<'_>) {
        assert!(refusal.peer.unwrap().ip().is_loopback());
        self.notify(Event::Refused(
            refusal.limit.name(),
            refusal.reason.to_owned(),
        ));
    }
}

impl LrsReporter for Reporter {
    async fn report(&mut self, node: &Node, cluster_stats: Vec<ClusterStats>) {
        assert_eq!(node.id, self.0);
        if node.id.starts_with("slow") {
            self.1.gate.acquire().await.unwrap().forget();
        }
        self.1
            .notify(Event::Reported(Arc::clone(&node.id), cluster_stats));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.1.notify(Event::LrsClosed(Arc::clone(&self.0)));
    }
}

impl Control {
    fn notify(&self, seen: Event) {
        // The test may have ended.
        let _ = self.seen.send(seen);
    }
}

/// Server on an ephemeral port.
struct Server {
    address: SocketAddr,
    control: Control,
    seen: mpsc::UnboundedReceiver<Event>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Self::start_with(ServerOptions::default(), "127.0.0.1:0").await
    }

    async fn start_with(options: ServerOptions, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::start_on(listener, address, options)
    }

    fn start_on(listener: impl Accept, address: SocketAddr, options: ServerOptions) -> Self {
        let (notify, seen) = mpsc::unbounded_channel();
        let control = Control {
            views: watch::Sender::new(Arc::new(View::new(0))),
            instructions: watch::Sender::new(instructions(60)),
            seen: notify,
            gate: Arc::new(Semaphore::new(0)),
        };
        let (stop, stopped) = oneshot::channel();
        let (ads, lrs) = (control.clone(), control.clone());
        let task = tokio::spawn(serve(listener, ads, lrs, options, async {
            // An error means that the test has ended.
            let _ = stopped.await;
        }));
        Self {
            address,
            control,
            seen,
            stop: Some(stop),
            task,
        }
    }

    async fn seen(&mut self) -> Event {
        within(self.seen.recv()).await.unwrap()
    }

    /// Waits for the next event that `select` accepts and skips others.
    async fn find<T>(&mut self, select: impl Fn(Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = select(self.seen().await) {
                return found;
            }
        }
    }

    async fn report(&mut self) -> (Arc<str>, Vec<ClusterStats>) {
        let report = |seen| match seen {
            Event::Reported(id, stats) => Some((id, stats)),
            _ => None,
        };
        self.find(report).await
    }

    async fn connect(&self) -> Channel {
        // The default initial window, so that backpressure of a client that does not read sets in
        // early.
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))
            .unwrap()
            .initial_stream_window_size(65_535);
        within(endpoint.connect()).await.unwrap()
    }

    /// Opens a raw gRPC client on a new connection.
    async fn dial(&self, path: &'static str) -> Peer {
        Peer::open(self.connect().await, path).await
    }

    fn options(&self) -> ConnectOptions {
        ConnectOptions {
            backoff: (Duration::from_millis(5), Duration::from_millis(50)),
            ..ConnectOptions::new(format!("http://{}", self.address))
        }
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        within(self.task).await.unwrap();
    }
}

/// Raw client end of a stream.
struct Peer {
    requests: mpsc::Sender<Bytes>,
    responses: Streaming<Bytes>,
}

impl Peer {
    async fn open(channel: Channel, path: &'static str) -> Self {
        let (requests, receiver) = mpsc::channel(1);
        let mut grpc = Grpc::new(channel).max_decoding_message_size(64 << 20);
        within(grpc.ready()).await.unwrap();
        let path = PathAndQuery::from_static(path);
        let request = Request::new(ReceiverStream::new(receiver));
        let call = grpc.streaming(request, path, BytesCodec);
        let responses = within(call).await.unwrap().into_inner();
        Self {
            requests,
            responses,
        }
    }

    async fn send(&self, bytes: impl Into<Bytes>) {
        within(self.requests.send(bytes.into())).await.unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        within(self.responses.message()).await.unwrap().unwrap()
    }

    async fn status(&mut self) -> Status {
        within(self.responses.message()).await.unwrap_err()
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.expect("nothing happened for a long time")
}

fn node(id: &str, features: &[&str]) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "fleet".into(),
            locality: Locality::zone_only("a"),
        },
        user_agent_name: "test".to_owned(),
        user_agent_version: String::new(),
        client_features: features.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn instructions(seconds: u64) -> LrsInstructions {
    LrsInstructions {
        settings: Arc::new(LrsSettings {
            interval: Duration::from_secs(seconds),
            send_all_clusters: true,
            clusters: vec!["orders".into()],
            report_endpoint_granularity: false,
        }),
        traffic: Arc::new(LrsTraffic::default()),
    }
}
