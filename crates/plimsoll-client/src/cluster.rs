//! [`Cluster`]: what services of one cluster share: snapshots, connections, limits.
//!
//! Written by the cluster manager, read by every request. Nothing here is locked. [`Worker`] is
//! what a service picks with; services that come and go lend it to each other, so that its cursors
//! and schedules outlive a single call.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use http::uri::Authority;
use plimsoll_core::host::ClusterLoad;
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::Reader;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use tokio::sync::watch;

use crate::connection::Limits;
use crate::endpoint::{Endpoint, next_draw};
use plimsoll_xds::upstream::UpstreamOptions;

/// Connections of a cluster, by address.
pub(crate) type Endpoints = BTreeMap<SocketAddr, Arc<Endpoint>>;

/// Idle workers that are kept for the next service.
const WORKERS: usize = 64;

/// What services of one cluster share.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: Arc<str>,
    pub(crate) options: ArcSwap<UpstreamOptions>,
    pub(crate) snapshots: Reader<RoutingSnapshot>,
    pub(crate) endpoints: Reader<Endpoints>,
    /// Turns true with the first assignment.
    pub(crate) ready: watch::Receiver<bool>,
    pub(crate) load: Arc<ClusterLoad>,
    pub(crate) limits: Arc<Limits>,
    /// For requests that name no host: the name of the cluster, if it can be one.
    pub(crate) authority: Authority,
    pub(crate) retries: RetryBudget,
    workers: ArrayQueue<Worker>,
    /// Where the draws of the next worker start.
    seeds: AtomicU64,
}

/// What the parts of a cluster are read from.
pub(crate) struct ClusterParts {
    pub(crate) name: Arc<str>,
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) snapshots: Reader<RoutingSnapshot>,
    pub(crate) endpoints: Reader<Endpoints>,
    pub(crate) ready: watch::Receiver<bool>,
    pub(crate) load: Arc<ClusterLoad>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) seed: u64,
}

/// Picks hosts and finds their connections; used by one request at a time.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) picker: Picker,
    pub(crate) endpoints: Reader<Endpoints>,
}

impl Cluster {
    pub(crate) fn new(parts: ClusterParts) -> Self {
        let authority = Authority::try_from(&*parts.name);
        Self {
            authority: authority.unwrap_or_else(|_| Authority::from_static("cluster")),
            limits: parts.limits,
            name: parts.name,
            options: ArcSwap::new(parts.options),
            snapshots: parts.snapshots,
            endpoints: parts.endpoints,
            ready: parts.ready,
            load: parts.load,
            retries: RetryBudget::default(),
            workers: ArrayQueue::new(WORKERS),
            seeds: parts.seed.into(),
        }
    }

    /// A worker that nobody else uses.
    pub(crate) fn lend_worker(&self) -> Worker {
        self.workers.pop().unwrap_or_else(|| Worker {
            picker: Picker::new(self.snapshots.clone(), self.next_rng()),
            endpoints: self.endpoints.clone(),
        })
    }

    /// A worker is no longer used.
    pub(crate) fn give_back(&self, worker: Worker) {
        // More than are kept are not needed.
        drop(self.workers.push(worker));
    }

    /// Draws for one more worker, different from all others.
    fn next_rng(&self) -> Xoshiro256 {
        Xoshiro256::from_seed(self.next_draw())
    }

    /// One draw.
    pub(crate) fn next_draw(&self) -> u64 {
        next_draw(&self.seeds)
    }
}

/// Retries in flight.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    in_flight: AtomicU64,
}

/// One retry, until it is dropped.
#[derive(Debug)]
pub(crate) struct Retry(Arc<Cluster>);

impl RetryBudget {
    /// One more retry, if the breakers allow it.
    pub(crate) fn take(cluster: &Arc<Cluster>, options: &UpstreamOptions) -> Option<Retry> {
        let breakers = &options.circuit_breakers;
        let allowed = match breakers.retry_budget {
            None => u64::from(breakers.max_retries),
            Some(budget) => {
                let active = f64::from(u32::try_from(cluster.load.active()).unwrap_or(u32::MAX));
                let share = (active * budget.budget_percent / 100.0).floor();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most 2^32, at least 0"
                )]
                let share = share as u64;
                share.max(u64::from(budget.min_retry_concurrency))
            }
        };
        let taken = cluster.retries.in_flight.fetch_add(1, Ordering::Relaxed);
        let retry = Retry(Arc::clone(cluster));
        (taken < allowed).then_some(retry)
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.0.retries.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
