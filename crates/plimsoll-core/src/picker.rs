//! Host selection on the request path: a snapshot and a few random draws in, a host out.
//!
//! A pick takes no lock, reads no clock and allocates nothing; it borrows the host from the
//! worker's snapshot. Worker-private state (cursors, schedules, random generator) is kept in the
//! [`Picker`] and synced lazily: the first pick that sees a new snapshot rebuilds what changed and
//! keeps the rest. Decisions, and their draws, are made in this order: drop, subset (`subsets`),
//! priority, host list (`host_source`), host (`endpoint_picking`).
//!
//! ```
//! # use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
//! # use plimsoll_core::{balancer::Balancer, model::locality::Locality, publish, time::Instant};
//! use plimsoll_core::picker::{PickArgs, PickResult, Picker};
//! use plimsoll_core::rng::Xoshiro256;
//!
//! # let parts = ClusterConfigParts { name: "orders".into(), ..Default::default() };
//! # let config = ClusterConfig::try_new(parts)?.into();
//! # let balancer = Balancer::new(config, Locality::default(), Instant::ORIGIN);
//! # let (_publisher, reader) = publish::channel(balancer.initial_snapshot(Instant::ORIGIN));
//! let mut picker = Picker::new(reader, Xoshiro256::from_seed(1));
//! match picker.pick(PickArgs { hash: Some(42), ..Default::default() }) {
//!     PickResult::Complete(pick) => println!("send to {}", pick.host.address()),
//!     PickResult::Drop { category } => println!("drop ({category})"),
//!     PickResult::Fail(error) => println!("fail: {error}"),
//!     PickResult::Queue => println!("wait for the next snapshot"),
//! }
//! # Ok::<(), plimsoll_core::units::FieldError>(())
//! ```

use std::sync::Arc;

use crate::host::Host;
use crate::host_source::HostSource;
use crate::model::cluster::ClusterConfig;
use crate::model::metadata::MatchCriteria;
use crate::model::zone_aware::ZoneAware;
use crate::priority::Availability;
use crate::publish::Reader;
use crate::rng::{Rng, Xoshiro256};
use crate::snapshot::{HostList, PriorityView, RoutingSnapshot};
use crate::stats::PickerStats;

mod avoiding;
mod hashed;
mod load_aware;
mod state;
mod subsets;

use state::{HostPick, PickerState};
use subsets::SubsetPick;

/// Number of full decisions repeated while the host is to be avoided, before lists are searched.
const RESELECTIONS: u32 = 3;
const MILLION: u64 = 1_000_000;

/// Properties of a request that influence the pick.
#[derive(Clone, Copy, Debug, Default)]
pub struct PickArgs<'a> {
    /// Request hash for consistent hashing; a random draw is used if there is none.
    pub hash: Option<u64>,
    /// Hosts already tried for this request: not picked again if there is another one.
    pub avoid: &'a [Arc<Host>],
    /// Metadata match criteria of the route, which select the subset in a cluster with subsets.
    pub metadata_match: Option<&'a MatchCriteria>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Reads the active requests of a host from the program that sends the requests.
type ActiveRequests<'a> = &'a dyn Fn(&Host) -> u64;

/// The outcome of a pick, with the names of gRPC's picker API.
#[derive(Clone, Copy, Debug)]
pub enum PickResult<'p> {
    /// Send the request to this host.
    Complete(Pick<'p>),
    /// Drop the request, as the assignment's `drop_overloads` demands.
    Drop { category: &'p Arc<str> },
    /// Fail the request: there is no host for it.
    Fail(PickError),
    /// No assignment has arrived yet: pick again from the next snapshot.
    Queue,
}

impl<'p> PickResult<'p> {
    /// Returns the picked host, if there is one.
    pub fn host(&self) -> Option<&'p Arc<Host>> {
        match self {
            Self::Complete(pick) => Some(pick.host),
            Self::Drop { .. } | Self::Fail(_) | Self::Queue => None,
        }
    }
}

/// A picked host and how it was chosen.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Pick<'p> {
    pub host: &'p Arc<Host>,
    pub priority: usize,
    pub source: HostSource,
    /// Whether the host is in the proxy's own locality.
    pub local: bool,
    pub generation: u64,
}

/// Reason why a pick found no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PickError {
    NoHost,
    /// No subset matches the metadata of the request, and no fallback is configured.
    NoSubset,
    /// The priority is in panic, and `fail_traffic_on_panic` is set.
    Panic,
}

impl std::fmt::Display for PickError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoHost => "no host available",
            Self::NoSubset => "no subset matches the request and no fallback is configured",
            Self::Panic => "cluster is in panic and fail_traffic_on_panic is set",
        })
    }
}

impl std::error::Error for PickError {}

/// Picks hosts for one worker, from snapshots of a balancer or from snapshots with driver data
/// attached to hosts ([`DriverSnapshot`](crate::snapshot::DriverSnapshot)).
#[derive(Debug)]
pub struct Picker<R = Xoshiro256, S = RoutingSnapshot> {
    reader: Reader<S>,
    rng: R,
    state: PickerState,
    stats: Arc<PickerStats>,
}

