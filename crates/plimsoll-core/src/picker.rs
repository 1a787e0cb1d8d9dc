//! [`Picker`]: the worker's side. A snapshot and a few draws in, a host out.
//!
//! A pick takes no lock, reads no clock and allocates nothing; it borrows the host from the
//! snapshot the worker holds. Worker-private state (cursors, schedules, generator) sits here and
//! follows the snapshot: what changed is rebuilt on the first pick that sees it, the rest is kept.
//! Order of decisions and draws: drop, subset (`subsets`), priority, list of hosts
//! (`host_source`), host (`endpoint_picking`).

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
mod subsets;
mod worker;

use subsets::SubsetPick;
use worker::Worker;

/// Full decisions made again while the host is one to avoid; then lists are searched (`avoiding`).
const RESELECTIONS: u32 = 3;
/// Drops are drawn per million.
const MILLION: u64 = 1_000_000;

/// What a request brings to its pick.
#[derive(Clone, Copy, Debug, Default)]
pub struct PickArgs<'a> {
    /// Hash of the request, for consistent hashing; without one a draw is used.
    pub hash: Option<u64>,
    /// Hosts already tried for this request: not picked again while there is another.
    pub avoid: &'a [Arc<Host>],
    /// The metadata that the route asks for: which subset serves the request, where the cluster has
    /// subsets.
    pub metadata_match: Option<&'a MatchCriteria>,
}

/// The outcome of a pick, in the words of gRPC.
#[derive(Clone, Copy, Debug)]
pub enum PickResult<'p> {
    /// Send it there.
    Complete(Pick<'p>),
    /// Drop it, by order of the assignment.
    Drop {
        /// Name under which the drop is counted.
        category: &'p Arc<str>,
    },
    /// There is no host.
    Fail(PickError),
    /// No assignment has been seen yet: try again with the next snapshot.
    Queue,
}

impl<'p> PickResult<'p> {
    /// The host, if one was chosen.
    pub fn host(&self) -> Option<&'p Arc<Host>> {
        match self {
            Self::Complete(pick) => Some(pick.host),
            Self::Drop { .. } | Self::Fail(_) | Self::Queue => None,
        }
    }
}

/// A chosen host and why.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'p> {
    /// The host.
    pub host: &'p Arc<Host>,
    /// Its priority.
    pub priority: usize,
    /// The list it was chosen from.
    pub source: HostSource,
    /// Whether it is in the own locality.
    pub local: bool,
    /// Generation of the snapshot that decided.
    pub generation: u64,
}

/// Why there is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickError {
    /// The list that the decision led to is empty.
    NoHost,
    /// No subset has the metadata that the request asks for, and nothing to fall back to is
    /// configured.
    NoSubset,
    /// Panic, and `fail_traffic_on_panic` is set.
    Panic,
}

impl std::fmt::Display for PickError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoHost => "no host to pick from",
            Self::NoSubset => "no subset matches the request, and there is no fallback",
            Self::Panic => "in panic, and fail_traffic_on_panic is set",
        })
    }
}

impl std::error::Error for PickError {}

/// Picks hosts for one worker.
#[derive(Debug)]
pub struct Picker<R = Xoshiro256> {
    reader: Reader<RoutingSnapshot>,
    rng: R,
    worker: Worker,
    stats: Arc<PickerStats>,
}

/// What consistent hashing looks up: the hash of the request, and how often it was tried before.
#[derive(Clone, Copy)]
struct RequestHash {
    hash: Option<u64>,
    attempt: u32,
}

impl RequestHash {
    /// The hash and the attempt; a request without a hash gets a draw.
    fn or_draw(self, rng: &mut impl Rng) -> (u64, u32) {
        (self.hash.unwrap_or_else(|| rng.next_u64()), self.attempt)
    }
}

/// What is decided before the list of hosts.
#[derive(Clone, Copy)]
struct Chosen {
    priority: usize,
    availability: Availability,
    /// The draw that chose them.
    draw: u64,
}

/// A host at its place in a list: what one decision yields.
#[derive(Clone, Copy)]
struct Choice<'p> {
    host: &'p Arc<Host>,
    index: u32,
    local: bool,
    priority: usize,
    source: HostSource,
}

impl<'p> Choice<'p> {
    /// The choice of the host at `index` of `list`, which is the list behind `source`.
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

impl<R: Rng> Picker<R> {
    /// A picker that follows `reader`. The first draw seeds its cursors, so that workers that start
    /// together do not all start with the same host.
    pub fn new(reader: Reader<RoutingSnapshot>, mut rng: R) -> Self {
        let worker = Worker::new(rng.next_u64());
        Self {
            reader,
            rng,
            worker,
            stats: Arc::default(),
        }
    }

    /// A picker for another worker: own stream of draws, own random start, own counters.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.reader.clone(), self.rng.fork())
    }

    /// Counters of this worker; may be read from anywhere.
    pub fn stats(&self) -> &Arc<PickerStats> {
        &self.stats
    }

    /// The newest snapshot, as the next pick would see it.
    pub fn snapshot(&mut self) -> &Arc<RoutingSnapshot> {
        self.reader.latest()
    }

