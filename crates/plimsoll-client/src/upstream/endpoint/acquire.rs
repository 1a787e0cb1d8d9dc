//! How a request gets a connection when the pool has none: it dials, joins a dial in progress, or
//! waits at `max_connections`.
//!
//! No request depends on another one being polled: dials are tasks of their own, and what a request
//! was handed and does not take is taken back. Requests that wait while nothing but dials holds
//! permits of the host fail with the first dial that fails, instead of dialing the host again one
//! by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_xds::clock::Clock;
use plimsoll_xds::upstream::{CircuitBreakers, HttpVersion};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::{Endpoint, SendContext, next_draw};
use crate::error::{Error, ErrorKind, SharedSource};
use crate::upstream::connect::DialTarget;
use crate::upstream::connection::{ConnectionPermit, ConnectionState};
use crate::upstream::dial_permits::DialPermit;
use crate::upstream::dials::{Dial, DialResult};
use crate::upstream::hint::hint;
use crate::upstream::pool::HttpConnection;
use crate::upstream::waiting::CLAIM_TIME;

/// A request that waits for a connection or a permit.
struct Wait<'a> {
    name: Option<&'a Arc<str>>,
    /// Dials of the host that fail meanwhile.
    failed: watch::Receiver<Option<FailedDial>>,
    /// Until when it waits while nothing but dials holds permits of the host.
    until: Instant,
}

/// A dial that failed while the host had no open connection.
#[derive(Clone, Debug)]
pub(super) struct FailedDial {
    server_name: Option<Arc<str>>,
    /// The host is silent, whatever the server name.
    timed_out: bool,
    source: SharedSource,
}

/// What a request finds that needs an HTTP/2 connection.
enum Joined {
    Connection(HttpConnection),
    /// The dial that this request has started.
    OwnDial(oneshot::Receiver<Result<HttpConnection, SharedSource>>),
    /// A dial that another request has started.
    Dial(Dial),
    /// No permit for a connection is left.
    Full,
}

impl Endpoint {
    pub(super) async fn wait_for_connection(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        context: SendContext<'_>,
    ) -> Result<HttpConnection, Error> {
        let stats = &self.limits.stats;
        stats.upstream_rq_pending_total.increment();
        // Before a permit is asked for, so that the failure of the dial that has it is not missed.
        let wait = Wait {
            name,
            failed: self.failed_dial().subscribe(),
            until: Instant::now() + self.options.connect_timeout + CLAIM_TIME,
        };
        let Some(_pending) = self.limits.try_acquire_pending(context.breakers) else {
            return Err(self.pending_overflow(context.breakers.max_pending_requests));
        };
        match self.options.http_version {
            HttpVersion::Http1 => self.wait_for_http1(index, wait, context).await,
            HttpVersion::Http2 => self.wait_for_http2(index, wait, context).await,
        }
    }

    async fn wait_for_http1(
        self: &Arc<Self>,
        index: usize,
        mut wait: Wait<'_>,
        context: SendContext<'_>,
    ) -> Result<HttpConnection, Error> {
        let (pool, name) = (&self.pools[index], wait.name);
        let usable =
            |connection: &HttpConnection| connection.is_usable(name, &self.options, context.now);
        loop {
            self.check_dials(&mut wait)?;
            if let Some(permit) = self
                .limits
                .try_acquire_connection(&self.connection_count, context.breakers)
            {
                match self.dial_http1(index, name, permit).await? {
                    Some(connection) => return Ok(connection),
                    // Another request took it, because this one was not polled.
                    None => continue,
                }
            }
            let waiter = pool.enqueue();
            // A connection or permit may have been released before this waiter was enqueued.
            let permit_released = self.limits.permit_released.notified();
            tokio::pin!(permit_released);
            permit_released.as_mut().enable();
            if let Some(connection) = pool.checkout(name, &self.options, context.now) {
                return Ok(connection);
            }
            while !self.may_dial(context.breakers) {
                tokio::select! {
                    connection = waiter.connection() => match connection.filter(usable) {
                        Some(connection) => return Ok(connection),
                        None => break,
                    },
                    () = &mut permit_released => break,
                    Ok(()) = wait.failed.changed() => {
                        wait.failed.mark_changed();
                        break;
                    }
                    // Requests before this one may be held without being polled, also by a runtime
                    // that is not running.
                    () = tokio::time::sleep(CLAIM_TIME) => {
                        pool.take_back_unclaimed();
                        self.limits.dialing.take_back_overdue(Clock::system().now());
                        if !self.may_dial(context.breakers) {
                            self.check_dials(&mut wait)?;
                        }
                    }
                }
            }
        }
    }

