//! [`RoutingSnapshot`]: everything a worker needs for a pick, immutable, with a generation number.
//!
//! Membership, health, locality weights, zone-aware tables and hash tables travel together: never
//! two swaps for one truth. What is expensive (host lists, hash tables) sits behind `Arc`s, so an
//! update of fractions alone builds a new snapshot without touching a host list. The balancer
//! builds snapshots; pickers read them; `explain` tells why they look as they do.

use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::endpoint_picking::maglev::MaglevTable;
use crate::endpoint_picking::ring_hash::Ring;
use crate::explain::Explanation;
use crate::host::{DropCounts, Host};
use crate::host_source::{HostSource, SourcePolicy};
use crate::locality_picking::demand::Demand;
use crate::locality_picking::fractions::FractionStore;
use crate::model::assignment::DropOverload;
use crate::model::cluster::ClusterConfig;
use crate::model::locality::Locality;
use crate::priority::PriorityLoads;
use crate::time::Instant;

mod build;
mod subsets;
mod table;

pub(crate) use build::{SlotHosts, build_hash_table, build_slot_hash_table};
pub use subsets::SubsetView;
pub(crate) use subsets::{SubsetEntry, SubsetHosts, SubsetTable};
pub use table::PriorityTable;
pub(crate) use table::{HostList, Roster, SlotRoster};

/// A consistent-hashing table and the hosts it points into.
#[derive(Debug)]
pub(crate) struct HashTable {
    pub(crate) kind: HashKind,
    /// The hosts in the table, in table order.
    pub(crate) hosts: Box<[Arc<Host>]>,
    /// Normalized weights of these hosts, for bounded load.
    pub(crate) weights: Vec<f64>,
    /// How many at the start of `hosts` are in the own locality.
    pub(crate) local: usize,
    /// Built over all hosts because the priority was in panic.
    pub(crate) panic: bool,
}

#[derive(Debug)]
pub(crate) enum HashKind {
    Maglev(MaglevTable),
    Ring(Ring),
}

/// One priority as a pick sees it: shared lists and the tables computed on top of them.
#[derive(Clone, Debug)]
pub(crate) struct PriorityView {
    pub(crate) table: Arc<PriorityTable>,
    pub(crate) source: SourcePolicy,
    pub(crate) hash: Option<Arc<HashTable>>,
    pub(crate) load_aware: Option<Arc<LoadAwareTable>>,
}

/// The weights of load_aware_locality for one priority: healthy, degraded, all hosts.
#[derive(Debug, Default)]
pub(crate) struct LoadAwareTable {
    pub(crate) sources: [LoadAwareSource; 3],
    /// A tick has seen this priority; until then there are no weights, and picks are not counted.
    pub(crate) covered: bool,
}

/// Weights that load_aware_locality gave the localities of one priority, for one set of hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAwareWeights {
    /// Locality and weight of every slot, own locality first.
    pub weights: Vec<(Locality, f64)>,
    /// Everything goes to the own locality.
    pub all_local: bool,
}

/// Weights of the slots for one source of hosts.
#[derive(Debug, Default)]
pub(crate) struct LoadAwareSource {
    /// Prefix sums of the weights, in slot order.
    pub(crate) prefix_sums: Vec<f64>,
    /// Everything goes to slot 0.
    pub(crate) all_local: bool,
    /// Smoothed utilization of the slots; `None` = never reported.
    pub(crate) utilization: Vec<Option<f64>>,
    /// Tables of a hash policy over each slot's own hosts.
    pub(crate) hash: Vec<Option<Arc<HashTable>>>,
}

/// What zone-aware routing was computed from; kept for `explain`.
#[derive(Clone, Debug)]
pub(crate) struct ZoneContext {
    pub(crate) fleet: Option<Arc<HostSetCounts>>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) fractions: Arc<FractionStore>,
    pub(crate) built_at: Instant,
}

/// Everything a worker needs for a pick.
#[derive(Debug)]
pub struct RoutingSnapshot {
    pub(crate) generation: u64,
    /// An assignment has been seen.
    pub(crate) ready: bool,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) own: Option<Locality>,
    pub(crate) loads: PriorityLoads,
    pub(crate) priorities: Vec<PriorityView>,
    pub(crate) drop_overloads: Arc<[DropOverload]>,
    /// How often each of them was followed.
    pub(crate) drop_counts: Arc<DropCounts>,
    /// Some host is in slow start: schedules are used although weights may be equal.
    pub(crate) slow_start: bool,
    pub(crate) zone: ZoneContext,
    /// The subsets, where the cluster has them. What stands above is then what serves requests that
    /// fall back to any endpoint.
    pub(crate) subsets: Option<Arc<SubsetTable>>,
}

impl RoutingSnapshot {
    /// Grows with every snapshot of a balancer.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether an assignment has been seen; until then picks queue.
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// The settings in force.
    pub fn config(&self) -> &Arc<ClusterConfig> {
        &self.config
    }

    /// All hosts, by priority, then locality (own first), then address.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.priorities.iter().flat_map(|view| view.table.hosts())
    }

    /// All hosts of the priorities that `tried` are in; `None` if no other priority has a host.
    pub fn priorities_of(&self, tried: &[Arc<Host>]) -> Option<Vec<Arc<Host>>> {
        let is_tried = |host: &Arc<Host>| tried.iter().any(|tried| Arc::ptr_eq(tried, host));
        let met = |view: &&PriorityView| view.table.hosts().any(is_tried);
        let left = |view: &PriorityView| view.table.hosts().next().is_some() && !met(&view);
        let hosts = self.priorities.iter().filter(met);
        let hosts = hosts.flat_map(|view| view.table.hosts().cloned());
        self.priorities.iter().any(left).then(|| hosts.collect())
    }

    /// Counts of one priority.
    pub fn counts(&self, priority: usize) -> Option<&HostSetCounts> {
        self.priorities.get(priority).map(|view| &view.table.counts)
    }

    /// Loads and panic of all priorities.
    pub fn loads(&self) -> &PriorityLoads {
        &self.loads
    }

    /// How one priority chooses its list of hosts.
    pub fn source_policy(&self, priority: usize) -> Option<&SourcePolicy> {
        self.priorities.get(priority).map(|view| &view.source)
    }

    /// The weights of load_aware_locality at one priority for its healthy, its degraded or all its
    /// hosts; `None` under another policy.
    pub fn load_aware_weights(
        &self,
        priority: usize,
        source: HostSource,
    ) -> Option<LoadAwareWeights> {
        let view = self.priorities.get(priority)?;
        let class = match source {
            HostSource::HealthyHosts | HostSource::LocalityHealthyHosts(_) => 0,
            HostSource::DegradedHosts | HostSource::LocalityDegradedHosts(_) => 1,
            HostSource::AllHosts | HostSource::LocalityAllHosts(_) => 2,
        };
        let source = &view.load_aware.as_ref()?.sources[class];
        let before = std::iter::once(&0.0).chain(&source.prefix_sums);
        let weights = source.prefix_sums.iter().zip(before);
        let localities = view.table.counts.localities.iter();
        Some(LoadAwareWeights {
            weights: localities
                .zip(weights)
                .map(|(slot, (upto, before))| (slot.locality.clone(), upto - before))
                .collect(),
            all_local: source.all_local,
        })
    }

    /// Why this snapshot looks as it does.
    pub fn explain(&self) -> Explanation {
        self.explain_at(self.zone.built_at)
    }

    /// The same, with ages as of `now`: a snapshot may be in force for long.
    pub fn explain_at(&self, now: Instant) -> Explanation {
        crate::explain::build::explain(self, now)
    }
}
