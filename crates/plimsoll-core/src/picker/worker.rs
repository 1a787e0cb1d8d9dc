//! [`Worker`]: what one worker remembers between picks: cursors, schedules, its sampler.
//!
//! Follows the snapshot: a priority whose table is the same keeps everything, so an update of
//! fractions costs a worker nothing. Schedules of weighted lists are built when a list is first
//! picked from. Cursors survive changes of membership, as in Envoy.

use std::sync::Arc;

use super::class;
use crate::edf::Edf;
use crate::endpoint_picking::{least_request, random, round_robin};
use crate::locality_picking::locality_weighted::schedule;
use crate::locality_picking::sampling::LocalitySampler;
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::{EndpointPolicy, LeastRequest, SelectionMethod};
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::{HostList, PriorityTable, PriorityView, RoutingSnapshot};

#[derive(Debug)]
pub(super) struct Worker {
    /// Generation last followed; `None` before the first.
    pub(super) generation: Option<u64>,
    /// Settings last followed.
    config: Option<Arc<ClusterConfig>>,
    /// Start of every cursor and schedule.
    pub(super) seed: u64,
    pub(super) sampler: LocalitySampler,
    pub(super) priorities: Vec<PriorityState>,
    /// Room for the probe order of bounded load.
    pub(super) scratch: Vec<u32>,
}

/// State of one priority.
#[derive(Debug)]
pub(super) struct PriorityState {
    table: Arc<PriorityTable>,
    lists: Vec<ListState>,
    /// Schedules over localities: healthy, degraded.
    localities: [Option<Edf>; 2],
    locality_weighted: bool,
}

/// State of one list of hosts.
#[derive(Clone, Debug)]
struct ListState {
    cursor: u64,
    schedule: Option<Edf>,
}

impl Worker {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            generation: None,
            config: None,
            seed,
            sampler: LocalitySampler::Random,
            priorities: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Takes over a snapshot: rebuilds what changed, keeps the rest.
    #[cold]
    pub(super) fn follow(&mut self, snapshot: &RoutingSnapshot, rng: &mut impl Rng) {
        self.generation = Some(snapshot.generation);
        let sampling = snapshot.config.locality_sampling();
        if !self.sampler.is(sampling) {
            self.sampler = LocalitySampler::new(sampling, rng);
        }
        let weighted = snapshot.config.locality_weighted();
        for (priority, view) in snapshot.priorities.iter().enumerate() {
            match self.priorities.get_mut(priority) {
                Some(state) => {
                    let same = Arc::ptr_eq(&state.table, &view.table);
                    if !same || state.locality_weighted != weighted {
                        state.rebuild(view, weighted, self.seed, rng);
                    }
                }
                None => {
                    let mut state = PriorityState {
                        table: Arc::clone(&view.table),
                        lists: Vec::new(),
                        localities: [None, None],
                        locality_weighted: weighted,
                    };
                    state.rebuild(view, weighted, self.seed, rng);
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
    }

    /// A schedule made for one endpoint policy means nothing to another.
    fn forget_schedules_of_another_policy(&mut self, config: &Arc<ClusterConfig>) {
        let policy = config.endpoint_policy();
        if self
            .config
            .as_ref()
            .is_some_and(|old| old.endpoint_policy() != policy)
        {
            let lists = self
                .priorities
                .iter_mut()
                .flat_map(|state| &mut state.lists);
            lists.for_each(|list| list.schedule = None);
        }
        self.config = Some(Arc::clone(config));
    }
}

impl PriorityState {
    fn rebuild(&mut self, view: &PriorityView, weighted: bool, seed: u64, rng: &mut impl Rng) {
        self.table = Arc::clone(&view.table);
        self.locality_weighted = weighted;
        self.lists.iter_mut().for_each(|list| list.schedule = None);
        let lists = self.lists.len().max(view.table.lists());
        self.lists.resize(
            lists,
            ListState {
                cursor: seed,
                schedule: None,
            },
        );
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
        let weights = table.locality_weights[class].as_ref()?;
        schedule
            .pick(|slot| weights[slot as usize])
            .map(|slot| slot as usize)
    }

    /// The host of a list; `hash` is the draw that chose the priority.
    #[inline]
    pub(super) fn pick_host(
        &mut self,
        list: &HostList<'_>,
        snapshot: &RoutingSnapshot,
        (hash, seed): (u64, u64),
        rng: &mut impl Rng,
    ) -> Option<usize> {
        let len = list.hosts.len();
        let scheduled = (list.weighted || snapshot.slow_start) && len > 1;
        let state = &mut self.lists[list.id];
        match snapshot.config.endpoint_policy() {
            EndpointPolicy::Random => random::index(hash, len),
            EndpointPolicy::RoundRobin(_) | EndpointPolicy::ClientSideWeightedRoundRobin(_)
                if scheduled =>
            {
                state.scheduled(list, seed, |host| list.hosts[host].scheduled_weight())
            }
            EndpointPolicy::RoundRobin(_) | EndpointPolicy::ClientSideWeightedRoundRobin(_) => {
                let index = round_robin::index(state.cursor, len);
                state.cursor = state.cursor.wrapping_add(1);
                index
            }
            EndpointPolicy::LeastRequest(policy) if scheduled => {
                state.scheduled(list, seed, |host| least_request_weight(list, policy, host))
            }
            EndpointPolicy::LeastRequest(policy) => {
                let active = |host: usize| list.hosts[host].active_requests();
                match policy.selection_method() {
                    SelectionMethod::NChoices => {
                        least_request::choose(len, policy.choice_count(), rng, active)
                    }
                    SelectionMethod::FullScan => least_request::full_scan(len, rng, active),
                }
            }
            // Consistent hashing does not come here: it has its own tables.
            EndpointPolicy::Maglev(_) | EndpointPolicy::RingHash(_) => None,
        }
    }
}

impl ListState {
    #[inline]
    fn scheduled(
        &mut self,
        list: &HostList<'_>,
        seed: u64,
        weight_of: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        let schedule = self
            .schedule
            .get_or_insert_with(|| build_schedule(list, seed, &weight_of));
        schedule
            .pick(|host| weight_of(host as usize))
            .map(|host| host as usize)
    }
}

#[cold]
fn build_schedule(list: &HostList<'_>, seed: u64, weight_of: impl Fn(usize) -> f64) -> Edf {
    let items: Vec<(u32, f64)> = (0..)
        .zip(0..list.hosts.len())
        .map(|(item, host)| (item, weight_of(host)))
        .collect();
    Edf::with_emulated_picks(&items, seed)
}

fn least_request_weight(list: &HostList<'_>, policy: &LeastRequest, host: usize) -> f64 {
    let host = &list.hosts[host];
    let bias = policy.active_request_bias();
    least_request::weight(host.scheduled_weight(), host.active_requests(), bias)
}
