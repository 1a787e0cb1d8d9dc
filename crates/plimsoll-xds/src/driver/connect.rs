//! Reconnecting gRPC stream with failover between management servers.
//!
//! Dials, reads and waits; the client drivers run their state machines beside it. The backoff is
//! reset by the first message that arrives. The driver decides when to fail over to the next
//! server; a preferred server is used again once it has answered on a stream (gRFC A71).

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;
use plimsoll_core::log_line;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use super::backoff::Backoff;
use super::codec::BytesCodec;
use super::connector::{Connector, Sockets};
use super::pending::{changed, or_pending};
use super::servers::Servers;

use crate::error_chain::describe;
use crate::log_lines;

/// Address and timeouts of a management server.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `http://host:port` of the server.
    pub uri: String,
    /// Timeout of a connection attempt; default 5 s.
    pub connect_timeout: Duration,
    /// Idle time before an HTTP/2 PING is sent; default 30 s.
    pub keepalive_interval: Duration,
    /// Time to wait for the PING ACK; default 10 s.
    pub keepalive_timeout: Duration,
    /// Largest accepted message; default 64 MiB, because a relay must accept what servers send.
    pub max_message_size: usize,
    /// Bounds of the delay between two attempts; default 1 s and 30 s.
    pub backoff: (Duration, Duration),
    /// Opens the socket, for example with TLS; unset is plain TCP.
    pub connector: Option<Arc<dyn Connector>>,
}

impl ConnectOptions {
    /// Creates the default options for a server at `uri`.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            connect_timeout: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_message_size: 64 << 20,
            backoff: (Duration::from_secs(1), Duration::from_secs(30)),
            connector: None,
        }
    }
}

#[derive(Debug)]
pub(super) enum TransportEvent<T> {
    /// A stream can be written to; nothing has been sent or received on it.
    Connected {
        requests: Requests<T>,
        /// The server is not the one that last sent a message.
        server_changed: bool,
    },
    Message(Bytes),
    /// The stream ended or could not be opened; another attempt follows.
    Lost(Loss),
}

/// End of a stream, or a failed attempt to open one.
#[derive(Debug)]
pub(super) struct Loss {
    /// URI of the server.
    pub(super) server: String,
    pub(super) status: Status,
    /// Delay before the next attempt; `None` after a switch to another server.
    pub(super) retry_in: Option<Duration>,
}

/// Sending half of a stream, with capacity for one request.
#[derive(Debug)]
pub(super) struct Requests<T> {
    sender: mpsc::Sender<Cell<T>>,
    last: Cell<T>,
}

/// Request until the transport takes it.
type Cell<T> = Arc<Mutex<Option<T>>>;
type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;
/// Time that a preferred server gets to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// Resolves to a connection to a preferred server that has answered, and its index.
type Probe = Pin<Box<dyn Future<Output = (usize, Channel)> + Send>>;

pub(super) struct FailoverStream<T> {
    stream: ReconnectingStream<T>,
    /// Asks servers that are preferred over the current one.
    probe: Option<Probe>,
    /// Set if another stream selects the server.
    server_changes: Option<watch::Receiver<usize>>,
}

struct ReconnectingStream<T> {
    servers: Servers,
    path: &'static str,
    encode: fn(&T) -> Bytes,
    /// The first request that was ever sent; probes send it, too. It has no state of a server.
    first_request: Arc<OnceLock<Bytes>>,
    backoff: Backoff,
    state: State,
    /// A message has arrived since the current server was dialed.
    has_received: bool,
    last_responsive: Option<usize>,
}

enum State {
    Dialing(Opening<Channel>),
    Opening(Opening<Streaming<Bytes>>),
    Open(Box<Streaming<Bytes>>),
    Waiting(Pin<Box<tokio::time::Sleep>>),
}

