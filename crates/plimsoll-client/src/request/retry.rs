//! Retry conditions under Envoy's names ([`RetryOn`]), and the backoff between attempts.
//!
//! Pure functions: `call` sends, `replay` buffers the body for another attempt, and the cluster's
//! retry budget bounds how many retries run at a time.

use std::time::Duration;

use http::StatusCode;

use crate::error::{Error, ErrorKind};
use crate::request::options::RetryPolicy;

/// Conditions under which a request that a host may have seen is retried. A request that no host
/// has seen needs no condition.
///
/// ```
/// use plimsoll_client::RetryOn;
///
/// let parsed = RetryOn::parse("gateway-error, refused-stream")?;
/// assert_eq!(parsed, RetryOn::GATEWAY_ERROR.union(RetryOn::REFUSED_STREAM));
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOn(u16);

impl RetryOn {
    /// No condition: only requests that no host has seen are retried.
    pub const NONE: Self = Self(0);
    /// `5xx`: status 500 or higher, or no response.
    pub const SERVER_ERROR: Self = Self(1);
    /// `gateway-error`: status 502, 503 or 504, or no response.
    pub const GATEWAY_ERROR: Self = Self(1 << 1);
    /// `reset`: no response, because the connection failed, the stream was reset or
    /// `per_try_timeout` elapsed.
    pub const RESET: Self = Self(1 << 2);
    /// `connect-failure`: no connection to the host.
    pub const CONNECT_FAILURE: Self = Self(1 << 3);
    /// `refused-stream`: the host did not process the request (REFUSED_STREAM, GOAWAY(NO_ERROR)).
    pub const REFUSED_STREAM: Self = Self(1 << 4);
    /// `retriable-4xx`: status 409 (Conflict).
    pub const RETRIABLE_4XX: Self = Self(1 << 5);
    /// `retriable-status-codes`: the codes in [`RetryPolicy::retriable_status_codes`].
    pub const RETRIABLE_STATUS_CODES: Self = Self(1 << 6);
    /// `cancelled`: gRPC status CANCELLED in the response headers.
    pub const CANCELLED: Self = Self(1 << 7);
    /// `deadline-exceeded`: gRPC status DEADLINE_EXCEEDED in the response headers.
    pub const DEADLINE_EXCEEDED: Self = Self(1 << 8);
    /// `internal`: gRPC status INTERNAL in the response headers.
    pub const INTERNAL: Self = Self(1 << 9);
    /// `resource-exhausted`: gRPC status RESOURCE_EXHAUSTED in the response headers.
    pub const RESOURCE_EXHAUSTED: Self = Self(1 << 10);
    /// `unavailable`: gRPC status UNAVAILABLE in the response headers.
    pub const UNAVAILABLE: Self = Self(1 << 11);

    /// Parses comma-separated conditions, as in `retry_on` of a route.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |all, name| {
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, condition) = known.ok_or_else(|| {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                let message = format!(
                    "retry_on: unknown condition {name:?}, expected one of {}",
                    names.join(", ")
                );
                Error::new(ErrorKind::Config, message)
            })?;
            Ok(all.union(*condition))
        })
    }

    /// Returns the conditions of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the two sets have a condition in common.
    pub const fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether a request may be sent again after a host has seen it, so that it must be buffered.
    pub(crate) const fn needs_replay(self) -> bool {
        self.0 & !Self::CONNECT_FAILURE.0 != 0
    }
}

const NAMES: [(&str, RetryOn); 12] = [
    ("5xx", RetryOn::SERVER_ERROR),
    ("gateway-error", RetryOn::GATEWAY_ERROR),
    ("reset", RetryOn::RESET),
    ("connect-failure", RetryOn::CONNECT_FAILURE),
    ("refused-stream", RetryOn::REFUSED_STREAM),
    ("retriable-4xx", RetryOn::RETRIABLE_4XX),
    ("retriable-status-codes", RetryOn::RETRIABLE_STATUS_CODES),
    ("cancelled", RetryOn::CANCELLED),
    ("deadline-exceeded", RetryOn::DEADLINE_EXCEEDED),
    ("internal", RetryOn::INTERNAL),
    ("resource-exhausted", RetryOn::RESOURCE_EXHAUSTED),
    ("unavailable", RetryOn::UNAVAILABLE),
];

/// Conditions under which a request that got no response is retried, as in Envoy.
const NO_RESPONSE: RetryOn = RetryOn::SERVER_ERROR
    .union(RetryOn::GATEWAY_ERROR)
    .union(RetryOn::RESET);

