//! Reads and writes the protobuf wire format, for the few messages of the protocols that a client
//! or backend without xDS speaks: ORCA and gRPC health checks.
//!
//! prost with its derive macro would be eight more packages in such a program. Groups, which proto3
//! does not have, are an error. Messages of the xDS API are in `plimsoll-schema`.

use std::fmt;

/// Reason why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireError(&'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Value of a field, by wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    /// String, bytes or message.
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

impl<'a> Value<'a> {
    pub(crate) fn double(self) -> Result<f64, WireError> {
        match self {
            Self::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(WRONG_TYPE),
        }
    }

    pub(crate) fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(WRONG_TYPE),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WRONG_TYPE),
        }
    }

    pub(crate) fn string(self) -> Result<&'a str, WireError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map_err(|_| WireError("a string is not UTF-8"))
    }
}

const WRONG_TYPE: WireError = WireError("a field has the wrong wire type");
const TRUNCATED: WireError = WireError("the message is truncated");

/// Iterates over the fields of a message, each with its number. Ends after the first error.
pub(crate) const fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// Iterator over the fields of a message; from [`fields`].
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.take_field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn take_field(&mut self) -> Result<(u32, Value<'a>), WireError> {
        let key = self.take_varint()?;
        let Ok(number @ 1..=0x1fff_ffff) = u32::try_from(key >> 3) else {
            return Err(WireError("a field number is out of range"));
        };
        let value = match key & 7 {
            0 => Value::Varint(self.take_varint()?),
            1 => Value::Fixed64(self.take_array()?),
            2 => {
                let length = usize::try_from(self.take_varint()?).map_err(|_| TRUNCATED)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(self.take_array()?),
            _ => return Err(WireError("a wire type is not supported")),
        };
        Ok((number, value))
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError("a varint is longer than 64 bits"))
    }
}

/// Writes a `double`, unless it is 0.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    if value != 0.0 {
        put_varint(out, u64::from(number << 3 | 1));
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Writes a whole number, unless it is 0.
pub(crate) fn put_uint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number << 3));
        put_varint(out, value);
    }
}

/// Writes a string, unless it is empty.
pub(crate) fn put_string(out: &mut Vec<u8>, number: u32, value: &str) {
    if !value.is_empty() {
        put_bytes(out, number, value.as_bytes());
    }
}

/// Writes a length-delimited field, also an empty one.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number << 3 | 2));
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits")]
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(message: &[u8]) -> Result<(u32, Value<'_>), WireError> {
        let mut fields = fields(message);
        let first = fields.next().expect("one field");
        assert_eq!(fields.next(), None, "{message:?}");
        first
    }

    #[test]
    fn every_wire_type_is_read() {
        assert_eq!(only(&[0x08, 0xac, 0x02]), Ok((1, Value::Varint(300))));
        let eight = [1, 2, 3, 4, 5, 6, 7, 8];
        let fixed = [&[0x11][..], &eight].concat();
        assert_eq!(only(&fixed), Ok((2, Value::Fixed64(eight))));
        assert_eq!(only(b"\x1a\x02ab"), Ok((3, Value::Bytes(b"ab"))));
        let four = [0x25, 1, 2, 3, 4];
        assert_eq!(only(&four), Ok((4, Value::Fixed32([1, 2, 3, 4]))));
    }

    #[test]
    fn malformed_messages_are_errors_and_end_the_iteration() {
        for bad in [
            &[0x0a, 5, 1][..], // longer than the message
            &[0x0b, 0x0c],     // a group
            &[0x08],           // varint field without a value
            &[0x00, 0x01],     // field number 0
            &[0x0d, 1, 2, 3],  // fixed32 of 3 bytes
            &[0x09, 1, 2],     // fixed64 of 2 bytes
            &[0xff; 11],       // varint of more than 10 bytes
            &[
                0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2,
            ],
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
        ] {
            assert!(only(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_have_one_type() {
        assert_eq!(Value::Varint(1).double(), Err(WRONG_TYPE));
        assert_eq!(Value::Fixed32([0; 4]).varint(), Err(WRONG_TYPE));
        assert_eq!(Value::Fixed64([0; 8]).bytes(), Err(WRONG_TYPE));
        assert!(Value::Bytes(b"\xff").string().is_err());
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in [1, 127, 128, 300, 1 << 35, u64::MAX] {
            let mut out = Vec::new();
            put_uint(&mut out, 5, value);
            assert_eq!(only(&out), Ok((5, Value::Varint(value))));
        }
        let mut out = Vec::new();
        put_bytes(&mut out, 41, &[7; 200]);
        assert_eq!(only(&out), Ok((41, Value::Bytes(&[7; 200]))));
    }

    #[test]
    fn defaults_are_omitted() {
        let mut out = Vec::new();
        put_uint(&mut out, 1, 0);
        put_double(&mut out, 2, 0.0);
        put_double(&mut out, 2, -0.0);
        put_string(&mut out, 3, "");
        assert!(out.is_empty());
        put_bytes(&mut out, 4, b"");
        assert_eq!(out, [0x22, 0], "present and empty");
    }
}
