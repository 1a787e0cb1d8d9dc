//! Attacks and protocol violations of HTTP/2 clients: hand-written frames, similar to h2spec.

use crate::support::backend::Backend;
use crate::support::{Proxy, TIMEOUT, client, config_with, route_all_to};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// `:method GET`, `:scheme http`, `:path /`, `:authority h`, without Huffman or tables.
const GET: &[u8] = b"\x82\x86\x84\x01\x01h";

async fn start(manager: &str) -> (Backend, Proxy) {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(manager, &route_all_to("a"), clusters)).await;
    (backend, proxy)
}

/// An HTTP/2 connection on the level of frames.
struct Frames(TcpStream);

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

impl Frames {
    /// Connects, and exchanges preface and SETTINGS.
    async fn open(proxy: &Proxy) -> Self {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let mut frames = Self(stream);
        let first = frames.next().await.unwrap();
        assert_eq!(first.kind, SETTINGS);
        frames
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // Ignore errors: the proxy may have closed the connection already.
        let _ = self.0.write_all(bytes.as_ref()).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        let read = tokio::time::timeout(TIMEOUT, self.0.read_exact(&mut head));
        read.await.expect("a frame or an end in time").ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Returns the error code of the first GOAWAY or RST_STREAM.
    async fn error(&mut self) -> Option<(u8, u32)> {
        while let Some(frame) = self.next().await {
            let reason =
                |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
            match frame.kind {
                GOAWAY => return Some((GOAWAY, reason(4))),
                RST_STREAM => return Some((RST_STREAM, reason(0))),
                _ => {}
            }
        }
        None
    }

    /// Waits for the end of a response.
    async fn response(&mut self, stream: u32) {
        loop {
            let frame = self.next().await.expect("a response");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if frame.stream == stream && frame.flags & END_STREAM != 0 {
                return;
            }
        }
    }
}

#[tokio::test]
async fn frames_that_violate_the_protocol_close_the_connection() {
    let (backend, proxy) = start("").await;
    let get = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, GET);
    let cases: Vec<(&str, Vec<u8>, u32)> = vec![
        ("data on stream 0", frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (
            "data on an idle stream",
            frame(DATA, 0, 5, b"x"),
            PROTOCOL_ERROR,
        ),
        ("headers on stream 0", get(0), PROTOCOL_ERROR),
        ("a stream of the server", get(2), PROTOCOL_ERROR),
        (
            "a push",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
            PROTOCOL_ERROR,
        ),
        (
            "a reset of stream 0",
            frame(RST_STREAM, 0, 0, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "a reset of an idle stream",
            frame(RST_STREAM, 0, 7, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "a short reset",
            [get(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            FRAME_SIZE_ERROR,
        ),
        (
            "settings on a stream",
            frame(SETTINGS, 0, 1, &[]),
            PROTOCOL_ERROR,
        ),
        (
            "settings of odd length",
            frame(SETTINGS, 0, 0, &[0; 5]),
            FRAME_SIZE_ERROR,
        ),
        (
            "an acknowledgement with settings",
            frame(SETTINGS, 1, 0, &[0; 6]),
            FRAME_SIZE_ERROR,
        ),
        (
            "a window above the limit",
            frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 0]),
            FLOW_CONTROL_ERROR,
        ),
        ("a short ping", frame(PING, 0, 0, &[0; 6]), FRAME_SIZE_ERROR),
        (
            "a ping on a stream",
            frame(PING, 0, 1, &[0; 8]),
            PROTOCOL_ERROR,
        ),
        (
            "a window update of zero",
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "a short window update",
            frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
            FRAME_SIZE_ERROR,
        ),
        (
            "a window overflow",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "a continuation without headers",
            frame(CONTINUATION, END_HEADERS, 1, GET),
            PROTOCOL_ERROR,
        ),
        (
            "data between headers",
            [frame(HEADERS, 0, 1, GET), frame(DATA, 0, 1, b"x")].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "padding longer than the frame",
            frame(DATA, 8, 1, &[9, 0]),
            PROTOCOL_ERROR,
        ),
        (
            "invalid HPACK",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 12]),
            COMPRESSION_ERROR,
        ),
        (
            "a frame larger than allowed",
            frame(DATA, 0, 1, &vec![0; 20_000]),
            FRAME_SIZE_ERROR,
        ),
    ];
    for (what, bytes, expected) in cases {
        let mut frames = Frames::open(&proxy).await;
        frames.send(bytes).await;
        let error = frames.error().await;
        // PROTOCOL_ERROR may replace any more specific code (RFC 9113, 5.4).
        let allowed = [Some((GOAWAY, expected)), Some((GOAWAY, PROTOCOL_ERROR))];
        assert!(allowed.contains(&error), "{what}: {error:?}");
    }
    let before = backend.count();
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    assert_eq!(backend.count(), before + 1);
    proxy.shut_down().await;
}

#[tokio::test]
async fn malformed_requests_are_reset_and_never_forwarded() {
    let (backend, proxy) = start("").await;
    let field = |name: &[u8], value: &[u8]| {
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        [&[0, length(name)], name, &[length(value)], value].concat()
    };
    let with = |more: Vec<u8>| [GET, &more].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("an upper-case name", with(field(b"X-Upper", b"1"))),
        ("a hop-by-hop header", with(field(b"connection", b"close"))),
        (
            "a transfer encoding",
            with(field(b"transfer-encoding", b"chunked")),
        ),
        ("te other than trailers", with(field(b"te", b"gzip"))),
        ("an unknown pseudo-header", with(field(b":other", b"1"))),
        (
            "a pseudo-header of responses",
            with(field(b":status", b"200")),
        ),
        (
            "a pseudo-header after others",
            [&GET[..2], &field(b"x", b"1"), &GET[2..]].concat(),
        ),
        ("a pseudo-header twice", [&GET[..1], GET].concat()),
        (
            "an authority with pipes",
            b"\x82\x86\x84\x01\x16outbound|33000||svc.ns".to_vec(),
        ),
        ("no path", b"\x82\x86\x01\x01h".to_vec()),
        ("no method", b"\x86\x84\x01\x01h".to_vec()),
        ("an injected line", with(field(b"x", b"a\r\nx-injected: 1"))),
        ("a zero byte", with(field(b"x", b"a\0b"))),
        (
            "a length without a body",
            with(field(b"content-length", b"5")),
        ),
    ];
    for (what, block) in cases {
        let mut frames = Frames::open(&proxy).await;
        frames
            .send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
            .await;
        let error = frames.error().await;
        assert!(
            matches!(error, Some((RST_STREAM | GOAWAY, _))),
            "{what}: {error:?}"
        );
    }
    assert_eq!(backend.count(), 0);
    proxy.shut_down().await;
}

