//! HTTP/1.1 server of admin listeners, with limits of its own: slow or silent clients must not take
//! the descriptors of the process, which also serves traffic.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse as _;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::accept::{ConnectionLimits, ConnectionStats};
use crate::access::Peer;
use crate::incoming::{AcceptedConnection, Incoming, IncomingOptions};
use crate::run::bind_shared;
use crate::tls::{ServerTls, WatchedTls};

/// Connections of an admin listener. If there are more, the oldest one without a request makes
/// room; if all have one, the new connection is closed.
const MAX_CONNECTIONS: usize = 128;
/// Connections of an admin listener, including those whose TLS handshake is not complete.
const MAX_HANDSHAKES: usize = 512;
/// Time for the headers of a request, also of the next one on a kept connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from the headers of a request to those of the response, including the request body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a client that does not read its response is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time to find out whether another process answers at the same address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits of an admin listener.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    headers: Duration,
    request: Duration,
}

const LIMITS: Limits = Limits {
    connections: MAX_CONNECTIONS,
    headers: HEADER_TIMEOUT,
    request: REQUEST_TIMEOUT,
};

/// Socket of an admin API, with its certificates and counters.
#[derive(Debug)]
pub struct AdminListener {
    pub socket: TcpListener,
    /// Certificates; `None` serves plain text.
    pub tls: Option<Arc<WatchedTls<ServerTls>>>,
    pub stats: Arc<ConnectionStats>,
}

impl From<TcpListener> for AdminListener {
    fn from(socket: TcpListener) -> Self {
        Self {
            socket,
            tls: None,
            stats: Arc::default(),
        }
    }
}

/// Serves an admin API until `shutdown` resolves and requests in flight have finished.
pub async fn serve(
    listener: impl Into<AdminListener>,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let connections = accept_until(listener.into(), router, shutdown, LIMITS).await;
    connections.finish().await;
}

/// Like [`serve`], but for an address that another process may take over: after `shutdown` the
/// listener is closed; if nobody else answers at its address, it is opened again, and serves until
/// this future is dropped.
pub async fn serve_until_replaced(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let address = listener.local_addr();
    let connections = accept_until(listener.into(), router.clone(), shutdown, LIMITS).await;
    let Ok(address) = address else {
        return connections.finish().await;
    };
    let answers = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(local(address))).await;
    match bind_shared::<std::io::Error>(address, &[]) {
        Ok(listener) if !matches!(answers, Ok(Ok(_))) => {
            serve(listener, router, std::future::pending()).await;
        }
        _ => connections.finish().await,
    }
}

/// Address at which this machine reaches a listener.
pub fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Connections of a listener.
struct Connections {
    tasks: JoinSet<()>,
    /// In the order in which they were accepted.
    open: VecDeque<OpenConnection>,
    stopping: CancellationToken,
}

struct OpenConnection {
    task: AbortHandle,
    /// Held by a request until its response has been sent.
    in_use: Arc<()>,
}

impl Connections {
    fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            open: VecDeque::new(),
            stopping: CancellationToken::new(),
        }
    }

    /// Makes room for a connection: slow clients must not lock out probes and operators. Returns
    /// whether there is room.
    fn make_room(&mut self, limit: usize, stats: &ConnectionStats) -> bool {
        self.open
            .retain(|connection| !connection.task.is_finished());
        if self.open.len() < limit {
            return true;
        }
        stats.record_over_limit();
        let idle = |connection: &OpenConnection| Arc::strong_count(&connection.in_use) <= 2;
        let Some(index) = self.open.iter().position(idle) else {
            return false;
        };
        if let Some(evicted) = self.open.remove(index) {
            evicted.task.abort();
        }
        true
    }

    fn spawn(&mut self, accepted: AcceptedConnection, router: Router, limits: Limits) {
        let in_use = Arc::new(());
        let stopping = self.stopping.clone();
        let serving = serve_connection(accepted, router, stopping, limits, Arc::clone(&in_use));
        let task = self.tasks.spawn(serving);
        self.open.push_back(OpenConnection { task, in_use });
    }

    /// Waits for requests in flight and closes the connections.
    async fn finish(mut self) {
        self.stopping.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn accept_until(
    listener: AdminListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
    limits: Limits,
) -> Connections {
    let mut connections = Connections::new();
    let stats = Arc::clone(&listener.stats);
    let options = IncomingOptions {
        name: "admin",
        limits: ConnectionLimits {
            connections: MAX_HANDSHAKES,
            per_peer: MAX_HANDSHAKES,
        },
        handshake_timeout: limits.headers,
        tls: listener.tls,
    };
    let mut incoming = Incoming::start(listener.socket, options, listener.stats);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.tasks.join_next() => continue,
            accepted = incoming.next() => accepted,
        };
        if connections.make_room(limits.connections, &stats) {
            connections.spawn(accepted, router.clone(), limits);
        }
    }
    incoming.close().await;
    connections
}

