//! [`Silent`]: management servers that do not answer, each in its own way.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::refused_address;

/// Time after which a connection attempt counts as not accepted.
const NOT_ACCEPTED: Duration = Duration::from_millis(50);

/// A server that does not answer.
pub(crate) struct Silent {
    pub(crate) address: SocketAddr,
    /// Keeps the listener, and the connections that fill its backlog.
    _held: Vec<Socket>,
    server: Option<JoinHandle<()>>,
}

impl Silent {
    /// A port that nobody listens on: connections are refused.
    pub(crate) fn refusing() -> Self {
        Self {
            address: refused_address(),
            _held: Vec::new(),
            server: None,
        }
    }

    /// Connections are neither accepted nor refused: the backlog of the listener is full.
    pub(crate) fn never_accepting() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut held = vec![listener];
        while let Ok(stream) = TcpStream::connect_timeout(&address, NOT_ACCEPTED) {
            held.push(stream.into());
        }
        Self {
            address,
            _held: held,
            server: None,
        }
    }

    /// Connections are accepted, and nothing is ever sent.
    pub(crate) async fn never_answering() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut accepted = Vec::new();
            loop {
                accepted.push(listener.accept().await.unwrap());
            }
        });
        Self {
            address,
            _held: Vec::new(),
            server: Some(server),
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}
