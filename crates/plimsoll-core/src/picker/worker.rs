//! [`Worker`]: what one worker remembers between picks: cursors, schedules, its sampler.
//!
//! Follows the snapshot: a priority whose table is the same keeps everything, so an update of
//! fractions costs a worker nothing. Schedules of weighted lists are built when a list is first
//! picked from. Cursors survive changes of membership, as in Envoy.

use std::sync::Arc;

use super::class;
use super::subsets::SubsetWorkers;
use crate::edf::Edf;
use crate::endpoint_picking::round_robin::Cursor;
use crate::endpoint_picking::{least_request, random};
use crate::locality_picking::locality_weighted::schedule;
use crate::locality_picking::sampling::LocalitySampler;
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::{EndpointPolicy, SelectionMethod};
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::{HostList, PriorityTable, PriorityView, RoutingSnapshot};

/// No generation: balancers count up from 0.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Worker {
    /// Generation last followed; [`NONE`] before the first.
    generation: u64,
    /// Settings last followed.
    config: Option<Arc<ClusterConfig>>,
    pub(super) rules: Rules,
    pub(super) sampler: LocalitySampler,
    pub(super) priorities: Vec<PriorityState>,
    /// Room for the probe order of bounded load.
    pub(super) scratch: Vec<u32>,
    /// State for subsets, where the cluster has them.
    pub(super) subsets: Option<Box<SubsetWorkers>>,
}

/// What all picks from one snapshot have in common: said once when the snapshot is taken over
/// instead of read together from all over it for every pick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// An assignment has been seen, nothing is to be dropped, there are no subsets, and neither a
    /// hash nor load decides.
    pub(super) plain: bool,
    /// The healthy hosts of the first priority get all traffic.
    pub(super) first_priority_only: bool,
    /// The policy minds weights.
    weighs: bool,
    /// Some host is in slow start: schedules are used although weights may be equal.
    slow_start: bool,
    endpoints: Endpoints,
    /// Choices of least request.
    choice_count: u32,
    /// Start of every cursor and schedule.
    seed: u64,
}

/// The endpoint policy, as far as a pick from a list of equal weights asks.
#[derive(Clone, Copy, Debug)]
enum Endpoints {
    /// Consistent hashing: has its own tables (`hashed`).
    Hash,
    LeastRequest,
    LeastRequestFullScan,
    Random,
    RoundRobin,
}

/// State of one priority. Lists are numbered by their table.
#[derive(Debug)]
pub(super) struct PriorityState {
    table: Arc<PriorityTable>,
    cursors: Vec<Cursor>,
    /// Schedules of weighted lists.
    schedules: Vec<Option<Edf>>,
    /// Schedules over localities: healthy, degraded.
    localities: [Option<Edf>; 2],
    locality_weighted: bool,
}

impl Worker {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            generation: NONE,
            config: None,
            rules: Rules {
                plain: false,
                first_priority_only: false,
                weighs: false,
                slow_start: false,
                endpoints: Endpoints::Hash,
                choice_count: 0,
                seed,
            },
            sampler: LocalitySampler::Random,
            priorities: Vec::new(),
            scratch: Vec::new(),
            subsets: None,
        }
    }

    /// Start of every cursor and schedule.
    pub(super) const fn seed(&self) -> u64 {
        self.rules.seed
    }

    /// Whether this snapshot has been taken over.
    #[inline]
    pub(super) fn follows(&self, snapshot: &RoutingSnapshot) -> bool {
        self.generation == snapshot.generation
    }

    /// Takes over a snapshot: rebuilds what changed, keeps the rest.
    #[cold]
    pub(super) fn follow(&mut self, snapshot: &RoutingSnapshot, rng: &mut impl Rng) {
        self.generation = snapshot.generation;
        self.rules = Rules::of(snapshot, self.rules.seed);
        let sampling = snapshot.config.locality_sampling();
        if !self.sampler.is(sampling) {
            self.sampler = LocalitySampler::new(sampling, rng);
        }
        let seed = self.rules.seed;
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
                        localities: [None, None],
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
                .max();
            let longest = longest
                .and_then(|hosts| usize::try_from(hosts).ok())
                .unwrap_or(0);
            self.scratch
                .reserve(longest.saturating_sub(self.scratch.len()));
        }
        self.forget_schedules_of_another_policy(&snapshot.config);
        match &snapshot.subsets {
            Some(table) => self.subsets.get_or_insert_default().follow(table, rng),
            None => self.subsets = None,
        }
    }

    /// A schedule made for one endpoint policy means nothing to another.
    fn forget_schedules_of_another_policy(&mut self, config: &Arc<ClusterConfig>) {
        let policy = config.endpoint_policy();
        if self
            .config
            .as_ref()
            .is_some_and(|old| old.endpoint_policy() != policy)
        {
            let schedules = self
                .priorities
                .iter_mut()
                .flat_map(|state| &mut state.schedules);
            schedules.for_each(|schedule| *schedule = None);
        }
        self.config = Some(Arc::clone(config));
    }
}