impl RetryPolicy {
    pub(crate) fn retries_response(&self, status: StatusCode, grpc_status: Option<u32>) -> bool {
        let status = status.as_u16();
        let on = |condition| self.retry_on.intersects(condition);
        let grpc = match grpc_status {
            Some(1) => on(RetryOn::CANCELLED),
            Some(4) => on(RetryOn::DEADLINE_EXCEEDED),
            Some(8) => on(RetryOn::RESOURCE_EXHAUSTED),
            Some(13) => on(RetryOn::INTERNAL),
            Some(14) => on(RetryOn::UNAVAILABLE),
            _ => false,
        };
        grpc || (status >= 500 && on(RetryOn::SERVER_ERROR))
            || (matches!(status, 502..=504) && on(RetryOn::GATEWAY_ERROR))
            || (status == 409 && on(RetryOn::RETRIABLE_4XX))
            || (on(RetryOn::RETRIABLE_STATUS_CODES)
                && self.retriable_status_codes.contains(&status))
    }

    pub(crate) const fn retries_error(&self, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Connect => true,
            ErrorKind::Refused => {
                (self.retry_on).intersects(NO_RESPONSE.union(RetryOn::REFUSED_STREAM))
            }
            ErrorKind::Transport | ErrorKind::Timeout => self.retry_on.intersects(NO_RESPONSE),
            _ => false,
        }
    }

    /// Random backoff before retry number `retry` (from 1); the bound doubles with each retry.
    pub(crate) fn backoff(&self, retry: u32, draw: u64) -> Duration {
        let factor = 1_u32
            .checked_shl(retry.min(31))
            .map_or(u32::MAX, |power| power - 1);
        let bound = self
            .base_interval
            .saturating_mul(factor)
            .min(self.max_interval);
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(draw % nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(conditions: &str) -> RetryPolicy {
        RetryPolicy {
            retry_on: RetryOn::parse(conditions).unwrap(),
            retriable_status_codes: vec![418],
            ..RetryPolicy::default()
        }
    }

    #[test]
    fn conditions_cover_the_statuses_in_their_names() {
        let cases: [(&str, &[u16]); 7] = [
            ("", &[]),
            ("5xx", &[500, 502, 503, 504]),
            ("gateway-error", &[502, 503, 504]),
            ("retriable-4xx", &[409]),
            ("retriable-status-codes", &[418]),
            ("reset, connect-failure,refused-stream", &[]),
            ("retriable-4xx,5xx", &[409, 500, 502, 503, 504]),
        ];
        for (conditions, expected) in cases {
            let policy = policy(conditions);
            let retried = [200, 404, 409, 418, 500, 502, 503, 504].into_iter();
            let status = |status: &u16| StatusCode::from_u16(*status).unwrap();
            let retried: Vec<u16> = retried
                .filter(|code| policy.retries_response(status(code), None))
                .collect();
            assert_eq!(retried, expected, "{conditions}");
        }
    }

    #[test]
    fn each_grpc_status_has_its_own_condition() {
        let names = [
            "cancelled",
            "deadline-exceeded",
            "resource-exhausted",
            "internal",
            "unavailable",
        ];
        for (name, number) in names.into_iter().zip([1, 4, 8, 13, 14]) {
            let policy = policy(name);
            for status in 0..17 {
                let retried = policy.retries_response(StatusCode::OK, Some(status));
                assert_eq!(retried, status == number, "{name} {status}");
            }
        }
    }

    #[test]
    fn connect_failures_are_always_retried_and_other_errors_on_request() {
        let kinds = [
            ErrorKind::Connect,
            ErrorKind::Refused,
            ErrorKind::Transport,
            ErrorKind::Timeout,
        ];
        let cases = [
            ("", [true, false, false, false]),
            ("refused-stream", [true, true, false, false]),
            ("reset", [true, true, true, true]),
            ("5xx", [true, true, true, true]),
            ("unavailable", [true, false, false, false]),
        ];
        for (conditions, expected) in cases {
            let policy = policy(conditions);
            assert_eq!(
                kinds.map(|kind| policy.retries_error(kind)),
                expected,
                "{conditions}"
            );
        }
        assert!(!policy("5xx").retries_error(ErrorKind::Overflow));
    }

    #[test]
    fn errors_name_the_unknown_condition() {
        let error = RetryOn::parse("5xx,4xx").unwrap_err();
        assert!(error.to_string().contains("\"4xx\""), "{error}");
        assert!(!RetryOn::parse("connect-failure").unwrap().needs_replay());
        assert!(RetryOn::parse("refused-stream").unwrap().needs_replay());
    }

    #[test]
    fn backoff_grows_to_its_bound() {
        let policy = RetryPolicy::default();
        let longest = |retry| {
            let draws = (0..64).map(|shift| u64::MAX >> shift);
            draws.map(|draw| policy.backoff(retry, draw)).max().unwrap()
        };
        assert!(longest(1) < policy.base_interval);
        assert!(longest(3) < policy.base_interval * 7);
        assert!(longest(40) < policy.max_interval);
        assert_eq!(policy.backoff(5, 0), Duration::ZERO);
    }
}
