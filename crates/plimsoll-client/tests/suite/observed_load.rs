//! OBSERVED_LOAD in the client, on real sockets: configured by a file, and by a management server
//! that is killed. The client knows no fleet.
#![cfg(feature = "xds")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::management::{Management, node};
use crate::support::resources::{assignment, cluster, listener, routes};
use crate::support::{Sends, assigned, endpoints, http2, within};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_client::{Client, UpstreamOptions, XdsOptions};
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::yaml::parse_cluster;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A backend that responds at once, unless its responses are held back. Bodies of `/stream` end
/// when streams are released.
struct Gated {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    held: watch::Sender<bool>,
    streams: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Gated {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU64::new(0));
        let (held, streams) = (watch::Sender::new(false), watch::Sender::new(true));
        let (counter, gate, bodies) = (requests.clone(), held.subscribe(), streams.subscribe());
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (counter, gate, bodies) = (counter.clone(), gate.clone(), bodies.clone());
                let serve = service_fn(move |request: Request<Incoming>| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    answer(request, gate.clone(), bodies.clone())
                });
                tokio::spawn(async move {
                    let mut builder = auto::Builder::new(TokioExecutor::new());
                    builder.http2().max_concurrent_streams(100_000);
                    drop(builder.serve_connection(TokioIo::new(stream), serve).await);
                });
            }
        });
        Self {
            address,
            requests,
            held,
            streams,
            server,
        }
    }

    fn seen(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Frames = Result<Frame<Bytes>, Infallible>;

async fn answer(
    request: Request<Incoming>,
    mut held: watch::Receiver<bool>,
    mut streams: watch::Receiver<bool>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    drop(held.wait_for(|held| !held).await);
    let stream = request.uri().path() == "/stream";
    let body = async move {
        if stream {
            drop(streams.wait_for(|open| !open).await);
        }
        Frames::Ok(Frame::data(Bytes::from_static(b"done")))
    };
    let body = StreamBody::new(futures_util::stream::once(Box::pin(body)));
    Ok(Response::new(body))
}

/// Policy and period for tests. The dead band is wide, because the response times of two backends
/// in one process vary; requests that hang exceed it by far.
const POLICY: &str = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                      typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                      load_balancing_policies.round_robin.v3.RoundRobin, locality_lb_config: \
                      {zone_aware_lb_config: {locality_basis: OBSERVED_LOAD, min_cluster_size: 1, \
                      observed_load_period: 0.1s, dead_band_bp: 6000}}}}}]}";

/// Sends one request per millisecond, without waiting for responses.
fn traffic(service: &(impl Sends<Future: Send> + Clone + Send + 'static)) -> JoinHandle<()> {
    let service = service.clone();
    tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        loop {
            pace.tick().await;
            let mut service = service.clone();
            tokio::spawn(async move { drop(crate::support::get(&mut service, "/").await) });
        }
    })
}

/// Basis points of traffic that stay in zone a, once response times are in effect.
async fn kept(client: &Client) -> Option<u64> {
    let explanation = client.explain("orders").await.ok()?;
    let observed = explanation.reason.contains("response times");
    explanation.local_percent_to_route_bp.filter(|_| observed)
}

async fn kept_is(client: &Client, what: &str, wanted: impl Fn(u64) -> bool) {
    wait_until(what, async || kept(client).await.is_some_and(&wanted)).await;
}

/// Waits until only probes leave zone a, and enough of them have reached zone b.
async fn is_home(client: &Client, b: &Gated) {
    wait_until("probes of zone b", async || b.seen() > 120).await;
    kept_is(client, "home, with probes", |bp| bp >= 9_500).await;
}

/// HTTP/2 without a request limit, so that requests that hang do not block others.
fn options() -> UpstreamOptions {
    let mut options = http2();
    options.circuit_breakers.max_requests = u32::MAX;
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_requests_move_traffic_to_the_other_zone() {
    let (a, b) = (Gated::start().await, Gated::start().await);
    let zones = endpoints("orders", &[("a", &[a.address]), ("b", &[b.address])]);
    let config = parse_cluster(&format!("name: orders\n{POLICY}")).unwrap();
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(config, zones, options()))
        .seed(7)
        .build()
        .unwrap();
    let traffic = traffic(&client.service("orders").unwrap());
    is_home(&client, &b).await;
    a.held.send_replace(true);
    kept_is(&client, "half of it leaves", |bp| bp <= 6_000).await;
    let before = b.seen();
    wait_until("they arrive", async || b.seen() > before + 200).await;
    traffic.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_times_end_with_the_headers() {
    let (a, b) = (Gated::start().await, Gated::start().await);
    let zones = endpoints("orders", &[("a", &[a.address]), ("b", &[b.address])]);
    let config = parse_cluster(&format!("name: orders\n{POLICY}")).unwrap();
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(config, zones, options()))
        .seed(7)
        .build()
        .unwrap();
    let mut service = client.service("orders").unwrap();
    let traffic = traffic(&service);
    is_home(&client, &b).await;
    let mut bodies = Vec::new();
    for _ in 0..300 {
        use tower_service::Service as _;
        let request = Request::get("http://backend/stream");
        let response = service.call(request.body(Empty::<Bytes>::new()).unwrap());
        bodies.push(within(response).await.unwrap().into_body());
    }
    let before = a.seen();
    wait_until("traffic beside them", async || a.seen() > before + 1_000).await;
    assert!(kept(&client).await.is_some_and(|bp| bp >= 9_500), "open");
    for backend in [&a, &b] {
        backend.streams.send_replace(false);
    }
    for body in bodies {
        let body = within(body.collect()).await.unwrap();
        assert_eq!(body.to_bytes(), "done");
    }
    let before = a.seen();
    wait_until("traffic after them", async || a.seen() > before + 1_000).await;
    assert!(kept(&client).await.is_some_and(|bp| bp >= 9_500), "ended");
    traffic.abort();
}

/// A cluster by xDS observes response times, also after the management server was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_arrives_by_xds_and_outlives_the_server() {
    let (a, b) = (Gated::start().await, Gated::start().await);
    let mut server = Management::start(&[
        listener("orders", "orders"),
        routes("orders", "orders"),
        cluster("orders", &format!("http2_protocol_options: {{}}\n{POLICY}")),
        assignment("orders", &[("a", &[a.address]), ("b", &[b.address])]),
    ]);
    let options = XdsOptions::new(format!("http://{}", server.address), node());
    let client = Client::builder().xds(options).seed(7).build().unwrap();
    let service = within(client.target("xds:///orders")).await.unwrap();
    let traffic = traffic(&service);
    is_home(&client, &b).await;
    assert_eq!(server.rejections(), Vec::<String>::new());
    server.kill();
    a.held.send_replace(true);
    kept_is(&client, "half of it leaves", |bp| bp <= 6_000).await;
    traffic.abort();
}
