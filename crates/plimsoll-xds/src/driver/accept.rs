//! [`Accept`]: where a server gets its connections from.
//!
//! This crate knows neither certificates nor limits of connections; a program that needs them
//! passes its own [`Accept`] to [`serve`](super::serve).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tonic::transport::server::Connected;

use super::connector::Socket;

/// Pause after an error of `accept`. Out of descriptors, the next attempt would fail as well.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Source of the connections of a server.
pub trait Accept: Send + 'static {
    /// Returns the next connection. The future may be dropped and created again.
    fn accept(&mut self) -> impl Future<Output = Connection> + Send;
}

/// Connection of a client.
pub struct Connection {
    pub socket: Box<dyn Socket>,
    pub client: ClientInfo,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// Address of a client, and the names in its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    pub peer: Option<SocketAddr>,
    /// Unset without TLS, and if the client presented no certificate.
    pub identity: Option<Arc<ClientIdentity>>,
}

/// Subject alternative names of a verified client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// URIs, such as the SPIFFE ID of a workload.
    pub uris: Vec<String>,
    pub dns_names: Vec<String>,
}

/// Plain TCP without limits.
impl Accept for TcpListener {
    async fn accept(&mut self) -> Connection {
        loop {
            match Self::accept(self).await {
                Ok((stream, peer)) => {
                    // Disable Nagle's algorithm: small messages must not wait for more data.
                    let _ = stream.set_nodelay(true);
                    return Connection {
                        socket: Box::new(stream),
                        client: ClientInfo {
                            peer: Some(peer),
                            identity: None,
                        },
                    };
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
    }
}

/// Adapts a connection to tonic's transport.
pub(super) struct ServerSocket(pub(super) Connection);

impl Connected for ServerSocket {
    type ConnectInfo = ClientInfo;

    fn connect_info(&self) -> ClientInfo {
        self.0.client.clone()
    }
}

impl AsyncRead for ServerSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.socket).poll_write_vectored(cx, bufs)
    }
}
