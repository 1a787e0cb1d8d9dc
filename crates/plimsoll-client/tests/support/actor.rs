//! [`Actor`]: a test backend whose behavior is selected by the request path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_client::ClusterService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tower_service::Service as _;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Counters and switches of an [`Actor`].
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: AtomicU64,
    /// Requests with a response status below 500.
    pub(crate) good: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    /// Releases one `/wait` request.
    pub(crate) go: Notify,
    /// `/health`, `/maybe` and gRPC's health check fail.
    pub(crate) unhealthy: AtomicBool,
}

/// A server whose response depends on the path of the request.
pub(crate) struct Actor {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    server: JoinHandle<()>,
    kill: watch::Sender<u32>,
}

impl Actor {
    pub(crate) async fn start() -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn start_on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (kill, killed) = watch::channel(0);
        let server = tokio::spawn(serve(listener, Arc::clone(&seen), killed));
        Self {
            address,
            seen,
            server,
            kill,
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn open(&self) -> u64 {
        self.seen.open.load(Ordering::Relaxed)
    }

    /// Closes all open connections.
    pub(crate) fn kill_connections(&self) {
        self.kill.send_modify(|count| *count += 1);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.server.abort();
        self.kill_connections();
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>, killed: watch::Receiver<u32>) {
    let address = listener.local_addr().unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        seen.connections.fetch_add(1, Ordering::Relaxed);
        seen.open.fetch_add(1, Ordering::Relaxed);
        let mut killed = killed.clone();
        killed.mark_unchanged();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let service = service_fn(|request| act(address, Arc::clone(&seen), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                _ = killed.changed() => {}
            }
            seen.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn act(
    address: SocketAddr,
    seen: Arc<Seen>,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    seen.requests.fetch_add(1, Ordering::Relaxed);
    let path = request.uri().path().to_owned();
    if path == "/close" {
        return Err("the connection is closed".into());
    }
    if path == "/wait" {
        seen.go.notified().await;
    }
    if path == "/hang" {
        std::future::pending::<()>().await;
    }
    let response = match path.as_str() {
        "/upgrade" => upgrade(request),
        "/asked" => {
            let asked = request.headers().get_all("endpoint-load-metrics-format");
            let values = asked.iter().map(|value| value.to_str().unwrap());
            Response::new(full(values.collect::<Vec<_>>().join(",")))
        }
        "/form" => Response::new(full(form(&request))),
        "/endless" => {
            let mut response = Response::new(endless());
            if let Some(kind) = request.headers().get("content-type") {
                (response.headers_mut()).insert("content-type", kind.clone());
            }
            response
        }
        "/early" => Response::new(full("early".into())),
        "/echo" => Response::new(full(echo(request).await?)),
        "/grpc" => grpc(&request),
        "/say" => say(&request, seen.unhealthy.load(Ordering::Relaxed)),
        "/health" | "/maybe" => {
            let unhealthy = seen.unhealthy.load(Ordering::Relaxed);
            let response = Response::builder().status(if unhealthy { 503 } else { 200 });
            response.body(full(address.to_string())).unwrap()
        }
        "/grpc.health.v1.Health/Check" => grpc_health(seen.unhealthy.load(Ordering::Relaxed)),
        _ => {
            let status = path.trim_start_matches('/').parse().unwrap_or(200);
            let body = full(address.to_string());
            let response = Response::builder().status(status);
            response.body(body).unwrap()
        }
    };
    if response.status().as_u16() < 500 && path != "/grpc" {
        seen.good.fetch_add(1, Ordering::Relaxed);
    }
    Ok(response)
}

fn full(text: String) -> Body {
    let body = Full::new(Bytes::from(text));
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Method, version, URI and host header as received.
fn form(request: &Request<Incoming>) -> String {
    let host = request
        .headers()
        .get("host")
        .map_or("-", |host| host.to_str().unwrap());
    format!("{:?} {} {host}", request.version(), request.uri())
}

async fn echo(request: Request<Incoming>) -> Result<String, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec())?)
}

fn endless() -> Body {
    let piece = || Ok(Frame::data(Bytes::from_static(&[b'x'; 1024])));
    StreamBody::new(tokio_stream::iter(std::iter::repeat_with(piece))).boxed_unsync()
}

/// Returns request headers with the prefix `say-` as response headers.
fn say(request: &Request<Incoming>, unhealthy: bool) -> Response<Body> {
    let mut response = Response::builder().status(if unhealthy { 503 } else { 200 });
    for (name, value) in request.headers() {
        if let Some(name) = name.as_str().strip_prefix("say-") {
            response = response.header(name, value);
        }
    }
    response.body(full(String::new())).unwrap()
}

/// A gRPC response whose trailers have the status of the request header `want`.
fn grpc(request: &Request<Incoming>) -> Response<Body> {
    let status = request
        .headers()
        .get("want")
        .cloned()
        .unwrap_or(HeaderValue::from_static("0"));
    let response = Response::builder().header("content-type", "application/grpc");
    if request.headers().contains_key("trailers-only") {
        let response = response.header("grpc-status", status);
        return response.body(full(String::new())).unwrap();
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status)]);
    let frames = [
        Ok(Frame::data(Bytes::from_static(b"message"))),
        Ok(Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(tokio_stream::iter(frames)).boxed_unsync();
    response.body(body).unwrap()
}

fn grpc_health(unhealthy: bool) -> Response<Body> {
    let message: &[u8] = if unhealthy {
        b"\0\0\0\0\x02\x08\x02"
    } else {
        b"\0\0\0\0\x02\x08\x01"
    };
    let status = HeaderValue::from_static("0");
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status)]);
    let frames = [
        Ok(Frame::data(Bytes::from_static(message))),
        Ok(Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(tokio_stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body).unwrap()
}

/// Upgrades the connection to an echo protocol.
fn upgrade(request: Request<Incoming>) -> Response<Body> {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let mut stream = TokioIo::new(upgraded);
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..count]).await.unwrap();
        }
    });
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade");
    response.header("upgrade", "echo").body(body).unwrap()
}

/// A request with an empty body.
pub(crate) fn request(method: Method, path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://backend{path}");
    let request = Request::builder().method(method).uri(uri);
    request.body(Empty::new()).unwrap()
}

/// Sends a request; returns the status and body of its response.
pub(crate) async fn get(
    service: &mut ClusterService,
    path: &str,
) -> Result<(u16, String), BoxError> {
    let response = service.call(request(Method::GET, path)).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec())?))
}
