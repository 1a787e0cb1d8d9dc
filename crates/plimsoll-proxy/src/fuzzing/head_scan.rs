//! The scan of requests (`head_scan`, `message_scan`): its verdict does not depend on how the bytes
//! were split, and that on the first head equals that of a parser that sees the whole head.

use super::MemoryLimit;
use crate::head_scan::HeadScan;
use crate::message_scan::MessageScan;

/// The scan keeps no bytes; the expected verdict is computed from a copy.
pub const MEMORY: MemoryLimit = MemoryLimit {
    base: 4 << 10,
    per_byte: 256,
};

/// The first byte decides how the others are split.
pub fn run(bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else {
        return;
    };
    let (refused, has_read_ahead) = expected(bytes);
    for pieces in [vec![bytes], super::pieces(bytes, *seed)] {
        let mut scan = HeadScan::default();
        let (mut found, mut behind) = (false, false);
        for piece in pieces {
            behind |= scan.scan(piece) < piece.len();
            assert!(
                scan.is_malformed() || !found,
                "a refused request stays refused"
            );
            found = scan.is_malformed();
        }
        assert_eq!((found, behind), (refused, has_read_ahead));
    }
    assert_eq!(
        messages(vec![bytes]),
        messages(super::pieces(bytes, *seed)),
        "the scan depends on how the bytes were split"
    );
}

/// Scans all messages; returns the bytes as changed, and which message is refused.
fn messages(pieces: Vec<&[u8]>) -> (Vec<u8>, Option<u32>) {
    let mut scan = MessageScan::default();
    let (mut changed, mut refused) = (Vec::new(), None);
    for piece in pieces {
        let mut piece = piece.to_vec();
        refused = scan.scan(&mut piece).first_malformed;
        changed.append(&mut piece);
    }
    (changed, refused)
}

/// Returns whether the request has to be refused, and whether bytes follow its head.
fn expected(bytes: &[u8]) -> (bool, bool) {
    let is_blank = |line: &[u8]| line.is_empty() || line.starts_with(b"\r");
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut before_fields = Vec::new();
    for line in &mut lines {
        before_fields.extend_from_slice(line);
        if line.ends_with(b"\n") && !is_blank(without_lf(line)) {
            break;
        }
    }
    let mut words = before_fields.splitn(2, |byte| *byte == b' ');
    let fragment = words.nth(1).is_some_and(|target| target.contains(&b'#'));
    let (mut coding, mut length) = (false, false);
    let mut rest = lines.clone();
    for line in &mut rest {
        let complete = line.ends_with(b"\n");
        let line = without_lf(line);
        if complete && is_blank(line) {
            let ahead = rest.next().is_some();
            return (fragment || coding && length, ahead);
        }
        let named = |name: &str| {
            let start = line.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        };
        coding |= complete && named("transfer-encoding:");
        length |= named("content-length:");
    }
    (fragment || coding && length, false)
}

fn without_lf(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_seeded;
    use super::*;

    #[test]
    fn the_verdict_does_not_depend_on_the_split() {
        let tokens = [
            "POST / HTTP/1.1\r\n",
            "GET /x#y HTTP/1.1\r\n",
            "content-length: 1",
            "Content-Length:",
            "transfer-ENCODING: chunked",
            "\r\n",
            "\r\n\r\n",
            "\n",
            "\r",
            "#",
            " ",
            "x: y\r\n",
            "3\r\nabc\r\n",
            "0\r\n",
        ];
        run_seeded(&tokens, 4000, MEMORY, run);
    }
}
