//! [`ResponseScan`]: finds chunked bodies among the responses of an HTTP/1.1 connection, for
//! [`ChunkScan`].

use super::chunk_scan::ChunkScan;

/// Longest header line that is compared with `transfer-encoding: chunked`. In a longer one the
/// coding is not recognized, and the body is left to hyper alone.
const LONGEST: usize = 64;
/// Where the status code begins in `HTTP/1.1 200 OK`.
const STATUS: usize = 9;

/// The scan of the responses to one request: any number of interim ones, then the final one.
#[derive(Debug, Default)]
pub(crate) struct ResponseScan {
    state: State,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Chunked(ChunkScan),
    /// Nothing further is scanned until the next request.
    Done,
}

impl Default for State {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

#[derive(Debug)]
struct Head {
    /// Start of the current line.
    line: [u8; LONGEST],
    length: usize,
    is_status_line: bool,
    is_interim: bool,
    is_chunked: bool,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            line: [0; LONGEST],
            length: 0,
            is_status_line: true,
            is_interim: false,
            is_chunked: false,
        }
    }
}

impl ResponseScan {
    /// Whether the trailers of the response are malformed. Nothing further may be read.
    pub(crate) const fn is_malformed(&self) -> bool {
        matches!(&self.state, State::Chunked(body) if body.is_malformed())
    }

    /// Scans bytes that were read.
    pub(crate) fn scan(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Head(head) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let part = end.unwrap_or(bytes.len());
                    head.push(&bytes[..part]);
                    let Some(end) = end else {
                        return;
                    };
                    if let Some(next) = head.finish_line() {
                        self.state = next;
                    }
                    bytes = &mut bytes[end + 1..];
                }
                State::Chunked(body) => {
                    body.scan(bytes);
                    return;
                }
                State::Done => return,
            }
        }
    }
}

impl Head {
    fn push(&mut self, part: &[u8]) {
        let room = LONGEST - self.length;
        let part = &part[..part.len().min(room)];
        self.line[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
    }

    /// Returns what follows if the line ends the head.
    fn finish_line(&mut self) -> Option<State> {
        let line = self.line[..self.length].trim_ascii_end();
        self.length = 0;
        if self.is_status_line {
            // 101 is the last HTTP of a connection.
            let status = line.get(STATUS..).unwrap_or_default();
            self.is_interim = status.starts_with(b"1") && !status.starts_with(b"101");
            self.is_status_line = false;
            return None;
        }
        if line.is_empty() {
            return Some(match (self.is_interim, self.is_chunked) {
                (true, _) => State::default(),
                (false, true) => State::Chunked(ChunkScan::default()),
                (false, false) => State::Done,
            });
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next(), parts.next());
        let is = |text: Option<&[u8]>, other: &str| {
            text.is_some_and(|text| text.trim_ascii().eq_ignore_ascii_case(other.as_bytes()))
        };
        self.is_chunked |= is(name, "transfer-encoding") && is(value, "chunked");
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding:  CHUNKED \r\nx: y\r\n\r\n";

    fn scanned(text: &str, step: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut scan = ResponseScan::default();
        bytes.chunks_mut(step).for_each(|piece| scan.scan(piece));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn trailers_of_chunked_responses_are_scanned() {
        for start in ["", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"] {
            let response = format!("{start}{HEAD}1\r\n\n\r\n0\r\nX: y\n\r\n");
            let expected = format!("{start}{HEAD}1\r\n\n\r\n0\r\nX: y\r\r\n");
            for step in 1..=response.len() {
                assert_eq!(scanned(&response, step), expected, "{step}");
            }
        }
    }

    #[test]
    fn other_responses_are_unchanged() {
        let body = "0\r\nX: y\n\r\n";
        for head in [
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\ntransfer-encoding: x\r\n\r\n",
        ] {
            let response = format!("{head}{body}");
            for step in 1..=response.len() {
                assert_eq!(scanned(&response, step), response, "{step}");
            }
        }
    }
}
