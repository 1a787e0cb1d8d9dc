//! Test backends on loopback that count their requests, and clusters of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub(crate) mod actor;
#[cfg(feature = "opentelemetry")]
#[allow(dead_code, reason = "the proxy uses more")]
pub(crate) mod collector;
pub(crate) mod held_time;
#[cfg(feature = "xds")]
pub(crate) mod hostile;
#[cfg(feature = "xds")]
pub(crate) mod management;
#[cfg(feature = "xds")]
pub(crate) mod resources;
pub(crate) mod silent;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_client::{
    Client, Cluster, ClusterEndpoints, EndpointExtras, Error, ResponseBody, UpstreamOptions,
};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tower_service::Service;

/// Timeout of a failing test; long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Awaits a future with [`TIMEOUT`].
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    let done = tokio::time::timeout(TIMEOUT, future).await;
    done.expect("nothing happened for a long time")
}

/// A server that responds with its address and status 200, or the status in the path: `/503`.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicU64>,
    server: JoinHandle<()>,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let counter = Arc::clone(&counter);
                let serve = service_fn(move |request: Request<Incoming>| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    answer(address, request)
                });
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(stream), serve).await);
                });
            }
        });
        Self {
            address,
            requests,
            server,
        }
    }

    pub(crate) fn seen(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    address: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = request.uri().path().trim_start_matches('/').parse();
    let body = Full::new(Bytes::from(address.to_string()));
    Ok(Response::builder()
        .status(status.unwrap_or(200_u16))
        .body(body)
        .unwrap())
}

/// A bound socket that does not listen: connections are refused, and no other test gets the port.
pub(crate) fn bound_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// An address on loopback that refuses connections until the process ends.
pub(crate) fn refused_address() -> SocketAddr {
    let socket = Box::leak(Box::new(bound_socket()));
    socket.local_addr().unwrap()
}

/// Endpoints of `cluster`, by zone.
pub(crate) fn endpoints(cluster: &str, zones: &[(&str, &[SocketAddr])]) -> ClusterLoadAssignment {
    let zones = zones.iter().map(|(zone, addresses)| LocalityParts {
        locality: Locality::zone_only(zone),
        lb_endpoints: addresses.iter().copied().map(LbEndpoint::new).collect(),
        ..Default::default()
    });
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: cluster.into(),
        endpoints: zones.collect(),
        ..Default::default()
    })
    .unwrap()
}

/// Endpoints of `cluster` in zone `a`, each with its extras.
pub(crate) fn with_extras(
    cluster: &str,
    hosts: impl IntoIterator<Item = (SocketAddr, EndpointExtras)>,
) -> ClusterEndpoints {
    let extras: BTreeMap<_, _> = hosts.into_iter().collect();
    let addresses: Vec<_> = extras.keys().copied().collect();
    ClusterEndpoints {
        assignment: endpoints(cluster, &[("a", &addresses)]),
        extras: Arc::new(extras),
    }
}

/// A cluster with round robin.
pub(crate) fn round_robin(name: &str) -> ClusterConfig {
    parse_cluster(&format!("name: {name}\nlb_policy: ROUND_ROBIN")).unwrap()
}

/// A cluster whose endpoints the program assigns.
pub(crate) fn assigned(
    config: ClusterConfig,
    endpoints: impl Into<ClusterEndpoints>,
    options: UpstreamOptions,
) -> Cluster {
    Cluster::from(config).options(options).assignment(endpoints)
}

/// A server with an address.
pub(crate) trait Server {
    fn address(&self) -> SocketAddr;
}

impl Server for SocketAddr {
    fn address(&self) -> SocketAddr {
        *self
    }
}

impl Server for &actor::Actor {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A client in zone `a` of the cluster `orders`, whose hosts are these servers in its zone.
pub(crate) fn client<S: Server>(servers: &[S], options: UpstreamOptions) -> Client {
    let addresses: Vec<_> = servers.iter().map(S::address).collect();
    let assignment = endpoints("orders", &[("a", &addresses)]);
    Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(round_robin("orders"), assignment, options))
        .seed(7)
        .build()
        .unwrap()
}

/// Default options, with HTTP/2 enabled.
pub(crate) fn http2() -> UpstreamOptions {
    UpstreamOptions {
        http_version: plimsoll_client::HttpVersion::Http2,
        ..UpstreamOptions::default()
    }
}

/// Any service that requests can be sent through.
pub(crate) trait Sends:
    Service<Request<Empty<Bytes>>, Response = Response<ResponseBody>, Error = Error>
{
}

impl<S> Sends for S where
    S: Service<Request<Empty<Bytes>>, Response = Response<ResponseBody>, Error = Error>
{
}

/// Sends a GET request; returns the status and body of its response.
pub(crate) async fn get(service: &mut impl Sends, path: &str) -> Result<(u16, String), Error> {
    let uri = format!("http://backend{path}");
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    let response = service.call(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}
