//! Replaces `|` in `:authority` of an HPACK header block.
//!
//! Envoy sends the name of the management cluster as `:authority`, and Istio's cluster names have
//! a `|`. The `http` crate accepts no such authority, so h2 resets the stream before anybody sees
//! the request. The control plane does not use the authority, so another character will do: `+`
//! has the same length in plain and in Huffman coding. Thus the replacement changes neither the
//! length of a frame nor the size of an entry of the HPACK table, and no table is needed here
//! (decision 0033). `frames` finds the header blocks.

use std::ops::Range;

/// Replaces `|` in the values of `:authority` of a header block (RFC 7541, section 6). Returns
/// `None` at the first representation that is malformed.
pub(super) fn replace_pipes(block: &mut [u8]) -> Option<()> {
    /// Index of `:authority` in the static table.
    const AUTHORITY: usize = 1;
    let mut at = 0;
    while let Some(&first) = block.get(at) {
        // Indexed field, or a change of the size of the dynamic table.
        if first & 0x80 != 0 || first & 0xe0 == 0x20 {
            let bits = if first & 0x80 != 0 { 7 } else { 5 };
            (_, at) = integer(block, at, bits)?;
            continue;
        }
        let bits = if first & 0x40 != 0 { 6 } else { 4 };
        let index;
        (index, at) = integer(block, at, bits)?;
        let mut is_authority = index == AUTHORITY;
        if index == 0 {
            let name = string(block, at)?;
            is_authority = block.get(name.clone())? == b":authority";
            at = name.end;
        }
        let value = string(block, at)?;
        if is_authority {
            let huffman = block[at] & 0x80 != 0;
            let text = block.get_mut(value.clone())?;
            if huffman {
                replace_huffman(text);
            } else {
                replace_plain(text);
            }
        }
        at = value.end;
    }
    Some(())
}

