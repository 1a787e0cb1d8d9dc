//! Settings of a cluster that have nothing to do with choosing hosts: connections, limits, retries.
//!
//! Defaults are safe for a service in a data centre, and those of Envoy where Envoy has them.

use std::time::Duration;

/// How hosts are spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, one request per connection at a time.
    #[default]
    Http1,
    /// HTTP/2 without negotiation, as gRPC does in plain text.
    Http2,
}

/// Settings of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// How hosts are spoken to.
    pub http_version: HttpVersion,
    /// How long a connection may take; 5 s.
    pub connect_timeout: Duration,
    /// From the call to the response headers, all tries together; none.
    pub timeout: Option<Duration>,
    /// The same for one try; none.
    pub per_try_timeout: Option<Duration>,
    /// Limits.
    pub circuit_breakers: CircuitBreakers,
    /// Retries.
    pub retry: RetryOptions,
    /// Idle HTTP/1.1 connections that are kept per host; 32.
    pub max_idle_connections: usize,
}

/// Limits of one cluster; Envoy's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakers {
    /// Requests in flight; 1024.
    pub max_requests: u64,
}

/// Retries of one cluster. A request is tried again on another host when it is certain that the
/// first has not seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// Tries after the first; 2.
    pub num_retries: u32,
    /// Retries in flight, in percent of the requests in flight; 20.
    pub budget_percent: u64,
    /// Retries in flight that are always allowed; 3.
    pub min_retry_concurrency: u64,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            http_version: HttpVersion::default(),
            connect_timeout: Duration::from_secs(5),
            timeout: None,
            per_try_timeout: None,
            circuit_breakers: CircuitBreakers::default(),
            retry: RetryOptions::default(),
            max_idle_connections: 32,
        }
    }
}

impl Default for CircuitBreakers {
    fn default() -> Self {
        Self { max_requests: 1024 }
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            num_retries: 2,
            budget_percent: 20,
            min_retry_concurrency: 3,
        }
    }
}
