//! [`Messages`]: the gRPC messages of a request body, one by one, as bytes.
//!
//! Tonic's own reader keeps its buffer for the life of a stream: 61 KB for each Envoy that reports
//! load. This one gives the buffer back with the message, and does not copy what arrived in one
//! piece. What a message means is not known here. Used by the server; clients use `codec`.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;
use tonic::Status;
use tonic::body::Body;

/// Compressed flag and length.
const HEADER: usize = 5;
/// A length is only a claim: no more than this is reserved before bytes arrive.
const FIRST_RESERVE: usize = 64 << 10;

/// A body that is read message by message.
#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    buffer: Buffer,
}

/// What has arrived and is no whole message yet, or more than one.
#[derive(Debug)]
struct Buffer {
    bytes: BytesMut,
    /// What arrived last, as long as nothing had to be put together.
    piece: Bytes,
    max_message_size: usize,
}

impl Messages {
    pub(super) fn new(body: Body, max_message_size: usize) -> Self {
        let buffer = Buffer {
            bytes: BytesMut::new(),
            piece: Bytes::new(),
            max_message_size,
        };
        Self { body, buffer }
    }

    /// The next message; `None` when the client has no more to say. May be dropped and called
    /// again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.buffer.take()? {
                return Ok(Some(message));
            }
            let body = &mut self.body;
            let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(Status::internal("stream ended inside a message")),
                };
            };
            if let Ok(data) = frame?.into_data() {
                self.buffer.push(data);
            }
        }
    }
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.piece.is_empty()
    }

    /// Only after [`Self::take`] found nothing.
    fn push(&mut self, data: Bytes) {
        if self.is_empty() {
            self.piece = data;
            return;
        }
        let piece = std::mem::take(&mut self.piece);
        self.bytes.extend_from_slice(&piece);
        self.bytes.extend_from_slice(&data);
    }

    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        if !self.bytes.is_empty() {
            let Some(end) = end_of_message(&self.bytes, self.max_message_size)? else {
                let missing = self.missing();
                self.bytes.reserve(missing);
                return Ok(None);
            };
            let mut message = self.bytes.split_to(end).freeze();
            message.advance(HEADER);
            if self.bytes.is_empty() {
                self.bytes = BytesMut::new();
            }
            return Ok(Some(message));
        }
        let Some(end) = end_of_message(&self.piece, self.max_message_size)? else {
            return Ok(None);
        };
        let mut message = self.piece.split_to(end);
        message.advance(HEADER);
        Ok(Some(message))
    }

    /// How much of the message is still to come, as far as that is believed.
    fn missing(&self) -> usize {
        let end = length(&self.bytes).map_or(HEADER, |length| length.saturating_add(HEADER));
        end.saturating_sub(self.bytes.len()).min(FIRST_RESERVE)
    }
}

/// Where the first message ends, if all of it is there.
fn end_of_message(bytes: &[u8], max_message_size: usize) -> Result<Option<usize>, Status> {
    let Some(length) = length(bytes) else {
        return Ok(None);
    };
    if bytes[0] != 0 {
        let text = "compressed messages are not understood";
        return Err(Status::unimplemented(text));
    }
    if length > max_message_size {
        let text = format!("message of {length} bytes; the limit is {max_message_size}");
        return Err(Status::resource_exhausted(text));
    }
    let end = HEADER + length;
    Ok((bytes.len() >= end).then_some(end))
}

fn length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..HEADER)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn buffer(max_message_size: usize) -> Buffer {
        Messages::new(Body::empty(), max_message_size).buffer
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
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
    fn the_memory_of_a_long_message_is_given_back() {
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
    fn a_length_is_not_believed_before_bytes_arrive() {
        let mut buffer = buffer(usize::MAX);
        buffer.push(Bytes::from_static(&[0, 255, 255]));
        assert_eq!(buffer.take().unwrap(), None);
        buffer.push(Bytes::from_static(&[255, 255, 1]));
        assert_eq!(buffer.take().unwrap(), None);
        assert!(buffer.bytes.capacity() <= 4 * FIRST_RESERVE);
    }

    #[test]
    fn long_and_compressed_messages_are_refused() {
        let mut short = buffer(2);
        short.push(framed(b"123").into());
        assert_eq!(short.take().unwrap_err().code(), Code::ResourceExhausted);
        let mut compressed = buffer(2);
        compressed.push(Bytes::from_static(&[1, 0, 0, 0, 1, 9]));
        let code = compressed.take().unwrap_err().code();
        assert_eq!(code, Code::Unimplemented);
    }

    #[tokio::test]
    async fn a_body_that_ends_between_messages_ends_well() {
        let mut messages = Messages::new(Body::empty(), 1);
        assert!(messages.next().await.unwrap().is_none());
        messages.buffer.push(Bytes::from_static(&[0, 0]));
        assert_eq!(messages.next().await.unwrap_err().code(), Code::Internal);
    }

    proptest! {
        #[test]
        fn messages_survive_any_cutting(
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
