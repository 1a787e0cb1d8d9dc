//! [`Cluster`]: what services of one cluster share: snapshots, connections, limits.
//!
//! Written by the cluster manager, read by every request. No request waits for a lock. [`Worker`]
//! is what a service picks with; services that come and go lend it to each other, so that its
//! cursors and schedules outlive a single call.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use http::uri::Authority;
use plimsoll_core::event::Event;
use plimsoll_core::host::ClusterLoad;
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::Reader;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::stats::PickerStats;
use plimsoll_core::time::Instant;
use tokio::sync::watch;

use crate::connection::Limits;
use crate::endpoint::{Endpoint, next_draw};
use plimsoll_xds::upstream::UpstreamOptions;

/// Connections of a cluster, by address.
pub(crate) type Endpoints = BTreeMap<SocketAddr, Arc<Endpoint>>;

/// Events that are kept for whoever asks later.
const EVENTS: usize = 50;
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
    picks: Mutex<PickCounters>,
    /// What happened last, newest last.
    events: Mutex<VecDeque<(Instant, Event)>>,
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
            picks: Mutex::default(),
            events: Mutex::default(),
            seeds: parts.seed.into(),
        }
    }

    /// A worker that nobody else uses.
    pub(crate) fn lend_worker(&self) -> Worker {
        self.workers.pop().unwrap_or_else(|| self.new_worker())
    }

    #[cold]
    fn new_worker(&self) -> Worker {
        let picker = Picker::new(self.snapshots.clone(), self.next_rng());
        let mut picks = self.picks.lock().unwrap_or_else(PoisonError::into_inner);
        picks.add(Arc::clone(picker.stats()));
        Worker {
            picker,
            endpoints: self.endpoints.clone(),
        }
    }

    /// Counters of all picks.
    pub(crate) fn picker_counters(&self) -> Vec<(&'static str, u64)> {
        let picks = self.picks.lock().unwrap_or_else(PoisonError::into_inner);
        picks.sum()
    }

    /// Something happened.
    pub(crate) fn remember(&self, event: Event, now: Instant) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back((now, event));
    }

    /// What happened last, newest first.
    pub(crate) fn events(&self) -> Vec<(Instant, Event)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().rev().cloned().collect()
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

/// Counters of all workers, of those that are gone too. Locked when a worker is made and when
/// somebody reads, never by a pick.
#[derive(Debug, Default)]
struct PickCounters {
    live: Vec<Arc<PickerStats>>,
    gone: Vec<u64>,
}

impl PickCounters {
    fn add(&mut self, stats: Arc<PickerStats>) {
        let (live, gone) = std::mem::take(&mut self.live)
            .into_iter()
            .partition(|stats| Arc::strong_count(stats) > 1);
        self.live = live;
        let gone: Vec<Arc<PickerStats>> = gone;
        for stats in gone {
            self.gone.resize(stats.iter().count(), 0);
            for (sum, (_, value)) in self.gone.iter_mut().zip(stats.iter()) {
                *sum += value;
            }
        }
        self.live.push(stats);
    }

    fn sum(&self) -> Vec<(&'static str, u64)> {
        let Some(first) = self.live.first() else {
            return Vec::new();
        };
        let mut sums: Vec<(&'static str, u64)> = first.iter().map(|(name, _)| (name, 0)).collect();
        for (sum, gone) in sums.iter_mut().zip(&self.gone) {
            sum.1 += gone;
        }
        for stats in &self.live {
            for (sum, (_, value)) in sums.iter_mut().zip(stats.iter()) {
                sum.1 += value;
            }
        }
        sums
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
    /// Retries in flight now.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_workers_that_are_gone_stay_in_the_sum() {
        let mut picks = PickCounters::default();
        for _ in 0..3 {
            let stats: Arc<PickerStats> = Arc::default();
            stats.drop_overload.increment();
            picks.add(stats);
        }
        assert_eq!(picks.live.len(), 1);
        assert!(picks.sum().contains(&("drop_overload", 3)));
    }
}
