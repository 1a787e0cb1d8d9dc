//! [`FrameFilter`]: rewrites HTTP/2 frames on the bytes of a connection, before h2 reads them.
//!
//! * `|` in `:authority` is replaced (`authority`).
//! * Long DATA frames are split. h2 keeps a read buffer for the longest frame of a connection, and
//!   HTTP/2 allows no limit below 16 KiB, which a proxy needs for its load reports now and then
//!   (decision 0037). A split changes neither the bytes of the stream nor flow control.

use std::ops::Range;

use super::authority::replace_pipes;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// Longest header block that is held back until it is complete; a longer one passes unchanged.
/// The server accepts 16 KiB.
const MAX_BLOCK: usize = 32 << 10;

/// Payload of the longest DATA frame that h2 gets: a quarter of the longest one of the connection,
/// so that the load report of an Envoy (61 KB) is 15 frames. h2 keeps the longest list of received
/// frames that a connection had, in powers of two: 16 take 4 KB, 32 take 8 KB.
const MAX_DATA: usize = MAX_FRAME / 4;
/// Longest frame of the connection (`SETTINGS_MAX_FRAME_SIZE`). h2 refuses a longer one.
const MAX_FRAME: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

#[derive(Debug, Default)]
pub(super) struct FrameFilter {
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
    /// Inside a DATA frame that is split.
    Data(SplitData),
    /// The frame of a header block starts here in `held`.
    Block(usize),
    /// The peer does not speak HTTP/2, or a header block is too long.
    PassThrough,
}

/// The rest of a DATA frame that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitData {
    /// Header as it was sent.
    header: [u8; FRAME_HEADER],
    /// Number of bytes missing in the current part.
    part: usize,
    /// Number of bytes in the parts behind it.
    rest: usize,
}

impl Default for State {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl FrameFilter {
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
            State::Data(split) => {
                let passed = input.len().min(split.part);
                self.state = split.after(passed);
                passed
            }
            State::Preface(_) | State::Header(_) | State::Block(_) => 0,
        }
    }

    /// Takes the next bytes and appends those that can be passed on to `output`.
    pub(super) fn push(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            let taken = match self.state {
                State::Data(split) if split.part == 0 => {
                    self.state = State::Data(split.next(output));
                    0
                }
                State::PassThrough | State::Payload(_) | State::Data(_) => {
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
        let (missing, kind, flags) = (length(header), header[3], header[4]);
        // Between the frames of a header block there must be no other frame.
        let expected = if start == 0 { HEADERS } else { CONTINUATION };
        if kind == expected && start + missing <= MAX_BLOCK {
            self.state = State::Block(start);
            self.end_frame(start, start + FRAME_HEADER + missing, output);
            return;
        }
        let is_long = missing > MAX_DATA && missing <= MAX_FRAME;
        if (start, kind, flags & PADDED) == (0, DATA, 0) && is_long {
            self.state = State::Data(SplitData::new(header, missing));
            self.held.clear();
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

impl SplitData {
    fn new(header: &[u8], length: usize) -> Self {
        let mut copy = [0; FRAME_HEADER];
        copy.copy_from_slice(header);
        Self {
            header: copy,
            part: 0,
            rest: length,
        }
    }

    /// Begins the next part and appends its frame header to `output`.
    fn next(self, output: &mut Vec<u8>) -> Self {
        let part = self.rest.min(MAX_DATA);
        let rest = self.rest - part;
        let [_, _, _, kind, flags, stream @ ..] = self.header;
        let [.., high, middle, low] = part.to_be_bytes();
        // Only the last frame of a stream ends it.
        let flags = if rest > 0 { flags & !END_STREAM } else { flags };
        output.extend([high, middle, low, kind, flags]);
        output.extend(stream);
        Self { part, rest, ..self }
    }

    /// State after `passed` bytes of the current part.
    fn after(self, passed: usize) -> State {
        if (self.part - passed, self.rest) == (0, 0) {
            return State::Header(0);
        }
        State::Data(Self {
            part: self.part - passed,
            ..self
        })
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

#[cfg(test)]
pub(super) mod tests;
