//! [`Incoming`]: connections of a listener that are ready to be served, after the TLS handshake.
//!
//! A task accepts connections and starts their handshakes, so that a slow client delays nobody
//! else. `accept` has the limits, `tls` the certificates.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use plimsoll_core::log_line;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::accept::{Acceptor, ConnectionLimits, ConnectionPermit, ConnectionStats, LogLimit};
use crate::handshake::{FailedHandshake, HandshakeFailure};
use crate::identity::{PeerIdentity, expires};
use crate::log_lines;
use crate::tls::{ServerTls, WatchedTls};

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct IncomingOptions {
    /// Name of the listener in log lines.
    pub name: &'static str,
    pub limits: ConnectionLimits,
    /// Time for the TLS handshake.
    pub handshake_timeout: Duration,
    /// Certificates; `None` serves plain text.
    pub tls: Option<Arc<WatchedTls<ServerTls>>>,
}

/// Connections of a listener. Dropping it closes the listener.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<AcceptedConnection>,
    task: JoinHandle<()>,
}

/// A connection that is ready to be served.
#[derive(Debug)]
pub struct AcceptedConnection {
    pub stream: ServerStream,
    pub peer: SocketAddr,
    /// When the connection was accepted.
    pub since: Instant,
    /// Names in the client's certificate; `None` if it presented none.
    pub identity: Option<Arc<PeerIdentity>>,
    /// When that certificate expires.
    pub certificate_expires: Option<SystemTime>,
}

/// Byte stream of a connection, which counts toward the limits until it is dropped.
#[derive(Debug)]
pub struct ServerStream {
    socket: Socket,
    _permit: ConnectionPermit,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Incoming {
    /// Starts to accept connections.
    pub fn start(
        listener: TcpListener,
        options: IncomingOptions,
        stats: Arc<ConnectionStats>,
    ) -> Self {
        // Handshakes wait here if connections are accepted faster than they are served.
        let (sender, accepted) = mpsc::channel(1);
        let acceptor = Acceptor::new(listener, options.name, options.limits, Arc::clone(&stats));
        Self {
            accepted,
            task: tokio::spawn(accept(acceptor, options, stats, sender)),
        }
    }

    /// Returns the next connection. Cancel safe.
    pub async fn next(&mut self) -> AcceptedConnection {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task runs as long as this value exists.
            None => std::future::pending().await,
        }
    }

    /// Closes the listener before it returns.
    pub async fn close(mut self) {
        self.task.abort();
        // The task was canceled.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    mut acceptor: Acceptor,
    options: IncomingOptions,
    stats: Arc<ConnectionStats>,
    sender: mpsc::Sender<AcceptedConnection>,
) {
    let mut handshakes = JoinSet::new();
    let mut log = LogLimit::default();
    loop {
        tokio::select! {
            (stream, peer, permit) = acceptor.accept() => {
                // Disable Nagle's algorithm: small messages must not wait for more data.
                let _ = stream.set_nodelay(true);
                let (tls, limit) = (options.tls.clone(), options.handshake_timeout);
                let connection = NewConnection { stream, peer, permit, since: Instant::now() };
                let sender = sender.clone();
                handshakes.spawn(async move {
                    let ready = connection.handshake(tls.as_deref(), limit).await?;
                    // The receiver is only gone if the server stops.
                    let _ = sender.send(ready).await;
                    Ok::<(), Unfinished>(())
                });
            }
            Some(done) = handshakes.join_next() => {
                if let Ok(Err(failure)) = done {
                    failure.record(options.name, &stats, &mut log);
                }
            }
        }
    }
}

struct NewConnection {
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    since: Instant,
}

/// A failed handshake; `error` is `None` after a timeout.
struct Unfinished {
    peer: SocketAddr,
    error: Option<io::Error>,
}

impl NewConnection {
    async fn handshake(
        self,
        tls: Option<&WatchedTls<ServerTls>>,
        limit: Duration,
    ) -> Result<AcceptedConnection, Unfinished> {
        let (peer, since) = (self.peer, self.since);
        let (socket, identity, certificate_expires) = match tls {
            None => (Socket::Plain(self.stream), None, None),
            Some(tls) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&tls.current().config));
                let accepting = tokio::time::timeout(limit, acceptor.accept(self.stream));
                let failed = |error| Unfinished { peer, error };
                let accepted = accepting.await.map_err(|_| failed(None))?;
                let stream = accepted.map_err(|error| failed(Some(error)))?;
                let chain = stream.get_ref().1.peer_certificates();
                let identity = chain.and_then(PeerIdentity::of).map(Arc::new);
                let expires = chain.and_then(expires);
                (Socket::Tls(Box::new(stream)), identity, expires)
            }
        };
        Ok(AcceptedConnection {
            stream: ServerStream {
                socket,
                _permit: self.permit,
            },
            peer,
            since,
            identity,
            certificate_expires,
        })
    }
}

impl Unfinished {
    fn record(self, listener: &'static str, stats: &ConnectionStats, log: &mut LogLimit) {
        let peer = self.peer;
        let Some(error) = self.error else {
            stats.record_handshake_timeout(listener, peer);
            return;
        };
        stats.record_handshake_failure(FailedHandshake {
            at: Instant::now(),
            peer: peer.ip(),
            failure: HandshakeFailure::of(&error),
            error: error.to_string(),
        });
        if let Some(suppressed) = log.allow(Instant::now()) {
            log_line!(log_lines::TLS_HANDSHAKE_FAILED, listener, %peer, %error, suppressed);
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Socket::Tls(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Socket::Tls(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Socket::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
        }
    }
}

impl ServerStream {
    /// Returns the TCP socket, for its options.
    pub fn tcp(&self) -> &TcpStream {
        match &self.socket {
            Socket::Plain(socket) => socket,
            Socket::Tls(socket) => socket.get_ref().0,
        }
    }
}

#[cfg(test)]
mod tests;
