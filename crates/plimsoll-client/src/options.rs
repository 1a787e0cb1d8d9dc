//! [`RequestOptions`]: settings of a request.
//!
//! What belongs to a cluster (connections, breakers, health checks) is in
//! `plimsoll_xds::upstream`, because files and servers say it. These come from a route or from the
//! program: given to a service for all its requests, or to one request as an extension.

use std::time::Duration;

use plimsoll_core::model::metadata::MatchCriteria;
use plimsoll_xds::route;

use crate::retry::RetryOn;

/// Envoy's default of `retry_back_off.base_interval`.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
/// Envoy's default of `per_request_buffer_limit_bytes` is far larger; this is what a retry needs of
/// most requests.
const MAX_REPLAY_BYTES: usize = 64 << 10;

/// Timeouts, retries and choice of hosts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// From the call to the response headers, all tries together; none.
    pub timeout: Option<Duration>,
    /// The same for one try; none. A try that takes longer counts as an error of its host.
    pub per_try_timeout: Option<Duration>,
    /// Retries.
    pub retry: RetryPolicy,
    /// Hash for consistent hashing; without one a draw is used.
    pub hash: Option<u64>,
    /// The metadata that hosts must have, in clusters with subsets. [`MatchCriteria`] given to a
    /// request as an extension of their own go over these, key by key.
    pub metadata_match: Option<MatchCriteria>,
}

impl RequestOptions {
    /// The same with criteria over those that are there, key by key.
    #[must_use]
    pub fn matching(mut self, criteria: Option<MatchCriteria>) -> Self {
        self.metadata_match = match (self.metadata_match, criteria) {
            (Some(own), Some(over)) => Some(own.merged(over.metadata())),
            (own, over) => over.or(own),
        };
        self
    }

    /// The same with the earlier of two deadlines.
    #[must_use]
    pub fn within(mut self, deadline: Option<Duration>) -> Self {
        self.timeout = match (self.timeout, deadline) {
            (Some(own), Some(deadline)) => Some(own.min(deadline)),
            (own, deadline) => own.or(deadline),
        };
        self
    }
}

/// Retries of a request: on another host, and on one of another zone when those of a zone cannot be
/// reached. What no host has seen is always tried again; the rest under the conditions of
/// `retry_on`, while the cluster's breakers allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first; 2.
    pub num_retries: u32,
    /// When to try again what a host may have seen; never.
    pub retry_on: RetryOn,
    /// Statuses for [`RetryOn::RETRIABLE_STATUS_CODES`].
    pub retriable_status_codes: Vec<u16>,
    /// Bound of the first pause before such a retry, which doubles; 25 ms.
    pub base_interval: Duration,
    /// Longest pause; ten times the first.
    pub max_interval: Duration,
    /// A request body is kept for another try up to this length; 64 KiB. A longer one is not tried
    /// again once a host has seen some of it.
    pub max_replay_bytes: usize,
}

impl From<&route::RetryPolicy> for RetryPolicy {
    /// Conditions that we do not have are passed over, as gRFC A44 asks.
    fn from(policy: &route::RetryPolicy) -> Self {
        let known = policy
            .retry_on
            .iter()
            .filter_map(|name| RetryOn::parse(name).ok());
        let codes = policy.retriable_status_codes.iter();
        Self {
            num_retries: policy.num_retries,
            retry_on: known.fold(RetryOn::NONE, RetryOn::and),
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