impl Rules {
    fn of(snapshot: &RoutingSnapshot, seed: u64) -> Self {
        let policy = snapshot.config.endpoint_policy();
        let (endpoints, choice_count) = match policy {
            EndpointPolicy::LeastRequest(policy) => match policy.selection_method() {
                SelectionMethod::NChoices => (Endpoints::LeastRequest, policy.choice_count()),
                SelectionMethod::FullScan => (Endpoints::LeastRequestFullScan, 0),
            },
            EndpointPolicy::Maglev(_) | EndpointPolicy::RingHash(_) => (Endpoints::Hash, 0),
            EndpointPolicy::Random => (Endpoints::Random, 0),
            EndpointPolicy::ClientSideWeightedRoundRobin(_) | EndpointPolicy::RoundRobin(_) => {
                (Endpoints::RoundRobin, 0)
            }
        };
        Self {
            plain: snapshot.ready
                && snapshot.drop_overloads.is_empty()
                && !policy.is_hash()
                && snapshot.config.load_aware_locality().is_none()
                && snapshot.subsets.is_none(),
            first_priority_only: snapshot.loads.healthy_load().first() == Some(&100),
            weighs: !policy.is_hash() && !matches!(policy, EndpointPolicy::Random),
            slow_start: snapshot.slow_start,
            endpoints,
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
        self.localities = [None, None];
        if weighted {
            // One fresh seed for both, as in Envoy.
            let seed = rng.next_u64();
            let weights = &view.table.locality_weights;
            self.localities = [0, 1].map(|class| {
                weights[class]
                    .as_ref()
                    .map(|weights: &Vec<f64>| schedule(weights, seed))
            });
        }
    }

    /// The slot that locality weights choose, if there are any.
    #[inline]
    pub(super) fn scheduled_locality(
        &mut self,
        availability: Availability,
        table: &PriorityTable,
    ) -> Option<usize> {
        let class = class(availability);
        let schedule = self.localities[class].as_mut()?;
        next_locality(schedule, table.locality_weights[class].as_ref()?)
    }

    /// The host of a list; `hash` is the draw that chose the priority.
    #[inline(always)]
    pub(super) fn pick_host(
        &mut self,
        list: &HostList<'_>,
        snapshot: &RoutingSnapshot,
        (rules, hash): (&Rules, u64),
        rng: &mut impl Rng,
    ) -> Option<u32> {
        let len = list.len();
        if rules.weighs && (list.is_weighted() || rules.slow_start) && len > 1 {
            return self.scheduled_host(list, snapshot, rules.seed);
        }
        let active = |host: usize| list.active_requests(narrow(host));
        let index = match rules.endpoints {
            Endpoints::RoundRobin => return self.cursors[list.id].next(len),
            Endpoints::Random => random::index(hash, len as usize),
            Endpoints::LeastRequest => {
                least_request::choose(len as usize, rules.choice_count, rng, active)
            }
            Endpoints::LeastRequestFullScan => least_request::full_scan(len as usize, rng, active),
            Endpoints::Hash => None,
        };
        index.map(narrow)
    }

    /// The next host of a list by weight.
    #[inline(never)]
    fn scheduled_host(
        &mut self,
        list: &HostList<'_>,
        snapshot: &RoutingSnapshot,
        seed: u64,
    ) -> Option<u32> {
        let bias = match snapshot.config.endpoint_policy() {
            EndpointPolicy::LeastRequest(policy) => Some(policy.active_request_bias()),
            _ => None,
        };
        let weight_of = |host: u32| {
            let host = list.host(host);
            let weight = host.scheduled_weight();
            match bias {
                Some(bias) => least_request::weight(weight, host.active_requests(), bias),
                None => weight,
            }
        };
        let schedule = self.schedules[list.id].get_or_insert_with(|| {
            let items: Vec<(u32, f64)> = (0..list.len())
                .map(|host| (host, weight_of(host)))
                .collect();
            Edf::with_emulated_picks(&items, seed)
        });
        schedule.pick(weight_of)
    }
}

/// The next slot by weight; out of line, as most clusters have no locality weights.
#[inline(never)]
fn next_locality(schedule: &mut Edf, weights: &[f64]) -> Option<usize> {
    schedule
        .pick(|slot| weights[slot as usize])
        .map(|slot| slot as usize)
}

/// Lists have 32-bit lengths, and so have indices into them.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an index into a list")]
const fn narrow(index: usize) -> u32 {
    index as u32
}
