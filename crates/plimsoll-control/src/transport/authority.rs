//! [`AuthorityFilter`]: replaces `|` in `:authority` of HTTP/2 requests, on the bytes of a
//! connection.
//!
//! Envoy sends the name of the management cluster as `:authority`, and Istio's cluster names have
//! a `|`. The `http` crate accepts no such authority, so h2 resets the stream before anybody sees
//! the request. The control plane does not use the authority, so another character will do: `+`
//! has the same length in plain and in Huffman coding. Thus the replacement changes neither the
//! length of a frame nor the size of an entry of the HPACK table, and the filter needs no table of
//! its own (decision 0033).

use std::ops::Range;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// Longest header block that is held back until it is complete; a longer one passes unchanged.
/// The server accepts 16 KiB.
const MAX_BLOCK: usize = 32 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

#[derive(Debug, Default)]
pub(super) struct AuthorityFilter {
    state: State,
    /// Bytes that are held back: part of a frame header, or the frames of a header block.
    held: Vec<u8>,
    /// Where the header block is in `held`.
    fragments: Vec<Range<usize>>,
    has_request: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Number of bytes of the connection preface that have passed.
    Preface(usize),
    /// The next byte belongs to a frame header that starts here in `held`.
    Header(usize),
    /// Number of bytes of the frame that are missing.
    Payload(usize),
    /// The frame of a header block starts here in `held`.
    Block(usize),
    /// The peer does not speak HTTP/2, or a header block is too long.
    PassThrough,
}

impl Default for State {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl AuthorityFilter {
    /// Whether the headers of a request have arrived.
    pub(super) fn has_request(&self) -> bool {
        self.has_request
    }

    /// Returns how many of the first bytes of `input` pass unchanged; the rest must be pushed.
    pub(super) fn pass(&mut self, input: &[u8]) -> usize {
        match self.state {
            State::PassThrough => input.len(),
            State::Payload(missing) if input.len() < missing => {
                self.state = State::Payload(missing - input.len());
                input.len()
            }
            State::Payload(missing) => {
                self.state = State::Header(0);
                missing
            }
            State::Preface(_) | State::Header(_) | State::Block(_) => 0,
        }
    }

    /// Takes the next bytes and appends those that can be passed on to `output`.
    pub(super) fn push(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            let taken = match self.state {
                State::PassThrough | State::Payload(_) => {
                    let passed = self.pass(input);
                    output.extend_from_slice(&input[..passed]);
                    passed
                }
                State::Preface(matched) => self.preface(matched, input, output),
                State::Header(start) => {
                    let taken = self.hold(input, start + FRAME_HEADER);
                    if self.held.len() == start + FRAME_HEADER {
                        self.begin_frame(start, output);
                    }
                    taken
                }
                State::Block(start) => {
                    let end = start + FRAME_HEADER + length(&self.held[start..]);
                    let taken = self.hold(input, end);
                    self.end_frame(start, end, output);
                    taken
                }
            };
            input = &input[taken..];
        }
    }

    /// Appends what is held back to `output`: there will be no more bytes.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.held);
        self.state = State::PassThrough;
    }

    fn preface(&mut self, matched: usize, input: &[u8], output: &mut Vec<u8>) -> usize {
        let count = input.len().min(PREFACE.len() - matched);
        self.state = if input[..count] != PREFACE[matched..matched + count] {
            State::PassThrough
        } else if matched + count == PREFACE.len() {
            State::Header(0)
        } else {
            State::Preface(matched + count)
        };
        output.extend_from_slice(&input[..count]);
        count
    }

    /// Holds bytes back until `end`; returns how many were taken.
    fn hold(&mut self, input: &[u8], end: usize) -> usize {
        let taken = input.len().min(end - self.held.len());
        self.held.extend_from_slice(&input[..taken]);
        taken
    }

    /// Decides what to do with a frame whose header is complete.
    fn begin_frame(&mut self, start: usize, output: &mut Vec<u8>) {
        let header = &self.held[start..];
        let (missing, kind) = (length(header), header[3]);
        // Between the frames of a header block there must be no other frame.
        let expected = if start == 0 { HEADERS } else { CONTINUATION };
        if kind == expected && start + missing <= MAX_BLOCK {
            self.state = State::Block(start);
            self.end_frame(start, start + FRAME_HEADER + missing, output);
            return;
        }
        self.state = match (start, missing) {
            (0, 0) => State::Header(0),
            (0, missing) => State::Payload(missing),
            _ => State::PassThrough,
        };
        output.append(&mut self.held);
    }

    /// Handles the frame of a header block if it is complete.
    fn end_frame(&mut self, start: usize, end: usize, output: &mut Vec<u8>) {
        if self.held.len() < end {
            return;
        }
        let Some(fragment) = fragment(&self.held[start..end]) else {
            self.finish(output);
            return;
        };
        let flags = self.held[start + 4];
        self.fragments
            .push(start + fragment.start..start + fragment.end);
        if flags & END_HEADERS == 0 {
            self.state = State::Header(end);
            return;
        }
        self.has_request = true;
        self.rewrite();
        self.state = State::Header(0);
        output.append(&mut self.held);
        self.held = Vec::new();
        self.fragments = Vec::new();
    }

    /// Rewrites the header block in `held`.
    fn rewrite(&mut self) {
        let pieces = self.fragments.iter().map(|range| &self.held[range.clone()]);
        let mut block = pieces.collect::<Vec<_>>().concat();
        // A malformed block is left to the server, which refuses it.
        let _ = replace_pipes(&mut block);
        let mut rest = &block[..];
        for range in &self.fragments {
            let (piece, after) = rest.split_at(range.len());
            self.held[range.clone()].copy_from_slice(piece);
            rest = after;
        }
    }
}

/// Length of a frame's payload.
fn length(header: &[u8]) -> usize {
    usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2])
}

/// Returns the part of a complete HEADERS or CONTINUATION frame that belongs to the header block;
/// `None` if the frame is malformed.
fn fragment(frame: &[u8]) -> Option<Range<usize>> {
    let (mut start, mut end) = (FRAME_HEADER, frame.len());
    if frame[3] == CONTINUATION {
        return Some(start..end);
    }
    if frame[4] & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    if frame[4] & PRIORITY != 0 {
        start += 5;
    }
    (start <= end).then_some(start..end)
}

/// Replaces `|` in the values of `:authority` of a header block (RFC 7541, section 6). Returns
/// `None` at the first representation that is malformed.
fn replace_pipes(block: &mut [u8]) -> Option<()> {
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
pub(super) mod tests;
