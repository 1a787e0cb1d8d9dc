//! CPU overhead of a request compared with a bare call on a hyper connection.
//!
//! Client and server share one thread, so its CPU time is the cost of both. The server and the
//! sockets are the same for all callers, so the difference is the overhead of the client. Callers
//! alternate in rounds, and the best round of each counts. The client is measured with one host and
//! with many: finding the connections of a host must not depend on the number of hosts, although
//! the kernel's work for many sockets is included. `--test` runs everything once.
#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_client::{Client, Cluster, ClusterService, HttpVersion, UpstreamOptions};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

const ROUNDS: usize = 40;
const REQUESTS: u32 = 1000;
/// Hosts of the larger cluster; all addresses are the same server.
const HOSTS: u8 = 250;

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let (rounds, requests) = if once { (1, 10) } else { (ROUNDS, REQUESTS) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let address = serve().await;
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let mut bare = Bare::connect(address, version).await;
            let mut ours = service(address, 1, version);
            let mut many = service(address, HOSTS, version);
            let mut best = [f64::MAX; 3];
            for _ in 0..rounds {
                let [best_bare, best_ours, best_many] = &mut best;
                *best_bare = best_bare.min(bare_round(&mut bare, requests).await);
                *best_ours = best_ours.min(our_round(&mut ours, requests).await);
                *best_many = best_many.min(our_round(&mut many, requests).await);
            }
            let [best_bare, best_ours, best_many] = best;
            println!(
                "{version:?}: bare {best_bare:.2} us, plimsoll-client {best_ours:.2} us, \
                 difference {:.2} us of CPU per request; with {HOSTS} hosts {best_many:.2} us, \
                 difference {:.2} us",
                best_ours - best_bare,
                best_many - best_bare,
            );
        }
    });
}

enum Bare {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Bare {
    async fn connect(address: SocketAddr, version: HttpVersion) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let io = TokioIo::new(stream);
        match version {
            HttpVersion::Http1 => {
                let (sender, connection) = http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            HttpVersion::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), io);
                let (sender, connection) = handshake.await.unwrap();
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        }
    }

    async fn call(&mut self) -> Response<Incoming> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await.unwrap();
                let request = Request::get("/")
                    .header("host", "orders")
                    .body(Empty::new())
                    .unwrap();
                sender.send_request(request).await.unwrap()
            }
            Self::Http2(sender) => {
                let request = Request::get("http://orders/").body(Empty::new()).unwrap();
                sender.send_request(request).await.unwrap()
            }
        }
    }
}

async fn bare_round(bare: &mut Bare, requests: u32) -> f64 {
    let before = cpu_time();
    for _ in 0..requests {
        bare.call().await.into_body().collect().await.unwrap();
    }
    per_request(before, requests)
}

async fn our_round(service: &mut ClusterService, requests: u32) -> f64 {
    let before = cpu_time();
    for _ in 0..requests {
        let request = Request::get("http://orders/").body(Empty::<Bytes>::new());
        let response = service.call(request.unwrap()).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    per_request(before, requests)
}

fn per_request(before: Duration, requests: u32) -> f64 {
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(requests)
}

/// CPU time of this thread only.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u64::try_from(time.tv_nsec).unwrap();
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap()) + Duration::from_nanos(nanos)
}

/// A service of a cluster with this many hosts, all of them loopback addresses.
fn service(address: SocketAddr, hosts: u8, http_version: HttpVersion) -> ClusterService {
    let host = |number| (Ipv4Addr::new(127, 0, 0, number), address.port());
    let hosts = (1..=hosts).map(|number| LbEndpoint::new(host(number).into()));
    let endpoints = ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: vec![LocalityParts {
            locality: Locality::zone_only("a"),
            lb_endpoints: hosts.collect(),
            ..Default::default()
        }],
        ..Default::default()
    });
    let options = UpstreamOptions {
        http_version,
        ..UpstreamOptions::default()
    };
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(
            Cluster::from(parse_cluster("name: orders").unwrap())
                .options(options)
                .assignment(endpoints.unwrap()),
        )
        .build()
        .unwrap();
    client.service("orders").unwrap()
}

/// Starts a server that responds with a kilobyte.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let answer = service_fn(|_: Request<Incoming>| async {
                    let body = Full::new(Bytes::from_static(&[b'x'; 1024]));
                    Ok::<_, Infallible>(Response::new(body))
                });
                drop(builder.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    });
    (Ipv4Addr::LOCALHOST, port).into()
}
