//! HTTP or gRPC servers that count requests by the zone they came from, and that die in many ways.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of requests by zone of the proxy and zone of the server.
pub(crate) type Counts = BTreeMap<(String, String), u64>;

/// What clients of a dead server see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Their ports are closed, and so are their connections.
    Refuse,
    /// They answer 500 at once, or UNAVAILABLE with gRPC.
    Error,
    /// They accept connections and requests, and answer none.
    Hang,
    /// The kernel drops SYN packets, since the queue of connections to accept is full. Connections
    /// that exist stay open, and requests on them are not answered.
    BlackHole,
    /// They answer after this time.
    Slow(Duration),
}

/// A link between two zones that loses requests: one in `one_of` that comes from the zone `from`
/// (its `x-from`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) one_of: u64,
    /// What becomes of them: an error, or no answer.
    pub(crate) death: Death,
}

/// Servers on loopback by zone; they run until the test process exits.
pub(crate) struct Backends {
    zones: Vec<(String, Vec<SocketAddr>)>,
    deaths: BTreeMap<SocketAddr, watch::Sender<Option<Death>>>,
    cut: watch::Sender<Option<Cut>>,
    counts: Arc<Mutex<Counts>>,
    asking: Arc<AtomicU64>,
}

impl Backends {
    /// Starts the given number of servers in each zone.
    pub(crate) fn start(zones: &[(&str, usize)]) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), zones)
    }

    /// Starts servers on another address of this machine.
    pub(crate) fn start_on(address: IpAddr, zones: &[(&str, usize)]) -> Self {
        Self::serve(address, zones, Kind::Http)
    }

    /// Starts servers that report their load in every response.
    pub(crate) fn start_reporting(zones: &[(&str, usize)]) -> Self {
        Self::serve(Ipv4Addr::LOCALHOST.into(), zones, Kind::Reporting)
    }

    /// Starts gRPC servers that answer every unary call with the name of their zone.
    pub(crate) fn start_grpc(zones: &[(&str, usize)]) -> Self {
        Self::serve(Ipv4Addr::LOCALHOST.into(), zones, Kind::Grpc)
    }

    fn serve(address: IpAddr, zones: &[(&str, usize)], kind: Kind) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let counts = Arc::<Mutex<Counts>>::default();
        let asking = Arc::<AtomicU64>::default();
        let cut = watch::Sender::new(None);
        let mut deaths = BTreeMap::new();
        let mut start = |zone: &str| {
            let _context = runtime.enter();
            let port = bind(SocketAddr::new(address, 0));
            let address = port.local_addr().unwrap();
            let (sender, death) = watch::channel(None);
            let server = Server {
                zone: zone.to_owned(),
                kind,
                recent: Arc::default(),
                counts: Arc::clone(&counts),
                asking: Arc::clone(&asking),
                death,
                cut: cut.subscribe(),
                lost: Arc::default(),
            };
            // Clients may connect from here on.
            let listener = listen(address, BACKLOG);
            runtime.spawn(server.run(port, listener));
            deaths.insert(address, sender);
            address
        };
        let started = zones.iter().map(|&(zone, hosts)| {
            let addresses = (0..hosts).map(|_| start(zone)).collect();
            (zone.to_owned(), addresses)
        });
        let zones = started.collect();
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self {
            zones,
            deaths,
            cut,
            counts,
            asking,
        }
    }

    /// Returns the number of requests that asked for load reports as JSON.
    pub(crate) fn asking(&self) -> u64 {
        self.asking.load(Ordering::Relaxed)
    }

    /// Kills all servers of a zone.
    pub(crate) fn kill(&self, zone: &str, death: Death) {
        self.kill_some(zone, usize::MAX, death);
    }

    /// Kills up to `hosts` servers of a zone.
    pub(crate) fn kill_some(&self, zone: &str, hosts: usize, death: Death) {
        self.set(zone, hosts, Some(death));
    }

    /// Lets all servers of a zone serve again, on the same addresses.
    pub(crate) fn revive(&self, zone: &str) {
        self.set(zone, usize::MAX, None);
    }

    /// Makes a link lose requests from now on.
    pub(crate) fn cut(&self, cut: Cut) {
        self.cut.send_replace(Some(cut));
    }

    fn set(&self, zone: &str, hosts: usize, death: Option<Death>) {
        let zones = self.zones.iter().filter(|(name, _)| name == zone);
        for address in zones.flat_map(|(_, addresses)| addresses.iter().take(hosts)) {
            self.deaths[address].send_replace(death);
        }
    }

    /// Returns `endpoints` of a service in the configuration.
    pub(crate) fn endpoints(&self) -> String {
        let zones = self.zones.iter().map(|(zone, addresses)| {
            let hosts: Vec<_> = addresses.iter().map(|host| format!("'{host}'")).collect();
            let hosts = hosts.join(", ");
            format!("  - locality: {{region: r1, zone: {zone}}}\n    lb_endpoints: [{hosts}]\n")
        });
        zones.collect()
    }

    /// Returns the zones with the addresses of their servers.
    pub(crate) fn addresses(&self) -> &[(String, Vec<SocketAddr>)] {
        &self.zones
    }

    /// Returns the requests so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// Returns the number of servers in each zone.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        let zones = self.zones.iter();
        zones.map(|(zone, addresses)| (zone.as_str(), addresses.len()))
    }
}

const BACKLOG: u32 = 128;

/// Binds an address that other sockets may bind as well.
fn bind(address: SocketAddr) -> TcpSocket {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4().unwrap(),
        SocketAddr::V6(_) => TcpSocket::new_v6().unwrap(),
    };
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn listen(address: SocketAddr, backlog: u32) -> TcpListener {
    bind(address).listen(backlog).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    /// HTTP, with the load in every response (ORCA).
    Reporting,
    Grpc,
}

