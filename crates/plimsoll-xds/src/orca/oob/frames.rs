//! Splits a gRPC body that arrives in arbitrary chunks into messages.

use super::CloseReason;
use crate::grpc_frame::{FrameError, split};

/// Longest accepted message. A report has a few hundred bytes; larger ones are hostile.
const LONGEST: usize = 64 * 1024;

/// Buffer for at most one incomplete frame.
#[derive(Debug, Default)]
pub(super) struct Frames {
    waiting: Vec<u8>,
}

impl Frames {
    /// Calls `each` with every complete non-empty message, until an error or invalid frame.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), CloseReason>,
    ) -> Result<(), CloseReason> {
        self.waiting.extend_from_slice(bytes);
        let mut rest = self.waiting.as_slice();
        while let Some((message, after)) = split(rest, LONGEST)? {
            // An empty message is an all-default report without information.
            if !message.is_empty() {
                each(message)?;
            }
            rest = after;
        }
        let done = self.waiting.len() - rest.len();
        self.waiting.drain(..done);
        Ok(())
    }
}

impl From<FrameError> for CloseReason {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Flags(flags) => Self::BadFrame { flags },
            FrameError::TooLong(length) => Self::TooLarge { length },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc_frame::frame;

    /// Feeds `bytes` in chunks of `size`; returns the messages and the final result.
    fn read(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, Result<(), CloseReason>) {
        let (mut frames, mut messages) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(size) {
            let end = frames.push(piece, |message| {
                messages.push(message.to_vec());
                Ok(())
            });
            if end.is_err() {
                return (messages, end);
            }
        }
        (messages, Ok(()))
    }

    #[test]
    fn messages_are_reassembled_from_any_chunks() {
        let messages = [b"one".to_vec(), vec![7; 300], b"three".to_vec()];
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|message| frame(message).to_vec())
            .collect();
        for size in 1..=bytes.len() {
            assert_eq!(read(&bytes, size), (messages.to_vec(), Ok(())), "{size}");
        }
    }

    #[test]
    fn a_message_waits_for_its_last_byte() {
        let bytes = frame(b"abc");
        let (mut frames, mut seen) = (Frames::default(), 0);
        let mut push = |bytes: &[u8]| {
            let end = frames.push(bytes, |message| {
                assert_eq!(message, b"abc");
                seen += 1;
                Ok(())
            });
            assert_eq!(end, Ok(()));
            seen
        };
        assert_eq!(push(&bytes[..7]), 0);
        assert_eq!(push(&[]), 0);
        assert_eq!(push(&bytes[7..]), 1);
        assert_eq!(push(&bytes), 2, "nothing is left behind");
    }

    #[test]
    fn empty_messages_are_skipped() {
        let bytes = [frame(b""), frame(b"x"), frame(b""), frame(b"")].concat();
        assert_eq!(read(&bytes, 3), (vec![b"x".to_vec()], Ok(())));
    }

    #[test]
    fn flags_are_rejected_at_the_first_byte() {
        for flags in [1, 2, 0x80, 0xff] {
            let (messages, end) = read(&[&*frame(b"good"), &[flags]].concat(), 100);
            assert_eq!(messages, [b"good"], "what came before counts");
            assert_eq!(end, Err(CloseReason::BadFrame { flags }));
        }
    }

    #[test]
    fn messages_are_limited_to_64_kib() {
        let longest = vec![1; 65_536];
        assert_eq!(
            read(&frame(&longest), 9_999),
            (vec![longest.clone()], Ok(()))
        );
        // Rejected by the announced length, without waiting for the rest.
        let length = 65_537;
        let end = read(&[0, 0, 1, 0, 1], 1);
        assert_eq!(end, (vec![], Err(CloseReason::TooLarge { length })));
        let end = read(&[0, 0xff, 0xff, 0xff, 0xff], 5);
        let length = u32::MAX;
        assert_eq!(end, (vec![], Err(CloseReason::TooLarge { length })));
    }

    #[test]
    fn an_error_of_the_callback_stops_reading() {
        let bytes = [frame(b"a"), frame(b"b"), frame(b"c")].concat();
        let mut seen = Vec::new();
        let end = Frames::default().push(&bytes, |message| {
            seen.extend_from_slice(message);
            if message == b"b" {
                return Err(CloseReason::InvalidReport);
            }
            Ok(())
        });
        assert_eq!(
            (seen.as_slice(), end),
            (&b"ab"[..], Err(CloseReason::InvalidReport))
        );
    }
}
