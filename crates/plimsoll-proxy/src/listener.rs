//! [`Listener`]: configuration and counters of a listener, and the task that serves one connection.
//!
//! A listener has one or more filter chains; the chain of a connection is selected before it is
//! served (`accept`, `inspect`). All workers share a listener; each has its own socket. A changed
//! configuration is swapped in as a whole: new routes apply to the next request, all other settings
//! to the next connection. Sockets are accepted in `accept`; requests are handled in `forward`.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::log_line;
use plimsoll_core::stats::{Sample, add_samples};
use plimsoll_serve::{CancellationToken, ServerTls, TlsError};
use plimsoll_xds::pb::enums::CodecType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, StartHandshake, TlsAcceptor};

use crate::access_log::{AccessLog, Sinks};
use crate::client_cert;
use crate::config::{FilterChainConfig, HttpOptions, ListenerConfig, RouteSource, StripHostPort};
use crate::connection::{Connection, DrainLevel};
use crate::forward;
use crate::log_lines;
use crate::monitored_io::MonitoredIo;
use crate::preface::{Detected, PrefixedStream};
use crate::router::RouteTable;
use crate::stats::{HttpStats, ListenerStats};
use crate::stream_timeouts::{self, StreamExecutor};
use crate::tls;
use crate::trace::{Exporters, Tracer};

/// Limit of HTTP/2 streams that a client resets before they are served, and of stream errors that
/// it causes, before the connection is closed: limits rapid-reset attacks (CVE-2023-44487).
const MAX_RESETS: usize = 100;
/// Limit of response bytes that HTTP/2 buffers per stream. A client that does not read can make
/// the proxy buffer this for each of its streams.
const MAX_SEND_BUFFER: usize = 64 << 10;

/// Time limit of the TLS handshake, and of the first bytes that select a filter chain.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Listener {
    runtime: ArcSwap<ListenerRuntime>,
    stats: Arc<StatsByPrefix>,
    /// Canceled when the listener is removed or replaced: its connections are drained.
    retired: CancellationToken,
}

/// Counters of a listener, which its successors share.
#[derive(Debug)]
struct StatsByPrefix {
    workers: usize,
    /// Counters by `stat_prefix`, one for each worker.
    http: Mutex<BTreeMap<String, Arc<[Arc<HttpStats>]>>>,
    listener: ListenerStats,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenerError {
    #[error("cannot open access log {}", path.display())]
    AccessLog { path: PathBuf, source: io::Error },
    #[error("cannot start the exporter of spans")]
    Tracing(#[source] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Active configuration of a listener, with its certificates and access logs opened.
#[derive(Clone, Debug)]
pub(crate) struct ListenerRuntime {
    pub(crate) config: Arc<ListenerConfig>,
    /// Filter chains in the order of `config`; at least one.
    chains: Vec<ChainRuntime>,
}

/// Active configuration of a filter chain.
#[derive(Clone)]
pub(crate) struct ChainRuntime {
    listener: Arc<ListenerConfig>,
    chain: usize,
    /// Routes of the file, or the latest routes that the management server sent.
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) logs: Vec<AccessLog>,
    pub(crate) tracer: Option<Tracer>,
    tls: Option<Arc<ServerTls>>,
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
    /// Counters of each worker; empty until the runtime is put into use.
    stats: Arc<[Arc<HttpStats>]>,
}

impl std::fmt::Debug for ChainRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainRuntime")
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}

impl ListenerRuntime {
    /// Opens what the configuration names. Without `exporters`, spans are not sent.
    pub(crate) fn new(
        config: Arc<ListenerConfig>,
        sinks: &Sinks,
        exporters: Option<&Exporters>,
    ) -> Result<Self, ListenerError> {
        let chains = (0..config.chains.len())
            .map(|chain| ChainRuntime::new(&config, chain, sinks, exporters))
            .collect::<Result<_, _>>()?;
        Ok(Self { config, chains })
    }

    /// Returns the filter chain with this index. Indexes of connections stay valid: a configuration
    /// with other chains is a new listener.
    pub(crate) fn chain(&self, chain: usize) -> &ChainRuntime {
        &self.chains[chain]
    }

    pub(crate) fn chains(&self) -> &[ChainRuntime] {
        &self.chains
    }

