//! [`Endpoint`]: the connection pools of one host, and sending requests on their connections.
//!
//! HTTP/2: requests of a pool share one connection; another is dialed when it has no free stream.
//! HTTP/1.1: a request takes an idle connection or dials; at `max_connections` requests wait in
//! order of arrival. A pool belongs to one runtime, so a proxy with a runtime per core never wakes
//! another core. `request::destination` has picked the host before; `acquire` dials and waits.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::uri::Authority;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use plimsoll_core::host::{ActiveRequest, ReservedRequest};
use plimsoll_core::rng::{GOLDEN_STEP, splitmix64};
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::upstream::{CircuitBreakers, HttpVersion, UpstreamOptions};
use tokio::sync::watch;

use crate::cluster::status::{ConnectionCounts, DialCounters};
use crate::error::{BoxError, Error, ErrorKind};
use crate::request::body::RequestBody;
use crate::request::destination::OpenBreaker;
use crate::upstream::backoff::ConnectBackoff;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::connection::{ConnectionLimits, ConnectionState};
use crate::upstream::hint::hint;
use crate::upstream::normalize::{self, ConnectionForm};
use crate::upstream::pool::{HttpConnection, Pool, Tasks};

mod acquire;

use acquire::FailedDial;

/// Attempts to send a request on pooled connections that turn out to be closed, before giving up.
const MAX_STALE_CONNECTIONS: u32 = 8;

#[derive(Debug)]
pub(crate) struct Endpoint {
    target: DialTarget,
    options: Arc<UpstreamOptions>,
    dialer: Arc<Dialer>,
    limits: Arc<ConnectionLimits>,
    connection_count: Arc<AtomicU32>,
    failed_dial: OnceLock<watch::Sender<Option<FailedDial>>>,
    dialed: Arc<DialCounters>,
    backoff: ConnectBackoff,
    draws: AtomicU64,
    tasks: Arc<Tasks>,
    pools: Box<[Pool]>,
}

#[derive(Clone, Debug)]
pub(crate) struct EndpointContext {
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) limits: Arc<ConnectionLimits>,
    pub(crate) pools: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendContext<'a> {
    pub(crate) pool: usize,
    pub(crate) breakers: &'a CircuitBreakers,
    /// Authority for requests that have none.
    pub(crate) authority: &'a Authority,
    /// The request must not go out in plain text.
    pub(crate) needs_tls: bool,
    pub(crate) now: Instant,
}

#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one: boxing it would allocate per request"
)]
pub(crate) enum SendOutcome {
    Response {
        response: Response<Incoming>,
        active: ActiveRequest,
        sent_at: Instant,
        lease: Lease,
    },
    /// The host has not seen the request, which is back in the caller's `slot`.
    Unsent(Error),
    /// The host says that it has not processed the request.
    Refused(Error),
    Failed(Error),
}

impl Endpoint {
    pub(crate) fn new(target: DialTarget, context: EndpointContext) -> Self {
        let port = target.addresses.first().map_or(0, SocketAddr::port);
        Self {
            target,
            pools: (0..context.pools.max(1)).map(|_| Pool::default()).collect(),
            options: context.options,
            dialer: context.dialer,
            limits: context.limits,
            connection_count: Arc::default(),
            failed_dial: OnceLock::new(),
            dialed: Arc::default(),
            backoff: ConnectBackoff::default(),
            draws: AtomicU64::new(u64::from(port)),
            tasks: Arc::default(),
        }
    }

    /// Takes over the dial counters of `before`, which this endpoint replaces.
    pub(crate) fn with_counters_of(mut self, before: &Self) -> Self {
        self.dialed = Arc::clone(&before.dialed);
        self
    }

    pub(crate) fn dials_same(&self, target: &DialTarget, dialer: &Arc<Dialer>) -> bool {
        Arc::ptr_eq(&self.dialer, dialer)
            && self.target.addresses == target.addresses
            && self.target.hostname == target.hostname
    }

