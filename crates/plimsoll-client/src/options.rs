//! [`RequestOptions`]: settings of a request that have nothing to do with choosing hosts.
//!
//! What belongs to a cluster (connections, breakers, health checks) is in
//! `plimsoll_xds::upstream`, because files and servers say it. These come from a route or from the
//! program: given to a service for all its requests, or to one request as an extension.

use std::time::Duration;

use plimsoll_xds::route;

/// Timeouts and retries of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// From the call to the response headers, all tries together; none.
    pub timeout: Option<Duration>,
    /// The same for one try; none.
    pub per_try_timeout: Option<Duration>,
    /// Retries.
    pub retry: RetryPolicy,
    /// Hash for consistent hashing; without one a draw is used.
    pub hash: Option<u64>,
}

impl RequestOptions {
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

/// Retries of a request: on another host, while the cluster's breakers allow it. What no host has
/// seen is always tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first; 2.
    pub num_retries: u32,
}

impl From<&route::RetryPolicy> for RetryPolicy {
    fn from(policy: &route::RetryPolicy) -> Self {
        Self {
            num_retries: policy.num_retries,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { num_retries: 2 }
    }
}
