//! Reads the gRPC messages of a request body one by one, as bytes.
//!
//! Tonic's decoder keeps its buffer for the life of a stream: 61 KB for each Envoy that reports
//! load. This reader frees the buffer with the message, and does not copy a message that arrives in
//! one chunk. Load reports that arrive in several are trimmed. Used by the server; clients use
//! `codec`.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;
use tonic::Status;
use tonic::body::Body;

use super::budget::{Account, Evicted};
use super::request_limits::{Refused, RequestLimit};
use super::trimmed::TrimmedReport;
use crate::grpc_frame::{FrameError, HEADER, message_length};

/// Limits the buffer reserved for an announced length before its bytes arrive.
const FIRST_RESERVE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    buffer: Buffer,
    /// Bytes of the buffer.
    unfinished: Account,
}

/// Why there are no more messages.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The client exceeds a limit of the server.
    Refused(Refused),
    Failed(Status),
    /// The stream has ended, with a status that the client gets.
    Evicted,
}

impl From<Evicted> for ReadError {
    fn from(Evicted: Evicted) -> Self {
        Self::Evicted
    }
}

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// Received bytes that do not yet form a message, or form several.
#[derive(Debug)]
struct Buffer {
    bytes: BytesMut,
    /// The last chunk, as long as no message spans several chunks.
    piece: Bytes,
    /// A load report that spans several chunks.
    report: Option<TrimmedReport>,
    /// Whether messages are load reports.
    trims_reports: bool,
    max_message_size: usize,
}

impl Messages {
    pub(super) fn new(body: Body, max_message_size: usize, unfinished: Account) -> Self {
        let buffer = Buffer {
            bytes: BytesMut::new(),
            piece: Bytes::new(),
            report: None,
            trims_reports: false,
            max_message_size,
        };
        Self {
            body,
            buffer,
            unfinished,
        }
    }

    /// Drops the extensions of nodes from messages, which are load reports.
    pub(super) const fn trim_reports(&mut self) {
        self.buffer.trims_reports = true;
    }

    /// Returns the next message, or `None` at the end of the body. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(message) = self.buffer.take()? {
                self.unfinished.set(0)?;
                return Ok(Some(message));
            }
            // Its deadline holds although this may not be polled: see `Budget::expire`.
            self.unfinished.set(self.buffer.len())?;
            let body = &mut self.body;
            let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
            let Some(frame) = frame else {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(Status::internal("stream ended inside a message").into())
                };
            };
            if let Ok(data) = frame?.into_data() {
                self.buffer.push(data);
            }
        }
    }
}

impl Buffer {
    fn len(&self) -> usize {
        let report = self.report.as_ref().map_or(0, TrimmedReport::len);
        self.bytes.len() + self.piece.len() + report
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.piece.is_empty() && self.report.is_none()
    }

    /// Appends a chunk. Call it only after [`Self::take`] returned `None`.
    fn push(&mut self, mut data: Bytes) {
        if let Some(report) = &mut self.report {
            report.push(&data.split_to(report.missing().min(data.len())));
            self.piece = data;
            return;
        }
        if self.is_empty() {
            self.piece = data;
            return;
        }
        let piece = std::mem::take(&mut self.piece);
        self.bytes.extend_from_slice(&piece);
        self.bytes.extend_from_slice(&data);
    }

    fn take(&mut self) -> Result<Option<Bytes>, ReadError> {
        if let Some(report) = self.report.take_if(|report| report.missing() == 0) {
            return Ok(Some(report.finish().into()));
        }
        if self.report.is_some() {
            return Ok(None);
        }
        let whole = self.bytes.is_empty();
        let bytes: &[u8] = if whole { &self.piece } else { &self.bytes };
        let there = bytes.len();
        let length = message_length(bytes, self.max_message_size)
            .map_err(|error| self.frame_error(error))?;
        let end = length.unwrap_or(0).saturating_add(HEADER);
        if let Some(length) = length
            && there < end
            && self.trims_reports
        {
            let mut report = TrimmedReport::new(length);
            report.push(&bytes[HEADER..]);
            (self.bytes, self.piece) = Default::default();
            self.report = Some(report);
            return Ok(None);
        }
        if length.is_none() || there < end {
            if !whole {
                self.bytes.reserve((end - there).min(FIRST_RESERVE));
            }
            return Ok(None);
        }
        let mut message = if whole {
            self.piece.split_to(end)
        } else {
            let message = self.bytes.split_to(end).freeze();
            if self.bytes.is_empty() {
                self.bytes = BytesMut::new();
            }
            message
        };
        message.advance(HEADER);
        Ok(Some(message))
    }

