//! Isolation of streams: errors and backpressure affect only their own stream.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::reporting::{hello, report};
use super::*;

#[tokio::test]
async fn malformed_bytes_end_only_their_stream() {
    let mut server = Server::start().await;
    let channel = server.connect().await;
    let mut good = Peer::open(channel.clone(), STREAM_LOAD_STATS).await;
    good.send(hello("good", &[])).await;
    good.receive().await;
    for path in [
        STREAM_LOAD_STATS,
        STREAM_AGGREGATED_RESOURCES,
        DELTA_AGGREGATED_RESOURCES,
    ] {
        let mut bad = Peer::open(channel.clone(), path).await;
        bad.send(vec![0xff; 20]).await;
        assert_eq!(bad.status().await.code(), Code::InvalidArgument, "{path}");
    }
    let mut bad = Peer::open(channel.clone(), STREAM_LOAD_STATS).await;
    bad.send(hello("bad", &[])).await;
    bad.receive().await;
    bad.send(vec![0xff; 20]).await;
    assert_eq!(bad.status().await.code(), Code::InvalidArgument);
    good.send(report(1)).await;
    assert_eq!(&*server.report().await.0, "good");
}

#[tokio::test]
async fn a_stream_must_send_its_node() {
    let server = Server::start().await;
    for path in [
        STREAM_LOAD_STATS,
        STREAM_AGGREGATED_RESOURCES,
        DELTA_AGGREGATED_RESOURCES,
    ] {
        let mut nobody = server.dial(path).await;
        nobody.send(Bytes::new()).await;
        let status = nobody.status().await;
        assert_eq!(status.code(), Code::InvalidArgument, "{path}");
        assert!(status.message().contains("node"), "{status:?}");
    }
}

#[tokio::test]
async fn a_silent_stream_times_out() {
    let options = ServerOptions {
        first_message_timeout: Duration::from_millis(1),
        ..Default::default()
    };
    let mut server = Server::start_with(options, "127.0.0.1:0").await;
    let mut mute = server.dial(STREAM_LOAD_STATS).await;
    let status = mute.status().await;
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let refused = Event::Refused("first_message_timeout", status.message().to_owned());
    assert_eq!(server.seen().await, refused);
}

#[tokio::test]
async fn long_messages_and_unknown_methods_are_rejected() {
    let options = ServerOptions {
        max_message_size: 1000,
        ..Default::default()
    };
    let mut server = Server::start_with(options, "127.0.0.1:0").await;
    let mut peer = server.dial(STREAM_LOAD_STATS).await;
    peer.send(vec![0; 1001]).await;
    let status = peer.status().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    let refused = Event::Refused("max_message_size", status.message().to_owned());
    assert_eq!(server.seen().await, refused);

    let mut grpc = Grpc::new(server.connect().await);
    within(grpc.ready()).await.unwrap();
    let path = PathAndQuery::from_static("/some.Service/Method");
    let request = Request::new(tokio_stream::empty());
    let call = grpc.streaming(request, path, BytesCodec);
    assert_eq!(within(call).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_overloaded_handler_blocks_only_its_stream() {
    const REPORTS: usize = 2000;
    let mut server = Server::start().await;
    let slow = server.dial(STREAM_LOAD_STATS).await;
    slow.send(hello("slow", &[])).await;
    // An ignored field makes it as long as an Envoy's report.
    let padding = [&[0xfa, 0x07, 0xe0, 0xd4, 0x03][..], &vec![0; 60_000]].concat();
    let long: Bytes = [report(1), padding].concat().into();
    let Peer {
        requests,
        responses: _responses,
    } = slow;
    let sent = tokio::spawn(async move {
        for _ in 0..REPORTS {
            requests.send(long.clone()).await.unwrap();
        }
        requests
    });
    let fast = server.dial(STREAM_LOAD_STATS).await;
    fast.send(hello("fast", &[])).await;
    for _ in 0..REPORTS {
        fast.send(report(1)).await;
        assert_eq!(&*server.report().await.0, "fast");
    }
    assert!(!sent.is_finished(), "120 MB are waiting somewhere");
    server.control.gate.add_permits(REPORTS);
    for _ in 0..REPORTS {
        assert_eq!(&*server.report().await.0, "slow");
    }
    within(sent).await.unwrap();
}

#[tokio::test]
async fn shutdown_ends_streams_with_unavailable_and_closes_the_port() {
    let mut server = Server::start().await;
    let mut spoken = server.dial(STREAM_LOAD_STATS).await;
    spoken.send(hello("n1", &[])).await;
    spoken.receive().await;
    let mut mute = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    assert_eq!(server.seen().await, Event::LrsOpened("n1".into()));
    let address = server.address;
    server.stop().await;
    for peer in [&mut spoken, &mut mute] {
        assert_eq!(peer.status().await.code(), Code::Unavailable);
    }
    assert!(TcpStream::connect(address).await.is_err());
}

/// A listener whose first connection ends at an age.
struct Aging(TcpListener, Option<Duration>);

impl Aging {
    async fn start(age: Duration, options: ServerOptions) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Server::start_on(Self(listener, Some(age)), address, options)
    }
}

impl Accept for Aging {
    async fn accept(&mut self) -> Connection {
        let connection = Accept::accept(&mut self.0).await;
        let age = self.1.take();
        Connection {
            ends_at: age.map(|age| tokio::time::Instant::now() + age),
            ..connection
        }
    }
}

/// A client that connected long ago is told to come back: its streams end, and what it opens next
/// is on a new connection, without an error in between.
#[tokio::test]
async fn a_connection_ends_at_its_age_and_the_client_comes_back() {
    // Long enough to open a stream on a busy machine.
    let age = Duration::from_secs(2);
    let mut server = Aging::start(age, ServerOptions::default()).await;
    let channel = server.connect().await;
    let mut old = Peer::open(channel.clone(), STREAM_LOAD_STATS).await;
    old.send(hello("n1", &[])).await;
    old.receive().await;
    assert_eq!(server.seen().await, Event::LrsOpened("n1".into()));
    let status = old.status().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("max_connection_age"),
        "{status:?}"
    );
    assert_eq!(server.seen().await, Event::LrsClosed("n1".into()));
    let mut new = Peer::open(channel, STREAM_LOAD_STATS).await;
    new.send(hello("n1", &[])).await;
    new.receive().await;
}

