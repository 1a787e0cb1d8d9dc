//! Worker-private state between picks: cursors, schedules and the locality sampler.
//!
//! Synced with each new snapshot. A priority whose table is unchanged keeps everything, so an
//! update of fractions costs a worker nothing. Schedules of weighted lists are built on first use.
//! Cursors survive changes of membership, as in Envoy.

use std::sync::Arc;

use super::ActiveRequests;
use super::subsets::SubsetStates;
use crate::edf::Edf;
use crate::endpoint_picking::round_robin::Cursor;
use crate::endpoint_picking::{least_request, random};
use crate::host_source::{HostClass, PerClass};
use crate::locality_picking::locality_weighted::schedule;
use crate::locality_picking::sampling::LocalitySampler;
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::{EndpointPolicy, SelectionMethod};
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::{HostList, PriorityTable, PriorityView, RoutingSnapshot};

/// Generation before the first sync; balancers count up from 0.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct PickerState {
    generation: u64,
    config: Option<Arc<ClusterConfig>>,
    pub(super) summary: SnapshotSummary,
    pub(super) sampler: LocalitySampler,
    pub(super) priorities: Vec<PriorityState>,
    /// Buffer for the probe order of bounded load.
    pub(super) scratch: Vec<u32>,
    pub(super) subsets: Option<Box<SubsetStates>>,
}

/// Facts about the snapshot that every pick needs, collected once per snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotSummary {
    /// Whether the fast path applies: ready; no drops, subsets, hashing or load_aware_locality.
    pub(super) plain: bool,
    /// Whether the healthy hosts of the first priority get all traffic.
    pub(super) first_priority_only: bool,
    uses_weights: bool,
    slow_start: bool,
    equal_weight_policy: EqualWeightPolicy,
    choice_count: u32,
    /// Start value of every cursor and schedule.
    seed: u64,
}

/// Arguments of the choice of a host from a list.
#[derive(Clone, Copy)]
pub(super) struct HostPick<'a> {
    pub(super) snapshot: &'a RoutingSnapshot,
    pub(super) summary: &'a SnapshotSummary,
    /// The draw that chose the priority.
    pub(super) draw: u64,
    pub(super) active: Option<ActiveRequests<'a>>,
}

/// Endpoint policy for lists in which all weights are equal.
#[derive(Clone, Copy, Debug)]
enum EqualWeightPolicy {
    /// Consistent hashing uses its own tables (`hashed`).
    Hash,
    LeastRequest,
    LeastRequestFullScan,
    Random,
    RoundRobin,
}

/// State for one priority; cursors and schedules are indexed by list id.
#[derive(Debug)]
pub(super) struct PriorityState {
    table: Arc<PriorityTable>,
    cursors: Vec<Cursor>,
    schedules: Vec<Option<Edf>>,
    localities: PerClass<Option<Edf>>,
    locality_weighted: bool,
}

impl PickerState {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            generation: NONE,
            config: None,
            summary: SnapshotSummary {
                plain: false,
                first_priority_only: false,
                uses_weights: false,
                slow_start: false,
                equal_weight_policy: EqualWeightPolicy::Hash,
                choice_count: 0,
                seed,
            },
            sampler: LocalitySampler::Random,
            priorities: Vec::new(),
            scratch: Vec::new(),
            subsets: None,
        }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.summary.seed
    }

    #[inline]
    pub(super) fn is_synced_with(&self, snapshot: &RoutingSnapshot) -> bool {
        self.generation == snapshot.generation
    }

    #[cold]
    pub(super) fn sync(&mut self, snapshot: &RoutingSnapshot, rng: &mut impl Rng) {
        self.generation = snapshot.generation;
        self.summary = SnapshotSummary::of(snapshot, self.summary.seed);
        let sampling = snapshot.config.locality_sampling();
        if !self.sampler.is(sampling) {
            self.sampler = LocalitySampler::new(sampling, rng);
        }
        let seed = self.summary.seed;
        let weighted = snapshot.config.locality_weighted();
        for (priority, view) in snapshot.priorities.iter().enumerate() {
            match self.priorities.get_mut(priority) {
                Some(state) => {
                    let same = Arc::ptr_eq(&state.table, &view.table);
                    if !same || state.locality_weighted != weighted {
                        state.rebuild(view, weighted, seed, rng);
                    }
                }
                None => {
                    let mut state = PriorityState {
                        table: Arc::clone(&view.table),
                        cursors: Vec::new(),
                        schedules: Vec::new(),
                        localities: PerClass::default(),
                        locality_weighted: weighted,
                    };
                    state.rebuild(view, weighted, seed, rng);
                    self.priorities.push(state);
                }
            }
        }
        if snapshot.config.endpoint_policy().is_hash() {
            let longest = snapshot
                .priorities
                .iter()
                .map(|view| view.table.counts.flat.all)
                .max()
                .and_then(|hosts| usize::try_from(hosts).ok())
                .unwrap_or(0);
            self.scratch
                .reserve(longest.saturating_sub(self.scratch.len()));
        }
        self.drop_stale_schedules(&snapshot.config);
        match &snapshot.subsets {
            Some(table) => self.subsets.get_or_insert_default().sync(table, rng),
            None => self.subsets = None,
        }
    }

    /// Drops schedules if the endpoint policy changed: their weights have another meaning.
    fn drop_stale_schedules(&mut self, config: &Arc<ClusterConfig>) {
        let policy = config.endpoint_policy();
        let old = self.config.as_deref().map(ClusterConfig::endpoint_policy);
        if old.is_some_and(|old| old != policy) {
            for state in &mut self.priorities {
                state.schedules.fill(None);
            }
        }
        self.config = Some(Arc::clone(config));
    }
}

