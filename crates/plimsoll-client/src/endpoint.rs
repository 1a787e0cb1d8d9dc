//! [`Endpoint`]: the connections to one host.
//!
//! HTTP/2: one connection per pool that all requests share, dialled when first needed and again
//! when it is lost. HTTP/1.1: idle connections per pool, one more dialled when there is none. Which
//! host a request goes to is decided before it comes here. A pool belongs to one runtime, so that a
//! proxy with a runtime per core never wakes another core.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use crossbeam_queue::ArrayQueue;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll_core::host::{ActiveRequest, ReservedRequest};
use tokio::net::TcpStream;
use tokio::sync::Mutex as AsyncMutex;

use crate::body::RequestBody;
use crate::error::{BoxError, Error, ErrorKind};
use plimsoll_xds::upstream::{HttpVersion, UpstreamOptions};

/// Idle HTTP/1.1 connections that are kept per host and pool.
const IDLE: usize = 256;

/// The connections to one host.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    options: Arc<UpstreamOptions>,
    pools: Box<[Pool]>,
}

#[derive(Debug)]
struct Pool {
    http2: ArcSwapOption<http2::SendRequest<RequestBody>>,
    /// Held while dialling HTTP/2, so that a burst makes one connection.
    dialling: AsyncMutex<()>,
    idle: ArrayQueue<http1::SendRequest<RequestBody>>,
}

/// What became of a request on a connection.
pub(crate) enum Sent {
    /// Response headers arrived.
    Response {
        response: Response<Incoming>,
        active: ActiveRequest,
        lease: Option<Lease>,
    },
    /// The host has not seen it: here it is again.
    Unsent(Request<RequestBody>, Error),
    /// It may have been seen.
    Failed(Error),
}

/// An HTTP/1.1 connection in use; back to the idle ones when the response was read to its end.
pub(crate) struct Lease {
    endpoint: Arc<Endpoint>,
    pool: usize,
    connection: http1::SendRequest<RequestBody>,
}

impl Endpoint {
    /// No connection yet.
    pub(crate) fn new(address: SocketAddr, options: Arc<UpstreamOptions>, pools: usize) -> Self {
        let pool = || Pool {
            http2: ArcSwapOption::empty(),
            dialling: AsyncMutex::new(()),
            idle: ArrayQueue::new(IDLE),
        };
        Self {
            address,
            pools: (0..pools.max(1)).map(|_| pool()).collect(),
            options,
        }
    }

    /// Sends a request, and counts it as issued when it is on its way.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        reserved: ReservedRequest,
        pool: usize,
    ) -> Sent {
        let pool = pool % self.pools.len();
        match self.options.http_version {
            HttpVersion::Http2 => self.send_http2(request, reserved, pool).await,
            HttpVersion::Http1 => self.send_http1(request, reserved, pool).await,
        }
    }

    async fn send_http2(
        &self,
        request: Request<RequestBody>,
        reserved: ReservedRequest,
        pool: usize,
    ) -> Sent {
        let mut connection = match self.http2_connection(&self.pools[pool]).await {
            Ok(connection) => connection,
            Err(error) => return Sent::Unsent(request, error),
        };
        let active = reserved.issue();
        match connection.try_send_request(request).await {
            Ok(response) => Sent::Response {
                response,
                active,
                lease: None,
            },
            Err(error) => self.not_sent(active, error),
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        reserved: ReservedRequest,
        pool: usize,
    ) -> Sent {
        let mut connection = match self.http1_connection(&self.pools[pool]).await {
            Ok(connection) => connection,
            Err(error) => return Sent::Unsent(request, error),
        };
        let active = reserved.issue();
        match connection.try_send_request(request).await {
            Ok(response) => Sent::Response {
                response,
                active,
                lease: Some(Lease {
                    endpoint: Arc::clone(self),
                    pool,
                    connection,
                }),
            },
            Err(error) => self.not_sent(active, error),
        }
    }

    fn not_sent(
        &self,
        active: ActiveRequest,
        mut error: hyper::client::conn::TrySendError<Request<RequestBody>>,
    ) -> Sent {
        match error.take_message() {
            Some(request) => {
                active.withdraw();
                Sent::Unsent(request, Error::connect(self.address, error.into_error()))
            }
            // Dropping what is active counts it as failed.
            None => {
                let message = format!("the connection to {} failed", self.address);
                let error = Error::new(ErrorKind::Transport, message).because(error.into_error());
                Sent::Failed(error)
            }
        }
    }

    async fn http2_connection(
        &self,
        pool: &Pool,
    ) -> Result<http2::SendRequest<RequestBody>, Error> {
        if let Some(connection) = pool.live_http2() {
            return Ok(connection);
        }
        let _dialling = pool.dialling.lock().await;
        // Somebody else may have dialled meanwhile.
        if let Some(connection) = pool.live_http2() {
            return Ok(connection);
        }
        let stream = self.dial().await?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| self.refused(error))?;
        let address = self.address;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(host = %address, %error, "connection ended");
            }
        });
        pool.http2.store(Some(Arc::new(sender.clone())));
        Ok(sender)
    }

    async fn http1_connection(
        &self,
        pool: &Pool,
    ) -> Result<http1::SendRequest<RequestBody>, Error> {
        while let Some(connection) = pool.idle.pop() {
            if connection.is_ready() {
                return Ok(connection);
            }
        }
        let stream = self.dial().await?;
        let handshake = http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| self.refused(error))?;
        let address = self.address;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(host = %address, %error, "connection ended");
            }
        });
        Ok(sender)
    }

    async fn dial(&self) -> Result<TcpStream, Error> {
        let dialled = tokio::time::timeout(
            self.options.connect_timeout,
            TcpStream::connect(self.address),
        );
        let stream = match dialled.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.refused(error)),
            Err(_) => return Err(self.refused("timed out")),
        };
        // Small requests must not wait for more to send.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn refused(&self, source: impl Into<BoxError>) -> Error {
        Error::connect(self.address, source)
    }
}

impl Pool {
    fn live_http2(&self) -> Option<http2::SendRequest<RequestBody>> {
        let connection = self.http2.load();
        let connection = connection.as_ref()?;
        (!connection.is_closed()).then(|| http2::SendRequest::clone(connection))
    }

    fn keep(&self, connection: http1::SendRequest<RequestBody>) {
        // More than are kept are closed.
        drop(self.idle.push(connection));
    }
}

impl Lease {
    /// The response was read to its end: the connection can be used again once it is ready.
    pub(crate) fn give_back(mut self) {
        if self.connection.is_ready() {
            self.endpoint.pools[self.pool].keep(self.connection);
            return;
        }
        // The connection task reads the end of the message a moment later than we do.
        tokio::spawn(async move {
            if self.connection.ready().await.is_ok() {
                self.endpoint.pools[self.pool].keep(self.connection);
            }
        });
    }
}
