//! [`HeadScan`]: detects requests that hyper would repair instead of refusing them.
//!
//! A request with both `content-length` and `transfer-encoding` can be parsed in two ways, which
//! enables request smuggling (RFC 9112, 6.3); hyper lets `transfer-encoding` win and removes
//! `content-length`. A fragment is no part of a request target; hyper cuts it off. Therefore the
//! header bytes are scanned before hyper reads them. Pipelined requests are not scanned: if one has
//! both headers, hyper closes the connection after the response.

/// Length of `transfer-encoding:`, the longer of the two header names.
const LONGEST: usize = 18;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    /// First bytes of the current header line.
    start: [u8; LONGEST],
    length: usize,
    /// Whether the request line has been seen. Empty lines before it are skipped.
    request_line_seen: bool,
    /// Whether the method has ended. Unlike a target, a method may contain `#`.
    method_seen: bool,
    fragment: bool,
    coding: bool,
    content_length: bool,
    ended: bool,
    /// Whether bytes behind the headers have been scanned: a body, or a pipelined request.
    has_read_ahead: bool,
}

impl HeadScan {
    /// Scans more bytes; returns true once the request has to be refused.
    pub(crate) fn scan(&mut self, mut bytes: &[u8]) -> bool {
        while !self.ended && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let line = &bytes[..end.unwrap_or(bytes.len())];
            if !self.request_line_seen {
                self.scan_target(line);
            }
            let room = LONGEST - self.length;
            let part = &line[..line.len().min(room)];
            self.start[self.length..self.length + part.len()].copy_from_slice(part);
            self.length += part.len();
            let Some(end) = end else {
                break;
            };
            self.finish_line();
            bytes = &bytes[end + 1..];
        }
        self.has_read_ahead |= !bytes.is_empty() && self.ended;
        self.coding && self.content_length || self.fragment
    }

    pub(crate) const fn has_read_ahead(&self) -> bool {
        self.has_read_ahead
    }

    /// Looks for a fragment in a part of the request line.
    fn scan_target(&mut self, mut line: &[u8]) {
        if !self.method_seen {
            let Some(space) = memchr::memchr(b' ', line) else {
                return;
            };
            self.method_seen = true;
            line = &line[space..];
        }
        self.fragment |= memchr::memchr(b'#', line).is_some();
    }

    fn finish_line(&mut self) {
        let start = &self.start[..self.length];
        let starts_with = |name: &[u8]| {
            let start = start.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        match start.first() {
            None | Some(b'\r') => self.ended = self.request_line_seen,
            Some(_) if !self.request_line_seen => self.request_line_seen = true,
            Some(b't' | b'T') => self.coding |= starts_with(b"transfer-encoding:"),
            Some(b'c' | b'C') => self.content_length |= starts_with(b"content-length:"),
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
    fn both_headers_are_found_in_any_fragmentation() {
        for step in 1..BOTH.len() {
            let mut scan = HeadScan::default();
            let found = BOTH.chunks(step).any(|part| scan.scan(part));
            assert!(found, "{step}");
        }
    }

    #[test]
    fn a_fragment_is_found_in_any_fragmentation() {
        let scanned = |text: &str, step: usize| {
            let mut scan = HeadScan::default();
            text.as_bytes().chunks(step).any(|part| scan.scan(part))
        };
        for step in 1..20 {
            for fragment in ["GET /x#y HTTP/1.1\r\n", "\r\nGET /x?y# HTTP/1.1\r\n"] {
                assert!(scanned(fragment, step), "{fragment} {step}");
            }
            let others = "G#T /x HTTP/1.1\r\nReferer: /x#y\r\n\r\n#";
            assert!(!scanned(others, step), "{step}");
        }
    }

    #[test]
    fn bytes_behind_the_headers_are_noticed() {
        let mut scan = HeadScan::default();
        scan.scan(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        assert!(!scan.has_read_ahead());
        scan.scan(b"G");
        assert!(scan.has_read_ahead());
    }

    #[test]
    fn empty_lines_before_a_request_are_skipped() {
        let mut scan = HeadScan::default();
        assert!(!scan.scan(b"\r\n\n"));
        assert!(scan.scan(BOTH));
    }

    #[test]
    fn a_single_header_is_accepted_and_the_body_is_not_scanned() {
        for accepted in [
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\ntransfer-encoding: x\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 1\r\n",
            "GET /content-length: HTTP/1.1\r\nx-transfer-encoding: a\r\ncontent-lengths: 1\r\n\r\n",
            "GET / HTTP/1.1\ncontent-length: 4\n\ntransfer-encoding: x\n",
        ] {
            assert!(!HeadScan::default().scan(accepted.as_bytes()), "{accepted}");
        }
    }
}
