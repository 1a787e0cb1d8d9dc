//! [`MessageScan`]: follows the requests of an HTTP/1.1 connection in front of hyper, so that every
//! head is scanned, those of pipelined requests, too, and the trailers of every chunked body.
//!
//! It reads the framing as hyper does. Where a message has none that both agree on, hyper refuses
//! the message and closes the connection.

use plimsoll_client::ChunkScan;

use crate::head_scan::HeadScan;

#[derive(Debug, Default)]
pub(crate) struct MessageScan {
    state: State,
    /// Heads that have ended.
    heads: u32,
    first_malformed: Option<u32>,
}

#[derive(Debug)]
enum State {
    Head(HeadScan),
    /// Remaining bytes of a body with `content-length`.
    Length(u64),
    Chunked(ChunkScan),
}

impl Default for State {
    fn default() -> Self {
        Self::Head(HeadScan::default())
    }
}

/// What a scan has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Whether bytes behind a head were scanned: a body, or a pipelined request.
    pub(crate) reads_ahead: bool,
    /// Number of the first request of the connection that has to be refused; the first one is 1.
    pub(crate) first_malformed: Option<u32>,
    /// Whether trailers are malformed. Nothing further may be read.
    pub(crate) malformed_trailers: bool,
}

impl MessageScan {
    /// Scans bytes that were read. Changes them where trailers are malformed in a way that hyper
    /// would accept.
    pub(crate) fn scan(&mut self, bytes: &mut [u8]) -> Scanned {
        let mut reads_ahead = false;
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            match &mut self.state {
                State::Head(head) => {
                    at += head.scan(rest);
                    if head.is_malformed() && self.first_malformed.is_none() {
                        self.first_malformed = Some(self.heads + 1);
                    }
                    if head.has_ended() {
                        reads_ahead |= at < bytes.len();
                        self.heads = self.heads.saturating_add(1);
                        self.state = State::of_body(head);
                    }
                }
                State::Length(remaining) => {
                    let length = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    let skipped = length.min(*remaining);
                    at += usize::try_from(skipped).unwrap_or(rest.len());
                    *remaining -= skipped;
                    if *remaining == 0 {
                        self.state = State::default();
                    }
                }
                State::Chunked(body) => {
                    at += body.scan(rest);
                    if body.has_ended() {
                        self.state = State::default();
                    }
                }
            }
        }
        Scanned {
            reads_ahead,
            first_malformed: self.first_malformed,
            malformed_trailers: matches!(&self.state, State::Chunked(body) if body.is_malformed()),
        }
    }
}

impl State {
    fn of_body(head: &HeadScan) -> Self {
        match head.content_length() {
            _ if head.is_chunked() => Self::Chunked(ChunkScan::default()),
            0 => Self::default(),
            length => Self::Length(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `text` in pieces; returns it as changed, and what was found.
    fn scanned(text: &str, step: usize) -> (String, Scanned) {
        let mut bytes = text.as_bytes().to_vec();
        let mut scan = MessageScan::default();
        let mut found = Scanned::default();
        for piece in bytes.chunks_mut(step) {
            found = scan.scan(piece);
        }
        (String::from_utf8(bytes).unwrap(), found)
    }

    const CHUNKED: &str = "POST /one HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";

    #[test]
    fn trailers_are_scanned_behind_any_request() {
        for before in [
            "",
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n\n\n\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\na: b\r\n\r\n",
        ] {
            let sent = format!("{before}{CHUNKED}0\r\nX: y\n\r\nGET /two HTTP/1.1\r\n\r\n");
            let expected = sent.replace("X: y\n", "X: y\r");
            for step in 1..=sent.len() {
                let (after, found) = scanned(&sent, step);
                assert_eq!(
                    (after, found.malformed_trailers),
                    (expected.clone(), true),
                    "{step}"
                );
            }
        }
    }

    #[test]
    fn the_first_malformed_request_is_found_among_pipelined_ones() {
        let good = "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n#\n";
        let bad = "GET /x#y HTTP/1.1\r\n\r\n";
        for (sent, expected) in [
            (good.repeat(3), None),
            (bad.to_owned(), Some(1)),
            (format!("{good}{CHUNKED}0\r\n\r\n{bad}{bad}"), Some(3)),
        ] {
            for step in 1..=sent.len() {
                let (after, found) = scanned(&sent, step);
                assert_eq!((&after, found.first_malformed), (&sent, expected), "{step}");
            }
        }
    }

    #[test]
    fn bytes_behind_a_head_are_noticed() {
        let mut scan = MessageScan::default();
        let mut read = |text: &str| scan.scan(&mut text.as_bytes().to_vec()).reads_ahead;
        assert!(!read("GET / HTTP/1.1\r\n\r\n"));
        assert!(!read("GET / HTTP/1.1\r\n"));
        assert!(read("\r\nG"));
        assert!(!read("ET / HTTP/1.1\r\n\r\n"));
    }
}