impl<T: Send + 'static> FailoverStream<T> {
    /// Dialing starts with the first [`Self::next`].
    pub(super) fn new(servers: Servers, path: &'static str, encode: fn(&T) -> Bytes) -> Self {
        let (first, longest) = servers.current().backoff;
        let stream = ReconnectingStream {
            state: State::Dialing(dial(servers.current())),
            servers,
            path,
            encode,
            first_request: Arc::default(),
            backoff: Backoff::new(first, longest),
            has_received: false,
            last_responsive: None,
        };
        Self {
            stream,
            probe: None,
            server_changes: None,
        }
    }

    /// Creates a stream to the server that another stream selects.
    pub(super) fn following(servers: Servers, path: &'static str, encode: fn(&T) -> Bytes) -> Self {
        let server_changes = Some(servers.subscribe());
        Self {
            server_changes,
            ..Self::new(servers, path, encode)
        }
    }

    /// Returns the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> TransportEvent<T> {
        tokio::select! {
            event = self.stream.next() => event,
            (index, channel) = or_pending(self.probe.as_mut()) => {
                self.stream.servers.select(index);
                let server = &self.stream.servers.current().uri;
                log_line!(log_lines::SERVER_RESTORED, server);
                self.probe = self.stream.probe();
                self.stream.change(Box::pin(std::future::ready(Ok(channel))))
            }
            () = changed(self.server_changes.as_mut()) => {
                let dialing = dial(self.stream.servers.current());
                self.stream.change(dialing)
            }
        }
    }

    /// URI of the server in use.
    pub(super) fn server(&self) -> &str {
        &self.stream.servers.current().uri
    }

    /// Closes the stream because of an invalid message on it, and returns the reason.
    pub(super) fn abandon(&mut self, status: Status) -> Loss {
        self.stream.abandon(status)
    }

    /// Fails over if this server was lost before it responded and another is `needed`. Preferred
    /// servers are asked in the background from then on, and used again once one answers.
    pub(super) fn fall_back(&mut self, needed: impl FnOnce() -> bool) {
        let stream = &mut self.stream;
        let lost = matches!(stream.state, State::Waiting(_)) && !stream.has_received;
        if lost && needed() && stream.servers.select(stream.servers.index() + 1) {
            let server = stream.servers.current();
            log_line!(log_lines::SERVER_FALLBACK, server = server.uri);
            stream.state = State::Dialing(dial(server));
            self.probe = stream.probe();
        }
    }
}

/// Opens a stream and waits for its first response. A server that accepts connections may still
/// refuse streams, or have nothing to send.
async fn ask(
    options: &ConnectOptions,
    path: &'static str,
    request: Option<&Bytes>,
) -> Result<Channel, Status> {
    let channel = dial(options).await?;
    let Some(request) = request.cloned() else {
        // Nothing was wanted from any server yet.
        return Ok(channel);
    };
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(options.max_message_size);
    grpc.ready().await.map_err(unreachable)?;
    // Without an end: a server may end the stream when the requests have ended.
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let path = PathAndQuery::from_static(path);
    let call = grpc.streaming(Request::new(requests), path, BytesCodec);
    match call.await?.into_inner().message().await? {
        Some(_) => Ok(channel),
        None => Err(Status::unavailable("the server ended the stream")),
    }
}

impl<T: Send + 'static> ReconnectingStream<T> {
    /// Returns a future that asks the servers which are preferred over the current one until one
    /// of them answers; `None` if there are none.
    fn probe(&self) -> Option<Probe> {
        let better = self.servers.before(self.servers.index()).to_vec();
        let (first, longest) = better.first()?.backoff;
        let mut backoff = Backoff::new(first, longest);
        let (path, request) = (self.path, Arc::clone(&self.first_request));
        Some(Box::pin(async move {
            loop {
                tokio::time::sleep(backoff.next_delay()).await;
                for (index, server) in better.iter().enumerate() {
                    let answer = ask(server, path, request.get());
                    if let Ok(Ok(channel)) = tokio::time::timeout(PROBE_TIMEOUT, answer).await {
                        return (index, channel);
                    }
                }
            }
        }))
    }

    async fn next(&mut self) -> TransportEvent<T> {
        loop {
            match &mut self.state {
                State::Dialing(dialing) => match dialing.await {
                    Err(status) => return self.lost(status),
                    Ok(channel) => return self.connected(channel),
                },
                State::Opening(opening) => match opening.await {
                    Err(status) => return self.lost(status),
                    Ok(stream) => self.state = State::Open(Box::new(stream)),
                },
                State::Open(stream) => match stream.message().await {
                    Err(status) => return self.lost(status),
                    Ok(None) => return self.lost(Status::ok("the server ended the stream")),
                    Ok(Some(message)) => {
                        self.backoff.reset();
                        self.has_received = true;
                        self.last_responsive = Some(self.servers.index());
                        return TransportEvent::Message(message);
                    }
                },
                State::Waiting(delay) => {
                    delay.await;
                    self.has_received = false;
                    self.state = State::Dialing(dial(self.servers.current()));
                }
            }
        }
    }

    fn connected(&mut self, channel: Channel) -> TransportEvent<T> {
        let index = self.servers.index();
        let server_changed = self.last_responsive.is_some_and(|last| last != index);
        TransportEvent::Connected {
            requests: self.open(channel),
            server_changed,
        }
    }

    fn change(&mut self, dialing: Opening<Channel>) -> TransportEvent<T> {
        self.backoff.reset();
        self.has_received = false;
        self.state = State::Dialing(dialing);
        TransportEvent::Lost(Loss {
            server: self.servers.current().uri.clone(),
            status: Status::ok("switched to another server"),
            retry_in: None,
        })
    }

    fn abandon(&mut self, status: Status) -> Loss {
        let delay = self.backoff.next_delay();
        self.state = State::Waiting(Box::pin(tokio::time::sleep(delay)));
        Loss {
            server: self.servers.current().uri.clone(),
            status,
            retry_in: Some(delay),
        }
    }

    fn lost(&mut self, status: Status) -> TransportEvent<T> {
        TransportEvent::Lost(self.abandon(status))
    }

    /// Starts the call without waiting for it: some servers send nothing, not even headers, before
    /// the first request, so requests must flow before the call returns.
    fn open(&mut self, channel: Channel) -> Requests<T> {
        let (sender, receiver) = mpsc::channel::<Cell<T>>(1);
        let (encode, first) = (self.encode, Arc::clone(&self.first_request));
        let requests = ReceiverStream::new(receiver).filter_map(move |cell| {
            let request = encode(&take(&cell)?);
            first.get_or_init(|| request.clone());
            Some(request)
        });
        let path = PathAndQuery::from_static(self.path);
        let longest = self.servers.current().max_message_size;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(longest);
        self.state = State::Opening(Box::pin(async move {
            let unready = |error: tonic::transport::Error| Status::from_error(error.into());
            grpc.ready().await.map_err(unready)?;
            let call = grpc.streaming(Request::new(requests), path, BytesCodec);
            Ok(call.await?.into_inner())
        }));
        Requests {
            sender,
            last: Cell::default(),
        }
    }
}