    pub(crate) fn connection_counts(&self) -> ConnectionCounts {
        self.dialed
            .counts(self.connection_count.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_in_backoff(&self) -> bool {
        self.backoff.is_active(|| Clock::system().now())
    }

    pub(crate) fn limits(&self) -> &Arc<ConnectionLimits> {
        &self.limits
    }

    /// Closes all connections, including those with requests in flight.
    pub(crate) fn close_connections(&self) {
        for pool in &self.pools {
            pool.clear();
        }
        self.tasks.abort();
    }

    pub(crate) fn remove_expired(&self, now: Instant) {
        for pool in &self.pools {
            pool.remove_expired(&self.options, now);
        }
    }

    pub(crate) async fn preconnect(self: &Arc<Self>, breakers: &CircuitBreakers) {
        if self.connection_count.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(permit) = self
            .limits
            .try_acquire_connection(&self.connection_count, breakers)
            && let Ok(connection) = self.connect(None, &self.dialing(permit)).await
        {
            self.pools[0].put(connection);
        }
    }

    /// Sends the request in `slot`, and counts it as issued once it is handed to a connection.
    pub(crate) async fn send(
        self: &Arc<Self>,
        slot: &mut Option<Request<RequestBody>>,
        mut reserved: ReservedRequest,
        context: SendContext<'_>,
    ) -> SendOutcome {
        let Some(request) = slot else {
            return SendOutcome::Failed(missing_request());
        };
        if context.needs_tls && self.options.tls.is_none() {
            return SendOutcome::Unsent(self.needs_tls());
        }
        let index = context.pool % self.pools.len();
        let name = self.server_name(request);
        let form = ConnectionForm {
            http2: self.options.http_version == HttpVersion::Http2,
            tls: self.options.tls.is_some(),
            authority: context.authority,
        };
        normalize::normalize(request, form);
        self.limits.ask_for_load_report(request.headers_mut());
        let mut stale = 0;
        let mut sent_at = context.now;
        loop {
            let found = self.pools[index].checkout(name.as_ref(), &self.options, context.now);
            let mut connection = match found {
                Some(connection) => connection,
                // Boxed: this large future is rare and would otherwise grow that of every request.
                None => {
                    match Box::pin(self.wait_for_connection(index, name.as_ref(), context)).await {
                        Ok(connection) => {
                            sent_at = Clock::system().now();
                            connection
                        }
                        Err(error) => return SendOutcome::Unsent(error),
                    }
                }
            };
            let Some(request) = slot.take() else {
                return SendOutcome::Failed(missing_request());
            };
            let active = reserved.issue();
            connection.state.begin_request();
            self.limits.stats.upstream_rq_total.increment();
            let lease = Lease::new(self, index, &connection.state);
            let is_first = connection.state.is_first_request();
            let error = match connection.try_send(request).await {
                Ok(response) => {
                    let lease = lease.with(connection);
                    return SendOutcome::Response {
                        response,
                        active,
                        sent_at,
                        lease,
                    };
                }
                Err(error) => error,
            };
            match self.classify_error(slot, active, error, is_first) {
                // The pooled connection had been closed meanwhile: try another one.
                (SendOutcome::Unsent(_), Some(host)) if stale < MAX_STALE_CONNECTIONS => {
                    stale += 1;
                    reserved = host.reserve_request();
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// Whether the host can have seen the request. If not, also returns the host to try again.
    fn classify_error(
        &self,
        slot: &mut Option<Request<RequestBody>>,
        active: ActiveRequest,
        mut error: TrySendError<Request<RequestBody>>,
        is_first: bool,
    ) -> (SendOutcome, Option<Arc<plimsoll_core::host::Host>>) {
        let message = error.take_message();
        let error = error.into_error();
        let unseen = message.is_some() || is_refused(&error);
        match message {
            Some(request) => {
                let host = Arc::clone(active.host());
                active.withdraw();
                *slot = Some(request);
                (SendOutcome::Unsent(self.connect_error(error)), Some(host))
            }
            None if unseen => {
                active.withdraw();
                let text = format!("{self} refused the request");
                let error = self.error(ErrorKind::Refused, text).with_source(error);
                (SendOutcome::Refused(error), None)
            }
            // Dropping `active` counts the request as failed.
            None => {
                let mut text = format!("connection to {self} failed");
                if let Some(hint) = hint(&error, &self.options, is_first) {
                    text = format!("{text}; {hint}");
                }
                let error = self.error(ErrorKind::Transport, text).with_source(error);
                (SendOutcome::Failed(error), None)
            }
        }
    }

    fn server_name(&self, request: &Request<RequestBody>) -> Option<Arc<str>> {
        if !self.options.auto_sni || self.options.tls.is_none() {
            return None;
        }
        let authority: Authority = normalize::authority_of(request)?.parse().ok()?;
        Some(authority.host().into())
    }

    #[cold]
    fn needs_tls(&self) -> Error {
        let cluster = self.cluster_name().unwrap_or_default();
        let message = format!(
            "the scheme of the request is https, but cluster {cluster} has no TLS: \
             set Cluster::tls, or transport_socket of the cluster"
        );
        self.error(ErrorKind::Config, message)
    }

    fn connect_error(&self, source: impl Into<BoxError>) -> Error {
        let message = format!("cannot connect to {self}");
        self.error(ErrorKind::Connect, message).with_source(source)
    }

    fn pending_overflow(&self, limit: u32) -> Error {
        let breaker = OpenBreaker {
            name: "max_pending_requests",
            current: self.limits.pending(),
            limit,
        };
        let cluster = self.cluster_name().unwrap_or_default();
        self.located(breaker.error(&cluster, &self.limits))
    }

    fn error(&self, kind: ErrorKind, message: String) -> Error {
        self.located(Error::new(kind, message))
    }

    /// Adds cluster and address to an error.
    fn located(&self, error: Error) -> Error {
        let error = error.with_address(self.target.addresses.first().copied());
        match self.cluster_name() {
            Some(cluster) => error.with_cluster(&cluster),
            None => error,
        }
    }

    /// Name of the cluster; `None` for health checks and out-of-band streams.
    fn cluster_name(&self) -> Option<Arc<str>> {
        let config = self.limits.config.load();
        config.as_ref().map(|config| Arc::clone(config.name()))
    }
}

/// The host in errors: its address and cluster.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target.addresses.first() {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("unknown address")?,
        }
        match self.cluster_name() {
            Some(cluster) => write!(f, " of cluster {cluster}"),
            None => Ok(()),
        }
    }
}

fn missing_request() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the request was already sent by an earlier attempt",
    )
}

/// Whether the server says that it has not processed the request: it refused the stream, or sent
/// GOAWAY(NO_ERROR) before processing it (RFC 9113 §8.7).
fn is_refused(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    let Some(error) = source.and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let reason = error.reason();
    error.is_remote()
        && ((error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
            || (error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)))
}

/// Returns the next number of a SplitMix64 generator that many tasks share.
pub(crate) fn next_draw(state: &AtomicU64) -> u64 {
    splitmix64(state.fetch_add(GOLDEN_STEP, Ordering::Relaxed))
}

/// A connection in use by one request. HTTP/1.1: closed unless the response was read to its end.
pub(crate) struct Lease {
    endpoint: Arc<Endpoint>,
    pool: usize,
    state: Arc<ConnectionState>,
    connection: Option<HttpConnection>,
    ended: bool,
}

impl Lease {
    fn new(endpoint: &Arc<Endpoint>, pool: usize, state: &Arc<ConnectionState>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            pool,
            state: Arc::clone(state),
            connection: None,
            ended: false,
        }
    }

    fn with(mut self, connection: HttpConnection) -> Self {
        if !connection.is_shared() {
            self.connection = Some(connection);
        }
        self
    }

    pub(crate) const fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    pub(crate) const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether the connection serves only this request (HTTP/1.1).
    pub(crate) const fn is_exclusive(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns the connection to the pool if the response was read to its end (`complete`).
    pub(crate) fn end(mut self, complete: bool, now: Instant) {
        self.ended = true;
        self.state.end_request(now);
        let Some(connection) = self.connection.take_if(|_| complete) else {
            return;
        };
        if self.state.is_expired(&self.endpoint.options, now) {
            return;
        }
        let (endpoint, pool) = (Arc::clone(&self.endpoint), self.pool);
        if connection.is_ready() {
            endpoint.pools[pool].put(connection);
            return;
        }
        // The connection task sees the end of the message slightly later than this task, and the
        // request body may still be in flight after an early response.
        tokio::spawn(async move {
            if let Some(connection) = connection.ready().await {
                endpoint.pools[pool].put(connection);
            }
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            self.state.end_request(Clock::system().now());
        }
    }
}

#[cfg(test)]
mod tests;