#[derive(Clone, Copy)]
struct RequestHash {
    hash: Option<u64>,
    attempt: u32,
}

/// The priority that a request goes to, and whether to its healthy or its degraded hosts.
#[derive(Clone, Copy)]
struct ChosenPriority {
    priority: usize,
    availability: Availability,
    /// The draw that chose priority and class; `random` reuses it for the host, as Envoy does.
    draw: u64,
}

/// A host and the list position it was chosen from: the result of one decision.
#[derive(Clone, Copy)]
struct Choice<'p> {
    host: &'p Arc<Host>,
    index: u32,
    local: bool,
    priority: usize,
    source: HostSource,
}

impl<'p> Choice<'p> {
    #[inline]
    fn new(list: &HostList<'p>, index: u32, priority: usize, source: HostSource) -> Self {
        Self {
            host: list.host(index),
            index,
            local: index < list.local(),
            priority,
            source,
        }
    }

    fn is_one_of(&self, avoid: &[Arc<Host>]) -> bool {
        avoid.iter().any(|tried| Arc::ptr_eq(tried, self.host))
    }
}

/// What every step of a pick needs apart from the snapshot. By value, to stay in registers.
struct PickContext<'w, R> {
    state: &'w mut PickerState,
    rng: &'w mut R,
    stats: &'w PickerStats,
    active: Option<ActiveRequests<'w>>,
}

impl<R> PickContext<'_, R> {
    #[inline(always)]
    const fn reborrow(&mut self) -> PickContext<'_, R> {
        PickContext {
            state: self.state,
            rng: self.rng,
            stats: self.stats,
            active: self.active,
        }
    }
}

impl<R: Rng, S: AsRef<RoutingSnapshot>> Picker<R, S> {
    /// Creates a picker that reads snapshots from `reader`. The first draw seeds its cursors, so
    /// that workers that start together do not all begin with the same host.
    pub fn new(reader: Reader<S>, mut rng: R) -> Self {
        let state = PickerState::new(rng.next_u64());
        Self {
            reader,
            rng,
            state,
            stats: Arc::default(),
        }
    }

    /// Creates a picker for another worker, with its own random stream, cursors and counters.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.reader.clone(), self.rng.fork())
    }

    /// Returns the counters of this worker, which any thread may read.
    pub fn stats(&self) -> &Arc<PickerStats> {
        &self.stats
    }

    /// Returns the newest snapshot, which the next pick would use.
    pub fn snapshot(&mut self) -> &Arc<S> {
        self.reader.latest()
    }

    /// Picks a host for one request, without locking, allocating or reading a clock.
    ///
    /// See the [module documentation](self) for an example.
    #[inline]
    pub fn pick(&mut self, args: PickArgs<'_>) -> PickResult<'_> {
        self.pick_with_snapshot(args).1
    }

    /// Picks a host, and returns it with the snapshot that it was picked from: a newer snapshot may
    /// no longer contain the host.
    #[inline]
    pub fn pick_with_snapshot(&mut self, args: PickArgs<'_>) -> (&S, PickResult<'_>) {
        self.pick_counting(args, None)
    }

    /// Picks a host like [`Self::pick`], but least request compares the active requests that
    /// `active` returns. For drivers that choose hosts for another program, which counts requests.
    pub fn pick_with_active_requests(
        &mut self,
        args: PickArgs<'_>,
        active: &dyn Fn(&Host) -> u64,
    ) -> PickResult<'_> {
        self.pick_counting(args, Some(active)).1
    }

    #[inline(always)]
    fn pick_counting(
        &mut self,
        args: PickArgs<'_>,
        active: Option<ActiveRequests<'_>>,
    ) -> (&S, PickResult<'_>) {
        let Self {
            reader,
            rng,
            state,
            stats,
        } = self;
        let published = &**reader.latest();
        let snapshot = published.as_ref();
        if !state.is_synced_with(snapshot) {
            state.sync(snapshot, rng);
        }
        // The fast path is inlined here as a whole; everything else is out of line.
        let fast_path = state.summary.plain && args.avoid.is_empty();
        let context = PickContext {
            state,
            rng,
            stats,
            active,
        };
        if fast_path {
            let chosen = choose(snapshot, None, context);
            return (published, outcome(chosen, snapshot.generation, stats));
        }
        (published, pick_slow(snapshot, args, context))
    }
}

/// What the fast path leaves out: queueing, drops, subsets, hashing, load_aware_locality, retries.
#[inline(never)]
fn pick_slow<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    context: PickContext<'_, R>,
) -> PickResult<'p> {
    let stats = context.stats;
    if !snapshot.ready {
        return PickResult::Queue;
    }
    // Retries are not dropped: the first attempt already passed this check.
    let drops = snapshot.drop_overloads.iter().enumerate();
    for (index, drop) in drops.filter(|_| args.avoid.is_empty()) {
        if context.rng.next_u64() % MILLION < u64::from(drop.per_million) {
            stats.drop_overload.increment();
            snapshot.drop_counts.increment(index);
            return PickResult::Drop {
                category: &drop.category,
            };
        }
    }
    let chosen = match snapshot.subsets.as_deref() {
        None => decide(snapshot, args, context),
        Some(table) => SubsetPick {
            snapshot,
            table,
            context,
        }
        .choose(args),
    };
    outcome(chosen, snapshot.generation, stats)
}

