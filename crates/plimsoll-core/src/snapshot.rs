//! Immutable routing state of one cluster, with a generation number: everything that a worker needs
//! for a pick.
//!
//! Membership, health, locality weights, zone-aware tables and hash tables are published together
//! in one [`RoutingSnapshot`]. Expensive parts (host lists, hash tables) are behind `Arc`s, so an
//! update of fractions alone does not touch them. Balancers build snapshots, pickers read them, and
//! [`RoutingSnapshot::explain`] says why they look as they do. [`DriverSnapshot`] adds per-host
//! data of a driver, such as connections.
//!
//! ```
//! # use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
//! # use plimsoll_core::{balancer::Balancer, model::locality::Locality, time::Instant};
//! # let parts = ClusterConfigParts { name: "orders".into(), ..Default::default() };
//! # let config = ClusterConfig::try_new(parts)?.into();
//! # let balancer = Balancer::new(config, Locality::default(), Instant::ORIGIN);
//! let snapshot = balancer.initial_snapshot(Instant::ORIGIN);
//! assert!(!snapshot.is_ready() && snapshot.hosts().next().is_none());
//! println!("{:#?}", snapshot.explain());
//! # Ok::<(), plimsoll_core::units::FieldError>(())
//! ```

use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::endpoint_picking::maglev::MaglevTable;
use crate::endpoint_picking::ring_hash::Ring;
use crate::explain::Explanation;
use crate::host::{DropCounts, Host};
use crate::host_source::{HostSource, PerClass, SourcePolicy};
use crate::locality_picking::demand::Demand;
use crate::locality_picking::fractions::FractionStore;
use crate::model::assignment::DropOverload;
use crate::model::cluster::ClusterConfig;
use crate::model::locality::Locality;
use crate::priority::PriorityLoads;
use crate::time::Instant;

mod build;
mod driver;
mod subsets;
mod table;

pub(crate) use build::{SlotHosts, build_hash_table, build_slot_hash_table};
pub use driver::DriverSnapshot;
pub use subsets::SubsetView;
pub(crate) use subsets::{SubsetEntry, SubsetHosts, SubsetTable};
pub use table::PriorityTable;
pub(crate) use table::{HostList, Roster, SlotRoster};

/// A consistent-hashing table and the hosts it indexes.
#[derive(Debug)]
pub(crate) struct HashTable {
    pub(crate) kind: HashKind,
    pub(crate) hosts: Box<[Arc<Host>]>,
    /// Normalized weights of the hosts, for bounded load.
    pub(crate) weights: Vec<f64>,
    /// Number of hosts at the start of `hosts` that are in the local locality.
    pub(crate) local: usize,
    /// Whether the table has all hosts, because the priority was in panic.
    pub(crate) panic: bool,
}

#[derive(Debug)]
pub(crate) enum HashKind {
    Maglev(MaglevTable),
    Ring(Ring),
}

/// One priority as a pick sees it: shared host lists and the tables computed over them.
#[derive(Clone, Debug)]
pub(crate) struct PriorityView {
    pub(crate) table: Arc<PriorityTable>,
    pub(crate) source: SourcePolicy,
    pub(crate) hash: Option<Arc<HashTable>>,
    pub(crate) load_aware: Option<Arc<LoadAwareTable>>,
}

#[derive(Debug, Default)]
pub(crate) struct LoadAwareTable {
    pub(crate) sources: PerClass<LoadAwareSource>,
    /// Whether a tick has computed weights; until then the zone counters do not count picks.
    pub(crate) covered: bool,
}

/// Weights of the localities of one priority under load_aware_locality, for one class of hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAwareWeights {
    /// Locality and weight of every slot, the local locality first.
    pub weights: Vec<(Locality, f64)>,
    pub all_local: bool,
}

#[derive(Debug, Default)]
pub(crate) struct LoadAwareSource {
    pub(crate) prefix_sums: Vec<f64>,
    pub(crate) all_local: bool,
    /// Smoothed utilization of the slots; `None` without a valid report.
    pub(crate) utilization: Vec<Option<f64>>,
    /// Slots that reported earlier and whose reports have all expired, or do not count.
    pub(crate) silent: Vec<bool>,
    /// Slots whose reports do not count because their requests fail.
    pub(crate) fails: Vec<bool>,
    /// HEADROOM still compares the last utilization of silent slots.
    pub(crate) compares_expired: bool,
    /// Host counts decide because weights by load fail more requests.
    pub(crate) is_fallback: bool,
    /// Hash tables over the hosts of each slot, for hash policies.
    pub(crate) hash: Vec<Option<Arc<HashTable>>>,
}

