//! [`MonitoredIo`]: the socket of a downstream connection below hyper. Records reads and writes for
//! the timeouts of the [`Connection`], and scans what hyper is about to parse: HTTP/1.1 messages,
//! and PINGs of HTTP/2.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Connection;
use crate::message_scan::MessageScan;
use crate::ping_scan::PingScan;

/// Response to a request whose headers did not arrive within `request_headers_timeout`.
const REQUEST_TIMEOUT_RESPONSE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\
                           connection: close\r\n\r\n";

/// Limit of the bytes that probes read ahead of hyper.
const MAX_HELD: usize = 4096;

thread_local! {
    /// Buffer of `probe`, borrowed only during a single read.
    static SCRATCH: RefCell<[u8; MAX_HELD]> = const { RefCell::new([0; MAX_HELD]) };
}

pub(crate) struct MonitoredIo<T> {
    io: T,
    connection: Arc<Connection>,
    scan: Scan,
    /// Why nothing further is read.
    refusal: Option<&'static str>,
    /// Bytes that a probe read while hyper did not read.
    held: Vec<u8>,
}

#[derive(Debug)]
enum Scan {
    Http1(MessageScan),
    Http2(PingScan),
}

impl<T> MonitoredIo<T> {
    /// Creates the IO of a connection whose protocol is known.
    pub(crate) fn new(io: T, connection: Arc<Connection>) -> Self {
        let scan = if connection.is_http2() {
            Scan::Http2(PingScan::default())
        } else {
            Scan::Http1(MessageScan::default())
        };
        Self {
            io,
            connection,
            scan,
            refusal: None,
            held: Vec::new(),
        }
    }

    /// Records and scans bytes that hyper is about to parse.
    fn record_read(&mut self, read: &mut [u8]) {
        let connection = &self.connection;
        let busy = connection.is_busy();
        let starts_head = connection.record_read();
        match &mut self.scan {
            Scan::Http1(_) if connection.is_tunnel() => {}
            Scan::Http1(scan) => {
                let scanned = scan.scan(read);
                connection.record_scan(scanned, starts_head, busy);
                if scanned.malformed_trailers {
                    self.refusal = Some("trailers have a bare LF");
                }
            }
            Scan::Http2(scan) => {
                if !scan.scan_read(read) {
                    self.refusal = Some("PING acknowledgements that were not asked for");
                }
            }
        }
    }

    /// Records an attempt to write `slices`.
    fn record_write<'a>(
        &mut self,
        written: &Poll<io::Result<usize>>,
        slices: impl Iterator<Item = &'a [u8]>,
    ) {
        self.connection.record_write(written);
        let (Scan::Http2(scan), Poll::Ready(Ok(written))) = (&mut self.scan, written) else {
            return;
        };
        let mut written = *written;
        for slice in slices {
            let count = slice.len().min(written);
            scan.scan_written(&slice[..count]);
            written -= count;
        }
    }
}

impl<T: AsyncRead + Unpin> MonitoredIo<T> {
    /// Reads from the socket, after the bytes that a probe has read.
    fn poll_socket(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let count = buf.remaining().min(self.held.len());
        buf.put_slice(&self.held[..count]);
        self.held.drain(..count);
        Poll::Ready(Ok(()))
    }

    /// Looks for the end of the socket. hyper does not read while it has bytes of a pipelined
    /// request, and would not notice that the client has gone.
    fn probe(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.held.len() >= MAX_HELD {
            return Ok(());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(&mut scratch[..]);
            if Pin::new(&mut self.io)
                .poll_read(cx, &mut read)?
                .is_pending()
            {
                return Ok(());
            }
            if read.filled().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.held.extend_from_slice(read.filled());
            Ok(())
        })
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for MonitoredIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.connection.header_timed_out() {
            // Best effort. Not if the previous response is still being written.
            if !self.connection.is_write_blocked() {
                let _ = Pin::new(&mut self.io).poll_write(cx, REQUEST_TIMEOUT_RESPONSE);
                let _ = Pin::new(&mut self.io).poll_flush(cx);
            }
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if let Some(reason) = self.refusal {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        let before = buf.filled().len();
        ready!(self.poll_socket(cx, buf))?;
        self.record_read(&mut buf.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MonitoredIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.record_write(&written, std::iter::once(buf));
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes whenever it is polled, also while it does not read.
        if self.connection.take_probe_request() {
            self.probe(cx)?;
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.record_write(&written, bufs.iter().map(|buf| &**buf));
        written
    }
}

#[cfg(test)]
mod tests;
