//! [`XdsIncoming`]: connections of ADS and LRS, within limits and with the identity of the client.
//!
//! plimsoll-serve accepts connections and performs TLS handshakes; `socket` limits the time until
//! the first request and passes the bytes through `frames`; plimsoll-xds serves the streams.

mod authority;
mod frames;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_serve::{ConnectionStats, Incoming};
use plimsoll_xds::driver::{Accept, ClientIdentity, ClientInfo, Connection};

use socket::XdsSocket;

/// Name of the listener of ADS and LRS in log lines.
pub(crate) const LISTENER: &str = "xds";

/// Source of the connections of ADS and LRS.
#[derive(Debug)]
pub(crate) struct XdsIncoming {
    pub(crate) incoming: Incoming,
    /// Time from accepting a connection to its first request.
    pub(crate) handshake_timeout: Duration,
    pub(crate) stats: Arc<ConnectionStats>,
}

impl Accept for XdsIncoming {
    async fn accept(&mut self) -> Connection {
        let accepted = self.incoming.next().await;
        let identity = accepted.identity.map(|identity| {
            Arc::new(ClientIdentity {
                uris: identity.uris.clone(),
                dns_names: identity.dns_names.clone(),
            })
        });
        let deadline = accepted.since + self.handshake_timeout;
        let stats = Arc::clone(&self.stats);
        let socket = XdsSocket::new(accepted.stream, accepted.peer, deadline, stats);
        Connection {
            socket: Box::new(socket),
            client: ClientInfo {
                peer: Some(accepted.peer),
                identity,
            },
        }
    }
}
