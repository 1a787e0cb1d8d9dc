//! Clusters: [`Cluster`], the state that all services of a cluster share, and the task that updates
//! it (`manager`, `managed`).
//!
//! The cluster manager publishes snapshots and every request reads them without a lock. Pickers
//! outlive services: a dropped service returns its picker, so that a program that creates a service
//! per call keeps the round-robin position and schedule.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_queue::ArrayQueue;
use http::uri::Authority;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::event::Event;
use plimsoll_core::host::ClusterLoad;
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::Reader;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::DriverSnapshot;
use plimsoll_core::stats::{PickerStats, Sample, add_samples};
use plimsoll_core::time::Instant;
use plimsoll_xds::upstream::{Discovery, EdsSource, UpstreamOptions};
use tokio::sync::watch;

use crate::cluster::initial_fetch::{InitialFetch, until};
use crate::cluster::manager::Settings;
use crate::error::{Error, ErrorKind, Side};
use crate::request::attempt_span::Tracing;
use crate::upstream::connection::ConnectionLimits;
use crate::upstream::endpoint::{Endpoint, next_draw};

pub(crate) mod backlog;
pub(crate) mod dns;
mod event_log;
pub(crate) mod initial_fetch;
pub(crate) mod lifecycle;
pub(crate) mod managed;
pub(crate) mod manager;
#[cfg(feature = "yaml")]
pub(crate) mod service_config;
pub(crate) mod status;

pub(crate) type ClusterSnapshot = DriverSnapshot<Arc<Endpoint>>;

/// Picks a host together with its connections; used by one request at a time.
pub(crate) type HostPicker = Picker<Xoshiro256, ClusterSnapshot>;

const MAX_EVENTS: usize = 50;
const MAX_IDLE_PICKERS: usize = 64;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: Arc<str>,
    pub(crate) options: ArcSwap<UpstreamOptions>,
    pub(crate) snapshots: Reader<ClusterSnapshot>,
    /// Becomes true when the cluster has received its first endpoints.
    ready: watch::Receiver<bool>,
    pub(crate) initial_fetch: Arc<InitialFetch>,
    /// When requests stop waiting for the first endpoints.
    fetch_deadline: Option<tokio::time::Instant>,
    /// Why the cluster lacks endpoints, such as a name that DNS does not know.
    problem: ArcSwapOption<String>,
    pub(crate) load: Arc<ClusterLoad>,
    pub(crate) limits: Arc<ConnectionLimits>,
    /// Authority for requests that have none: the cluster name, if it is a valid authority.
    pub(crate) authority: Authority,
    pub(crate) retries: RetryBudget,
    pickers: ArrayQueue<HostPicker>,
    picks: Mutex<PickCounters>,
    events: Mutex<VecDeque<(Instant, Event)>>,
    seeds: AtomicU64,
    pub(crate) tracing: Tracing,
}

impl Cluster {
    pub(crate) fn new(
        balancer: &Balancer,
        options: Arc<UpstreamOptions>,
        snapshots: Reader<ClusterSnapshot>,
        ready: watch::Receiver<bool>,
        settings: &Settings,
    ) -> Self {
        let name = balancer.config().name();
        let authority = Authority::try_from(&**name);
        let limits = ConnectionLimits::new(Arc::clone(&settings.outlier_notify));
        limits.set_config(Arc::clone(balancer.config()));
        Self {
            name: Arc::clone(name),
            authority: authority.unwrap_or_else(|_| Authority::from_static("cluster")),
            options: ArcSwap::new(options),
            snapshots,
            ready,
            fetch_deadline: settings.initial_fetch.deadline(),
            initial_fetch: Arc::clone(&settings.initial_fetch),
            problem: ArcSwapOption::empty(),
            load: Arc::clone(balancer.cluster_load()),
            limits: Arc::new(limits),
            retries: RetryBudget::default(),
            pickers: ArrayQueue::new(MAX_IDLE_PICKERS),
            picks: Mutex::default(),
            events: Mutex::default(),
            seeds: settings.seed.into(),
            tracing: settings.tracing.clone(),
        }
    }

