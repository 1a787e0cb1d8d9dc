//! The first bytes of a connection (`preface`): the protocol does not depend on how the bytes were
//! split, the end of the connection is noticed, and all bytes can be read again.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::MemoryLimit;
use crate::preface::{Detected, PrefixedStream};

/// The pieces of an input, and the bytes that were read ahead.
pub const MEMORY: MemoryLimit = MemoryLimit {
    base: 16 << 10,
    per_byte: 64,
};

/// A connection whose bytes arrive in pieces, and then its end.
struct Pieces<'a>(VecDeque<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(piece) = self.0.pop_front() {
            let (now, later) = piece.split_at(piece.len().min(buf.remaining()));
            buf.put_slice(now);
            if !later.is_empty() {
                self.0.push_front(later);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The first byte decides how the others are split.
pub fn run(bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else {
        return;
    };
    let mut stream = PrefixedStream::new(Pieces(super::pieces(bytes, *seed).into()));
    let detected = stream.detect(|| {}).now_or_never();
    assert!(
        matches!(&detected, Some(Ok(detected)) if *detected == expected(bytes)),
        "{detected:?}"
    );
    let mut read = Vec::new();
    let complete = stream.read_to_end(&mut read).now_or_never();
    assert!(matches!(complete, Some(Ok(_))), "{complete:?}");
    assert_eq!(read, bytes, "all bytes are read again");
}

fn expected(bytes: &[u8]) -> Detected {
    let preface = "PRI * HTTP/2.0".as_bytes();
    if bytes.starts_with(preface) {
        Detected::Http2
    } else if preface.starts_with(bytes) {
        Detected::Closed
    } else {
        Detected::Http1
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_seeded;
    use super::*;

    #[test]
    fn the_protocol_does_not_depend_on_the_split() {
        for seed in 0..=255 {
            for length in 0..20 {
                run(&[&[seed], &b"PRI * HTTP/2.0\r\n\r\nSM"[..length]].concat());
            }
        }
        let tokens = ["PRI", " ", "*", " HTTP/2", ".0", "GET / HTTP/1.1\r\n", "P"];
        run_seeded(&tokens, 2000, MEMORY, run);
    }
}