impl<T> Requests<T> {
    /// Sends a request; returns it if there is no capacity.
    pub(super) fn send(&mut self, request: T) -> Option<T> {
        let Ok(permit) = self.sender.try_reserve() else {
            return Some(request);
        };
        self.last = Arc::new(Mutex::new(Some(request)));
        permit.send(Arc::clone(&self.last));
        None
    }

    /// Returns the request that the transport did not take before the stream ended.
    pub(super) fn unsent(self) -> Option<T> {
        take(&self.last)
    }
}

/// Resolves once there is capacity for a request; never if there is no open stream.
pub(super) async fn wait_for_capacity<T>(requests: Option<&Requests<T>>) {
    match requests {
        Some(requests) if requests.sender.reserve().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

fn take<T>(cell: &Cell<T>) -> Option<T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn dial(options: &ConnectOptions) -> Opening<Channel> {
    let options = options.clone();
    Box::pin(async move {
        let endpoint = Endpoint::from_shared(options.uri)
            .map_err(unreachable)?
            .connect_timeout(options.connect_timeout)
            .http2_keep_alive_interval(options.keepalive_interval)
            .keep_alive_timeout(options.keepalive_timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let dialed = match options.connector {
            None => endpoint.connect().await,
            Some(connector) => {
                let origin = origin(endpoint.uri(), &*connector);
                let endpoint = endpoint.origin(origin);
                endpoint.connect_with_connector(Sockets(connector)).await
            }
        };
        dialed.map_err(unreachable)
    })
}

/// Returns the origin of requests, with the connector's scheme.
fn origin(uri: &Uri, connector: &dyn Connector) -> Uri {
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(connector.scheme());
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Describes the sources: the outermost error only says "transport error".
fn unreachable(error: tonic::transport::Error) -> Status {
    let message = error.source().map_or_else(|| error.to_string(), describe);
    Status::new(Status::from_error(error.into()).code(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_was_not_taken_comes_back() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut requests = Requests {
            sender,
            last: Cell::default(),
        };
        wait_for_capacity(Some(&requests)).await;
        assert_eq!(requests.send(1), None);
        assert_eq!(requests.send(2), Some(2));
        assert_eq!(take(&receiver.recv().await.unwrap()), Some(1));
        assert_eq!(requests.send(3), None);
        drop(receiver);
        assert_eq!(requests.unsent(), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_while_the_server_is_unreachable() {
        let options = ConnectOptions::new("http://127.0.0.1:0");
        let mut stream = FailoverStream::<u32>::new(options.into(), "/a/b", |_| Bytes::new());
        let mut delays = Vec::new();
        for _ in 0..5 {
            let before = tokio::time::Instant::now();
            let TransportEvent::Lost(loss) = stream.next().await else {
                panic!("port 0 answered");
            };
            assert_ne!(loss.status.code(), tonic::Code::Ok);
            let message = loss.status.message();
            assert_eq!(message.matches("tcp connect error").count(), 1, "{message}");
            assert!(loss.retry_in.is_some());
            delays.push(before.elapsed());
        }
        assert!(delays[1] >= Duration::from_millis(500), "{delays:?}");
        assert!(delays[4] >= Duration::from_secs(4), "{delays:?}");
    }
}
