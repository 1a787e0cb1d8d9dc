//! [`TraceContext`]: the W3C trace context of a request (`traceparent`, `tracestate`).
//!
//! Malformed headers are ignored as <https://www.w3.org/TR/trace-context/> requires: the request
//! then starts a trace of its own. `baggage` is never touched.

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of version 00: `00-`, trace id, span id and flags.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;
/// Limit of the specification; longer lists are discarded.
const MAX_TRACESTATE_MEMBERS: usize = 32;

/// Ids of the span that this proxy has in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Span of the caller; `None` if the trace starts here.
    pub(crate) parent: Option<u64>,
    pub(crate) sampled: bool,
}

/// `traceparent` of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) sampled: bool,
}

impl TraceContext {
    /// Returns the `traceparent` that makes this span the parent of the upstream's.
    pub(crate) fn traceparent(&self) -> Option<HeaderValue> {
        let mut text = BytesMut::with_capacity(LENGTH);
        text.put_slice(b"00-");
        put_hex(&mut text, &self.trace_id.to_be_bytes());
        text.put_u8(b'-');
        put_hex(&mut text, &self.span_id.to_be_bytes());
        text.put_slice(if self.sampled { b"-01" } else { b"-00" });
        HeaderValue::from_maybe_shared(text.freeze()).ok()
    }
}

fn put_hex(text: &mut BytesMut, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.put_u8(HEX[usize::from(byte >> 4)]);
        text.put_u8(HEX[usize::from(byte & 0xf)]);
    }
}

/// Takes the context of the caller out of the headers. Removes `tracestate` if it must not be
/// handed on: without a valid `traceparent`, or if it is malformed itself.
pub(crate) fn extract(headers: &mut HeaderMap) -> Option<TraceParent> {
    let parent = {
        let mut lines = headers.get_all(&TRACEPARENT).iter();
        match (lines.next(), lines.next()) {
            (Some(line), None) => parse(line.as_bytes()),
            _ => None,
        }
    };
    if headers.contains_key(&TRACESTATE) && (parent.is_none() || !has_valid_state(headers)) {
        headers.remove(&TRACESTATE);
    }
    parent
}

fn parse(text: &[u8]) -> Option<TraceParent> {
    let (head, rest) = text.split_at_checked(LENGTH)?;
    let version = hex(&head[..2])?;
    // Version ff is invalid; later versions may append fields, version 00 may not.
    let has_known_end = rest.is_empty() || (version > 0 && rest[0] == b'-');
    if version == 0xff || !has_known_end {
        return None;
    }
    if head[2] != b'-' || head[35] != b'-' || head[52] != b'-' {
        return None;
    }
    let trace_id = hex(&head[3..35]).filter(|id| *id != 0)?;
    let span_id = hex(&head[36..52]).filter(|id| *id != 0)?;
    let flags = hex(&head[53..55])?;
    Some(TraceParent {
        trace_id,
        span_id: u64::try_from(span_id).ok()?,
        sampled: flags & u128::from(SAMPLED) != 0,
    })
}

/// Parses lowercase hexadecimal digits; uppercase ones are invalid in `traceparent`.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Whether `tracestate`, over all its lines, is a list of at most 32 `key=value` pairs.
fn has_valid_state(headers: &HeaderMap) -> bool {
    let mut count = 0_usize;
    let lines = headers.get_all(&TRACESTATE).iter();
    let mut members = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    members.all(|member| {
        let member = member.trim_ascii();
        if member.is_empty() {
            return true;
        }
        count += 1;
        let equals = member.iter().position(|byte| *byte == b'=');
        count <= MAX_TRACESTATE_MEMBERS && equals.is_some_and(|at| at > 0)
    })
}

/// Returns `tracestate` as one text, empty if there is none.
pub(crate) fn tracestate(headers: &HeaderMap) -> String {
    let lines = headers.get_all(&TRACESTATE).iter();
    let texts: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn contexts_are_read_and_written() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let parent = parse(text.as_bytes()).unwrap();
        assert!(parent.sampled);
        let context = TraceContext {
            trace_id: parent.trace_id,
            span_id: parent.span_id,
            parent: None,
            sampled: true,
        };
        assert_eq!(context.traceparent().unwrap(), text);
        let unsampled = TraceContext {
            sampled: false,
            span_id: 1,
            ..context
        };
        let expected = format!("00-{TRACE}-0000000000000001-00");
        assert_eq!(unsampled.traceparent().unwrap(), expected);
    }

    #[test]
    fn valid_headers_of_all_versions_are_read() {
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-00"), false),
            (format!("00-{TRACE}-{SPAN}-ff"), true),
            (format!("00-{TRACE}-{SPAN}-02"), false),
            (format!("cc-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-ever"), true),
        ] {
            let parent = parse(text.as_bytes());
            assert_eq!(parent.map(|parent| parent.sampled), Some(sampled), "{text}");
        }
    }

    #[test]
    fn invalid_headers_are_ignored() {
        let zero = "0".repeat(32);
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("FF-{TRACE}-{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{zero}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zero[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn several_lines_are_invalid() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let mut twice = headers(&[("traceparent", &text), ("traceparent", &text)]);
        assert_eq!(extract(&mut twice), None);
    }

    #[test]
    fn tracestate_goes_with_a_valid_parent_only() {
        let valid = format!("00-{TRACE}-{SPAN}-01");
        let many: Vec<String> = (0..33).map(|number| format!("k{number}=v")).collect();
        for (parent, state, kept) in [
            (&*valid, "a=1,b=2", true),
            (&*valid, "a=1, ,b=2,", true),
            (&*valid, &*many[..32].join(","), true),
            (&*valid, &*many.join(","), false),
            (&*valid, "a", false),
            (&*valid, "=1", false),
            ("00", "a=1", false),
        ] {
            let mut headers = headers(&[("traceparent", parent), ("tracestate", state)]);
            let _ = extract(&mut headers);
            assert_eq!(headers.contains_key(&TRACESTATE), kept, "{parent} {state}");
        }
        let lines = [
            ("traceparent", &*valid),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ];
        let mut headers = headers(&lines);
        assert!(extract(&mut headers).is_some());
        assert_eq!(tracestate(&headers), "a=1,b=2");
    }
}