    /// Waits for the first endpoints, until the initial fetch has timed out.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut ready = self.ready.clone();
        match until(self.fetch_deadline, ready.wait_for(|ready| *ready)).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(_)) if self.initial_fetch.lifecycle.is_open() => {
                let message = format!("cluster {} was removed", self.name);
                Err(Error::new(ErrorKind::UnknownCluster, message).with_cluster(&self.name))
            }
            Some(Err(_)) => Err(self.initial_fetch.lifecycle.error()),
            None => Err(self.not_ready()),
        }
    }

    /// Like [`Self::ready`]; if no endpoints have arrived in time, returns the fallback cluster.
    pub(crate) async fn ready_or_fallback(&self) -> Result<Option<Arc<Self>>, Error> {
        let Err(error) = self.ready().await else {
            return Ok(None);
        };
        let fallback = match error.kind() {
            ErrorKind::Closed | ErrorKind::UnknownCluster => None,
            _ => self.initial_fetch.fall_back(&self.waiting()),
        };
        // The fallback cluster itself may have no endpoints yet.
        match fallback {
            Some(fallback) if fallback.is_ready() => Ok(Some(fallback)),
            _ => Err(error),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(crate) const fn fetch_deadline(&self) -> Option<tokio::time::Instant> {
        self.fetch_deadline
    }

    /// Whether requests no longer wait for the first endpoints.
    pub(crate) fn initial_fetch_ended(&self) -> bool {
        let now = tokio::time::Instant::now;
        self.fetch_deadline
            .is_some_and(|deadline| deadline <= now())
    }

    /// Name of the cluster in log lines about the initial fetch.
    pub(crate) fn waiting(&self) -> String {
        format!("cluster {}", self.name)
    }

    /// Error of a request that found no endpoints.
    #[cold]
    pub(crate) fn not_ready(&self) -> Error {
        let missing = self.initial_fetch.missing("endpoints");
        let message = format!(
            "cluster {}: {missing}; {}",
            self.name,
            self.pending_reason()
        );
        let server = matches!(self.options.load().discovery, Discovery::Eds { .. });
        let side = if server {
            Side::ManagementServer
        } else {
            Side::Upstream
        };
        Error::new(ErrorKind::Discovery, message)
            .with_cluster(&self.name)
            .with_side(side)
    }

    /// Why the cluster has no endpoints.
    pub(crate) fn pending_reason(&self) -> String {
        if let Some(problem) = &*self.problem.load() {
            return String::clone(problem);
        }
        match &self.options.load().discovery {
            Discovery::Static => "they are set with Client::update_endpoints".to_owned(),
            Discovery::Eds {
                source: EdsSource::Path(path),
                ..
            } => format!("they are read from {path:?}"),
            _ => self.initial_fetch.server_state(),
        }
    }

    pub(crate) fn set_problem(&self, problem: Option<String>) {
        self.problem.store(problem.map(Arc::new));
    }

    pub(crate) fn problem(&self) -> Option<Arc<String>> {
        self.problem.load_full()
    }

    pub(crate) fn checkout_picker(&self) -> HostPicker {
        self.pickers.pop().unwrap_or_else(|| self.new_picker())
    }

    #[cold]
    fn new_picker(&self) -> HostPicker {
        let rng = Xoshiro256::from_seed(self.next_draw());
        let picker = Picker::new(self.snapshots.clone(), rng);
        let mut picks = self.picks.lock().unwrap_or_else(PoisonError::into_inner);
        picks.add(Arc::clone(picker.stats()));
        picker
    }

    pub(crate) fn picker_samples(&self) -> Vec<Sample> {
        let picks = self.picks.lock().unwrap_or_else(PoisonError::into_inner);
        picks.sum()
    }

    pub(crate) fn record_event(&self, event: Event, now: Instant) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == MAX_EVENTS {
            events.pop_front();
        }
        events.push_back((now, event));
    }

    pub(crate) fn events(&self) -> Vec<(Instant, Event)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().rev().cloned().collect()
    }

    pub(crate) fn return_picker(&self, picker: HostPicker) {
        drop(self.pickers.push(picker));
    }

    pub(crate) fn next_draw(&self) -> u64 {
        next_draw(&self.seeds)
    }
}

/// Counters of live and dropped pickers. Locked to add a picker or to read, never to pick a host.
#[derive(Debug, Default)]
struct PickCounters {
    live: Vec<Arc<PickerStats>>,
    retired: Vec<Sample>,
}

impl PickCounters {
    fn add(&mut self, stats: Arc<PickerStats>) {
        let retired = &mut self.retired;
        self.live.retain(|stats| {
            let live = Arc::strong_count(stats) > 1;
            if !live {
                add_samples(retired, stats.samples());
            }
            live
        });
        self.live.push(stats);
    }

    fn sum(&self) -> Vec<Sample> {
        let mut sums = self.retired.clone();
        for stats in &self.live {
            add_samples(&mut sums, stats.samples());
        }
        sums
    }
}

#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    in_flight: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct RetryPermit(Arc<Cluster>);

impl RetryBudget {
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn try_acquire(
        cluster: &Arc<Cluster>,
        options: &UpstreamOptions,
    ) -> Option<RetryPermit> {
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
        let retry = RetryPermit(Arc::clone(cluster));
        (taken < allowed).then_some(retry)
    }
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        self.0.retries.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(feature = "xds")]
mod tests;
