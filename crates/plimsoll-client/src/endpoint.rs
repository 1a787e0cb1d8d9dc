//! [`Endpoint`]: the connections to one host, and sending requests on them.
//!
//! HTTP/2: one connection per pool that all requests share, a further one when it is full.
//! HTTP/1.1: idle connections per pool; one more is dialled when there is none, and when there may
//! be none more, requests wait for one in the order of their arrival. A pool belongs to one
//! runtime, so that a proxy with a runtime per core never wakes another core. Which host a request
//! goes to is decided before it comes here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::uri::Authority;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use plimsoll_core::host::{ActiveRequest, ReservedRequest};
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::upstream::{CircuitBreakers, HttpVersion, UpstreamOptions};
use tokio::sync::oneshot;

use crate::backoff::ConnectBackoff;
use crate::body::RequestBody;
use crate::cluster_status::{ConnectionCounts, Dialled};
use crate::connect::{Callee, Dialer};
use crate::connection::{Connection, Limits, Slot};
use crate::error::{BoxError, Error, ErrorKind};
use crate::pool::{Channel, Pool, Tasks};
use crate::request_form::{self, Form};

/// Connections that turn out to be closed while a request is put onto them, before it is given
/// back.
const STALE: u32 = 8;

/// The connections to one host.
#[derive(Debug)]
pub(crate) struct Endpoint {
    callee: Callee,
    options: Arc<UpstreamOptions>,
    dialer: Arc<Dialer>,
    limits: Arc<Limits>,
    /// Connections to this host.
    connections: Arc<AtomicU32>,
    dialled: Arc<Dialled>,
    backoff: ConnectBackoff,
    draws: AtomicU64,
    /// What runs the connections.
    tasks: Arc<Tasks>,
    pools: Box<[Pool]>,
}

/// What endpoints of one cluster have in common.
#[derive(Clone, Debug)]
pub(crate) struct EndpointContext {
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) pools: usize,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending<'a> {
    pub(crate) pool: usize,
    pub(crate) breakers: &'a CircuitBreakers,
    /// For requests that name no host.
    pub(crate) authority: &'a Authority,
    pub(crate) now: Instant,
}

/// What became of a request on a connection.
pub(crate) enum Sent {
    /// Response headers arrived.
    Response {
        response: Response<Incoming>,
        active: ActiveRequest,
        /// When it was put onto its connection.
        issued_at: Instant,
        lease: Lease,
    },
    /// The host has not seen it, and it is back in its place.
    Unsent(Error),
    /// The host says that it has not processed it.
    Refused(Error),
    /// It may have been seen.
    Failed(Error),
}

impl Endpoint {
    /// No connection yet. `addresses` are the host's, the one of the assignment first.
    pub(crate) fn new(
        addresses: Arc<[SocketAddr]>,
        hostname: Arc<str>,
        context: EndpointContext,
    ) -> Self {
        let port = addresses.first().map_or(0, SocketAddr::port);
        Self {
            callee: Callee {
                addresses,
                hostname,
                server_name: None,
            },
            pools: (0..context.pools.max(1)).map(|_| Pool::default()).collect(),
            options: context.options,
            dialer: context.dialer,
            limits: context.limits,
            connections: Arc::default(),
            dialled: Arc::default(),
            backoff: ConnectBackoff::default(),
            draws: AtomicU64::new(u64::from(port)),
            tasks: Arc::default(),
        }
    }

    /// Goes on counting where `before`, which it replaces, has stopped.
    pub(crate) fn succeeding(mut self, before: &Self) -> Self {
        self.dialled = Arc::clone(&before.dialled);
        self
    }

    /// Its connections now and so far.
    pub(crate) fn connection_counts(&self) -> ConnectionCounts {
        self.dialled
            .counts(self.connections.load(Ordering::Relaxed))
    }

