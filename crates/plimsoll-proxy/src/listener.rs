//! [`Listener`]: where requests come in: its settings, and serving one connection.
//!
//! All workers share a listener and have a socket each. Settings are swapped as a whole when the
//! file changes: routes hold for the next request, the rest for the next connection. Accepting is
//! in `accept`, what happens to a request in `forward`.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access_log::{AccessLog, Sinks};
use crate::config::{Codec, HttpOptions, ListenerConfig, RouteSource};
use crate::connection::{Connection, Order, Watched};
use crate::forward;
use crate::router::RouteTable;
use crate::stats::HttpStats;
use crate::tls;

/// How HTTP/2 begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// How long a TLS handshake, or the first bytes of a connection, may take.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Streams that a client may reset before they are served, and errors it may provoke: what rapid
/// reset attacks need many of.
const MAX_RESETS: usize = 100;

/// Where requests come in.
#[derive(Debug)]
pub(crate) struct Listener {
    runtime: ArcSwap<ListenerRuntime>,
    stats: Mutex<Vec<Arc<HttpStats>>>,
}

/// Everything that is in force.
#[derive(Clone)]
pub(crate) struct ListenerRuntime {
    pub(crate) config: Arc<ListenerConfig>,
    /// Those of the file, or the newest of the management server.
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) logs: Vec<AccessLog>,
    tls: Option<TlsAcceptor>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl std::fmt::Debug for ListenerRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerRuntime")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl ListenerRuntime {
    /// Opens what a configuration names.
    pub(crate) fn new(config: Arc<ListenerConfig>, sinks: &Sinks) -> Result<Self, String> {
        let mut logs = Vec::new();
        for log in &config.access_log {
            let opened = sinks.open(log);
            let path = log
                .path
                .as_deref()
                .unwrap_or(std::path::Path::new("stdout"));
            logs.push(opened.map_err(|error| format!("{}: {error}", path.display()))?);
        }
        let tls = match &config.tls {
            Some(tls) => Some(tls::server_config(tls, config.http.codec)?.into()),
            None => None,
        };
        let routes = match &config.routes {
            RouteSource::Inline(routes) => Arc::clone(routes),
            RouteSource::Rds(_) => Arc::default(),
        };
        Ok(Self {
            routes,
            http1: http1_builder(&config.http),
            http2: http2_builder(&config.http),
            config,
            logs,
            tls,
        })
    }
}

fn http1_builder(options: &HttpOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let header_bytes = usize::try_from(options.max_request_header_bytes).unwrap_or(usize::MAX);
    builder
        // Timeouts are the tick's.
        .header_read_timeout(None)
        .half_close(false)
        .max_header_size(header_bytes)
        .max_buf_size(header_bytes.max(64 << 10));
    // Its default of 100 needs no memory of its own.
    if options.max_headers != 100 {
        builder.max_headers(usize::try_from(options.max_headers).unwrap_or(usize::MAX));
    }
    builder
}

fn http2_builder(options: &HttpOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let http2 = &options.http2;
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(http2.max_concurrent_streams)
        .initial_stream_window_size(http2.initial_stream_window_size)
        .initial_connection_window_size(http2.initial_connection_window_size)
        .max_header_list_size(options.max_request_header_bytes)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_RESETS)
        .keep_alive_interval(http2.keepalive_interval)
        .keep_alive_timeout(http2.keepalive_timeout);
    builder
}

impl Listener {
    pub(crate) fn new(runtime: ListenerRuntime) -> Self {
        Self {
            runtime: ArcSwap::from_pointee(runtime),
            stats: Mutex::default(),
        }
    }

    /// What is in force.
    pub(crate) fn runtime(&self) -> Arc<ListenerRuntime> {
        self.runtime.load_full()
    }

    /// Puts other settings in force.
    pub(crate) fn replace(&self, runtime: ListenerRuntime) {
        self.runtime.store(Arc::new(runtime));
    }

    /// Puts other routes in force.
    pub(crate) fn replace_routes(&self, routes: Arc<RouteTable>) {
        let mut runtime = ListenerRuntime::clone(&self.runtime());
        runtime.routes = routes;
        self.replace(runtime);
    }

    /// Counters of one more worker.
    pub(crate) fn new_stats(&self) -> Arc<HttpStats> {
        let stats = Arc::new(HttpStats::default());
        self.all_stats().push(Arc::clone(&stats));
        stats
    }

    /// Sums over all workers, in the order of [`HttpStats::NAMES`].
    pub(crate) fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; HttpStats::NAMES.len()];
        for stats in self.all_stats().iter() {
            for (total, value) in totals.iter_mut().zip(stats.values()) {
                *total += value;
            }
        }
        totals
    }

    fn all_stats(&self) -> std::sync::MutexGuard<'_, Vec<Arc<HttpStats>>> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a connection to its end.
