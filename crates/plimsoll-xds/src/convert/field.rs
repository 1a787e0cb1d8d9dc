//! Protobuf field by field, for messages that must keep what we do not know.
//!
//! prost drops unknown fields, so a relay cannot decode and encode. [`Fields`] walks over the
//! fields of a message and yields each one with its own bytes, tag included; what is not edited is
//! copied. So are groups, which version 3 of the language does not have and prost skips: what can
//! be read can be passed on.

use bytes::BufMut;
use prost::encoding::{
    DecodeContext, WireType, decode_varint, encode_key, encode_varint, skip_field,
};

use crate::error::DecodeError;

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// Its number.
    pub(super) number: u32,
    /// Tag, length and value, as they came.
    pub(super) raw: &'a [u8],
    /// The value of a field with a length: string, bytes, message. Empty for numbers.
    pub(super) value: &'a [u8],
    /// Whether it has a length.
    pub(super) has_length: bool,
}

/// The fields of a message, in order. An error is the last item.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// The fields of `message`.
pub(super) const fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = take_field(&mut self.rest);
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, DecodeError> {
    let start = *rest;
    let (number, wire_type) = prost::encoding::decode_key(rest)?;
    let length = match wire_type {
        WireType::Varint => {
            decode_varint(rest)?;
            0
        }
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest)?)
            .map_err(|_| DecodeError::new("", "a length that does not fit memory"))?,
        WireType::StartGroup | WireType::EndGroup => {
            skip_field(wire_type, number, rest, DecodeContext::default())?;
            0
        }
    };
    let Some((value, after)) = rest.split_at_checked(length) else {
        let reason = format!("field {number} is longer than the message");
        return Err(DecodeError::new("", reason));
    };
    *rest = after;
    let has_length = wire_type == WireType::LengthDelimited;
    Ok(Field {
        number,
        raw: &start[..start.len() - after.len()],
        value: if has_length { value } else { &[] },
        has_length,
    })
}

/// Writes tag and length of a field; the value follows.
pub(super) fn put_head(out: &mut impl BufMut, number: u32, length: usize) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

/// Writes a field that has a length.
pub(super) fn put_field(out: &mut impl BufMut, number: u32, value: &[u8]) {
    put_head(out, number, value.len());
    out.put_slice(value);
}

/// The bytes that [`put_field`] writes.
pub(super) fn field_len(number: u32, value: usize) -> usize {
    prost::encoding::key_len(number) + prost::encoding::encoded_len_varint(value as u64) + value
}

/// Writes a string, unless it is empty.
pub(super) fn put_string(out: &mut impl BufMut, number: u32, value: &str) {
    if !value.is_empty() {
        put_field(out, number, value.as_bytes());
    }
}

/// The bytes that [`put_string`] writes.
pub(super) fn string_len(number: u32, value: &str) -> usize {
    if value.is_empty() {
        return 0;
    }
    field_len(number, value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_walked_over() {
        // 1: varint 300, 2: fixed64, 3: "ab", 4: fixed32, 5: a group with a varint.
        let message = [
            0x08, 0xac, 0x02, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 2, b'a', b'b', 0x25, 1, 2, 3, 4,
            0x2b, 0x08, 7, 0x2c,
        ];
        let walked: Vec<_> = fields(&message).map(Result::unwrap).collect();
        let lengths: Vec<_> = walked.iter().map(|f| (f.number, f.raw.len())).collect();
        assert_eq!(lengths, [(1, 3), (2, 9), (3, 4), (4, 5), (5, 4)]);
        assert_eq!(walked[2].value, b"ab");
        let again: Vec<u8> = walked.iter().flat_map(|f| f.raw).copied().collect();
        assert_eq!(again, message);
    }

    #[test]
    fn what_is_no_message_is_an_error_and_the_end() {
        for bad in [
            &[0x0a, 5, 1][..], // longer than the message
            &[0x0b, 0x14],     // a group that another one ends
            &[0x0c],           // the end of a group that did not begin
            &[0x08],           // a number without its value
            &[0x00, 0x01],     // field 0
            &[0x0d, 1, 2, 3],  // 4 bytes wanted
            &[0xff; 11],       // an endless number
        ] {
            let mut walk = fields(bad);
            assert!(walk.next().unwrap().is_err(), "{bad:?}");
            assert!(walk.next().is_none());
        }
    }

    #[test]
    fn what_is_put_is_as_long_as_announced() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut out = Vec::new();
            put_field(&mut out, 41, &vec![7; length]);
            assert_eq!(out.len(), field_len(41, length));
            let field = fields(&out).next().unwrap().unwrap();
            assert_eq!((field.number, field.value.len()), (41, length));
        }
        let mut out = Vec::new();
        put_string(&mut out, 4, "");
        assert!(out.is_empty());
        assert_eq!(string_len(4, ""), 0);
    }
}
