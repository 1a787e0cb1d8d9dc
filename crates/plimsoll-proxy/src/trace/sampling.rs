//! Decides which requests are sampled, by Envoy's rules.
//!
//! Envoys agree on a decision by `x-request-id`: its first digits are the random number that is
//! compared with `random_sampling`, and the digit of the UUID's version says how an earlier proxy
//! decided. So a chain of proxies that each sample 1 % samples the same 1 %.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::Sampling;
use crate::headers::X_REQUEST_ID;

const X_CLIENT_TRACE_ID: HeaderName = HeaderName::from_static("x-client-trace-id");
/// Position of the version in a UUID.
const REASON: usize = 14;
const UUID_LENGTH: usize = 36;
/// Version of a UUID whose request is not sampled: random (RFC 9562).
const NOT_SAMPLED: u8 = b'4';
const RANDOM: u8 = b'9';
const CLIENT: u8 = b'b';
/// `a` is for requests with `x-envoy-force-trace`, which an earlier Envoy accepted.
const REASONS: [u8; 3] = [RANDOM, b'a', CLIENT];

/// Whether to sample a request. Notes the decision in its `x-request-id`.
pub(super) fn decide(headers: &mut HeaderMap, sampling: Sampling, draw: impl Fn() -> u64) -> bool {
    let id = headers.get(&X_REQUEST_ID).and_then(uuid);
    let number = id.map_or_else(&draw, |id| id.number);
    let decided = id.map(|id| id.reason).filter(|by| REASONS.contains(by));
    let wanted = decided.or_else(|| {
        if headers.contains_key(&X_CLIENT_TRACE_ID) && draw() % 100 < sampling.client {
            return Some(CLIENT);
        }
        (number % 10_000 < sampling.random).then_some(RANDOM)
    });
    let reason = wanted.filter(|_| number % 100 < sampling.overall);
    if let Some(id) = id {
        let noted = match reason {
            Some(reason) => reason,
            None if decided.is_some() => NOT_SAMPLED,
            None => id.reason,
        };
        if noted != id.reason {
            note(headers, noted);
        }
    }
    reason.is_some()
}

#[derive(Clone, Copy)]
struct RequestId {
    number: u64,
    reason: u8,
}

fn uuid(value: &HeaderValue) -> Option<RequestId> {
    let text = value
        .to_str()
        .ok()
        .filter(|text| text.len() == UUID_LENGTH)?;
    Some(RequestId {
        number: u64::from_str_radix(text.get(..8)?, 16).ok()?,
        reason: text.as_bytes()[REASON],
    })
}

fn note(headers: &mut HeaderMap, reason: u8) {
    if let Some(value) = headers.get_mut(&X_REQUEST_ID) {
        let mut text = value.as_bytes().to_vec();
        text[REASON] = reason;
        if let Ok(noted) = HeaderValue::try_from(text) {
            *value = noted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sampling = Sampling {
        client: 100,
        random: 10_000,
        overall: 100,
    };

    fn with_id(id: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_str(id).unwrap());
        headers
    }

    /// Decides and returns the request id afterwards.
    fn decided(id: &str, sampling: Sampling) -> (bool, String) {
        let mut headers = with_id(id);
        let sampled = decide(&mut headers, sampling, || 0);
        (sampled, headers[X_REQUEST_ID].to_str().unwrap().to_owned())
    }

    /// A request id whose number is `number` and whose reason is `reason`.
    fn id(number: u32, reason: char) -> String {
        format!("{number:08x}-db07-{reason}796-b5e8-9d878ea88b23")
    }

    #[test]
    fn the_request_id_decides_and_notes_the_decision() {
        let tenth = Sampling {
            random: 1000,
            ..ALL
        };
        assert_eq!(decided(&id(999, '4'), tenth), (true, id(999, '9')));
        assert_eq!(decided(&id(1000, '4'), tenth), (false, id(1000, '4')));
        assert_eq!(decided(&id(20_999, '4'), tenth), (true, id(20_999, '9')));
        // An earlier proxy has decided.
        for reason in ['9', 'a', 'b'] {
            assert_eq!(decided(&id(5000, reason), tenth), (true, id(5000, reason)));
        }
    }

    #[test]
    fn the_overall_share_limits_all_others() {
        let half = Sampling { overall: 50, ..ALL };
        assert_eq!(decided(&id(149, '4'), half), (true, id(149, '9')));
        assert_eq!(decided(&id(150, '4'), half), (false, id(150, '4')));
        assert_eq!(decided(&id(150, '9'), half), (false, id(150, '4')));
    }

    #[test]
    fn clients_force_a_span() {
        let none = Sampling { random: 0, ..ALL };
        let mut headers = with_id(&id(7, '4'));
        assert!(!decide(&mut headers, none, || 0));
        headers.insert(X_CLIENT_TRACE_ID, HeaderValue::from_static("77"));
        assert!(decide(&mut headers, none, || 0));
        assert_eq!(headers[X_REQUEST_ID], id(7, 'b'));
        let mut headers = with_id(&id(7, '4'));
        headers.insert(X_CLIENT_TRACE_ID, HeaderValue::from_static("77"));
        let some = Sampling { client: 30, ..none };
        assert!(decide(&mut headers.clone(), some, || 129));
        assert!(!decide(&mut headers, some, || 130));
    }

    #[test]
    fn requests_without_a_uuid_draw_a_number() {
        let tenth = Sampling {
            random: 1000,
            ..ALL
        };
        for id in ["", "abc", "zzzzzzzz-db07-4796-b5e8-9d878ea88b23"] {
            let mut headers = with_id(id);
            assert!(decide(&mut headers, tenth, || 10_999), "{id}");
            assert!(!decide(&mut headers, tenth, || 11_000), "{id}");
            assert_eq!(headers[X_REQUEST_ID], id);
        }
        assert!(decide(&mut HeaderMap::new(), ALL, || 5));
    }
}