    pub(crate) fn chains_mut(&mut self) -> &mut [ChainRuntime] {
        &mut self.chains
    }
}

impl ChainRuntime {
    fn new(
        listener: &Arc<ListenerConfig>,
        chain: usize,
        sinks: &Sinks,
        exporters: Option<&Exporters>,
    ) -> Result<Self, ListenerError> {
        let config = &listener.chains[chain];
        let mut logs = Vec::new();
        for log in &config.access_log {
            let opened = sinks.open(log).map_err(|source| {
                let path = log.path.clone().unwrap_or_else(|| "stdout".into());
                ListenerError::AccessLog { path, source }
            });
            logs.push(opened?);
        }
        let tracer = match (&config.tracing, exporters) {
            (Some(tracing), Some(exporters)) => {
                Some(Tracer::open(tracing, exporters).map_err(ListenerError::Tracing)?)
            }
            _ => None,
        };
        let tls = match &config.tls {
            Some(tls) => Some(Arc::new(tls::server_tls(tls, config.http.codec)?)),
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
            listener: Arc::clone(listener),
            chain,
            logs,
            tracer,
            tls,
            stats: Arc::default(),
        })
    }

    pub(crate) fn config(&self) -> &FilterChainConfig {
        &self.listener.chains[self.chain]
    }

    pub(crate) fn stats(&self, worker: usize) -> &Arc<HttpStats> {
        &self.stats[worker]
    }

    /// Returns the sum of the counters of all workers.
    pub(crate) fn totals(&self) -> Vec<Sample> {
        let mut totals = HttpStats::default().samples().collect();
        for stats in self.stats.iter() {
            add_samples(&mut totals, stats.samples());
        }
        totals
    }

    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

impl StatsByPrefix {
    /// Gives each chain the counters of its `stat_prefix`, which chains may share.
    fn attach(&self, runtime: &mut ListenerRuntime) {
        let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        for chain in &mut runtime.chains {
            let prefix = &chain.listener.chains[chain.chain].http.stat_prefix;
            let stats = http
                .entry(prefix.clone())
                .or_insert_with(|| (0..self.workers).map(|_| Arc::default()).collect());
            chain.stats = Arc::clone(stats);
        }
    }
}

fn http1_builder(options: &HttpOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let header_bytes = usize::try_from(options.max_request_header_bytes).unwrap_or(usize::MAX);
    builder
        // Timeouts are checked on the worker's tick (`Connection::check_timeouts`).
        .header_read_timeout(None)
        .half_close(false)
        .max_header_size(header_bytes)
        .max_buf_size(header_bytes.max(64 << 10));
    // With hyper's default of 100, headers are parsed on the stack; any other value allocates.
    if options.max_headers != 100 {
        builder.max_headers(usize::try_from(options.max_headers).unwrap_or(usize::MAX));
    }
    builder
}

fn http2_builder(options: &HttpOptions) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor);
    let http2 = &options.http2;
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(http2.max_concurrent_streams)
        .initial_stream_window_size(http2.initial_stream_window_size)
        .initial_connection_window_size(http2.initial_connection_window_size)
        .max_header_list_size(options.max_request_header_bytes)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_RESETS)
        .keep_alive_interval(http2.keepalive_interval)
        .keep_alive_timeout(http2.keepalive_timeout);
    builder
}

impl Listener {
    pub(crate) fn new(runtime: ListenerRuntime, workers: usize) -> Self {
        Self::with_stats(
            runtime,
            Arc::new(StatsByPrefix {
                workers,
                http: Mutex::default(),
                listener: ListenerStats::default(),
            }),
        )
    }

    fn with_stats(mut runtime: ListenerRuntime, stats: Arc<StatsByPrefix>) -> Self {
        stats.attach(&mut runtime);
        Self {
            runtime: ArcSwap::from_pointee(runtime),
            stats,
            retired: CancellationToken::new(),
        }
    }

    /// Creates the listener that takes over the sockets and counters of this one.
    pub(crate) fn successor(&self, runtime: ListenerRuntime) -> Self {
        Self::with_stats(runtime, Arc::clone(&self.stats))
    }

    pub(crate) fn runtime(&self) -> Arc<ListenerRuntime> {
        self.runtime.load_full()
    }

    /// Replaces the configuration for later requests and connections.
    pub(crate) fn replace(&self, mut runtime: ListenerRuntime) {
        self.stats.attach(&mut runtime);
        self.runtime.store(Arc::new(runtime));
    }

    pub(crate) fn replace_routes(&self, chain: usize, routes: Arc<RouteTable>) {
        let mut runtime = ListenerRuntime::clone(&self.runtime());
        runtime.chains[chain].routes = routes;
        self.runtime.store(Arc::new(runtime));
    }