///
/// What is large stands in boxes of its own: a connection that waits for its next request then
/// costs what its protocol needs, not as much as the largest of all that it might have spoken.
pub(crate) async fn serve(stream: TcpStream, connection: Arc<Connection>) {
    let runtime = connection.listener.runtime();
    let codec = runtime.config.http.codec;
    let result = match &runtime.tls {
        None => {
            let http2 = match codec {
                Codec::Http1 => Ok(false),
                Codec::Http2 => Ok(true),
                Codec::Auto => detect(&stream, &connection).await,
            };
            match http2 {
                Ok(http2) => serve_http(stream, &connection, &runtime, http2).await,
                Err(error) => Err(error.into()),
            }
        }
        Some(acceptor) => {
            connection.stats.downstream_cx_ssl_total.inc();
            match Box::pin(shake_hands(acceptor, stream)).await {
                Ok(stream) => {
                    let alpn = stream.get_ref().1.alpn_protocol();
                    let http2 = match codec {
                        Codec::Http2 => true,
                        Codec::Http1 => false,
                        Codec::Auto => alpn == Some(b"h2"),
                    };
                    serve_http(stream, &connection, &runtime, http2).await
                }
                Err(error) => {
                    connection.stats.downstream_cx_ssl_fail.inc();
                    tracing::debug!(peer = %connection.peer, %error, "no TLS");
                    return;
                }
            }
        }
    };
    if let Err(error) = result {
        connection.stats.downstream_cx_protocol_error.inc();
        tracing::debug!(peer = %connection.peer, %error, "the connection ended badly");
    }
}

/// In a box, because whoever waits for it keeps what it yields.
async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<Box<TlsStream<TcpStream>>> {
    let accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
    let accepted = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    accepted.map(Box::new)
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whether a connection begins like HTTP/2. The bytes stay where they are.
async fn detect(stream: &TcpStream, connection: &Connection) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    let mut seen = 0;
    let looking = async {
        loop {
            let count = stream.peek(&mut start).await?;
            if count == 0 || start[..count] != PREFACE[..count] {
                return Ok(false);
            }
            if count == PREFACE.len() {
                return Ok(true);
            }
            if count == seen {
                // Readable all the time, with too little to tell.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            seen = count;
        }
    };
    let idle = connection
        .listener
        .runtime()
        .config
        .http
        .idle_timeout
        .unwrap_or(Duration::MAX);
    tokio::select! {
        found = looking => found,
        () = told_to_end(connection) => Err(io::ErrorKind::ConnectionAborted.into()),
        () = tokio::time::sleep(idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn told_to_end(connection: &Connection) {
    while connection.ordered() < Order::Drain {
        connection.next_order().await;
    }
}

/// Lets a connection whose header took too long say so: its next read does.
async fn say_timed_out<F: Future>(mut serving: Pin<&mut F>) {
    poll_fn(|cx| {
        // Whatever comes of it, the connection ends.
        let _ = serving.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Serves HTTP until the connection ends or is told to.
async fn serve_http<S>(
    stream: S,
    connection: &Arc<Connection>,
    runtime: &ListenerRuntime,
    http2: bool,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connection.speaks(http2);
    let io = Watched::new(TokioIo::new(stream), Arc::clone(connection));
    let shared = Arc::clone(connection);
    let service = service_fn(move |request| forward::handle(Arc::clone(&shared), request));
    macro_rules! until_ordered {
        ($serving:expr, $graceful:expr) => {{
            let mut serving = Box::pin($serving);
            if connection.ordered() >= $graceful {
                serving.as_mut().graceful_shutdown();
            }
            loop {
                tokio::select! {
                    biased;
                    done = serving.as_mut() => return done.map_err(Into::into),
                    order = connection.next_order() => match order {
                        Order::Close => {
                            if connection.has_expired() {
                                say_timed_out(serving.as_mut()).await;
                            }
                            return Ok(());
                        }
                        order if order >= $graceful => serving.as_mut().graceful_shutdown(),
                        _ => {}
                    },
                }
            }
        }};
    }
    match http2 {
        true => until_ordered!(runtime.http2.serve_connection(io, service), Order::Mark),
        false => {
            let serving = runtime.http1.serve_connection(io, service).with_upgrades();
            until_ordered!(serving, Order::Drain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of the future that a function of two arguments returns.
    fn size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_is_small() {
        // Of 8600 bytes, when protocols and handshakes stood in it.
        assert!(size(serve) <= 2048, "{}", size(serve));
    }
}
