//! Clients: raw bytes for HTTP/1.1, hyper for HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::PATIENCE;

/// A connection that says what it is told to.
pub(crate) struct Raw(pub(crate) TcpStream);

/// A response of HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and header fields.
    pub(crate) head: String,
    /// As it came, chunks and all.
    pub(crate) body: String,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    /// Reads a response with a length or in chunks.
    pub(crate) async fn answer(&mut self) -> Answer {
        let read = tokio::time::timeout(PATIENCE, self.read());
        read.await
            .expect("a response in time")
            .expect("a whole response")
    }

    async fn read(&mut self) -> Option<Answer> {
        let mut text = Vec::new();
        let end = loop {
            if let Some(end) = find(&text, b"\r\n\r\n") {
                break end + 4;
            }
            self.more(&mut text).await?;
        };
        let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
        };
        let chunked = field("transfer-encoding").is_some();
        let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        while match chunked {
            // No trailers, or trailers and an empty line.
            true => !ends_chunks(&text[end..]),
            false => text.len() < end + length,
        } {
            self.more(&mut text).await?;
        }
        let body = String::from_utf8_lossy(&text[end..]).into_owned();
        Some(Answer { status, head, body })
    }

    async fn more(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let count = self.0.read_buf(text).await.ok()?;
        (count > 0).then_some(())
    }

    /// Everything until the other side closes.
    pub(crate) async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        let reading = self.0.read_to_end(&mut text);
        // A reset is an end too.
        let _ = tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("the connection ends");
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn ends_chunks(body: &[u8]) -> bool {
    let last = match body.starts_with(b"0\r\n") {
        true => Some(0),
        false => find(body, b"\r\n0\r\n").map(|at| at + 2),
    };
    last.is_some_and(|last| find(&body[last..], b"\r\n\r\n").is_some())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// One request over a new connection.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    send(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"),
    )
    .await
}

/// One request, as written, over a new connection.
pub(crate) async fn send(address: SocketAddr, text: &str) -> Answer {
    let mut raw = Raw::connect(address).await;
    raw.send(text).await;
    raw.answer().await
}

pub(crate) type ClientBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A connection of HTTP/2 with prior knowledge.
pub(crate) async fn http2(address: SocketAddr) -> http2::SendRequest<ClientBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    http2_over(stream).await
}

/// The same over any stream.
pub(crate) async fn http2_over<S>(stream: S) -> http2::SendRequest<ClientBody>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A whole response of HTTP/2.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) head: Response<()>,
    pub(crate) body: String,
    pub(crate) trailers: HeaderMap,
}

/// Sends over HTTP/2 and reads to the end.
pub(crate) async fn exchange(
    sender: &mut http2::SendRequest<ClientBody>,
    request: Request<ClientBody>,
) -> Whole {
    let exchange = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let collected = body.collect().await.unwrap();
        Whole {
            head: Response::from_parts(head, ()),
            trailers: collected.trailers().cloned().unwrap_or_default(),
            body: String::from_utf8_lossy(&collected.to_bytes()).into_owned(),
        }
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .expect("a response in time")
}
