//! [`ChunkScan`]: follows the chunked coding of a body in front of hyper, and refuses lines of its
//! trailers that end with a bare LF.
//!
//! hyper takes such an LF for a part of the line (as of 1.12), and then reads the message behind
//! the trailers as trailers, too: a request that others would serve vanishes, and a response never
//! ends. The scan replaces the LF by a CR, behind which hyper accepts nothing but an LF; the reader
//! of the socket must fail instead of reading on. Everything else that is malformed is left to
//! hyper, which is strict about it.

/// State of the scan of one body.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkScan {
    state: State,
    malformed: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In the line with the size of a chunk. Digits count until another character.
    Size {
        size: u64,
        complete: bool,
    },
    /// Remaining bytes of the chunk and its CRLF.
    Data(u64),
    Trailers {
        /// The line has no bytes besides its end.
        empty: bool,
        previous_is_cr: bool,
    },
    Ended,
}

impl Default for State {
    fn default() -> Self {
        Self::SIZE
    }
}

impl State {
    const SIZE: Self = Self::Size {
        size: 0,
        complete: false,
    };
    const TRAILERS: Self = Self::Trailers {
        empty: true,
        previous_is_cr: false,
    };
}

impl ChunkScan {
    /// Scans more bytes of the connection. Returns how many of them belong to the body.
    pub fn scan(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.has_ended() {
            at += self.step(&mut bytes[at..]);
        }
        at
    }

    /// Whether a line of the trailers ends with a bare LF.
    pub const fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Whether the body and its trailers have been scanned to their end; never if it is malformed.
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended) && !self.malformed
    }

    /// Scans at least one byte; returns how many.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        match &mut self.state {
            State::Size { size, complete } => {
                let byte = bytes[0];
                match char::from(byte).to_digit(16).filter(|_| !*complete) {
                    Some(digit) => {
                        *size = size.saturating_mul(16).saturating_add(u64::from(digit));
                    }
                    None => *complete = true,
                }
                if byte == b'\n' {
                    self.state = match *size {
                        0 => State::TRAILERS,
                        size => State::Data(size.saturating_add(2)),
                    };
                }
                1
            }
            State::Data(remaining) => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let skipped = length.min(*remaining);
                *remaining -= skipped;
                if *remaining == 0 {
                    self.state = State::SIZE;
                }
                usize::try_from(skipped).unwrap_or(bytes.len())
            }
            State::Trailers {
                empty,
                previous_is_cr,
            } => {
                let byte = bytes[0];
                match byte {
                    b'\n' if *previous_is_cr && *empty => self.state = State::Ended,
                    b'\n' if *previous_is_cr => self.state = State::TRAILERS,
                    b'\n' => {
                        bytes[0] = b'\r';
                        *empty = false;
                        self.malformed = true;
                    }
                    _ => {
                        *empty &= byte == b'\r';
                        *previous_is_cr = byte == b'\r';
                    }
                }
                1
            }
            State::Ended => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `text` in pieces; returns it as changed, and how many bytes belong to the body.
    fn scanned(text: &str, step: usize) -> (String, usize) {
        let mut bytes = text.as_bytes().to_vec();
        let mut scan = ChunkScan::default();
        let length = bytes.chunks_mut(step).map(|piece| scan.scan(piece)).sum();
        let changed = String::from_utf8(bytes).unwrap();
        assert_eq!(scan.is_malformed(), changed != text);
        (changed, length)
    }

    #[test]
    fn a_bare_lf_in_trailers_becomes_a_cr() {
        for (body, expected) in [
            ("0\r\nX: y\n\r\n", "0\r\nX: y\r\r\n"),
            ("0\r\nX: y\n\n", "0\r\nX: y\r\r"),
            ("0\r\n\n", "0\r\n\r"),
            (
                "0\r\na: b\r\nX: y\nZ: z\r\n\r\n",
                "0\r\na: b\r\nX: y\rZ: z\r\n\r\n",
            ),
            (
                "3\r\n\n\n\n\r\n0\r\nX: y\n\r\n",
                "3\r\n\n\n\n\r\n0\r\nX: y\r\r\n",
            ),
        ] {
            for step in 1..=body.len() {
                assert_eq!(scanned(body, step).0, expected, "{step}");
            }
        }
    }

    #[test]
    fn well_formed_bodies_are_unchanged_and_end_where_they_end() {
        for body in [
            "0\r\n\r\n",
            "5\r\n\n\n\n\n\n\r\n0\r\n\r\n",
            "A;name=\"v\n\r\n0123456789\r\n00\r\na: b\r\nc:d\r\n\r\n",
            "1 \r\nx\r\n0;x\r\n\r\n",
        ] {
            let pipelined = format!("{body}GET /\n");
            for step in 1..=pipelined.len() {
                let (after, length) = scanned(&pipelined, step);
                assert_eq!((after, length), (pipelined.clone(), body.len()), "{step}");
            }
        }
    }

    #[test]
    fn sizes_do_not_overflow() {
        let (_, length) = scanned("ffffffffffffffffffff\r\nabc", 7);
        assert_eq!(length, 25);
    }
}
