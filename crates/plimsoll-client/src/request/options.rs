//! [`RequestOptions`]: timeouts, retries and host selection of a request.
//!
//! Settings of a cluster (connections, circuit breakers, health checks) are in
//! `plimsoll_xds::upstream`, because files and management servers configure them.

use std::time::Duration;

use plimsoll_core::model::metadata::MatchCriteria;
#[cfg(feature = "xds")]
use plimsoll_xds::route;

use crate::request::retry::RetryOn;

/// Default of `retry_back_off.base_interval`, as in Envoy.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
/// Default of `max_replay_bytes`, enough for most requests. Envoy's buffer limit is far larger.
const MAX_REPLAY_BYTES: usize = 64 << 10;

/// Timeouts, retries and host selection of a request.
///
/// Set them for all requests of a service
/// ([`ClusterService::with_defaults`](crate::ClusterService::with_defaults)) or for one request, as
/// an extension; otherwise the options of the matched route apply.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_client::{RequestOptions, RetryOn, RetryPolicy};
///
/// let mut request = http::Request::new(());
/// let gateway_errors = RetryPolicy::new().retry_on(RetryOn::GATEWAY_ERROR);
/// let options = RequestOptions::new().timeout(Duration::from_secs(1)).retry(gateway_errors);
/// request.extensions_mut().insert(options);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) per_try_timeout: Option<Duration>,
    pub(crate) retry: RetryPolicy,
    pub(crate) hash: Option<u64>,
    pub(crate) metadata_match: Option<MatchCriteria>,
}

impl RequestOptions {
    /// Options without time limits, with the default [`RetryPolicy`].
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Limits the time from the call to the response headers, over all attempts; unlimited by
        /// default.
        timeout(limit: impl Into<Option<Duration>>) => timeout = limit.into();
        /// Limits the time of one attempt; unlimited by default. A timeout counts as an error of
        /// the host.
        per_try_timeout(limit: impl Into<Option<Duration>>) => per_try_timeout = limit.into();
        /// Sets when and how often the request is retried.
        retry(policy: RetryPolicy) => retry = policy;
        /// Sets the hash for consistent hashing; random by default.
        hash(hash: impl Into<Option<u64>>) => hash = hash.into();
        /// Sets the metadata that hosts must have. [`MatchCriteria`] in the request's extensions
        /// override it.
        metadata_match(criteria: impl Into<Option<MatchCriteria>>) =>
            metadata_match = criteria.into();
    }

    /// Overrides [`Self::metadata_match`] with `criteria`, key by key.
    #[must_use]
    pub(crate) fn merge_metadata_match(mut self, criteria: Option<MatchCriteria>) -> Self {
        self.metadata_match = match (self.metadata_match, criteria) {
            (Some(own), Some(over)) => Some(own.merged(over.metadata())),
            (own, over) => over.or(own),
        };
        self
    }

    /// Reduces [`Self::timeout`] to `deadline`, if that is shorter.
    #[must_use]
    pub(crate) fn cap_timeout(mut self, deadline: Option<Duration>) -> Self {
        self.timeout = match (self.timeout, deadline) {
            (Some(own), Some(deadline)) => Some(own.min(deadline)),
            (own, deadline) => own.or(deadline),
        };
        self
    }
}

/// When and how often a request is retried.
///
/// Retries go to another host, and to another zone when several hosts of a zone cannot be reached.
/// A request that no host has seen is retried whatever `retry_on` says; one that a host may have
/// seen, only under the conditions of `retry_on` and if the cluster's circuit breakers allow it.
///
/// ```
/// use plimsoll_client::{RetryOn, RetryPolicy};
///
/// let policy = RetryPolicy::new().num_retries(3).retry_on(RetryOn::parse("5xx,reset")?);
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub(crate) num_retries: u32,
    pub(crate) retry_on: RetryOn,
    pub(crate) retriable_status_codes: Vec<u16>,
    pub(crate) base_interval: Duration,
    pub(crate) max_interval: Duration,
    pub(crate) max_replay_bytes: usize,
}

impl RetryPolicy {
    /// Two retries of requests that no host has seen.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the maximum number of attempts after the first; 2 by default.
        num_retries(retries: u32) => num_retries = retries;
        /// Sets when to retry a request that a host may have seen; never by default.
        retry_on(conditions: RetryOn) => retry_on = conditions;
        /// Sets the codes of [`RetryOn::RETRIABLE_STATUS_CODES`]; none by default.
        retriable_status_codes(codes: impl IntoIterator<Item = u16>) =>
            retriable_status_codes = codes.into_iter().collect();
        /// Sets the upper bound of the first backoff, doubled for each retry; 25 ms by default.
        base_interval(interval: Duration) => base_interval = interval;
        /// Sets the upper bound of any backoff; 250 ms by default.
        max_interval(interval: Duration) => max_interval = interval;
        /// Sets the longest request body that is buffered for a retry; 64 KiB by default. A request
        /// with a longer body is not retried once a host has seen part of it.
        max_replay_bytes(bytes: usize) => max_replay_bytes = bytes;
    }
}