/// Chooses a host from the hosts of `snapshot`: those of a cluster, or of one subset.
fn decide<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let flat_hash = snapshot.config.endpoint_policy().is_hash()
        && snapshot.config.load_aware_locality().is_none();
    if flat_hash {
        hashed::choose(snapshot, args, context)
    } else {
        avoiding::choose(snapshot, args, context)
    }
}

#[inline(always)]
fn outcome<'p>(
    chosen: Result<Choice<'p>, PickError>,
    generation: u64,
    stats: &PickerStats,
) -> PickResult<'p> {
    match chosen {
        Ok(Choice {
            host,
            local,
            priority,
            source,
            ..
        }) => PickResult::Complete(Pick {
            host,
            priority,
            source,
            local,
            generation,
        }),
        Err(error) => {
            stats.upstream_cx_none_healthy.increment();
            PickResult::Fail(error)
        }
    }
}

/// One full decision: priority, list, host. `request` is for load_aware_locality only.
#[inline(always)]
fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    request: Option<RequestHash>,
    context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let draw = context.rng.next_u64();
    let (priority, availability) = if context.state.summary.first_priority_only {
        (0, Availability::Healthy)
    } else {
        choose_priority(snapshot, draw)
    };
    let chosen = ChosenPriority {
        priority,
        availability,
        draw,
    };
    choose_within(snapshot, chosen, request, context)
}

#[inline(always)]
fn choose_within<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    chosen: ChosenPriority,
    request: Option<RequestHash>,
    context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let ChosenPriority {
        priority,
        availability,
        draw,
    } = chosen;
    let view = snapshot.priorities.get(priority).ok_or(PickError::NoHost)?;
    if let Some(request) = request
        && let Some(source) = load_aware::source_of(view, availability)
    {
        return load_aware::choose(snapshot, view, source, chosen, request, context);
    }
    let PickContext {
        state,
        rng,
        stats,
        active,
    } = context;
    let PickerState {
        priorities,
        summary,
        sampler,
        ..
    } = state;
    let lists = &mut priorities[priority];
    let source = view
        .source
        .choose(
            availability,
            || lists.scheduled_locality(availability, &view.table),
            sampler,
            rng,
            stats,
        )
        .ok_or(PickError::Panic)?;
    let source = with_degraded_hosts(source, view, snapshot.config());
    let list = view.table.list(source);
    let call = HostPick {
        snapshot,
        summary,
        draw,
        active,
    };
    match lists.pick_host(&list, call, rng) {
        Some(index) => Ok(Choice::new(&list, index, priority, source)),
        None => {
            let source = flat_instead(snapshot, source).ok_or(PickError::NoHost)?;
            let list = view.table.list(source);
            let index = lists.pick_host(&list, call, rng).ok_or(PickError::NoHost)?;
            Ok(Choice::new(&list, index, priority, source))
        }
    }
}

/// List to use if the chosen locality has no host of its availability: the flat one with measured
/// demand or OBSERVED_LOAD, unless `force_local_zone` is 0; else the request fails (Envoy).
#[cold]
fn flat_instead(snapshot: &RoutingSnapshot, source: HostSource) -> Option<HostSource> {
    let config = snapshot.config.zone_aware()?;
    let measured = snapshot.zone.demand.is_measured();
    let leaves = config.locality_basis().leaves_empty_localities(measured);
    if !leaves || config.force_local_zone() == Some(0) {
        return None;
    }
    match source {
        HostSource::LocalityHealthyHosts(_) => Some(HostSource::HealthyHosts),
        HostSource::LocalityDegradedHosts(_) => Some(HostSource::DegradedHosts),
        _ => None,
    }
}

/// Replaces an empty list of degraded hosts: shares follow healthy hosts, so a locality may have no
/// degraded ones. Envoy then finds no host; a measured `locality_basis` uses the flat list (0004).
#[inline]
fn with_degraded_hosts(
    source: HostSource,
    view: &PriorityView,
    config: &ClusterConfig,
) -> HostSource {
    let empty = matches!(source, HostSource::LocalityDegradedHosts(_))
        && view.table.list(source).is_empty();
    let measured = |settings: &ZoneAware| settings.locality_basis().is_measured();
    if empty && config.zone_aware().is_some_and(measured) {
        HostSource::DegradedHosts
    } else {
        source
    }
}

/// Kept out of line, because with a single healthy priority there is nothing to choose.
#[inline(never)]
fn choose_priority(snapshot: &RoutingSnapshot, hash: u64) -> (usize, Availability) {
    snapshot.loads.choose(hash)
}

#[cfg(test)]
mod tests;
