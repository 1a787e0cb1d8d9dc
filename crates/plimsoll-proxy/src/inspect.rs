//! Selects the filter chain of a connection by its first bytes, as Envoy's TLS inspector does. Only
//! listeners with several filter chains need it.
//!
//! The first byte tells whether the client speaks TLS; it is peeked at, not read. A `ClientHello`
//! is read once, and the handshake continues with it.

use std::io;
use std::time::Duration;

use plimsoll_core::log_line;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::accept::Accepted;
use crate::filter_chain::{ConnectionProperties, FilterChainSelector, TransportProtocol};
use crate::listener::{self, HANDSHAKE_TIMEOUT, Listener};
use crate::log_lines;

/// First byte of a TLS connection: the content type of a handshake record (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Time that a connection without a filter chain gets when its listener is drained; the same as
/// that of an idle connection.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// A connection whose first bytes have arrived.
enum Inspected {
    Plain(TcpStream),
    Tls(Box<StartHandshake<TcpStream>>),
    /// The connection starts like TLS, but not with a valid `ClientHello`.
    Invalid(io::Error),
}

/// Selects the filter chain of a connection and serves the connection.
pub(crate) async fn serve(stream: TcpStream, accepted: Accepted) {
    let inspection = accepted.inspection();
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let listener = &accepted.listener;
    let inspecting = Box::pin(tokio::time::timeout_at(deadline, inspect(stream)));
    let inspected = tokio::select! {
        inspected = inspecting => inspected,
        () = drained(listener) => return,
    };
    let inspected = match inspected {
        Ok(Ok(Some(inspected))) => inspected,
        // The client closed or reset the connection.
        Ok(Ok(None) | Err(_)) => return,
        Err(_) => {
            listener.stats().downstream_pre_cx_timeout.increment();
            return;
        }
    };
    let Some(chain) = find(&listener.runtime().config.selector, &inspected) else {
        listener.stats().no_filter_chain_match.increment();
        log_line!(log_lines::NO_FILTER_CHAIN, peer = %accepted.peer);
        return;
    };
    let connection = accepted.open(chain);
    drop(inspection);
    match inspected {
        Inspected::Plain(stream) => listener::serve(stream, connection).await,
        Inspected::Tls(hello) => listener::serve_after_hello(hello, deadline, connection).await,
        Inspected::Invalid(error) => listener::record_invalid_hello(&error, &connection),
    }
}

/// Waits until connections of the listener are drained.
async fn drained(listener: &Listener) {
    listener.retired().cancelled().await;
    tokio::time::sleep(DRAIN_GRACE).await;
}

/// Reads the `ClientHello` if the client speaks TLS. Returns `None` at the end of the connection.
async fn inspect(stream: TcpStream) -> io::Result<Option<Inspected>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first != [TLS_HANDSHAKE] {
        return Ok(Some(Inspected::Plain(stream)));
    }
    match LazyConfigAcceptor::new(Acceptor::default(), stream).await {
        Ok(hello) => Ok(Some(Inspected::Tls(Box::new(hello)))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ok(Some(Inspected::Invalid(error)))
        }
        Err(error) => Err(error),
    }
}

fn find(selector: &FilterChainSelector, inspected: &Inspected) -> Option<usize> {
    let Inspected::Tls(hello) = inspected else {
        // As in Envoy, what is no valid `ClientHello` is not TLS.
        return selector.find(&ConnectionProperties::RAW_BUFFER);
    };
    let hello = hello.client_hello();
    selector.find(&ConnectionProperties {
        transport_protocol: TransportProtocol::Tls,
        server_name: hello.server_name().unwrap_or_default(),
        application_protocols: hello.alpn().into_iter().flatten().collect(),
    })
}