    /// The address in the assignment.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.callee.addresses.first().copied()
    }

    /// Name of the host in the assignment, may be empty.
    pub(crate) const fn hostname(&self) -> &Arc<str> {
        &self.callee.hostname
    }

    /// Whether the host could not be reached a moment ago.
    #[inline]
    pub(crate) fn is_in_backoff(&self) -> bool {
        self.backoff.is_active(|| Clock::system().now())
    }

    /// What all connections of the cluster share.
    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Ends all connections, those with requests on them too.
    pub(crate) fn close_connections(&self) {
        for pool in &self.pools {
            pool.clear();
        }
        self.tasks.abort();
    }

    /// Lets go of connections that are too old or idle for too long.
    pub(crate) fn sweep(&self, now: Instant) {
        for pool in &self.pools {
            pool.sweep(&self.options, now);
        }
    }

    /// Opens a connection, if there is none.
    pub(crate) async fn preconnect(self: &Arc<Self>, breakers: &CircuitBreakers) {
        if self.connections.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(slot) = self.limits.connect(&self.connections, breakers)
            && let Ok(channel) = self.dial(0, None, slot).await
        {
            self.pools[0].keep(channel);
        }
    }

    /// Sends the request in `place`, and counts it as issued when it is on its way.
    pub(crate) async fn send(
        self: &Arc<Self>,
        place: &mut Option<Request<RequestBody>>,
        mut reserved: ReservedRequest,
        sending: Sending<'_>,
    ) -> Sent {
        let Some(request) = place else {
            return Sent::Failed(gone());
        };
        let index = sending.pool % self.pools.len();
        let name = self.server_name(request);
        let form = Form {
            http2: self.options.http_version == HttpVersion::Http2,
            tls: self.options.tls.is_some(),
            authority: sending.authority,
        };
        request_form::shape(request, form);
        let mut stale = 0;
        let mut issued_at = sending.now;
        loop {
            let found = self.pools[index].find(name.as_ref(), &self.options, sending.now);
            let mut channel = match found {
                Some(channel) => channel,
                // Rare, and a large future: in a box it costs the others nothing.
                None => match Box::pin(self.channel(index, name.as_ref(), sending)).await {
                    Ok(channel) => {
                        issued_at = Clock::system().now();
                        channel
                    }
                    Err(error) => return Sent::Unsent(error),
                },
            };
            let Some(request) = place.take() else {
                return Sent::Failed(gone());
            };
            let active = reserved.issue();
            channel.connection.begin_request();
            self.limits.stats.upstream_rq_total.increment();
            let lease = Lease::new(self, index, &channel.connection);
            let error = match channel.try_send(request).await {
                Ok(response) => {
                    let lease = lease.with(channel);
                    return Sent::Response {
                        response,
                        active,
                        issued_at,
                        lease,
                    };
                }
                Err(error) => error,
            };
            match self.not_sent(place, active, error) {
                // The connection had ended, as idle ones do: there may be a better one.
                (Sent::Unsent(_), Some(host)) if stale < STALE => {
                    stale += 1;
                    reserved = host.reserve_request();
                }
                (sent, _) => return sent,
            }
        }
    }

    /// What an error means: was it sent? If it was not, the host it was meant for comes along.
    fn not_sent(
        &self,
        place: &mut Option<Request<RequestBody>>,
        active: ActiveRequest,
        mut error: TrySendError<Request<RequestBody>>,
    ) -> (Sent, Option<Arc<plimsoll_core::host::Host>>) {
        let message = error.take_message();
        let error = error.into_error();
        let unseen = message.is_some() || is_refused(&error);
        let address = self.name();
        match message {
            Some(request) => {
                let host = Arc::clone(active.host());
                active.withdraw();
                *place = Some(request);
                (Sent::Unsent(self.refused(error)), Some(host))
            }
            None if unseen => {
                active.withdraw();
                let text = format!("{address} refused the request");
                let error = Error::new(ErrorKind::Refused, text).because(error);
                (Sent::Refused(error), None)
            }
            // Dropping what is active counts it as failed.
            None => {
                let text = format!("the connection to {address} failed");
                let error = Error::new(ErrorKind::Transport, text).because(error);
                (Sent::Failed(error), None)
            }
        }
    }

    /// Waits for a connection with room for a request, when there is none.
    async fn channel(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        sending: Sending<'_>,
    ) -> Result<Channel, Error> {
        let stats = &self.limits.stats;
        stats.upstream_rq_pending_total.increment();
        let Some(_pending) = self.limits.wait(sending.breakers) else {
            stats.upstream_rq_pending_overflow.increment();
            let message = format!("too many requests wait for a connection to {}", self.name());
            return Err(Error::new(ErrorKind::Overflow, message));
        };
        match self.options.http_version {
            HttpVersion::Http1 => self.wait_for_http1(index, name, sending).await,
            HttpVersion::Http2 => self.wait_for_http2(index, name, sending).await,
        }
    }

    async fn wait_for_http1(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        sending: Sending<'_>,
    ) -> Result<Channel, Error> {
        let pool = &self.pools[index];
        loop {
            if let Some(slot) = self.limits.connect(&self.connections, sending.breakers) {
                return self.dial(index, name.cloned(), slot).await;
            }
            let mut turn = pool.queue();
            // Since we looked, a connection or the right to one may have become free.
            let freed = self.limits.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(channel) = pool.find(name, &self.options, sending.now) {
                return Ok(channel);
            }
            if self.limits.connections() < u64::from(sending.breakers.max_connections) {
                continue;
            }
            tokio::select! {
                channel = turn.come() => {
                    if let Some(channel) = channel
                        && channel.is_usable(name, &self.options, sending.now)
                    {
                        return Ok(channel);
                    }
                }
                () = freed => {}
            }
        }
    }

    async fn wait_for_http2(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        sending: Sending<'_>,
    ) -> Result<Channel, Error> {
        let pool = &self.pools[index];
        let since = Clock::system().now();
        let _dialling = pool.dialling.lock().await;
        loop {
            // Somebody else may have dialled meanwhile, with more or with less success.
            if let Some(channel) = pool.find(name, &self.options, sending.now) {
                return Ok(channel);
            }
            if self.backoff.failed_since(since) {
                return Err(self.refused("it failed for another request a moment ago"));
            }
            if let Some(slot) = self.limits.connect(&self.connections, sending.breakers) {
                let channel = self.dial(index, name.cloned(), slot).await?;
                return Ok(channel);
            }
            if let Some(channel) = pool.find_full(name) {
                return Ok(channel);
            }
            self.limits.freed.notified().await;
        }
    }

    /// Opens a connection, in a task of its own: who asked for it may lose patience, and the next
    /// one will be glad of it.
    async fn dial(
        self: &Arc<Self>,
        index: usize,
        name: Option<Arc<str>>,
        slot: Slot,
    ) -> Result<Channel, Error> {
        let (sender, receiver) = oneshot::channel();
        let endpoint = Arc::clone(self);
        tokio::spawn(async move {
            let dialled = endpoint.connect(name, slot).await;
            let shared = dialled.as_ref().ok().and_then(Channel::share);
            if let Some(shared) = shared {
                endpoint.pools[index].keep(shared);
            }
            if let Err(Ok(unused)) = sender.send(dialled)
                && unused.share().is_none()
            {
                endpoint.pools[index].keep(unused);
            }
        });
        let gone = |_| self.refused("the runtime is shutting down");
        receiver.await.map_err(gone)?
    }

    async fn connect(&self, name: Option<Arc<str>>, slot: Slot) -> Result<Channel, Error> {
        let stats = &self.limits.stats;
        stats.upstream_cx_total.increment();
        self.dialled.total.increment();
        let version = self.options.http_version;
        let callee = Callee {
            server_name: name.clone(),
            ..self.callee.clone()
        };
        let dialled = self.dialer.dial(&callee, version).await;
        let timed_out = dialled.as_ref().is_err_and(|error| error.timed_out);
        let opened = match dialled {
            Err(error) => Err(error.source),
            Ok(socket) => {
                let connection = Connection::new(name, slot, Clock::system().now());
                Channel::open(socket, Arc::new(connection), &self.options, &self.tasks).await
            }
        };
        match opened {
            Ok(channel) => {
                self.backoff.handle_success();
                Ok(channel)
            }
            Err(source) => {
                stats.upstream_cx_connect_fail.increment();
                self.dialled.connect_fail.increment();
                if timed_out {
                    stats.upstream_cx_connect_timeout.increment();
                }
                let draw = next_draw(&self.draws);
                self.backoff.handle_failure(draw, Clock::system().now());
                Err(self.refused(source))
            }
        }
    }

    /// The server name that this request decides, if requests do.
    fn server_name(&self, request: &Request<RequestBody>) -> Option<Arc<str>> {
        if !self.options.auto_sni || self.options.tls.is_none() {
            return None;
        }
        let authority: Authority = request_form::authority_of(request)?.parse().ok()?;
        Some(authority.host().into())
    }

    fn refused(&self, source: impl Into<BoxError>) -> Error {
        let message = format!("no connection to {}", self.name());
        Error::new(ErrorKind::Connect, message).because(source)
    }

    fn name(&self) -> String {
        let address = self.address();
        address.map_or_else(|| "nobody".into(), |address| address.to_string())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the request is gone")
}