/// A client that neither reads nor closes has its connection closed, not only its streams.
#[tokio::test]
async fn an_old_connection_is_closed_even_if_its_client_does_not_answer() {
    let options = ServerOptions {
        drain_timeout: Duration::from_millis(1),
        ..Default::default()
    };
    let server = Aging::start(Duration::from_millis(1), options).await;
    let mut dead = TcpStream::connect(server.address).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    dead.write_all(preface).await.unwrap();
    let mut read = Vec::new();
    // Closed or reset.
    let _ = within(dead.read_to_end(&mut read)).await;
}

#[tokio::test]
async fn loopback_leaves_streams_to_others() {
    let options = ServerOptions {
        max_streams: 4,
        ..Default::default()
    };
    let mut server = Server::start_with(options, "127.0.0.1:0").await;
    let mut open = Vec::new();
    for id in ["n1", "n2", "n3"] {
        let mut peer = server.dial(STREAM_LOAD_STATS).await;
        peer.send(hello(id, &[])).await;
        peer.receive().await;
        assert_eq!(server.seen().await, Event::LrsOpened(id.into()));
        open.push(peer);
    }
    let mut grpc = Grpc::new(server.connect().await);
    within(grpc.ready()).await.unwrap();
    let path = PathAndQuery::from_static(STREAM_LOAD_STATS);
    let request = Request::new(tokio_stream::pending::<Bytes>());
    let refused = within(grpc.streaming(request, path, BytesCodec)).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let seen = Event::Refused("streams_per_peer", status.message().to_owned());
    assert_eq!(server.seen().await, seen);
}

#[tokio::test]
async fn a_connection_without_ping_ack_is_closed() {
    let options = ServerOptions {
        keepalive_interval: Duration::from_millis(20),
        keepalive_timeout: Duration::from_millis(20),
        ..Default::default()
    };
    let server = Server::start_with(options, "127.0.0.1:0").await;
    let mut alive = server.dial(STREAM_LOAD_STATS).await;
    let mut dead = TcpStream::connect(server.address).await.unwrap();
    // Preface and empty SETTINGS; PINGs are never answered.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    dead.write_all(preface).await.unwrap();
    let mut read = Vec::new();
    // Closed or reset.
    let _ = within(dead.read_to_end(&mut read)).await;
    assert!(!read.is_empty());

    // An older connection that answers PINGs stays open.
    alive.send(hello("alive", &[])).await;
    alive.receive().await;
}
