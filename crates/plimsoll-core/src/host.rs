//! [`Host`]: what outlives a snapshot; the only shared mutable memory of the data path (atomics).
//!
//! A host is kept alive by the snapshots and the requests that use it. The balancer creates it and
//! writes weight and slow-start factor; requests count themselves in and out. Everything that is
//! decided from these numbers lives in `balancer` and `endpoint_picking`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::model::assignment::LbEndpoint;
use crate::model::locality::Locality;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A response that is no error (HTTP below 500, gRPC OK).
    Success,
    /// An error response, a reset, a timeout.
    Error,
}

/// Requests of a whole cluster in flight: the mean that bounded load compares with.
#[derive(Debug, Default)]
pub struct ClusterLoad {
    active: AtomicU64,
}

impl ClusterLoad {
    /// Requests in flight now.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }
}

/// One upstream host.
#[derive(Debug)]
pub struct Host {
    // The three that a pick reads stand together, first.
    active: AtomicU64,
    weight: AtomicU32,
    /// Bits of an f64 in 0.0..=1.0.
    slow_start_factor: AtomicU64,
    issued: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    address: SocketAddr,
    locality: Locality,
    hostname: Arc<str>,
    hash_key: Option<Arc<str>>,
    cluster: Arc<ClusterLoad>,
}

impl Host {
    /// The host of `endpoint` in `locality`.
    pub(crate) fn new(
        endpoint: &LbEndpoint,
        locality: &Locality,
        cluster: Arc<ClusterLoad>,
    ) -> Self {
        Self {
            active: AtomicU64::new(0),
            weight: AtomicU32::new(endpoint.weight().max(1)),
            slow_start_factor: AtomicU64::new(1.0_f64.to_bits()),
            issued: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            address: endpoint.address,
            locality: locality.clone(),
            hostname: Arc::clone(&endpoint.hostname),
            hash_key: endpoint.hash_key.clone(),
            cluster,
        }
    }

    /// Counts a request in. Keep the value until the request has ended.
    #[inline]
    pub fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.issued.fetch_add(1, Ordering::Relaxed);
        self.cluster.active.fetch_add(1, Ordering::Relaxed);
        ActiveRequest {
            host: Arc::clone(self),
            ended: false,
        }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is.
    pub const fn locality(&self) -> &Locality {
        &self.locality
    }

    /// Its name in the assignment, may be empty.
    pub const fn hostname(&self) -> &Arc<str> {
        &self.hostname
    }

    /// Key for consistent hashing that overrides address and name.
    pub const fn hash_key(&self) -> Option<&Arc<str>> {
        self.hash_key.as_ref()
    }

    /// Requests in flight.
    #[inline]
    pub fn active_requests(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Requests issued, succeeded and failed since the host was first seen.
    pub fn totals(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            load(&self.issued),
            load(&self.succeeded),
            load(&self.failed),
        )
    }

    /// Weight in force, at least 1.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Weight after slow start had its say.
    #[inline]
    pub fn scheduled_weight(&self) -> f64 {
        let factor = f64::from_bits(self.slow_start_factor.load(Ordering::Relaxed));
        f64::from(self.weight()) * factor
    }

    /// Requests of the whole cluster in flight.
    pub fn cluster_load(&self) -> &ClusterLoad {
        &self.cluster
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.weight.store(weight.max(1), Ordering::Relaxed);
    }

    pub(crate) fn set_slow_start_factor(&self, factor: f64) {
        self.slow_start_factor
            .store(factor.to_bits(), Ordering::Relaxed);
    }

    fn end_request(&self, outcome: RequestOutcome) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.cluster.active.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            RequestOutcome::Success => self.succeeded.fetch_add(1, Ordering::Relaxed),
            RequestOutcome::Error => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// A request in flight. Dropped without [`ActiveRequest::finish`] it counts as an error: a request
/// that was cancelled or whose task died did not succeed.
#[derive(Debug)]
#[must_use = "the request counts as failed when this is dropped"]
pub struct ActiveRequest {
    host: Arc<Host>,
    ended: bool,
}

impl ActiveRequest {
    /// The request has ended.
    pub fn finish(mut self, outcome: RequestOutcome) {
        self.ended = true;
        self.host.end_request(outcome);
    }

    /// The host that serves it.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if !self.ended {
            self.host.end_request(RequestOutcome::Error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(weight: Option<u32>) -> Arc<Host> {
        let mut endpoint = LbEndpoint::new(SocketAddr::from(([10, 0, 0, 1], 80)));
        endpoint.load_balancing_weight = weight;
        Arc::new(Host::new(
            &endpoint,
            &Locality::zone_only("a"),
            Arc::default(),
        ))
    }

    #[test]
    fn requests_count_in_and_out() {
        let host = host(None);
        let (one, two, three) = (
            host.begin_request(),
            host.begin_request(),
            host.begin_request(),
        );
        assert_eq!(
            (host.active_requests(), host.cluster_load().active()),
            (3, 3)
        );
        one.finish(RequestOutcome::Success);
        two.finish(RequestOutcome::Error);
        drop(three);
        assert_eq!(
            (host.active_requests(), host.cluster_load().active()),
            (0, 0)
        );
        assert_eq!(host.totals(), (3, 1, 2));
    }

    #[test]
    fn weights_are_at_least_one_and_slow_start_scales_them() {
        let host = host(Some(8));
        host.set_slow_start_factor(0.25);
        assert_eq!((host.weight(), host.scheduled_weight()), (8, 2.0));
        host.set_weight(0);
        assert_eq!(host.weight(), 1);
    }
}
