//! Test messages encoded by other protobuf implementations, as hex.

/// Messages encoded by protobuf for Python, one per line as name and hex bytes.
const MESSAGES: &str = include_str!("../../tests/data/messages.hex");

/// Parses hex digits; whitespace is ignored.
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

/// Returns the message of this name.
pub(super) fn message(name: &str) -> Vec<u8> {
    let mut lines = MESSAGES.lines().filter_map(|line| line.split_once(' '));
    let (_, bytes) = lines.find(|&(key, _)| key == name).unwrap();
    hex(bytes)
}