/// Requests per second of a server that reports full utilization.
const CAPACITY: f64 = 60.0;

#[derive(Clone)]
struct Server {
    zone: String,
    kind: Kind,
    /// When the requests of the last second ended.
    recent: Arc<Mutex<VecDeque<Instant>>>,
    counts: Arc<Mutex<Counts>>,
    asking: Arc<AtomicU64>,
    death: watch::Receiver<Option<Death>>,
    cut: watch::Receiver<Option<Cut>>,
    /// Requests that came over a cut link.
    lost: Arc<AtomicU64>,
}

impl Server {
    /// Serves, dies and comes back. `port` never listens: it keeps the port from other processes.
    async fn run(mut self, port: TcpSocket, listener: TcpListener) {
        let address = port.local_addr().unwrap();
        let mut connections = JoinSet::new();
        let mut listener = Some(listener);
        loop {
            let death = *self.death.borrow_and_update();
            match death {
                Some(Death::Refuse) => {
                    listener = None;
                    connections.shutdown().await;
                }
                Some(Death::BlackHole) => {
                    drop(listener.take());
                    let full = listen(address, 0);
                    // The only connection that fits into the queue.
                    let filler = TcpStream::connect(address).await;
                    self.wait_for_other(death).await;
                    drop((full, filler));
                }
                _ => {
                    let listener = listener.get_or_insert_with(|| listen(address, BACKLOG));
                    let mut state = self.death.clone();
                    tokio::select! {
                        () = self.accept(listener, &mut connections) => {}
                        changed = state.changed() => if changed.is_err() { return },
                    }
                    continue;
                }
            }
            self.wait_for_other(death).await;
        }
    }

    /// Accepts a connection and serves it on a task.
    async fn accept(&self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        let (stream, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        stream.set_nodelay(true).unwrap();
        let mut server = self.clone();
        connections.spawn(async move {
            server.wait_for_other(Some(Death::Hang)).await;
            let is_grpc = server.kind == Kind::Grpc;
            let service = service_fn(move |request| server.clone().respond(request));
            let stream = TokioIo::new(stream);
            // The connection ends when the proxy closes it.
            if is_grpc {
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = http2.serve_connection(stream, service).await;
            } else {
                let http1 = hyper::server::conn::http1::Builder::new();
                let _ = http1.serve_connection(stream, service).await;
            }
        });
    }

    /// Waits while the server has died this way; never resolves if the test has ended.
    async fn wait_for_other(&mut self, death: Option<Death>) {
        if self.death.wait_for(|now| *now != death).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn respond(mut self, request: Request<Incoming>) -> hyper::Result<Response<Body>> {
        let from = request.headers().get("x-from");
        let from = from.and_then(|from| from.to_str().ok()).unwrap_or_default();
        let cut = self.lost_on_link(from);
        let key = (from.to_owned(), self.zone.clone());
        let asks = request.headers().get("endpoint-load-metrics-format");
        if asks.is_some_and(|format| format == "JSON") {
            self.asking.fetch_add(1, Ordering::Relaxed);
        }
        // Read the body to its end, or the connection cannot be reused.
        request.into_body().collect().await?;
        if cut == Some(Death::Hang) {
            // The other zone never gets an answer.
            std::future::pending::<()>().await;
        }
        let death = cut.or(*self.death.borrow());
        match death {
            Some(Death::Hang | Death::BlackHole) => self.wait_for_other(death).await,
            Some(Death::Slow(time)) => tokio::time::sleep(time).await,
            _ => {}
        }
        *self.counts.lock().unwrap().entry(key).or_default() += 1;
        Ok(self.response(death == Some(Death::Error)))
    }

    /// Returns what becomes of a request from a zone whose link to this one is cut.
    fn lost_on_link(&self, from: &str) -> Option<Death> {
        let cut = (*self.cut.borrow()).filter(|cut| cut.from == from && cut.to == self.zone)?;
        let number = self.lost.fetch_add(1, Ordering::Relaxed);
        number.is_multiple_of(cut.one_of).then_some(cut.death)
    }

    /// Counts a request and returns the load as a header: errors are as cheap as answers.
    fn load(&self, is_error: bool) -> String {
        let mut recent = self.recent.lock().unwrap();
        let now = Instant::now();
        recent.push_back(now);
        while recent
            .front()
            .is_some_and(|first| now - *first > Duration::from_secs(1))
        {
            recent.pop_front();
        }
        let rate = recent.len() as f64;
        let errors = if is_error { rate } else { 0.0 };
        format!(
            "TEXT application_utilization={:.4},rps_fractional={rate:.4},eps={errors:.4}",
            rate / CAPACITY
        )
    }

    fn response(&self, is_error: bool) -> Response<Body> {
        let mut response = Response::builder();
        if self.kind == Kind::Reporting {
            response = response.header("endpoint-load-metrics", self.load(is_error));
        }
        if self.kind == Kind::Grpc {
            let status = if is_error { "14" } else { "0" };
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static(status),
            )]);
            let zone = self.zone.as_bytes();
            let length = u32::try_from(zone.len()).unwrap().to_be_bytes();
            let message = if is_error {
                Vec::new()
            } else {
                [&[0], &length[..], zone].concat()
            };
            let body = Full::new(message.into()).with_trailers(async { Some(Ok(trailers)) });
            let response = response.header("content-type", "application/grpc");
            response.body(body.boxed()).unwrap()
        } else {
            let status = if is_error { 500 } else { 200 };
            let body = Full::new(Bytes::from_static(b"ok")).boxed();
            response.status(status).body(body).unwrap()
        }
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;
