//! Bytes of other implementations, written down in tests as hex.

/// Messages that protobuf for Python wrote, a name and the bytes in each line.
const MESSAGES: &str = include_str!("../../tests/data/messages.hex");

/// The bytes; spaces are ignored.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The message of that name.
pub(super) fn message(name: &str) -> Vec<u8> {
    let mut lines = MESSAGES.lines().filter_map(|line| line.split_once(' '));
    let (_, bytes) = lines.find(|&(known, _)| known == name).unwrap();
    hex(bytes)
}
