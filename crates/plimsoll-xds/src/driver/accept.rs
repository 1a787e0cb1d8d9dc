//! [`Accept`]: where a server gets its connections from.
//!
//! This crate knows neither certificates nor limits of connections; a program that needs them
//! passes its own [`Accept`] to [`serve`](super::serve).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;

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
    /// When the connection ends: the server sends GOAWAY, and streams end with UNAVAILABLE.
    pub ends_at: Option<Instant>,
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

/// Plain TCP without limits; connections live as long as their clients want.
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
                        ends_at: None,
                    };
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
    }
}
