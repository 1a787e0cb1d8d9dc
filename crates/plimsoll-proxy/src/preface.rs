//! Detection of HTTP/2 by the first bytes of a plain-text connection, and [`PrefixedStream`], which
//! hands these bytes to the HTTP codec.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// First bytes of an HTTP/2 connection (RFC 9113, 3.4), as far as they differ from HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// The protocol of a connection, decided by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    Http1,
    Http2,
    /// The client closed the connection before its first bytes decided.
    Closed,
}

/// A stream whose first bytes have been read already.
#[derive(Debug)]
pub(crate) struct PrefixedStream<S> {
    stream: S,
    prefix: [u8; PREFACE.len()],
    filled: u8,
    taken: u8,
}

impl<S: AsyncRead + Unpin> PrefixedStream<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            prefix: [0; PREFACE.len()],
            filled: 0,
            taken: 0,
        }
    }

    /// Reads until a byte differs from the HTTP/2 preface or all of them are equal. `on_read` is
    /// called after each read.
    pub(crate) async fn detect(&mut self, on_read: impl Fn()) -> io::Result<Detected> {
        let mut filled = 0;
        loop {
            let count = self.stream.read(&mut self.prefix[filled..]).await?;
            if count == 0 {
                return Ok(Detected::Closed);
            }
            filled += count;
            self.filled = u8::try_from(filled).unwrap_or(u8::MAX);
            on_read();
            if self.prefix[..filled] != PREFACE[..filled] {
                return Ok(Detected::Http1);
            }
            if filled == PREFACE.len() {
                return Ok(Detected::Http2);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (taken, filled) = (usize::from(self.taken), usize::from(self.filled));
        if taken == filled {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = buf.remaining().min(filled - taken);
        buf.put_slice(&self.prefix[taken..taken + count]);
        self.taken += u8::try_from(count).unwrap_or(u8::MAX);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Detects the protocol of `text`, sent in pieces of `step` bytes; all bytes are read again.
    async fn detect(text: &[u8], step: usize) -> Detected {
        let (mut client, server) = tokio::io::duplex(64);
        let sent = text.to_vec();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(step) {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut stream = PrefixedStream::new(server);
        let detected = stream.detect(|| {}).await.unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, text);
        sending.await.unwrap();
        detected
    }

    #[tokio::test]
    async fn the_first_byte_that_differs_decides() {
        for step in [1, 3, 64] {
            for (text, expected) in [
                ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Detected::Http2),
                ("GET / HTTP/1.1\r\n", Detected::Http1),
                ("POST / HTTP/1.1\r\n", Detected::Http1),
                ("PRI * HTTP/1.1\r\n", Detected::Http1),
                ("G", Detected::Http1),
                ("P", Detected::Closed),
                ("PRI * HTTP/2.", Detected::Closed),
                ("", Detected::Closed),
            ] {
                assert_eq!(detect(text.as_bytes(), step).await, expected, "{text:?}");
            }
        }
    }
}
