//! Names as parts of keys, with percent encoding: they come from the network and may have slashes.

use std::fmt::Write as _;

/// Encodes a name so that it is one part of a key.
pub(crate) fn encode_part(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Decodes a part of a key; `None` if [`encode_part`] does not write it.
pub(crate) fn decode_part(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode_part(&name) == part).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_one_part() {
        assert_eq!(encode_part("edge-1.a_b~C"), "edge-1.a_b~C");
        assert_eq!(encode_part("a/b%c"), "a%2Fb%25c");
        for wrong in ["a/b", "%2f", "%", "%4", "%zz", "%FF", "a b"] {
            assert_eq!(decode_part(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives(name in ".*") {
            let part = encode_part(&name);
            prop_assert!(!part.contains('/'));
            prop_assert_eq!(decode_part(&part), Some(name));
        }
    }
}