    pub(crate) fn stats(&self) -> &ListenerStats {
        &self.stats.listener
    }

    /// Token that is canceled when connections of the listener are drained.
    pub(crate) const fn retired(&self) -> &CancellationToken {
        &self.retired
    }
}

/// Serves a connection until it is closed. Large futures are boxed, so that an idle connection only
/// costs the memory of the protocol it uses and not the memory of the largest future.
pub(crate) async fn serve(stream: TcpStream, connection: Arc<Connection>) {
    let runtime = connection.listener.runtime();
    let chain = runtime.chain(connection.chain);
    set_local_port(&stream, &connection, chain);
    let result = match &chain.tls {
        None => serve_plain(stream, &connection, chain).await,
        Some(tls) => {
            let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
            let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
            let handshake = Box::pin(handshake(acceptor.accept(stream), deadline));
            serve_tls(handshake, &connection, chain, tls).await
        }
    };
    record_error(result, &connection);
}

/// Serves a connection whose `ClientHello` has been read to select its filter chain.
pub(crate) async fn serve_after_hello(
    hello: Box<StartHandshake<TcpStream>>,
    deadline: Instant,
    connection: Arc<Connection>,
) {
    let runtime = connection.listener.runtime();
    let chain = runtime.chain(connection.chain);
    set_local_port(&hello.io, &connection, chain);
    let result = match &chain.tls {
        None => Err("TLS handshake on a filter chain without TLS".into()),
        Some(tls) => {
            let accept = hello.into_stream(Arc::clone(&tls.config));
            let handshake = Box::pin(handshake(accept, deadline));
            serve_tls(handshake, &connection, chain, tls).await
        }
    };
    record_error(result, &connection);
}

/// Counts a connection that was closed because its `ClientHello` is not valid.
pub(crate) fn record_invalid_hello(error: &io::Error, connection: &Connection) {
    let runtime = connection.listener.runtime();
    if runtime.chain(connection.chain).is_secure() {
        connection.stats.downstream_cx_ssl_total.increment();
        connection.stats.downstream_cx_ssl_fail.increment();
    } else {
        connection.stats.downstream_cx_protocol_error.increment();
    }
    log_line!(log_lines::TLS_HANDSHAKE_FAILED, peer = %connection.peer, %error);
}

fn set_local_port(stream: &TcpStream, connection: &Connection, chain: &ChainRuntime) {
    if chain.config().http.strip_host_port == StripHostPort::Matching
        && let Ok(address) = stream.local_addr()
    {
        connection.set_local_port(address.port());
    }
}

fn record_error(result: Result<(), BoxError>, connection: &Connection) {
    if let Err(error) = result {
        connection.stats.downstream_cx_protocol_error.increment();
        log_line!(log_lines::CONNECTION_CLOSED, peer = %connection.peer, %error);
    }
}

async fn serve_plain(
    stream: TcpStream,
    connection: &Arc<Connection>,
    chain: &ChainRuntime,
) -> Result<(), BoxError> {
    let mut stream = PrefixedStream::new(stream);
    let http2 = match chain.config().http.codec {
        CodecType::Http1 => false,
        CodecType::Http2 => true,
        CodecType::Auto => {
            let on_read = || {
                connection.record_read();
            };
            let detected = tokio::select! {
                detected = stream.detect(on_read) => detected?,
                // `idle_timeout` before the first byte, `request_headers_timeout` after it.
                () = drain_requested(connection) => return Ok(()),
            };
            match detected {
                Detected::Http1 => false,
                Detected::Http2 => true,
                Detected::Closed => return Ok(()),
            }
        }
    };
    serve_http(stream, connection, chain, http2).await
}

async fn serve_tls(
    handshake: impl Future<Output = io::Result<Box<TlsStream<TcpStream>>>>,
    connection: &Arc<Connection>,
    chain: &ChainRuntime,
    tls: &ServerTls,
) -> Result<(), BoxError> {
    connection.stats.downstream_cx_ssl_total.increment();
    let stream = match handshake.await {
        Ok(stream) => stream,
        Err(error) => {
            connection.stats.downstream_cx_ssl_fail.increment();
            log_line!(log_lines::TLS_HANDSHAKE_FAILED, peer = %connection.peer, %error);
            return Ok(());
        }
    };
    let session = stream.get_ref().1;
    let http2 = match chain.config().http.codec {
        CodecType::Http2 => true,
        CodecType::Http1 => false,
        CodecType::Auto => session.alpn_protocol() == Some(b"h2"),
    };
    if let Some(certificates) = session.peer_certificates() {
        let details = chain.config().http.client_cert_details;
        if let Some(text) = client_cert::describe(certificates, Some(&tls.certificate), details) {
            connection.set_client_cert(text);
        }
    }
    serve_http(stream, connection, chain, http2).await
}