/// Inputs of zone-aware routing, kept for `explain`.
#[derive(Clone, Debug)]
pub(crate) struct ZoneContext {
    pub(crate) fleet: Option<Arc<HostSetCounts>>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) fractions: Arc<FractionStore>,
    pub(crate) built_at: Instant,
}

/// Immutable routing state of one cluster. See the [module documentation](self) for an example.
#[derive(Debug)]
pub struct RoutingSnapshot {
    pub(crate) generation: u64,
    pub(crate) ready: bool,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) own: Option<Locality>,
    pub(crate) loads: PriorityLoads,
    pub(crate) priorities: Vec<PriorityView>,
    pub(crate) drop_overloads: Arc<[DropOverload]>,
    pub(crate) drop_counts: Arc<DropCounts>,
    /// A host is in slow start: schedules are used even if weights are equal.
    pub(crate) slow_start: bool,
    pub(crate) zone: ZoneContext,
    /// With subsets, the fields above serve requests that fall back to any endpoint.
    pub(crate) subsets: Option<Arc<SubsetTable>>,
}

impl RoutingSnapshot {
    getters! {
        /// Returns the generation, which grows with every snapshot of a balancer.
        generation: u64,
        /// Returns the settings that the snapshot was built with.
        config: &Arc<ClusterConfig>,
        /// Returns loads and panic flags of all priorities.
        #[doc(hidden)]
        loads: &PriorityLoads,
    }

    /// Whether an assignment has arrived; until then picks are queued.
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns all hosts by priority, then locality (the local one first), then address.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.priorities.iter().flat_map(|view| view.table.hosts())
    }

    /// Whether `before`, a snapshot of the same balancer, has the same hosts. Compares a few
    /// pointers, regardless of the number of hosts.
    pub fn same_hosts(&self, before: &Self) -> bool {
        let mut pairs = self.priorities.iter().zip(&before.priorities);
        self.priorities.len() == before.priorities.len()
            && pairs.all(|(now, before)| now.table.shares_roster(&before.table))
    }

    /// Returns all hosts of the priorities that `tried` belong to; `None` if no other priority has
    /// a host. Retry policies use this to move on to the next priority.
    pub fn hosts_of_tried_priorities(&self, tried: &[Arc<Host>]) -> Option<Vec<Arc<Host>>> {
        let is_tried = |host: &Arc<Host>| tried.iter().any(|tried| Arc::ptr_eq(tried, host));
        let has_tried = |view: &&PriorityView| view.table.hosts().any(is_tried);
        let is_left =
            |view: &PriorityView| view.table.hosts().next().is_some() && !has_tried(&view);
        self.priorities.iter().any(is_left).then(|| {
            self.priorities
                .iter()
                .filter(has_tried)
                .flat_map(|view| view.table.hosts().cloned())
                .collect()
        })
    }

    /// Returns the host counts of one priority.
    pub fn counts(&self, priority: usize) -> Option<&HostSetCounts> {
        self.priorities.get(priority).map(|view| &view.table.counts)
    }

    /// Returns how one priority chooses its host list.
    #[doc(hidden)]
    pub fn source_policy(&self, priority: usize) -> Option<&SourcePolicy> {
        self.priorities.get(priority).map(|view| &view.source)
    }

    /// Returns the weights of load_aware_locality at one priority for its healthy, degraded or all
    /// hosts; `None` under another policy.
    pub fn load_aware_weights(
        &self,
        priority: usize,
        source: HostSource,
    ) -> Option<LoadAwareWeights> {
        let view = self.priorities.get(priority)?;
        let source = &view.load_aware.as_ref()?.sources[source.class()];
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

    /// Explains why this snapshot routes as it does.
    pub fn explain(&self) -> Explanation {
        self.explain_at(self.zone.built_at)
    }

    /// Explains this snapshot with ages as of `now`; a snapshot may be in force for a long time.
    pub fn explain_at(&self, now: Instant) -> Explanation {
        crate::explain::build::explain(self, None, now)
    }

    /// Like [`Self::explain_at`], with the demand by zone that loads are computed from, in
    /// requests per second. The decisions stay those of the snapshot, whatever demand it assumes.
    pub fn explain_with_demand(&self, demand: &[(Locality, f64)], now: Instant) -> Explanation {
        crate::explain::build::explain(self, Some(&Demand::from_rates(demand)), now)
    }
}

impl AsRef<Self> for RoutingSnapshot {
    fn as_ref(&self) -> &Self {
        self
    }
}