#[tokio::test]
async fn rapid_resets_close_the_connection() {
    let (_backend, proxy) = start("").await;
    let mut frames = Frames::open(&proxy).await;
    let mut flood = Vec::new();
    for stream in (1..4000).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    frames.send(flood).await;
    assert_eq!(frames.error().await, Some((GOAWAY, ENHANCE_YOUR_CALM)));
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn endless_headers_close_the_connection() {
    let (backend, proxy) = start("max_request_headers_kb: 8").await;
    let mut frames = Frames::open(&proxy).await;
    let field = [&[0, 1, b'x', 100], &[b'a'; 100][..]].concat();
    let mut flood = frame(HEADERS, 0, 1, GET);
    for _ in 0..2000 {
        flood.extend(frame(CONTINUATION, 0, 1, &field));
    }
    frames.send(flood).await;
    let error = frames.error().await;
    assert!(
        matches!(error, None | Some((GOAWAY | RST_STREAM, _))),
        "{error:?}"
    );
    assert_eq!(backend.count(), 0);
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_rejected() {
    let (_backend, proxy) = start("http2_protocol_options: {max_concurrent_streams: 1}").await;
    let mut frames = Frames::open(&proxy).await;
    // The first stream stays open, because its body does not end.
    frames.send(frame(HEADERS, END_HEADERS, 1, GET)).await;
    frames
        .send(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET))
        .await;
    let error = frames.error().await;
    assert!(
        matches!(error, Some((RST_STREAM, 7) | (GOAWAY, _))),
        "{error:?}"
    );
    drop(frames);
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn unknown_frames_and_priorities_are_ignored() {
    let (_backend, proxy) = start("").await;
    let mut frames = Frames::open(&proxy).await;
    frames.send(frame(0x42, 0xff, 0, b"whatever")).await;
    frames.send(frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 1])).await;
    frames
        .send(frame(SETTINGS, 0, 0, &[0x77, 0x77, 0, 0, 0, 1]))
        .await;
    frames
        .send(frame(HEADERS, END_HEADERS | END_STREAM, 11, GET))
        .await;
    frames.response(11).await;
    drop(frames);
    proxy.shut_down().await;
}

#[tokio::test]
async fn acknowledgements_of_pings_that_were_not_sent_close_the_connection() {
    const ACK: u8 = 1;
    let (_backend, proxy) = start("").await;
    let mut frames = Frames::open(&proxy).await;
    for _ in 0..10 {
        frames.send(frame(PING, ACK, 0, &[7; 8])).await;
    }
    frames
        .send(frame(HEADERS, END_HEADERS | END_STREAM, 1, GET))
        .await;
    frames.response(1).await;
    frames.send(frame(PING, ACK, 0, &[7; 8])).await;
    while frames.next().await.is_some() {}
    proxy.shut_down().await;
}

#[tokio::test]
async fn trailers_with_a_length_are_malformed() {
    let (_backend, proxy) = start("").await;
    let mut frames = Frames::open(&proxy).await;
    const POST: &[u8] = b"\x83\x86\x84\x01\x01h";
    // `content-length: 1`, without Huffman or tables.
    const LENGTH: &[u8] = b"\x0f\x0d\x011";
    frames.send(frame(HEADERS, END_HEADERS, 1, POST)).await;
    frames.send(frame(DATA, 0, 1, b"a")).await;
    frames
        .send(frame(HEADERS, END_HEADERS | END_STREAM, 1, LENGTH))
        .await;
    let refused = loop {
        let frame = frames.next().await.expect("a response");
        match frame.kind {
            RST_STREAM => break true,
            // The first field is the status: 400 is the entry 12 of the static table.
            HEADERS => break frame.payload.first() == Some(&0x8c),
            _ => {}
        }
    };
    assert!(refused);
    // The connection goes on.
    frames
        .send(frame(HEADERS, END_HEADERS | END_STREAM, 3, GET))
        .await;
    frames.response(3).await;
    proxy.shut_down().await;
}