    /// Fails a request that waited for nothing but dials: with the one that failed, or because they
    /// take too long together.
    fn check_dials(&self, wait: &mut Wait<'_>) -> Result<(), Error> {
        if wait.failed.has_changed().unwrap_or(false)
            && let Some(failed) = wait.failed.borrow_and_update().clone()
            && (failed.timed_out || failed.server_name.as_ref() == wait.name)
        {
            // This request leaves the permit that it may have been notified of to the next one.
            self.limits.permit_released.notify_one();
            return Err(self.dial_error(failed.source));
        }
        if wait.until <= Instant::now() && self.is_only_dialed() {
            let reason = "other dials to the host hold all permits for longer than connect_timeout";
            return Err(self.connect_error(reason).with_failed_dial());
        }
        Ok(())
    }

    /// Whether dials hold all permits of this host: it has no open connection.
    fn is_only_dialed(&self) -> bool {
        let dials = self.limits.dialing.of_host(&self.connection_count);
        dials > 0 && self.connection_count.load(Ordering::Relaxed) as usize <= dials
    }

    /// Last failed dial, for requests that wait. Allocated for the first request that does, as most
    /// hosts of a large cluster are never used.
    fn failed_dial(&self) -> &watch::Sender<Option<FailedDial>> {
        self.failed_dial.get_or_init(|| watch::channel(None).0)
    }

    /// Whether a permit for another connection may be free; see `try_acquire_connection`.
    fn may_dial(&self, breakers: &CircuitBreakers) -> bool {
        self.connection_count.load(Ordering::Relaxed) == 0
            || self.limits.connections() < u64::from(breakers.max_connections)
    }

    async fn wait_for_http2(
        self: &Arc<Self>,
        index: usize,
        mut wait: Wait<'_>,
        context: SendContext<'_>,
    ) -> Result<HttpConnection, Error> {
        loop {
            self.check_dials(&mut wait)?;
            match self.join_http2(index, wait.name, context) {
                Joined::Connection(connection) => return Ok(connection),
                Joined::OwnDial(dialed) => {
                    let dialed = dialed.await.map_err(|_| self.shutting_down())?;
                    return dialed.map_err(|source| self.dial_error(source));
                }
                Joined::Dial(mut dial) => {
                    let limit = self.options.connect_timeout + CLAIM_TIME;
                    match tokio::time::timeout(limit, dial.ended()).await {
                        Ok(Some(Ok(()))) => {}
                        Ok(Some(Err(source))) => return Err(self.dial_error(source)),
                        Ok(None) => return Err(self.shutting_down()),
                        Err(_) => {
                            self.pools[index].dials.forget(&dial);
                            let reason = "the runtime that dials it is not running";
                            return Err(self.connect_error(reason));
                        }
                    }
                }
                Joined::Full => {
                    self.limits.dialing.take_back_overdue(Clock::system().now());
                    tokio::select! {
                        () = self.limits.permit_released.notified() => {}
                        Ok(()) = wait.failed.changed() => wait.failed.mark_changed(),
                        // A request that was notified may be held without being polled.
                        () = tokio::time::sleep(CLAIM_TIME) => {}
                    }
                }
            }
        }
    }

    /// Finds a connection, or the dial that opens one, or starts it.
    fn join_http2(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        context: SendContext<'_>,
    ) -> Joined {
        let pool = &self.pools[index];
        let mut dials = pool.dials.lock();
        if let Some(dial) = dials.find(name) {
            return Joined::Dial(dial);
        }
        // The dial that this request would have joined may just have ended.
        if let Some(connection) = pool.checkout(name, &self.options, context.now) {
            return Joined::Connection(connection);
        }
        let count = &self.connection_count;
        match self.limits.try_acquire_connection(count, context.breakers) {
            Some(permit) => {
                let result = dials.add(name.cloned());
                let permit = self.dialing(permit);
                Joined::OwnDial(self.dial_http2(index, name.cloned(), permit, result))
            }
            None => match pool.checkout_full(name) {
                Some(connection) => Joined::Connection(connection),
                None => Joined::Full,
            },
        }
    }