impl SnapshotSummary {
    fn of(snapshot: &RoutingSnapshot, seed: u64) -> Self {
        let policy = snapshot.config.endpoint_policy();
        let (equal_weight_policy, choice_count) = match policy {
            EndpointPolicy::LeastRequest(policy) => match policy.selection_method() {
                SelectionMethod::NChoices => {
                    (EqualWeightPolicy::LeastRequest, policy.choice_count())
                }
                SelectionMethod::FullScan => (EqualWeightPolicy::LeastRequestFullScan, 0),
            },
            EndpointPolicy::Maglev(_) | EndpointPolicy::RingHash(_) => (EqualWeightPolicy::Hash, 0),
            EndpointPolicy::Random => (EqualWeightPolicy::Random, 0),
            EndpointPolicy::ClientSideWeightedRoundRobin(_) | EndpointPolicy::RoundRobin(_) => {
                (EqualWeightPolicy::RoundRobin, 0)
            }
        };
        Self {
            plain: snapshot.ready
                && snapshot.drop_overloads.is_empty()
                && !policy.is_hash()
                && snapshot.config.load_aware_locality().is_none()
                && snapshot.subsets.is_none(),
            first_priority_only: snapshot.loads.healthy_load().first() == Some(&100),
            uses_weights: !policy.is_hash() && !matches!(policy, EndpointPolicy::Random),
            slow_start: snapshot.slow_start,
            equal_weight_policy,
            choice_count,
            seed,
        }
    }
}

impl PriorityState {
    fn rebuild(&mut self, view: &PriorityView, weighted: bool, seed: u64, rng: &mut impl Rng) {
        self.table = Arc::clone(&view.table);
        self.locality_weighted = weighted;
        let lists = self.cursors.len().max(view.table.lists());
        self.cursors.resize(lists, Cursor::new(seed));
        self.schedules.clear();
        self.schedules.resize(lists, None);
        self.localities = PerClass::default();
        if weighted {
            // One new seed for all locality schedules, as in Envoy.
            let seed = rng.next_u64();
            let weights = &view.table.locality_weights;
            self.localities = PerClass::from_fn(|class| {
                let weights = weights[class].as_ref();
                weights.map(|weights| schedule(weights, seed))
            });
        }
    }

    #[inline]
    pub(super) fn scheduled_locality(
        &mut self,
        availability: Availability,
        table: &PriorityTable,
    ) -> Option<usize> {
        let class = HostClass::from(availability);
        let schedule = self.localities[class].as_mut()?;
        next_locality(schedule, table.locality_weights[class].as_ref()?)
    }

    /// Picks a host of the list.
    #[inline(always)]
    pub(super) fn pick_host(
        &mut self,
        list: &HostList<'_>,
        call: HostPick<'_>,
        rng: &mut impl Rng,
    ) -> Option<u32> {
        let (summary, draw) = (call.summary, call.draw);
        let len = list.len();
        if summary.uses_weights && (list.is_weighted() || summary.slow_start) && len > 1 {
            return self.scheduled_host(list, call);
        }
        let active = |host: usize| match call.active {
            None => list.active_requests(narrow(host)),
            Some(read) => read(list.host(narrow(host))),
        };
        let index = match summary.equal_weight_policy {
            EqualWeightPolicy::RoundRobin => return self.cursors[list.id].next(len),
            EqualWeightPolicy::Random => random::index(draw, len as usize),
            EqualWeightPolicy::LeastRequest => {
                least_request::choose(len as usize, summary.choice_count, rng, active)
            }
            EqualWeightPolicy::LeastRequestFullScan => {
                least_request::full_scan(len as usize, rng, active)
            }
            EqualWeightPolicy::Hash => None,
        };
        index.map(narrow)
    }

    #[inline(never)]
    fn scheduled_host(&mut self, list: &HostList<'_>, call: HostPick<'_>) -> Option<u32> {
        let bias = match call.snapshot.config.endpoint_policy() {
            EndpointPolicy::LeastRequest(policy) => Some(policy.active_request_bias()),
            _ => None,
        };
        let weight_of = |host: u32| {
            let host = list.host(host);
            let weight = host.scheduled_weight();
            let active = || match call.active {
                None => host.active_requests(),
                Some(read) => read(host),
            };
            match bias {
                Some(bias) => least_request::weight(weight, active(), bias),
                None => weight,
            }
        };
        let schedule = self.schedules[list.id].get_or_insert_with(|| {
            let items: Vec<(u32, f64)> = (0..list.len())
                .map(|host| (host, weight_of(host)))
                .collect();
            Edf::with_emulated_picks(&items, call.summary.seed)
        });
        schedule.pick(weight_of)
    }
}

/// Returns the next slot by weight. Out of line, because few clusters have locality weights.
#[inline(never)]
fn next_locality(schedule: &mut Edf, weights: &[f64]) -> Option<usize> {
    schedule
        .pick(|slot| weights[slot as usize])
        .map(|slot| slot as usize)
}

/// Lists have 32-bit lengths, so indices fit.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an index into a list")]
const fn narrow(index: usize) -> u32 {
    index as u32
}
