//! Backends on loopback that count what they see, and clusters of them.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub(crate) mod hostile;
pub(crate) mod management;
pub(crate) mod resources;

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
use plimsoll_client::{Error, ResponseBody, UpstreamOptions};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_service::Service;

/// Long enough for a busy machine; reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What comes of a future that cannot take long.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.expect("nothing happened for a long time")
}

/// Waits until `check` has something to say. The one place that polls.
pub(crate) async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `check` holds.
pub(crate) async fn wait_until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    wait_for(what, async || check().await.then_some(())).await;
}

/// A server that answers with its address, 200 unless the path says another status: `/503`.
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

/// An address on loopback where nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
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

/// A cluster that goes round.
pub(crate) fn round_robin(name: &str) -> ClusterConfig {
    parse_cluster(&format!("name: {name}\nlb_policy: ROUND_ROBIN")).unwrap()
}

/// Options with another protocol than HTTP/1.1.
pub(crate) fn http2() -> UpstreamOptions {
    UpstreamOptions {
        http_version: plimsoll_client::HttpVersion::Http2,
        ..UpstreamOptions::default()
    }
}

/// What requests are sent through.
pub(crate) trait Sends:
    Service<Request<Empty<Bytes>>, Response = Response<ResponseBody>, Error = Error>
{
}

impl<S> Sends for S where
    S: Service<Request<Empty<Bytes>>, Response = Response<ResponseBody>, Error = Error>
{
}

/// One request; the status and the body of its response.
pub(crate) async fn get(service: &mut impl Sends, path: &str) -> Result<(u16, String), Error> {
    let uri = format!("http://backend{path}");
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    let response = service.call(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}
