//! [`HeadScan`]: detects requests that hyper would repair instead of refusing them.
//!
//! A request with both `content-length` and `transfer-encoding` can be parsed in two ways, which
//! enables request smuggling (RFC 9112, 6.3); hyper lets `transfer-encoding` win and removes
//! `content-length`. A fragment is no part of a request target; hyper cuts it off. Therefore the
//! header bytes are scanned before hyper reads them. `message_scan` finds where a head begins.

/// Length of `transfer-encoding:`, the longer of the two header names.
const LONGEST: usize = 18;
const CONTENT_LENGTH: &[u8] = b"content-length:";

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
    /// Value of the newest `content-length`. hyper refuses what is not a number.
    content_length: Option<u64>,
    ended: bool,
}

impl HeadScan {
    /// Scans more bytes; returns how many of them belong to the head.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while !self.ended && at < bytes.len() {
            let rest = &bytes[at..];
            let end = memchr::memchr(b'\n', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            self.scan_part(line);
            at += line.len();
            if end.is_some() {
                self.finish_line();
                at += 1;
            }
        }
        at
    }

    /// Whether the request has to be refused.
    pub(crate) const fn is_malformed(&self) -> bool {
        self.coding && self.content_length.is_some() || self.fragment
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is a `transfer-encoding`, which overrides `content-length`.
    pub(crate) const fn is_chunked(&self) -> bool {
        self.coding
    }

    pub(crate) fn content_length(&self) -> u64 {
        self.content_length.unwrap_or(0)
    }

    /// Scans a part of a line.
    fn scan_part(&mut self, part: &[u8]) {
        if !self.request_line_seen {
            self.scan_target(part);
        }
        let before = self.length;
        let copied = part.len().min(LONGEST - before);
        self.start[before..before + copied].copy_from_slice(&part[..copied]);
        self.length += copied;
        if self.request_line_seen && self.starts_with(CONTENT_LENGTH) {
            if before < CONTENT_LENGTH.len() {
                self.content_length = Some(0);
            }
            let name = CONTENT_LENGTH.len().saturating_sub(before);
            self.scan_length(&part[name..]);
        }
    }

    fn scan_length(&mut self, value: &[u8]) {
        for digit in value.iter().filter(|byte| byte.is_ascii_digit()) {
            let length = self.content_length().saturating_mul(10);
            self.content_length = Some(length.saturating_add(u64::from(digit - b'0')));
        }
    }

    fn starts_with(&self, name: &[u8]) -> bool {
        let start = self.start[..self.length].get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
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
        match self.start[..self.length].first() {
            None | Some(b'\r') => self.ended = self.request_line_seen,
            Some(_) if !self.request_line_seen => self.request_line_seen = true,
            Some(b't' | b'T') => self.coding |= self.starts_with(b"transfer-encoding:"),
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
            let scanned: usize = BOTH.chunks(step).map(|part| scan.scan(part)).sum();
            assert!(scan.is_malformed() && scan.has_ended(), "{step}");
            assert_eq!((scanned, scan.content_length()), (BOTH.len(), 4));
        }
    }

    #[test]
    fn a_fragment_is_found_in_any_fragmentation() {
        let scanned = |text: &str, step: usize| {
            let mut scan = HeadScan::default();
            for part in text.as_bytes().chunks(step) {
                scan.scan(part);
            }
            scan.is_malformed()
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
    fn bytes_behind_the_headers_are_not_scanned() {
        let mut scan = HeadScan::default();
        let head = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        assert_eq!(scan.scan(head), head.len());
        assert!(scan.has_ended());
        assert_eq!(scan.scan(b"G"), 0);
    }

    #[test]
    fn the_length_of_the_body_is_the_number_in_content_length() {
        for (field, expected) in [
            ("content-length: 0", 0),
            ("Content-Length:17", 17),
            ("CONTENT-LENGTH: \t 1234567890123 ", 1_234_567_890_123),
            ("x: content-length: 5", 0),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{field}\r\nhost: h\r\n\r\n");
            for step in 1..head.len() {
                let mut scan = HeadScan::default();
                for part in head.as_bytes().chunks(step) {
                    scan.scan(part);
                }
                assert_eq!(scan.content_length(), expected, "{field} {step}");
            }
        }
    }

    #[test]
    fn empty_lines_before_a_request_are_skipped() {
        let mut scan = HeadScan::default();
        scan.scan(b"\r\n\n");
        scan.scan(BOTH);
        assert!(scan.is_malformed());
    }

    #[test]
    fn a_single_header_is_accepted_and_the_body_is_not_scanned() {
        for accepted in [
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\ntransfer-encoding: x\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 1\r\n",
            "GET /content-length: HTTP/1.1\r\nx-transfer-encoding: a\r\ncontent-lengths: 1\r\n\r\n",
            "GET / HTTP/1.1\ncontent-length: 4\n\ntransfer-encoding: x\n",
        ] {
            let mut scan = HeadScan::default();
            scan.scan(accepted.as_bytes());
            assert!(!scan.is_malformed(), "{accepted}");
        }
    }
}