    /// Dials in a separate task, which goes on if the request is dropped or not polled: the
    /// connection is in the pool when all that wait for `result` wake.
    fn dial_http2(
        self: &Arc<Self>,
        index: usize,
        name: Option<Arc<str>>,
        permit: DialPermit,
        result: watch::Sender<Option<DialResult>>,
    ) -> oneshot::Receiver<Result<HttpConnection, SharedSource>> {
        let (sender, receiver) = oneshot::channel();
        let endpoint = Arc::clone(self);
        tokio::spawn(async move {
            let dialed = endpoint.connect(name, &permit).await;
            let ended = dialed.as_ref().map(|_| ()).map_err(Arc::clone);
            if let Some(shared) = dialed.as_ref().ok().and_then(HttpConnection::share) {
                endpoint.pools[index].put(shared);
            }
            result.send_replace(Some(ended));
            drop(permit);
            // The request may have been dropped; ignore send errors.
            let _ = sender.send(dialed);
        });
        receiver
    }

    /// Dials in a separate task, so that a request that is dropped or not polled still leaves a
    /// pooled connection. Returns `None` if another request took it meanwhile.
    async fn dial_http1(
        self: &Arc<Self>,
        index: usize,
        name: Option<&Arc<str>>,
        permit: ConnectionPermit,
    ) -> Result<Option<HttpConnection>, Error> {
        let waiter = self.pools[index].wait_for_dial();
        let (sender, receiver) = oneshot::channel();
        let (endpoint, name) = (Arc::clone(self), name.cloned());
        let (place, permit) = (Arc::clone(waiter.place()), self.dialing(permit));
        tokio::spawn(async move {
            let dialed = endpoint.connect(name, &permit).await;
            drop(permit);
            let ended = dialed.map(|connection| endpoint.pools[index].put_for(&place, connection));
            // The request may have been dropped; ignore send errors.
            let _ = sender.send(ended);
        });
        match receiver.await {
            Ok(Ok(())) => Ok(waiter.place().take()),
            Ok(Err(source)) => Err(self.dial_error(source)),
            Err(_) => Err(self.shutting_down()),
        }
    }

    /// Lends a permit to a dial. It is overdue after the connect timeout, which only a runtime that
    /// is not running exceeds.
    pub(super) fn dialing(&self, permit: ConnectionPermit) -> DialPermit {
        let limit = self.options.connect_timeout + CLAIM_TIME;
        let overdue_at = Clock::system().now().saturating_add(limit);
        self.limits.dialing.lend(permit, overdue_at)
    }

    /// Dials. The caller keeps `permit` until those that wait know the result, so that none of them
    /// dials first.
    pub(super) async fn connect(
        &self,
        name: Option<Arc<str>>,
        permit: &DialPermit,
    ) -> Result<HttpConnection, SharedSource> {
        let stats = &self.limits.stats;
        stats.upstream_cx_total.increment();
        self.dialed.total.increment();
        let version = self.options.http_version;
        let target = DialTarget {
            server_name: name.clone(),
            ..self.target.clone()
        };
        let dialed = self.dialer.dial(&target, version).await;
        let timed_out = dialed.as_ref().is_err_and(|error| error.timed_out);
        let opened = match dialed {
            Err(error) => Err(error.source),
            Ok(socket) => match permit.take() {
                Some(permit) => {
                    let state = ConnectionState::new(name.clone(), permit, Clock::system().now());
                    HttpConnection::open(socket, Arc::new(state), &self.options, &self.tasks).await
                }
                None => Err("the runtime that dials was not running".into()),
            },
        };
        match opened {
            Ok(connection) => {
                self.backoff.handle_success();
                Ok(connection)
            }
            Err(source) => {
                stats.upstream_cx_connect_fail.increment();
                self.dialed.connect_fail.increment();
                if timed_out {
                    stats.upstream_cx_connect_timeout.increment();
                }
                let draw = next_draw(&self.draws);
                self.backoff.handle_failure(draw, Clock::system().now());
                let source = SharedSource::from(source);
                if permit.is_lent() && self.is_only_dialed() {
                    self.failed_dial().send_replace(Some(FailedDial {
                        server_name: name,
                        timed_out,
                        source: Arc::clone(&source),
                    }));
                }
                Err(source)
            }
        }
    }

    fn dial_error(&self, source: SharedSource) -> Error {
        let mut message = format!("cannot connect to {self}");
        if let Some(hint) = hint(&*source, &self.options, true) {
            message = format!("{message}; {hint}");
        }
        let error = self.error(ErrorKind::Connect, message);
        error.with_shared_source(source).with_failed_dial()
    }

    fn shutting_down(&self) -> Error {
        self.connect_error("the runtime is shutting down")
    }
}