    fn frame_error(&self, error: FrameError) -> ReadError {
        let limit = self.max_message_size;
        match error {
            FrameError::Flags(_) => {
                Status::unimplemented("compressed messages are not supported").into()
            }
            FrameError::TooLong(length) => ReadError::Refused(Refused::Limit {
                limit: RequestLimit::MaxMessageSize,
                text: format!("message of {length} bytes; the limit is {limit}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Weak};
    use std::task::{Context, Poll};
    use std::time::Duration;

    use http_body::Frame;
    use proptest::prelude::*;
    use tonic::Code;

    use super::super::budget::Budget;
    use super::super::request_limits::RequestLimit;
    use super::*;
    use crate::grpc_frame::frame as framed;

    fn budget(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget::new(RequestLimit::UnfinishedBytes, "message", bytes))
    }

    fn messages(max_message_size: usize) -> Messages {
        let unfinished = budget(1 << 20).account(None, Weak::new());
        Messages::new(Body::empty(), max_message_size, unfinished)
    }

    fn buffer(max_message_size: usize) -> Buffer {
        messages(max_message_size).buffer
    }

    #[test]
    fn a_message_in_one_piece_is_not_copied() {
        let data = Bytes::from([framed(b"one"), framed(b""), framed(b"three")].concat());
        let mut buffer = buffer(10);
        buffer.push(data.clone());
        let one = buffer.take().unwrap().unwrap();
        assert_eq!(one.as_ptr(), data[HEADER..].as_ptr());
        assert_eq!(buffer.take().unwrap().unwrap(), "");
        assert_eq!(buffer.take().unwrap().unwrap(), "three");
        assert!(buffer.is_empty());
    }

    #[test]
    fn the_buffer_of_a_long_message_is_freed() {
        let message = vec![7; 61 << 10];
        let mut buffer = buffer(1 << 20);
        for chunk in framed(&message).chunks(16 << 10) {
            assert_eq!(buffer.take().unwrap(), None);
            buffer.push(Bytes::copy_from_slice(chunk));
        }
        assert_eq!(buffer.take().unwrap().unwrap(), message);
        assert_eq!((buffer.is_empty(), buffer.bytes.capacity()), (true, 0));
    }

    #[test]
    fn load_reports_in_several_chunks_lose_the_extensions_of_their_node() {
        // node { id: "n", extensions: [{}, {}] }
        let report = framed(b"\x0a\x07\x0a\x01n\x4a\x00\x4a\x00");
        let bytes = [&report[..], &report, &framed(b"")].concat();
        let trimmed = b"\x0a\x83\x80\x80\x80\x00\x0a\x01n";
        for cut in 1..bytes.len() {
            let mut buffer = buffer(40);
            buffer.trims_reports = true;
            let mut read = Vec::new();
            for chunk in bytes.chunks(cut) {
                buffer.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = buffer.take().unwrap() {
                    read.push(message);
                }
            }
            let [first, second, last] = &read[..] else {
                panic!("{} messages in chunks of {cut}", read.len());
            };
            for message in [first, second] {
                assert!([&trimmed[..], &report[HEADER..]].contains(&&message[..]));
            }
            assert!(cut >= report.len() || first == &trimmed[..], "{cut}");
            assert_eq!(last, "");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn an_announced_length_is_not_reserved_before_bytes_arrive() {
        let mut buffer = buffer(usize::MAX);
        buffer.push(Bytes::from_static(&[0, 255, 255]));
        assert_eq!(buffer.take().unwrap(), None);
        buffer.push(Bytes::from_static(&[255, 255, 1]));
        assert_eq!(buffer.take().unwrap(), None);
        assert!(buffer.bytes.capacity() <= 4 * FIRST_RESERVE);
    }

    fn refused(error: ReadError) -> RequestLimit {
        match error {
            ReadError::Refused(Refused::Limit { limit, .. }) => limit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn long_and_compressed_messages_are_rejected() {
        let mut short = buffer(2);
        short.push(framed(b"123"));
        let error = short.take().unwrap_err();
        assert_eq!(refused(error), RequestLimit::MaxMessageSize);
        let mut compressed = buffer(2);
        compressed.push(Bytes::from_static(&[1, 0, 0, 0, 1, 9]));
        let error = compressed.take().unwrap_err();
        assert!(
            matches!(&error, ReadError::Failed(status) if status.code() == Code::Unimplemented),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn a_body_may_end_between_messages_but_not_inside_one() {
        let mut messages = messages(1);
        assert!(messages.next().await.unwrap().is_none());
        messages.buffer.push(Bytes::from_static(&[0, 0]));
        let error = messages.next().await.unwrap_err();
        assert!(
            matches!(&error, ReadError::Failed(status) if status.code() == Code::Internal),
            "{error:?}"
        );
    }

    /// A body that sends chunks and then nothing more.
    struct Stalled(VecDeque<Bytes>);

    impl http_body::Body for Stalled {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => Poll::Pending,
            }
        }
    }

    fn stalled(chunks: &[&[u8]], all: &Arc<Budget>) -> Messages {
        let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk));
        let body = Body::new(Stalled(chunks.collect()));
        Messages::new(body, 1 << 10, all.account(None, Weak::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_messages_of_all_streams_are_counted() {
        let all = budget(100);
        let half = |bytes: usize| [&[0, 0, 0, 3, 0][..], &vec![7; bytes - 5]].concat();
        let mut small = stalled(&[&framed(&[7; 200]), &half(30)], &all);
        let mut large = stalled(&[&half(40), &[7; 20], &[7; 1]], &all);
        let pause = Duration::from_millis(1);
        assert_eq!(small.next().await.unwrap().unwrap().len(), 200);
        for reader in [&mut small, &mut large] {
            assert!(tokio::time::timeout(pause, reader.next()).await.is_err());
        }
        let mut late = stalled(&[&half(20)], &all);
        assert!(tokio::time::timeout(pause, late.next()).await.is_err());
        // The session would have been ended; the reader learns it with its next bytes.
        large.buffer.push(Bytes::from_static(&[7]));
        let error = large.next().await.unwrap_err();
        assert!(matches!(error, ReadError::Evicted), "{error:?}");
        for reader in [&mut small, &mut late] {
            let more = tokio::time::timeout(pause, reader.next()).await;
            assert!(more.is_err(), "the others may go on");
        }
    }

    proptest! {
        #[test]
        fn messages_survive_any_chunking(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            cut in 1_usize..30,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
            let mut buffer = buffer(40);
            let mut read = Vec::new();
            for chunk in bytes.chunks(cut) {
                buffer.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = buffer.take().unwrap() {
                    read.push(message.to_vec());
                }
            }
            prop_assert_eq!(read, messages);
        }
    }
}
