//! [`XdsSocket`]: byte stream of an HTTP/2 connection that must send a request in time. What the
//! client sends passes through an [`FrameFilter`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use plimsoll_serve::ConnectionStats;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::LISTENER;
use super::frames::FrameFilter;

pub(crate) struct XdsSocket<S> {
    socket: S,
    peer: SocketAddr,
    filter: FrameFilter,
    /// Filtered bytes that have not been read yet, and how many of them have.
    ready: (Vec<u8>, usize),
    /// `None` after the first request.
    deadline: Option<Pin<Box<Sleep>>>,
    stats: Arc<ConnectionStats>,
}

impl<S> XdsSocket<S> {
    pub(super) fn new(
        socket: S,
        peer: SocketAddr,
        deadline: Instant,
        stats: Arc<ConnectionStats>,
    ) -> Self {
        Self {
            socket,
            peer,
            filter: FrameFilter::default(),
            ready: (Vec::new(), 0),
            deadline: Some(Box::pin(tokio::time::sleep_until(deadline))),
            stats,
        }
    }

    /// Fails if the first request is late.
    fn check_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(deadline) = &mut self.deadline else {
            return Ok(());
        };
        if self.filter.has_request() {
            self.deadline = None;
            return Ok(());
        }
        if deadline.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        self.stats.record_handshake_timeout(LISTENER, self.peer);
        self.deadline = None;
        let reason = "no request within limits.handshake_timeout";
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    }

    fn take_ready(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let (bytes, read) = &mut self.ready;
        let count = buf.remaining().min(bytes.len() - *read);
        buf.put_slice(&bytes[*read..*read + count]);
        *read += count;
        if *read == bytes.len() {
            // Idle connections hold no buffer.
            self.ready = (Vec::new(), 0);
        }
        count > 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for XdsSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.take_ready(buf) || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            this.check_deadline(cx)?;
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
            let read = &buf.filled()[before..];
            if read.is_empty() {
                this.filter.finish(&mut this.ready.0);
                this.take_ready(buf);
                return Poll::Ready(Ok(()));
            }
            let passed = this.filter.pass(read);
            this.filter.push(&read[passed..], &mut this.ready.0);
            buf.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for XdsSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::frames::PREFACE;
    use super::super::frames::tests::{frame, request};
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn socket<S>(stream: S, deadline: Instant, stats: &Arc<ConnectionStats>) -> XdsSocket<S> {
        let peer = ([10, 0, 0, 1], 7).into();
        XdsSocket::new(stream, peer, deadline, Arc::clone(stats))
    }

    fn timeouts(stats: &ConnectionStats) -> u64 {
        stats.refused()[2].1
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_request_times_out() {
        for sent in [&b""[..], &PREFACE[..7], PREFACE] {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let stats = Arc::new(ConnectionStats::default());
            let since = Instant::now();
            let mut socket = socket(server, since + LIMIT, &stats);
            client.write_all(sent).await.unwrap();
            let mut read = Vec::new();
            let error = socket.read_to_end(&mut read).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(read, sent);
            assert_eq!(timeouts(&stats), 1);
            assert_eq!(since.elapsed(), LIMIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_ends_with_the_first_request() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let stats = Arc::new(ConnectionStats::default());
        let mut socket = socket(server, Instant::now() + LIMIT, &stats);
        let sent = [PREFACE, &request(b"xds")].concat();
        client.write_all(&sent).await.unwrap();
        let mut read = vec![0; sent.len()];
        socket.read_exact(&mut read).await.unwrap();
        assert_eq!(read, sent);
        let mut next = [0; 1];
        let silence = tokio::time::timeout(10 * LIMIT, socket.read(&mut next)).await;
        assert!(silence.is_err(), "the connection stays open");
        assert_eq!(timeouts(&stats), 0);
    }

    #[tokio::test]
    async fn bytes_pass_in_order_in_any_pieces() {
        let data = frame(0, 0, &[b'|'; 300]);
        let sent = [
            PREFACE,
            &request(b"a|b"),
            &data,
            &request(b"c|d"),
            &data[..5],
        ]
        .concat();
        let expected = [
            PREFACE,
            &request(b"a+b"),
            &data,
            &request(b"c+d"),
            &data[..5],
        ]
        .concat();
        for (piece, buffer) in [(1, 1), (3, 7), (100, 5), (1000, 2000)] {
            let (mut client, server) = tokio::io::duplex(1 << 16);
            let deadline = Instant::now() + 100 * LIMIT;
            let mut socket = socket(server, deadline, &Arc::default());
            let text = sent.clone();
            let sending = tokio::spawn(async move {
                for piece in text.chunks(piece) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let mut read = Vec::new();
            let mut buffer = vec![0; buffer];
            loop {
                match socket.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            sending.await.unwrap();
            assert_eq!(read, expected, "{piece}");
        }
    }
}