/// Whether the server says that it has not processed the request: it refused the stream, or went
/// away in peace before it came to it (RFC 9113 §8.7).
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

/// A number that differs from all others of this generator in all bits (SplitMix64).
pub(crate) fn next_draw(state: &AtomicU64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut draw = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    draw ^ (draw >> 31)
}

/// A connection in use by one request. HTTP/1.1: back to the idle ones when the response was read
/// to its end, and closed otherwise.
pub(crate) struct Lease {
    endpoint: Arc<Endpoint>,
    pool: usize,
    connection: Arc<Connection>,
    channel: Option<Channel>,
    ended: bool,
}

impl Lease {
    fn new(endpoint: &Arc<Endpoint>, pool: usize, connection: &Arc<Connection>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            pool,
            connection: Arc::clone(connection),
            channel: None,
            ended: false,
        }
    }

    /// The connection is the request's alone, unless it can be shared.
    fn with(mut self, channel: Channel) -> Self {
        if !channel.is_shared() {
            self.channel = Some(channel);
        }
        self
    }

    /// What the request runs on.
    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The host's connections.
    pub(crate) const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether nobody else uses the connection.
    pub(crate) const fn is_exclusive(&self) -> bool {
        self.channel.is_some()
    }

    /// The request has ended; `complete`: its response was read to the end.
    pub(crate) fn end(mut self, complete: bool, now: Instant) {
        self.ended = true;
        self.connection.end_request(now);
        let Some(channel) = self.channel.take_if(|_| complete) else {
            return;
        };
        if self.connection.is_spent(&self.endpoint.options, now) {
            return;
        }
        let (endpoint, pool) = (Arc::clone(&self.endpoint), self.pool);
        if channel.is_ready() {
            endpoint.pools[pool].keep(channel);
            return;
        }
        // The connection task reads the end of the message a moment later than we do; and the
        // request may still be on its way when the response was early.
        tokio::spawn(async move {
            if let Some(channel) = channel.ready().await {
                endpoint.pools[pool].keep(channel);
            }
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.end_request(Clock::system().now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ() {
        let state = AtomicU64::new(0);
        let draws: std::collections::BTreeSet<u64> = (0..100).map(|_| next_draw(&state)).collect();
        assert_eq!(draws.len(), 100);
    }
}
