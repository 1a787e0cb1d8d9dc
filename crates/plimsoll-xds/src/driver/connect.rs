//! [`Link`]: a stream to a server that is opened again and again.
//!
//! Waits, dials and reads; the client drivers run their machines beside it. Pauses are those of
//! `backoff`, and start over with the first message that arrives. With several servers the next
//! one is dialled when the driver says so, and left when a better one can be reached.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use super::backoff::Backoff;
use super::codec::BytesCodec;
use super::connector::{Connector, Sockets};
use super::servers::Servers;

/// Where a server is, and how patient to be with it.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `http://host:port`
    pub uri: String,
    /// How long dialling may take; 5 s.
    pub connect_timeout: Duration,
    /// Silence after which the server is asked for a sign of life; 30 s.
    pub keepalive_interval: Duration,
    /// How long that sign may take; 10 s.
    pub keepalive_timeout: Duration,
    /// Longest message that is read; 64 MiB, because a relay must take what others serve.
    pub max_message_size: usize,
    /// Bounds of the pause between two attempts; 1 s and 30 s.
    pub backoff: (Duration, Duration),
    /// Who opens the socket, with TLS for example; without one it is plain TCP.
    pub connector: Option<Arc<dyn Connector>>,
}

impl ConnectOptions {
    /// The defaults, for a server at `uri`.
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

/// What happened to a link.
#[derive(Debug)]
pub(super) enum LinkEvent<T> {
    /// A stream can be written to. Nothing was said on it yet.
    Connected {
        /// Its writing half.
        requests: Requests<T>,
        /// The server is another one than that which was heard last.
        other: bool,
    },
    /// A message arrived.
    Message(Bytes),
    /// The stream, or the attempt to open one, is over; another attempt follows.
    Lost(Status),
}

/// The writing half of a stream, with room for one request.
#[derive(Debug)]
pub(super) struct Requests<T> {
    sender: mpsc::Sender<Cell<T>>,
    last: Cell<T>,
}

/// A request until the transport takes it.
type Cell<T> = Arc<Mutex<Option<T>>>;
type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;
/// Ends with a connection to a better server, and its number.
type Probe = Pin<Box<dyn Future<Output = (usize, Channel)> + Send>>;

/// A stream that is opened again and again, to the best of several servers.
pub(super) struct Link<T> {
    line: Line<T>,
    /// Dials better servers than the one that is used.
    probe: Option<Probe>,
    /// Somebody else chooses the server.
    follows: Option<watch::Receiver<usize>>,
}

/// A stream that is opened again and again, to the server that is used.
struct Line<T> {
    servers: Servers,
    path: &'static str,
    encode: fn(&T) -> Bytes,
    backoff: Backoff,
    state: State,
    /// A message arrived since the server was dialled.
    heard: bool,
    /// Number of the server that said something last.
    heard_from: Option<usize>,
}

enum State {
    Dialling(Opening<Channel>),
    Opening(Opening<Streaming<Bytes>>),
    Open(Box<Streaming<Bytes>>),
    Waiting(Pin<Box<tokio::time::Sleep>>),
}

impl<T: Send + 'static> Link<T> {
    /// Starts to dial with the first [`Self::next`]. Chooses among the servers.
    pub(super) fn new(servers: Servers, path: &'static str, encode: fn(&T) -> Bytes) -> Self {
        let (first, longest) = servers.current().backoff;
        let line = Line {
            state: State::Dialling(dial(servers.current())),
            servers,
            path,
            encode,
            backoff: Backoff::between(first, longest),
            heard: false,
            heard_from: None,
        };
        Self {
            line,
            probe: None,
            follows: None,
        }
    }

    /// The same to the server that another link has chosen.
    pub(super) fn following(servers: Servers, path: &'static str, encode: fn(&T) -> Bytes) -> Self {
        let follows = Some(servers.follow());
        Self {
            follows,
            ..Self::new(servers, path, encode)
        }
    }

    /// What happens next. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> LinkEvent<T> {
        tokio::select! {
            event = self.line.next() => event,
            (index, channel) = found(&mut self.probe) => {
                self.line.servers.choose(index);
                self.probe = probe(&self.line.servers);
                self.line.change(Box::pin(std::future::ready(Ok(channel))))
            }
            () = moved(&mut self.follows) => {
                let dialling = dial(self.line.servers.current());
                self.line.change(dialling)
            }
        }
    }

    /// Gives the stream up, because of what was said on it. Hands the reason back.
    pub(super) fn abandon(&mut self, status: Status) -> Status {
        self.line.abandon(status)
    }

    /// Tries the next server, if this one was lost without a word and another is needed. Better
    /// ones are dialled at the same time from now on, and used again as soon as one answers.
    pub(super) fn fall_back(&mut self, needed: impl FnOnce() -> bool) {
        let line = &mut self.line;
        let lost = matches!(line.state, State::Waiting(_)) && !line.heard;
        if lost && needed() && line.servers.choose(line.servers.index() + 1) {
            let server = line.servers.current();
            tracing::warn!(server = server.uri, "another management server is tried");
            line.state = State::Dialling(dial(server));
            self.probe = probe(&line.servers);
        }
    }
}

