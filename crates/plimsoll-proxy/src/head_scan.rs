//! [`HeadScan`]: finds requests that say their length twice, before the parser drops one of both.
//!
//! A request with `content-length` and `transfer-encoding` may be read in two ways, which is what
//! smugglers need (RFC 9112, 6.3). The parser under us lets the latter win and hides the former, so
//! the bytes of a header are looked at on their way to it. Requests that are sent before the
//! response to another are not looked at: for them the parser's way holds, which ends the
//! connection behind the response.

/// `transfer-encoding:`, the longer of both.
const LONGEST: usize = 18;

/// What was seen of one header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    /// How the line that is being read begins.
    start: [u8; LONGEST],
    length: usize,
    /// The request line was there. Empty lines before it are passed over.
    begun: bool,
    coding: bool,
    content_length: bool,
    ended: bool,
}

impl HeadScan {
    /// More bytes; whether both fields were seen.
    pub(crate) fn scan(&mut self, mut bytes: &[u8]) -> bool {
        while !self.ended && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let line = &bytes[..end.unwrap_or(bytes.len())];
            let room = LONGEST - self.length;
            let part = &line[..line.len().min(room)];
            self.start[self.length..self.length + part.len()].copy_from_slice(part);
            self.length += part.len();
            let Some(end) = end else {
                break;
            };
            self.line_ends();
            bytes = &bytes[end + 1..];
        }
        self.coding && self.content_length
    }

    fn line_ends(&mut self) {
        let start = &self.start[..self.length];
        let begins = |name: &[u8]| {
            let start = start.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        match start.first() {
            None | Some(b'\r') => self.ended = self.begun,
            Some(_) if !self.begun => self.begun = true,
            Some(b't' | b'T') => self.coding |= begins(b"transfer-encoding:"),
            Some(b'c' | b'C') => self.content_length |= begins(b"content-length:"),
            Some(_) => {}
        }
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nx: y\r\n\
                          TRANSFER-encoding: chunked\r\n\r\n";

    #[test]
    fn both_fields_are_found_however_they_arrive() {
        for step in 1..BOTH.len() {
            let mut scan = HeadScan::default();
            let found = BOTH.chunks(step).any(|part| scan.scan(part));
            assert!(found, "{step}");
        }
    }

    #[test]
    fn empty_lines_before_a_request_hide_nothing() {
        let mut scan = HeadScan::default();
        assert!(!scan.scan(b"\r\n\n"));
        assert!(scan.scan(BOTH));
    }

    #[test]
    fn one_field_is_fine_and_so_is_what_stands_behind_the_header() {
        for fine in [
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\ntransfer-encoding: x\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 1\r\n",
            "GET /content-length: HTTP/1.1\r\nx-transfer-encoding: a\r\ncontent-lengths: 1\r\n\r\n",
            "GET / HTTP/1.1\ncontent-length: 4\n\ntransfer-encoding: x\n",
        ] {
            assert!(!HeadScan::default().scan(fine.as_bytes()), "{fine}");
        }
    }
}
