//! Tests of the IO of a connection, without a socket.

use std::future::poll_fn;

use http::Version;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::connection::tests::{advance, connection, options};

/// Returns the IO of a connection, and the client's end.
fn io(connection: &Arc<Connection>) -> (MonitoredIo<DuplexStream>, DuplexStream) {
    let (client, server) = tokio::io::duplex(1 << 20);
    let io = MonitoredIo::new(server, Arc::clone(connection));
    (io, client)
}

/// Reads once, at most `room` bytes.
async fn read(io: &mut MonitoredIo<DuplexStream>, room: usize) -> io::Result<String> {
    let mut bytes = vec![0; room];
    poll_fn(|cx| {
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(String::from_utf8(buffer.filled().to_vec()).unwrap()))
    })
    .await
}

async fn flush(io: &mut MonitoredIo<DuplexStream>) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut *io).poll_flush(cx)).await
}

#[tokio::test]
async fn messages_are_scanned_as_they_are_read() {
    let connection = connection();
    let (mut io, mut client) = io(&connection);
    let good = "POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n0";
    let both = "GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0";
    client.write_all(good.as_bytes()).await.unwrap();
    client.write_all(both.as_bytes()).await.unwrap();
    assert_eq!(read(&mut io, 6).await.unwrap(), "POST /");
    assert!(!connection.has_read_ahead());
    assert_eq!(
        read(&mut io, 1000).await.unwrap(),
        good[6..].to_owned() + both
    );
    assert!(connection.has_read_ahead());
    // Each request is judged by its own head, pipelined ones, too.
    connection.request_started(Version::HTTP_11);
    assert!(!connection.has_malformed_head());
    connection.request_finished(200);
    connection.request_started(Version::HTTP_11);
    assert!(connection.has_malformed_head());
}

#[tokio::test]
async fn a_bare_lf_in_trailers_reaches_hyper_as_a_cr() {
    let connection = connection();
    let (mut io, mut client) = io(&connection);
    let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read(&mut io, 1000).await.unwrap(), head);
    connection.request_started(Version::HTTP_11);
    client.write_all(b"0\r\nX: y\n\r\n").await.unwrap();
    assert_eq!(read(&mut io, 1000).await.unwrap(), "0\r\nX: y\r\r\n");
}

#[tokio::test]
async fn tunnels_and_http2_are_not_scanned_but_recorded() {
    for http2 in [false, true] {
        let connection = connection();
        connection.set_protocol(http2);
        if !http2 {
            connection.request_started(Version::HTTP_11);
            connection.became_tunnel();
        }
        let (mut io, mut client) = io(&connection);
        advance(&connection, 3);
        let start = "a b\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = start.to_owned() + "0\r\na: b\n\r\n";
        client.write_all(long.as_bytes()).await.unwrap();
        assert_eq!(read(&mut io, 1 << 20).await.unwrap(), long);
        assert!(!connection.has_malformed_head());
        assert_eq!(connection.last_activity(), 3);
    }
}

#[tokio::test]
async fn late_headers_get_a_response_unless_another_is_being_written() {
    for blocked in [false, true] {
        let connection = connection();
        let (mut io, mut client) = io(&connection);
        connection.record_read();
        connection.check_timeouts(11, &options());
        if blocked {
            connection.record_write(&Poll::<()>::Pending);
        }
        let error = read(&mut io, 10).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(io);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        let replied = text.starts_with("HTTP/1.1 408 Request Timeout\r\n");
        assert_eq!((replied, text.is_empty()), (!blocked, blocked), "{text}");
    }
}

#[tokio::test]
async fn a_probe_keeps_bytes_and_finds_the_end() {
    let connection = connection();
    connection.request_started(Version::HTTP_11);
    let (mut io, mut client) = io(&connection);
    let probe = || connection.request_probe();
    client.write_all(b"abc").await.unwrap();
    flush(&mut io).await.unwrap();
    assert!(io.held.is_empty(), "no probe was requested");
    probe();
    flush(&mut io).await.unwrap();
    assert_eq!(io.held, b"abc");
    client.write_all(b"def").await.unwrap();
    flush(&mut io).await.unwrap();
    assert_eq!(io.held, b"abc", "one probe per request for one");
    probe();
    flush(&mut io).await.unwrap();
    probe();
    flush(&mut io).await.unwrap();
    client.write_all(b"ghi").await.unwrap();
    assert_eq!(read(&mut io, 4).await.unwrap(), "abcd");
    assert_eq!(read(&mut io, 4).await.unwrap(), "ef");
    assert_eq!(read(&mut io, 4).await.unwrap(), "ghi");
    drop(client);
    // Enough is held: the socket is not read, and its end is not seen.
    io.held = vec![b'x'; MAX_HELD];
    probe();
    flush(&mut io).await.unwrap();
    io.held.pop();
    probe();
    let error = flush(&mut io).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn writes_reach_the_client_and_are_recorded() {
    let connection = connection();
    let (mut io, mut client) = io(&connection);
    let activity = || connection.last_activity();
    advance(&connection, 1);
    let written = poll_fn(|cx| Pin::new(&mut io).poll_write(cx, b"one ")).await;
    assert_eq!((written.unwrap(), activity()), (4, 1));
    advance(&connection, 1);
    assert!(io.is_write_vectored());
    let slices = [io::IoSlice::new(b"two "), io::IoSlice::new(b"3")];
    let written = poll_fn(|cx| Pin::new(&mut io).poll_write_vectored(cx, &slices)).await;
    assert_eq!((written.unwrap(), activity()), (5, 2));
    poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx))
        .await
        .unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "one two 3");
}