async fn serve_connection(
    accepted: AcceptedConnection,
    router: Router,
    stopping: CancellationToken,
    limits: Limits,
    in_use: Arc<()>,
) {
    // Without this option a client that never reads would hold the connection until it leaves.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(accepted.stream.tcp()).set_tcp_user_timeout(Some(WRITE_TIMEOUT));
    let AcceptedConnection {
        stream,
        peer,
        identity,
        ..
    } = accepted;
    let peer = Peer {
        address: peer,
        identity,
    };
    let respond = service_fn(move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let response = router.clone().call(request.map(Body::new));
        let in_use = Arc::clone(&in_use);
        async move {
            let response = match tokio::time::timeout(limits.request, response).await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
            };
            Ok::<_, Infallible>(response.map(|body| ResponseBody {
                body,
                _in_use: in_use,
            }))
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .serve_connection(TokioIo::new(stream), respond);
    tokio::pin!(serving);
    tokio::select! {
        // Clients may disconnect at any time.
        _ = serving.as_mut() => return,
        () = stopping.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Body of a response, during which its connection is in use.
struct ResponseBody {
    body: Body,
    _in_use: Arc<()>,
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A response that never ends.
    struct Endless;

    impl futures_core::Stream for Endless {
        type Item = Result<Bytes, Infallible>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    async fn start(limits: Limits) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", get(async || "page"))
            .route("/endless", get(async || Body::from_stream(Endless)))
            .route("/read", post(async |_: Bytes| "read"));
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        tokio::spawn(async move {
            let connections = accept_until(listener.into(), router, stopped, limits).await;
            connections.finish().await;
        });
        (address, stopping)
    }

    async fn send(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Reads until the server closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let reading = stream.read_to_end(&mut text);
        // A reset closes the connection as well.
        let _ = tokio::time::timeout(Duration::from_secs(20), reading)
            .await
            .expect("the connection is closed");
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn silent_and_slow_clients_are_disconnected() {
        let limits = Limits {
            headers: Duration::from_millis(50),
            request: Duration::from_millis(50),
            ..LIMITS
        };
        let (address, _stopping) = start(limits).await;
        assert_eq!(rest(send(address, "").await).await, "");
        let half = "GET / HTTP/1.1\r\nhost: lo";
        assert!(!rest(send(address, half).await).await.contains("200 OK"));
        let kept = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let answer = rest(send(address, kept).await).await;
        assert!(answer.ends_with("page"), "{answer}");
        let body = "POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx";
        let answer = rest(send(address, body).await).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }

    #[tokio::test]
    async fn connections_are_limited() {
        let limits = Limits {
            connections: 2,
            ..LIMITS
        };
        let (address, _stopping) = start(limits).await;
        let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut kept = Vec::new();
        for _ in 0..2 {
            let mut stream = send(address, request).await;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            kept.push(stream);
        }
        // The oldest connection without a request makes room, also if it is half a request.
        let close = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        assert!(rest(send(address, close).await).await.ends_with("page"));
        let first = rest(kept.remove(0)).await;
        assert!(first.ends_with("page"), "{first}");
        let half: Vec<TcpStream> =
            [send(address, "GET / HT").await, send(address, "").await].into();
        assert!(rest(send(address, close).await).await.ends_with("page"));
        drop(half);
    }

    #[tokio::test]
    async fn connections_with_requests_are_not_closed_for_others() {
        let limits = Limits {
            connections: 2,
            ..LIMITS
        };
        let (address, _stopping) = start(limits).await;
        let endless = "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut stream = send(address, endless).await;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            streams.push(stream);
        }
        assert_eq!(rest(send(address, endless).await).await, "");
        streams.pop();
        // The server notices the closed connection soon.
        loop {
            let close = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            if rest(send(address, close).await).await.ends_with("page") {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_shared_address_is_left_to_the_next_process() {
        let router = Router::new().route("/", get(async || "old"));
        let start = |listener, router| {
            let stopping = CancellationToken::new();
            let stopped = stopping.clone().cancelled_owned();
            tokio::spawn(serve_until_replaced(listener, router, stopped));
            stopping
        };
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        // The listener may be closed for a moment.
        let answered = async |address: SocketAddr, page: &str| {
            let Ok(mut stream) = TcpStream::connect(address).await else {
                return false;
            };
            let _ = stream.write_all(request).await;
            rest(stream).await.ends_with(page)
        };
        let bind = |address| bind_shared::<std::io::Error>(address, &[]).unwrap();
        let alone = bind("127.0.0.1:0".parse().unwrap());
        let address = alone.local_addr().unwrap();
        let stopping = start(alone, router.clone());
        stopping.cancel();
        while !answered(address, "old").await {}

        let old = bind("127.0.0.1:0".parse().unwrap());
        let address = old.local_addr().unwrap();
        let stopping = start(old, router);
        let next = bind(address);
        stopping.cancel();
        let new = Router::new().route("/", get(async || "new"));
        tokio::spawn(serve(next, new, std::future::pending()));
        // Connections that the old process has accepted are still answered.
        let mut news = 0;
        while news < 32 {
            let is_new = answered(address, "new").await;
            news = if is_new { news + 1 } else { 0 };
        }
    }

    #[tokio::test]
    async fn shutdown_closes_idle_connections() {
        let (address, stopping) = start(LIMITS).await;
        let mut stream = send(address, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        stopping.cancel();
        assert!(rest(stream).await.ends_with("page"));
    }
}