/// Completes the TLS handshake. The stream is boxed to keep the caller's future small.
async fn handshake(
    accept: Accept<TcpStream>,
    deadline: Instant,
) -> io::Result<Box<TlsStream<TcpStream>>> {
    tokio::time::timeout_at(deadline, accept)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        .map(Box::new)
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn drain_requested(connection: &Connection) {
    while connection.drain_level() < DrainLevel::Drain {
        connection.drain_level_changed().await;
    }
}

/// Polls the connection once more: its next read writes the 408 response.
async fn write_timeout_reply<F: Future>(mut serving: Pin<&mut F>) {
    poll_fn(|cx| {
        // The connection is closed whether or not the response could be written.
        let _ = serving.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Serves HTTP until the connection is closed or has been drained.
async fn serve_http<S>(
    stream: S,
    connection: &Arc<Connection>,
    chain: &ChainRuntime,
    http2: bool,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connection.set_protocol(http2);
    let io = TokioIo::new(MonitoredIo::new(stream, Arc::clone(connection)));
    let shared = Arc::clone(connection);
    let service = service_fn(move |request| {
        let stream = http2.then(|| stream_timeouts::begin_http2(&shared.worker));
        forward::handle(Arc::clone(&shared), stream, request)
    });
    macro_rules! serve_until_drained {
        ($serving:expr, $graceful:expr) => {{
            let mut serving = Box::pin($serving);
            if connection.drain_level() >= $graceful {
                serving.as_mut().graceful_shutdown();
            }
            loop {
                tokio::select! {
                    biased;
                    done = serving.as_mut() => return done.map_err(Into::into),
                    level = connection.drain_level_changed() => match level {
                        DrainLevel::Close => {
                            if connection.header_timed_out() {
                                write_timeout_reply(serving.as_mut()).await;
                            }
                            return Ok(());
                        }
                        level if level >= $graceful => serving.as_mut().graceful_shutdown(),
                        _ => {}
                    },
                }
            }
        }};
    }
    if http2 {
        let serving = chain.http2.serve_connection(io, service);
        serve_until_drained!(serving, DrainLevel::Announce)
    } else {
        let serving = chain.http1.serve_connection(io, service).with_upgrades();
        serve_until_drained!(serving, DrainLevel::Drain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        // The future had 8600 bytes before the protocol and handshake futures were boxed.
        assert!(size(serve) <= 2048, "{}", size(serve));
    }

    #[test]
    fn counters_are_summed_over_workers_and_passed_on() {
        use crate::connection::tests::{listener, listener_config};

        let listener = listener(listener_config("front", 0), 2);
        let total = |listener: &Listener| {
            let totals = listener.runtime().chain(0).totals();
            let found = totals.iter().find(|(metric, _)| metric.name == "no_route");
            found.unwrap().1
        };
        let count = |listener: &Listener, worker| {
            let runtime = listener.runtime();
            runtime.chain(0).stats(worker).no_route.increment();
        };
        count(&listener, 0);
        count(&listener, 1);
        assert_eq!(total(&listener), 2);
        let successor = listener.successor(ListenerRuntime::clone(&listener.runtime()));
        count(&successor, 0);
        assert_eq!((total(&successor), total(&listener)), (3, 3));
    }

    #[test]
    fn routes_and_settings_are_replaced_as_a_whole() {
        use crate::connection::tests::{listener, listener_config};

        let listener = listener(listener_config("front", 0), 1);
        let before = listener.runtime();
        let routes = Arc::new(RouteTable::default());
        listener.replace_routes(0, Arc::clone(&routes));
        let now = listener.runtime();
        assert!(Arc::ptr_eq(&now.chain(0).routes, &routes));
        assert!(Arc::ptr_eq(&now.config, &before.config));
        listener.replace(ListenerRuntime::clone(&before));
        let now = listener.runtime();
        assert!(Arc::ptr_eq(&now.chain(0).routes, &before.chain(0).routes));
    }
}