#[cfg(feature = "xds")]
impl From<&route::RetryPolicy> for RetryPolicy {
    /// Ignores unknown conditions in `retry_on`, as gRFC A44 requires.
    fn from(policy: &route::RetryPolicy) -> Self {
        let known = policy
            .retry_on
            .iter()
            .filter_map(|name| RetryOn::parse(name).ok());
        let codes = policy.retriable_status_codes.iter();
        Self {
            num_retries: policy.num_retries,
            retry_on: known.fold(RetryOn::NONE, RetryOn::union),
            retriable_status_codes: codes.filter_map(|&code| code.try_into().ok()).collect(),
            base_interval: policy.base_interval,
            max_interval: policy.max_interval,
            max_replay_bytes: MAX_REPLAY_BYTES,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            num_retries: 2,
            retry_on: RetryOn::NONE,
            retriable_status_codes: Vec::new(),
            base_interval: BASE_INTERVAL,
            max_interval: BASE_INTERVAL * 10,
            max_replay_bytes: MAX_REPLAY_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::metadata::Metadata;

    use super::*;

    fn criteria(key: &str, value: &str) -> MatchCriteria {
        MatchCriteria::new([(key, value.into())].into_iter().collect::<Metadata>())
    }

    #[test]
    fn the_shorter_timeout_applies() {
        let second = Duration::from_secs(1);
        for (own, deadline, expected) in [
            (None, None, None),
            (Some(second), None, Some(second)),
            (None, Some(second), Some(second)),
            (Some(second), Some(second * 2), Some(second)),
            (Some(second * 2), Some(second), Some(second)),
        ] {
            let options = RequestOptions {
                timeout: own,
                hash: Some(7),
                ..RequestOptions::default()
            };
            let capped = options.cap_timeout(deadline);
            assert_eq!((capped.timeout, capped.hash), (expected, Some(7)));
        }
    }

    #[test]
    fn criteria_of_a_request_win_over_those_of_its_options() {
        let (stable, canary) = (criteria("version", "stable"), criteria("version", "canary"));
        let merged = |own: Option<&MatchCriteria>, over: Option<&MatchCriteria>| {
            let options = RequestOptions {
                metadata_match: own.cloned(),
                ..RequestOptions::default()
            };
            options.merge_metadata_match(over.cloned()).metadata_match
        };
        assert_eq!(merged(None, None), None);
        assert_eq!(merged(Some(&stable), None), Some(stable.clone()));
        assert_eq!(merged(None, Some(&canary)), Some(canary.clone()));
        assert_eq!(merged(Some(&stable), Some(&canary)), Some(canary.clone()));
        let stage = criteria("stage", "prod");
        let both = merged(Some(&stable), Some(&stage)).unwrap();
        let keys: Vec<&str> = both.metadata().iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["stage", "version"]);
    }

    #[test]
    fn bodies_of_64_kib_are_replayed_by_default() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.max_replay_bytes, 65_536);
        assert_eq!(policy.num_retries, 2);
        assert_eq!(policy.base_interval, Duration::from_millis(25));
        assert_eq!(policy.max_interval, Duration::from_millis(250));
    }

    #[cfg(feature = "xds")]
    #[test]
    fn unknown_conditions_and_codes_of_a_route_are_left_out() {
        let route = route::RetryPolicy {
            retry_on: ["5xx", "of-the-future", "reset"].map(Into::into).to_vec(),
            num_retries: 4,
            retriable_status_codes: vec![409, 70_000],
            base_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(3),
            per_try_timeout: None,
            retry_host_predicate: Vec::new(),
            host_selection_retry_max_attempts: 0,
        };
        let policy = RetryPolicy::from(&route);
        assert_eq!(policy.num_retries, 4);
        assert_eq!(policy.retry_on, RetryOn::parse("5xx,reset").unwrap());
        assert_eq!(policy.retriable_status_codes, [409]);
        assert_eq!(policy.base_interval, Duration::from_secs(1));
        assert_eq!(policy.max_interval, Duration::from_secs(3));
        assert_eq!(policy.max_replay_bytes, MAX_REPLAY_BYTES);
    }
}
