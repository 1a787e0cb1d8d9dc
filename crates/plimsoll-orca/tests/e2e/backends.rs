//! [`Fleet`]: backends in three zones, each with its own layer, like separate processes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use axum::Router;
use axum::response::AppendHeaders;
use axum::routing::any;
use axum::serve::ListenerExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use plimsoll_orca::{OpenRcaService, OrcaHandle, OrcaLayer};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::Service;

/// Zones, in the order of their numbers.
pub(crate) const ZONES: [&str; 3] = ["0", "1", "2"];
const HOSTS_PER_ZONE: usize = 2;

/// Server framework of the backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Axum,
    Tonic,
}

/// Backends of all zones.
pub(crate) struct Fleet {
    hosts: Vec<(usize, SocketAddr, OrcaHandle)>,
}

impl Fleet {
    pub(crate) async fn start(kind: Kind) -> Self {
        let mut hosts = Vec::new();
        for (zone, name) in ZONES.into_iter().enumerate() {
            for _ in 0..HOSTS_PER_ZONE {
                let layer = OrcaLayer::builder().cpu(false).build().unwrap();
                let handle = layer.handle();
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                hosts.push((zone, listener.local_addr().unwrap(), handle));
                match kind {
                    Kind::Axum => serve_axum(listener, layer, name),
                    Kind::Tonic => serve_tonic(listener, layer, name),
                }
            }
        }
        Self { hosts }
    }

    /// Addresses of all hosts, with the number of their zone.
    pub(crate) fn addresses(&self) -> Vec<(usize, SocketAddr)> {
        let hosts = self.hosts.iter();
        hosts.map(|(zone, at, _)| (*zone, *at)).collect()
    }

    /// Sets the utilization per zone, and a constant request rate: the weight is their ratio and
    /// must not depend on the traffic.
    pub(crate) fn set_utilization(&self, utilization: [f64; 3]) {
        for (zone, _, handle) in &self.hosts {
            handle.set_cpu_utilization(utilization[*zone]).unwrap();
            handle.set_rps_fractional(100.0).unwrap();
            handle.refresh();
        }
    }
}

fn serve_axum(listener: TcpListener, layer: OrcaLayer, zone: &'static str) {
    let app = Router::new()
        .route(
            "/",
            any(move || async move { AppendHeaders([("x-zone", zone)]) }),
        )
        .route_service(OpenRcaService::PATH, layer.handle().open_rca_service())
        .layer(layer);
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
}

fn serve_tonic(listener: TcpListener, layer: OrcaLayer, zone: &'static str) {
    let handle = layer.handle();
    let server = Server::builder()
        .layer(layer)
        .add_service(Zone(zone))
        .add_service(handle.open_rca_service());
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(async move { server.serve_with_incoming(incoming).await });
}

/// Responds to every call with an empty message and the zone in a header.
#[derive(Clone, Copy)]
struct Zone(&'static str);

impl NamedService for Zone {
    const NAME: &'static str = "test.Zone";
}

impl Service<Request<Body>> for Zone {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let name = HeaderName::from_static("grpc-status");
        let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static("0"))]);
        let message = Full::from(&[0; 5][..]).with_trailers(ready(Some(Ok(trailers))));
        let mut response = Response::new(Body::new(message));
        let headers = response.headers_mut();
        headers.insert("x-zone", HeaderValue::from_static(self.0));
        let grpc = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, grpc);
        ready(Ok(response))
    }
}
