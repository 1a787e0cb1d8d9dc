//! Test clients: raw bytes for HTTP/1.1, hyper for HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::TIMEOUT;

/// An HTTP/1.1 connection on which tests write raw bytes.
pub(crate) struct Raw(pub(crate) TcpStream);

/// An HTTP/1.1 response as received.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    /// The body as received, including chunk sizes.
    pub(crate) body: String,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    /// Reads a response with `content-length` or chunked encoding.
    pub(crate) async fn response(&mut self) -> RawResponse {
        let read = tokio::time::timeout(TIMEOUT, self.read());
        read.await
            .expect("a response in time")
            .expect("a whole response")
    }

    /// Sends a request and reads its response; `None` if the connection ends before.
    pub(crate) async fn exchange(&mut self, text: &str) -> Option<RawResponse> {
        self.0.write_all(text.as_bytes()).await.ok()?;
        let read = tokio::time::timeout(TIMEOUT, self.read());
        read.await.expect("a response in time")
    }

    async fn read(&mut self) -> Option<RawResponse> {
        let mut text = Vec::new();
        let end = loop {
            if let Some(end) = find(&text, b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more(&mut text).await?;
        };
        let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
        };
        let chunked = field("transfer-encoding").is_some();
        let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        loop {
            let complete = if chunked {
                // With or without trailers.
                ends_chunks(&text[end..])
            } else {
                text.len() >= end + length
            };
            if complete {
                break;
            }
            self.read_more(&mut text).await?;
        }
        let body = String::from_utf8_lossy(&text[end..]).into_owned();
        Some(RawResponse { status, head, body })
    }

    async fn read_more(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let count = self.0.read_buf(text).await.ok()?;
        (count > 0).then_some(())
    }

    /// Reads until the proxy closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        let reading = self.0.read_to_end(&mut text);
        // A reset ends the connection as well.
        let _ = tokio::time::timeout(TIMEOUT, reading)
            .await
            .expect("the connection ends");
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn ends_chunks(body: &[u8]) -> bool {
    let last = if body.starts_with(b"0\r\n") {
        Some(0)
    } else {
        find(body, b"\r\n0\r\n").map(|at| at + 2)
    };
    last.is_some_and(|last| find(&body[last..], b"\r\n\r\n").is_some())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Sends a GET request on a new connection.
pub(crate) async fn get(address: SocketAddr, path: &str) -> RawResponse {
    send(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"),
    )
    .await
}

/// Like [`get`]; `None` if the connection fails, as it may while a listener closes.
pub(crate) async fn try_get(address: SocketAddr, path: &str) -> Option<RawResponse> {
    let mut raw = Raw(TcpStream::connect(address).await.ok()?);
    let text = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    raw.exchange(&text).await
}

/// Sends a raw request on a new connection.
pub(crate) async fn send(address: SocketAddr, text: &str) -> RawResponse {
    let mut raw = Raw::connect(address).await;
    raw.send(text).await;
    raw.response().await
}

pub(crate) type ClientBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Opens an HTTP/2 connection with prior knowledge.
pub(crate) async fn http2(address: SocketAddr) -> http2::SendRequest<ClientBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    http2_over(stream).await
}

/// Starts HTTP/2 on a stream.
pub(crate) async fn http2_over<S>(stream: S) -> http2::SendRequest<ClientBody>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A complete HTTP/2 response.
#[derive(Debug)]
pub(crate) struct Http2Response {
    pub(crate) head: Response<()>,
    pub(crate) body: String,
    pub(crate) trailers: HeaderMap,
}

/// Sends a request over HTTP/2 and reads the complete response.
pub(crate) async fn send_http2(
    sender: &mut http2::SendRequest<ClientBody>,
    request: Request<ClientBody>,
) -> Http2Response {
    let exchange = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let collected = body.collect().await.unwrap();
        Http2Response {
            head: Response::from_parts(head, ()),
            trailers: collected.trailers().cloned().unwrap_or_default(),
            body: String::from_utf8_lossy(&collected.to_bytes()).into_owned(),
        }
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .expect("a response in time")
}
