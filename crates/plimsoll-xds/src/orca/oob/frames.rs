//! gRPC's framing: [`frame`] makes a body of a message, [`Frames`] takes messages out of a body
//! that was cut anywhere.
//!
//! One byte of flags, four of length, then the message. What is in the message is none of its
//! business.

use std::sync::Arc;

use super::CloseReason;

/// Longest message that is read. A report is some hundred bytes; who sends more means harm.
const LONGEST: u32 = 64 * 1024;

const HEADER: usize = 5;

/// Bytes that wait for the rest of their frame: never more than one frame.
#[derive(Debug, Default)]
pub(super) struct Frames {
    waiting: Vec<u8>,
}

impl Frames {
    /// Takes bytes and calls `each` with every message that is complete now, the first message that
    /// is not empty to the last, until one is refused by `each` or cannot be read.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), CloseReason>,
    ) -> Result<(), CloseReason> {
        self.waiting.extend_from_slice(bytes);
        let mut rest = self.waiting.as_slice();
        while let Some((message, after)) = split(rest)? {
            // An empty message is an all-default report: it says nothing.
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

/// One message as a body. What we send is a few bytes long.
pub(super) fn frame(message: &[u8]) -> Arc<[u8]> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// A message, and the bytes after it.
type Split<'b> = (&'b [u8], &'b [u8]);

/// The first message of `bytes` and what follows it, once it is complete. Flags and length are
/// judged as soon as they are there.
fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, CloseReason> {
    if let Some(&flags) = bytes.first()
        && flags != 0
    {
        return Err(CloseReason::BadFrame { flags });
    }
    let Some((&[_, a, b, c, d], body)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if length > LONGEST {
        return Err(CloseReason::TooLarge { length });
    }
    Ok(body.split_at_checked(length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages, and how it ended, when `bytes` come in pieces of `size`.
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
    fn a_body_is_flags_length_and_message() {
        assert_eq!(*frame(b"abc"), [0, 0, 0, 0, 3, b'a', b'b', b'c']);
        assert_eq!(*frame(&[]), [0; 5]);
        assert_eq!(frame(&[9; 300])[..5], [0, 0, 0, 1, 44]);
    }

    #[test]
    fn messages_arrive_whole_however_they_were_cut() {
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
    fn flags_are_refused_at_the_first_byte() {
        for flags in [1, 2, 0x80, 0xff] {
            let (messages, end) = read(&[&*frame(b"good"), &[flags]].concat(), 100);
            assert_eq!(messages, [b"good"], "what came before counts");
            assert_eq!(end, Err(CloseReason::BadFrame { flags }));
        }
    }

    #[test]
    fn messages_end_at_64_kib() {
        let longest = vec![1; 65_536];
        assert_eq!(
            read(&frame(&longest), 9_999),
            (vec![longest.clone()], Ok(()))
        );
        // Refused by its length alone: nobody waits for the rest.
        let length = 65_537;
        let end = read(&[0, 0, 1, 0, 1], 1);
        assert_eq!(end, (vec![], Err(CloseReason::TooLarge { length })));
        let end = read(&[0, 0xff, 0xff, 0xff, 0xff], 5);
        let length = u32::MAX;
        assert_eq!(end, (vec![], Err(CloseReason::TooLarge { length })));
    }

    #[test]
    fn a_refusal_stops_the_reading() {
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