/// Reads an integer with a prefix of some bits (RFC 7541, 5.1) and returns where it ends.
fn integer(block: &[u8], mut at: usize, bits: u32) -> Option<(usize, usize)> {
    let mask = (1 << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    at += 1;
    if value < mask {
        return Some((value, at));
    }
    // Longer ones exceed every header block.
    for shift in [0, 7, 14] {
        let byte = usize::from(*block.get(at)?);
        at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

/// Returns where the bytes of a string are (RFC 7541, 5.2).
fn string(block: &[u8], at: usize) -> Option<Range<usize>> {
    let (length, start) = integer(block, at, 7)?;
    Some(start..start + length)
}

fn replace_plain(text: &mut [u8]) {
    for byte in text {
        if *byte == b'|' {
            *byte = b'+';
        }
    }
}

/// Codes of `|` and `+` (RFC 7541, appendix B): both have 11 bits.
const PIPE: (u32, usize) = (0x7fc, 11);
const PLUS: u32 = 0x7fb;

/// The Huffman code is canonical: codes of one length are consecutive. For each length the first
/// code and the number of codes, up to 15 bits, which has all printable characters but `\`.
const CODES: [(usize, u32, u32); 10] = [
    (5, 0x0, 10),
    (6, 0x14, 26),
    (7, 0x5c, 32),
    (8, 0xf8, 6),
    (10, 0x3f8, 5),
    (11, 0x7fa, 3),
    (12, 0xffa, 2),
    (13, 0x1ff8, 6),
    (14, 0x3ffc, 2),
    (15, 0x7ffc, 3),
];

/// Ends at the padding, or at a character with a longer code, which no authority has.
fn replace_huffman(text: &mut [u8]) {
    let mut at = 0;
    while let Some((code, bits)) = CODES.iter().find_map(|&(bits, first, count)| {
        let code = read_bits(text, at, bits)?;
        (first..first + count)
            .contains(&code)
            .then_some((code, bits))
    }) {
        if (code, bits) == PIPE {
            write_bits(text, at, bits, PLUS);
        }
        at += bits;
    }
}

fn read_bits(text: &[u8], at: usize, bits: usize) -> Option<u32> {
    if at + bits > text.len() * 8 {
        return None;
    }
    let bit = |at: usize| u32::from(text[at / 8] >> (7 - at % 8) & 1);
    Some((at..at + bits).fold(0, |code, at| code << 1 | bit(at)))
}

fn write_bits(text: &mut [u8], at: usize, bits: usize, code: u32) {
    for index in 0..bits {
        let (byte, mask) = ((at + index) / 8, 0x80 >> ((at + index) % 8));
        if code >> (bits - 1 - index) & 1 == 1 {
            text[byte] |= mask;
        } else {
            text[byte] &= !mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits as text, padded with ones.
    fn bits(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |digits: &[u8]| {
            let missing = 8 - digits.len();
            let value = digits
                .iter()
                .fold(0_u32, |value, digit| value << 1 | u32::from(digit - b'0'));
            u8::try_from(value << missing | ((1 << missing) - 1)).unwrap()
        };
        digits.chunks(8).map(byte).collect()
    }

    #[test]
    fn integers_have_a_prefix_and_up_to_three_more_bytes() {
        let longest = 31 + 0x7f + (0x7f << 7) + (0x7f << 14);
        // The first two are examples of RFC 7541, C.1.
        for (bytes, bits, expected) in [
            (&b"\xea"[..], 5, Some((10, 1))),
            (b"\x1f\x9a\x0a", 5, Some((1337, 3))),
            (b"\x9e|", 5, Some((30, 1))),
            (b"\xff\x00|", 5, Some((31, 2))),
            (b"\x1f\x05|", 5, Some((36, 2))),
            (b"\x7f\x80\x01", 7, Some((255, 3))),
            (b"\x1f\xff\xff\x7f", 5, Some((longest, 4))),
            (b"\x1f\x80\x80\x80\x00", 5, None),
            (b"\x1f\x80", 5, None),
            (b"", 5, None),
        ] {
            assert_eq!(integer(bytes, 0, bits), expected, "{bytes:x?}");
            let later = expected.map(|(value, end)| (value, end + 2));
            let behind = [b"||", bytes].concat();
            assert_eq!(integer(&behind, 2, bits), later, "{bytes:x?}");
        }
    }

    #[test]
    fn huffman_coded_values_keep_their_length() {
        // `a|b`, `||`, and `|` behind one character of each length.
        for (sent, expected) in [
            ("00011 11111111100 100011", "00011 11111111011 100011"),
            ("11111111100 11111111100", "11111111011 11111111011"),
            ("010100 11111111100", "010100 11111111011"),
            ("1011100 11111111100", "1011100 11111111011"),
            ("11111000 11111111100", "11111000 11111111011"),
            ("1111111000 11111111100", "1111111000 11111111011"),
            ("11111111010 11111111100", "11111111010 11111111011"),
            ("111111111010 11111111100", "111111111010 11111111011"),
            ("1111111111000 11111111100", "1111111111000 11111111011"),
            ("11111111111100 11111111100", "11111111111100 11111111011"),
            ("111111111111110 11111111100", "111111111111110 11111111011"),
            ("00000 00001 00010", "00000 00001 00010"),
            // The bits of `|` across two other characters: `t` and 26 more of 6 bits.
            ("01111 111000 0001", "01111 111000 0001"),
        ] {
            let (mut text, expected) = (bits(sent), bits(expected));
            replace_huffman(&mut text);
            assert_eq!(text, expected, "{sent}");
            let block = |text: &[u8]| {
                let length = 0x80 | u8::try_from(text.len()).unwrap();
                [&[0x41, length], text].concat()
            };
            let mut whole = block(&bits(sent));
            assert_eq!(replace_pipes(&mut whole), Some(()));
            assert_eq!(whole, block(&expected));
        }
        // A character with a longer code ends the search: `\\` has 19 bits.
        let mut text = bits("1111111111111110000 11111111100");
        replace_huffman(&mut text);
        assert_eq!(text, bits("1111111111111110000 11111111100"));
    }
}
