//! gRPC message framing: one byte of flags, four bytes of length, then the message.
//!
//! Shared by servers, clients, health checks and load reports. Compressed messages are not
//! supported.

use bytes::Bytes;

/// Length of the frame header in bytes.
pub const HEADER: usize = 5;

/// Reason why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A flag is set: the message is compressed, or the peer does not speak gRPC.
    Flags(u8),
    /// The message exceeds the limit of the reader.
    TooLong(u32),
}

/// Encodes the frame header of an uncompressed message, which must be shorter than 4 GiB.
pub fn header(length: usize) -> [u8; HEADER] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// Encodes a message with its frame header.
pub fn frame(message: &[u8]) -> Bytes {
    Bytes::from([&header(message.len())[..], message].concat())
}

/// Returns the length of the first message once its header is complete. Flags are rejected at the
/// first byte, lengths above `longest` without waiting for the message.
pub fn message_length(bytes: &[u8], longest: usize) -> Result<Option<usize>, FrameError> {
    if let Some(&flags) = bytes.first()
        && flags != 0
    {
        return Err(FrameError::Flags(flags));
    }
    let Some(&[_, a, b, c, d]) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    match usize::try_from(length) {
        Ok(fits) if fits <= longest => Ok(Some(fits)),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Message and the bytes after it.
pub type Split<'b> = (&'b [u8], &'b [u8]);

/// Splits off the first message, once it is complete.
pub fn split(bytes: &[u8], longest: usize) -> Result<Option<Split<'_>>, FrameError> {
    let length = message_length(bytes, longest)?;
    Ok(length.and_then(|length| bytes.get(HEADER..)?.split_at_checked(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_flags_length_and_message() {
        assert_eq!(frame(b"abc"), &[0, 0, 0, 0, 3, b'a', b'b', b'c'][..]);
        assert_eq!(frame(&[]), &[0; 5][..]);
        assert_eq!(frame(&[9; 300])[..5], [0, 0, 0, 1, 44]);
    }

    #[test]
    fn a_message_is_split_off_once_it_is_complete() {
        let bytes = [&frame(b"abc")[..], b"rest"].concat();
        for there in 0..HEADER + 3 {
            assert_eq!(split(&bytes[..there], 3), Ok(None), "{there}");
        }
        assert_eq!(split(&bytes, 3), Ok(Some((&b"abc"[..], &b"rest"[..]))));
        assert_eq!(split(&frame(b""), 0), Ok(Some((&b""[..], &b""[..]))));
    }

    #[test]
    fn flags_and_long_messages_are_rejected_before_the_message_arrives() {
        assert_eq!(split(&[1], 9), Err(FrameError::Flags(1)));
        assert_eq!(split(&[0, 0, 0, 0, 4], 3), Err(FrameError::TooLong(4)));
        assert_eq!(
            split(&[0, 255, 255, 255, 255], 3),
            Err(FrameError::TooLong(u32::MAX))
        );
    }
}