/// A connection to a better server than the one that is used; never, if that is the best.
async fn found(probe: &mut Option<Probe>) -> (usize, Channel) {
    match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    }
}

/// Another server was chosen.
async fn moved(follows: &mut Option<watch::Receiver<usize>>) {
    if let Some(follows) = follows
        && follows.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn probe(servers: &Servers) -> Option<Probe> {
    let better = servers.before(servers.index()).to_vec();
    let (first, longest) = better.first()?.backoff;
    let mut backoff = Backoff::between(first, longest);
    Some(Box::pin(async move {
        loop {
            tokio::time::sleep(backoff.next_pause()).await;
            for (index, server) in better.iter().enumerate() {
                if let Ok(channel) = dial(server).await {
                    return (index, channel);
                }
            }
        }
    }))
}

impl<T: Send + 'static> Line<T> {
    async fn next(&mut self) -> LinkEvent<T> {
        loop {
            match &mut self.state {
                State::Dialling(dialling) => match dialling.await {
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
                        self.heard = true;
                        self.heard_from = Some(self.servers.index());
                        return LinkEvent::Message(message);
                    }
                },
                State::Waiting(pause) => {
                    pause.await;
                    self.heard = false;
                    self.state = State::Dialling(dial(self.servers.current()));
                }
            }
        }
    }

    fn connected(&mut self, channel: Channel) -> LinkEvent<T> {
        let index = self.servers.index();
        let other = self.heard_from.is_some_and(|heard| heard != index);
        LinkEvent::Connected {
            requests: self.open(channel),
            other,
        }
    }

    /// Leaves the server for another one.
    fn change(&mut self, dialling: Opening<Channel>) -> LinkEvent<T> {
        self.backoff.reset();
        self.heard = false;
        self.state = State::Dialling(dialling);
        LinkEvent::Lost(Status::ok("another server is used"))
    }

    fn abandon(&mut self, status: Status) -> Status {
        let pause = tokio::time::sleep(self.backoff.next_pause());
        self.state = State::Waiting(Box::pin(pause));
        status
    }

    fn lost(&mut self, status: Status) -> LinkEvent<T> {
        LinkEvent::Lost(self.abandon(status))
    }

    /// Some servers send nothing, not even headers, before they were asked: so requests must be
    /// able to flow before the call has returned.
    fn open(&mut self, channel: Channel) -> Requests<T> {
        let (sender, receiver) = mpsc::channel::<Cell<T>>(1);
        let encode = self.encode;
        let requests = ReceiverStream::new(receiver)
            .filter_map(move |cell| take(&cell).map(|request| encode(&request)));
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
    /// Sends a request; hands it back if there is no room.
    pub(super) fn send(&mut self, request: T) -> Option<T> {
        let Ok(room) = self.sender.try_reserve() else {
            return Some(request);
        };
        self.last = Arc::new(Mutex::new(Some(request)));
        room.send(Arc::clone(&self.last));
        None
    }

    /// The request that the transport did not take before the stream was over.
    pub(super) fn unsent(self) -> Option<T> {
        take(&self.last)
    }
}

/// Done when there is room for a request. Never, when there is no stream or it is over.
pub(super) async fn room<T>(requests: Option<&Requests<T>>) {
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
        let endpoint = Endpoint::from_shared(options.uri).map_err(unreachable)?;
        let endpoint = endpoint
            .connect_timeout(options.connect_timeout)
            .http2_keep_alive_interval(options.keepalive_interval)
            .keep_alive_timeout(options.keepalive_timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let dialled = match options.connector {
            None => endpoint.connect().await,
            Some(connector) => {
                let origin = origin(endpoint.uri(), &*connector);
                let endpoint = endpoint.origin(origin);
                endpoint.connect_with_connector(Sockets(connector)).await
            }
        };
        dialled.map_err(unreachable)
    })
}

/// What requests say of where they go: the scheme is the connector's.
fn origin(uri: &Uri, connector: &dyn Connector) -> Uri {
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(connector.scheme());
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// With all reasons: the first one alone says only that it did not work.
fn unreachable(error: tonic::transport::Error) -> Status {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        message = format!("{message}: {reason}");
        source = reason.source();
    }
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
        room(Some(&requests)).await;
        assert_eq!(requests.send(1), None);
        assert_eq!(requests.send(2), Some(2));
        assert_eq!(take(&receiver.recv().await.unwrap()), Some(1));
        assert_eq!(requests.send(3), None);
        drop(receiver);
        assert_eq!(requests.unsent(), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_nobody_listens() {
        let options = ConnectOptions::new("http://127.0.0.1:0");
        let mut link = Link::<u32>::new(options.into(), "/a/b", |_| Bytes::new());
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let before = tokio::time::Instant::now();
            let LinkEvent::Lost(status) = link.next().await else {
                panic!("port 0 answered");
            };
            assert_ne!(status.code(), tonic::Code::Ok);
            pauses.push(before.elapsed());
        }
        assert!(pauses[1] >= Duration::from_millis(500), "{pauses:?}");
        assert!(pauses[4] >= Duration::from_secs(4), "{pauses:?}");
    }
}