    /// Chooses a host for one request.
    pub fn pick(&mut self, args: PickArgs<'_>) -> PickResult<'_> {
        let Self {
            reader,
            rng,
            worker,
            stats,
        } = self;
        let snapshot = &**reader.latest();
        if !worker.follows(snapshot) {
            worker.follow(snapshot, rng);
        }
        // What most requests need, in one piece; everything else out of its way.
        if worker.rules.plain && args.avoid.is_empty() {
            let chosen = choose(snapshot, None, (worker, rng), stats);
            return outcome(chosen, snapshot.generation, stats);
        }
        pick_with_extras(snapshot, args, (worker, rng), stats)
    }
}

/// A pick that may have to wait, to be dropped, to follow a hash or load, or to avoid hosts.
#[inline(never)]
fn pick_with_extras<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> PickResult<'p> {
    if !snapshot.ready {
        return PickResult::Queue;
    }
    // A request that was tried before has passed this once already.
    let drops = snapshot.drop_overloads.iter().enumerate();
    for (index, drop) in drops.filter(|_| args.avoid.is_empty()) {
        if rng.next_u64() % MILLION < u64::from(drop.per_million) {
            stats.drop_overload.increment();
            snapshot.drop_counts.increment(index);
            return PickResult::Drop {
                category: &drop.category,
            };
        }
    }
    let chosen = match snapshot.subsets.as_deref() {
        None => decide(snapshot, args, (worker, rng), stats),
        Some(table) => SubsetPick {
            snapshot,
            table,
            worker,
            rng,
            stats,
        }
        .choose(args),
    };
    outcome(chosen, snapshot.generation, stats)
}

/// A host of this very set of hosts: of a cluster, or of a subset.
fn decide<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let flat_hash = snapshot.config.endpoint_policy().is_hash()
        && snapshot.config.load_aware_locality().is_none();
    if flat_hash {
        hashed::choose(snapshot, args, (worker, rng), stats)
    } else {
        avoiding::choose(snapshot, args, (worker, rng), stats)
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

/// One full decision: priority, list, host. `request` is for load_aware_locality, and `None` where
/// that is not the policy.
#[inline(always)]
fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    request: Option<RequestHash>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let draw = rng.next_u64();
    let (priority, availability) = if worker.rules.first_priority_only {
        (0, Availability::Healthy)
    } else {
        choose_priority(snapshot, draw)
    };
    let chosen = Chosen {
        priority,
        availability,
        draw,
    };
    choose_within(snapshot, (chosen, request), (worker, rng), stats)
}

/// The rest of a decision, within a priority.
#[inline(always)]
fn choose_within<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    (chosen, request): (Chosen, Option<RequestHash>),
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let Chosen {
        priority,
        availability,
        draw,
    } = chosen;
    let view = snapshot.priorities.get(priority).ok_or(PickError::NoHost)?;
    if let Some(request) = request
        && let Some(source) = load_aware::source_of(view, availability)
    {
        let worker = (worker, rng);
        return load_aware::choose(snapshot, (view, source), (chosen, request), worker, stats);
    }
    let Worker {
        priorities,
        rules,
        sampler,
        ..
    } = worker;
    let state = &mut priorities[priority];
    let source = view.source.choose(
        availability,
        || state.scheduled_locality(availability, &view.table),
        (sampler, rng),
        stats,
    );
    let source = source.ok_or(PickError::Panic)?;
    let source = with_degraded_hosts(source, view, snapshot.config());
    let list = view.table.list(source);
    match state.pick_host(&list, snapshot, (rules, draw), rng) {
        Some(index) => Ok(Choice::new(&list, index, priority, source)),
        None => {
            let source = flat_instead(snapshot, source).ok_or(PickError::NoHost)?;
            let list = view.table.list(source);
            let index = state.pick_host(&list, snapshot, (rules, draw), rng);
            let index = index.ok_or(PickError::NoHost)?;
            Ok(Choice::new(&list, index, priority, source))
        }
    }
}

/// Where a request goes whose locality has no host of its availability: with the measured bases to
/// any host of that availability, unless `force_local_zone` says that none is better than a remote
/// one. Envoy's bases fail it.
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

/// Shares are those of healthy hosts, so the slot of a request for degraded ones may have none.
/// Envoy then has no host; the measured bases, which Envoy does not have, never choose an empty
/// slot while another has hosts (decisions D4).
#[inline]
fn with_degraded_hosts(
    source: HostSource,
    view: &PriorityView,
    config: &ClusterConfig,
) -> HostSource {
    let empty = matches!(source, HostSource::LocalityDegradedHosts(_))
        && view.table.list(source).is_empty();
    let measured = |settings: &ZoneAware| settings.locality_basis().is_measured();
    match empty && config.zone_aware().is_some_and(measured) {
        true => HostSource::DegradedHosts,
        false => source,
    }
}

/// Kept apart: with one healthy priority there is nothing to choose.
#[inline(never)]
fn choose_priority(snapshot: &RoutingSnapshot, hash: u64) -> (usize, Availability) {
    snapshot.loads.choose(hash)
}

/// Index of an availability in pairs of (healthy, degraded).
const fn class(availability: Availability) -> usize {
    match availability {
        Availability::Healthy => 0,
        Availability::Degraded => 1,
    }
}

#[cfg(test)]
mod tests;
