//! Raw protobuf fields, for rewriting messages without losing unknown fields.
//!
//! prost drops unknown fields, so a relay cannot decode a message and encode it again.
//! [`RawFields`] iterates over the fields of a message and yields each one with its bytes, tag
//! included; fields that are not edited are copied. Groups, which proto3 does not have and prost
//! skips, are copied too.

use bytes::BufMut;
use prost::encoding::{
    DecodeContext, WireType, decode_varint, encode_key, encode_varint, skip_field,
};

use crate::error::DecodeError;

/// One encoded field of a message.
#[derive(Clone, Copy, Debug)]
pub struct RawField<'a> {
    pub number: u32,
    /// Tag, length and value as they were encoded.
    pub raw: &'a [u8],
    /// Value of a length-delimited field (string, bytes, message). Empty for numbers.
    pub value: &'a [u8],
    pub is_length_delimited: bool,
}

/// Iterator over the fields of a message, in order. Ends after the first error.
pub struct RawFields<'a> {
    rest: &'a [u8],
}

/// Iterates over the encoded fields of `message`.
pub const fn raw_fields(message: &[u8]) -> RawFields<'_> {
    RawFields { rest: message }
}

impl<'a> Iterator for RawFields<'a> {
    type Item = Result<RawField<'a>, DecodeError>;

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

fn take_field<'a>(rest: &mut &'a [u8]) -> Result<RawField<'a>, DecodeError> {
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
            .map_err(|_| DecodeError::new("", "length of a field exceeds the address space"))?,
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
    let is_length_delimited = wire_type == WireType::LengthDelimited;
    Ok(RawField {
        number,
        raw: &start[..start.len() - after.len()],
        value: if is_length_delimited { value } else { &[] },
        is_length_delimited,
    })
}

/// Writes key and length of a length-delimited field; the caller writes the value.
pub fn put_key_and_length(out: &mut impl BufMut, number: u32, length: usize) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

/// Writes a length-delimited field.
pub fn put_field(out: &mut impl BufMut, number: u32, value: &[u8]) {
    put_key_and_length(out, number, value.len());
    out.put_slice(value);
}

/// Returns how many bytes [`put_field`] writes for a value of `value` bytes.
pub fn field_len(number: u32, value: usize) -> usize {
    prost::encoding::key_len(number) + prost::encoding::encoded_len_varint(value as u64) + value
}

/// Writes a string field unless the string is empty, as proto3 does.
pub fn put_string(out: &mut impl BufMut, number: u32, value: &str) {
    if !value.is_empty() {
        put_field(out, number, value.as_bytes());
    }
}

/// Returns how many bytes [`put_string`] writes.
pub fn string_len(number: u32, value: &str) -> usize {
    if value.is_empty() {
        return 0;
    }
    field_len(number, value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_iterated() {
        // 1: varint 300, 2: fixed64, 3: "ab", 4: fixed32, 5: a group with a varint.
        let message = [
            0x08, 0xac, 0x02, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 2, b'a', b'b', 0x25, 1, 2, 3, 4,
            0x2b, 0x08, 7, 0x2c,
        ];
        let fields: Vec<_> = raw_fields(&message).map(Result::unwrap).collect();
        let lengths: Vec<_> = fields.iter().map(|f| (f.number, f.raw.len())).collect();
        assert_eq!(lengths, [(1, 3), (2, 9), (3, 4), (4, 5), (5, 4)]);
        assert_eq!(fields[2].value, b"ab");
        let copy: Vec<u8> = fields.iter().flat_map(|f| f.raw).copied().collect();
        assert_eq!(copy, message);
    }

    #[test]
    fn iteration_ends_after_an_error() {
        for bad in [
            &[0x0a, 5, 1][..], // longer than the message
            &[0x0b, 0x14],     // group closed with another number
            &[0x0c],           // end of a group that was not opened
            &[0x08],           // varint field without a value
            &[0x00, 0x01],     // field number 0
            &[0x0d, 1, 2, 3],  // fixed32 of 3 bytes
            &[0xff; 11],       // varint of more than 10 bytes
        ] {
            let mut fields = raw_fields(bad);
            assert!(fields.next().unwrap().is_err(), "{bad:?}");
            assert!(fields.next().is_none());
        }
    }

    #[test]
    fn length_functions_match_what_is_written() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut out = Vec::new();
            put_field(&mut out, 41, &vec![7; length]);
            assert_eq!(out.len(), field_len(41, length));
            let field = raw_fields(&out).next().unwrap().unwrap();
            assert_eq!((field.number, field.value.len()), (41, length));
        }
        let mut out = Vec::new();
        put_string(&mut out, 4, "");
        assert!(out.is_empty());
        assert_eq!(string_len(4, ""), 0);
    }
}
