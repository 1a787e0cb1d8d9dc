//! State machine that owns one upstream cluster: takes endpoints, health and demand, and emits
//! routing snapshots.
//!
//! A [`Balancer`] owns hosts, health, measured demand, slow start and timers. It has no clock and
//! does no IO: a driver calls `handle_*` with every input and the current time, and then drains
//! [`Balancer::poll_snapshot`], [`Balancer::poll_event`] and [`Balancer::poll_timeout`], in this
//! order. The arithmetic is in `priority`, `locality_picking` and `endpoint_picking`; picking hosts
//! from a snapshot is in [`picker`](crate::picker).
//!
//! ```
//! use plimsoll_core::balancer::Balancer;
//! use plimsoll_core::publish::Publisher;
//! use plimsoll_core::snapshot::RoutingSnapshot;
//! use plimsoll_core::time::Instant;
//!
//! /// To be called after every `handle_*`; returns when to call `handle_timeout`.
//! fn drain(
//!     balancer: &mut Balancer,
//!     publisher: &mut Publisher<RoutingSnapshot>,
//! ) -> Option<Instant> {
//!     while let Some(snapshot) = balancer.poll_snapshot() {
//!         publisher.publish(snapshot);
//!     }
//!     while let Some(event) = balancer.poll_event() {
//!         println!("{event:?}");
//!     }
//!     balancer.poll_timeout()
//! }
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::counts::HostSetCounts;
use crate::event::Event;
use crate::host::Host;
use crate::locality_picking::demand::{Demand, FractionMap};
use crate::locality_picking::fractions::{FractionOrigin, FractionStore};
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::cluster::ClusterConfig;
use crate::model::health::{HealthFlags, HealthSignal};
use crate::model::locality::Locality;
use crate::model::metadata::Metadata;
use crate::model::zone_aware::ZoneAware;
use crate::snapshot::{RoutingSnapshot, SubsetTable, ZoneContext};
use crate::stats::{BalancerStats, LoadAwareStats};
use crate::time::Instant;

mod client_weights;
mod failing_hosts;
mod fractions;
mod load_aware;
mod load_stats;
mod members;
mod observed_load;
mod ramp;
mod routing;
mod subsets;

use client_weights::ClientWeights;
use members::{MemberIndex, Members};
use ramp::Ramp;
use routing::{Changes, ClusterContext, Routing};
use subsets::{SnapshotContext, SubsetRefresh, Subsets};

/// The fleet (Envoy's local cluster) as this upstream cluster sees it.
#[derive(Debug)]
struct Fleet {
    assignment: ClusterLoadAssignment,
    counts: Arc<HostSetCounts>,
    /// From when on the age of its fractions counts; `None` = they never expire.
    received_at: Option<Instant>,
}

/// The single writer of one cluster's routing state. See the [module documentation](self) for an
/// example.
#[derive(Debug)]
pub struct Balancer {
    config: Arc<ClusterConfig>,
    /// `config` with the locality policy that applies within subsets.
    within: Arc<ClusterConfig>,
    own: Option<Locality>,
    members: Members,
    ready: bool,
    /// Routing over all hosts; if there are subsets, for requests that fall back to any host.
    routing: Routing,
    subsets: Option<Box<Subsets>>,
    subset_table: Option<Arc<SubsetTable>>,
    fleet: Option<Fleet>,
    /// One host in each zone of the stated demand, while the fleet's assignment is unknown.
    stated_fleet: Option<Arc<HostSetCounts>>,
    fractions: Arc<FractionStore>,
    demand: Arc<Demand>,
    ramp: Ramp,
    client_weights: ClientWeights,
    load_aware_stats: LoadAwareStats,
    load_reported_at: Instant,
    generation: u64,
    pending: Option<Arc<RoutingSnapshot>>,
    events: VecDeque<Event>,
    stats: BalancerStats,
}

#[derive(Default)]
struct Dirty {
    tables: Vec<usize>,
    /// Endpoints or their metadata may have changed: hosts are assigned to subsets again.
    membership: bool,
    /// The host whose health changed, if nothing else did.
    host: Option<MemberIndex>,
    /// The assignment of the fleet or its measured demand changed.
    zone: bool,
    config: bool,
}

impl Dirty {
    fn zone() -> Self {
        Self {
            zone: true,
            ..Self::default()
        }
    }
}

impl Balancer {
    /// Creates a balancer for a proxy in `local`; an unset locality means that the node has none.
    pub fn new(config: Arc<ClusterConfig>, local: Locality, now: Instant) -> Self {
        let own = (!local.is_unset()).then_some(local);
        let mut members = Members::new(own.clone());
        members.configure_metrics(config.lrs_report_endpoint_metrics());
        Self {
            within: config.for_subsets(),
            subsets: Subsets::of(&config),
            subset_table: None,
            config,
            members,
            own,
            ready: false,
            routing: Routing::default(),
            fleet: None,
            stated_fleet: None,
            fractions: Arc::default(),
            demand: Arc::default(),
            ramp: Ramp::new(now),
            client_weights: ClientWeights::default(),
            load_aware_stats: LoadAwareStats::default(),
            load_reported_at: now,
            generation: 0,
            pending: None,
            events: VecDeque::new(),
            stats: BalancerStats::default(),
        }
    }

    /// Returns an empty snapshot to start readers with. Picks from it return
    /// [`PickResult::Queue`](crate::picker::PickResult::Queue) until the first assignment arrives.
    pub fn initial_snapshot(&self, now: Instant) -> Arc<RoutingSnapshot> {
        Arc::new(self.snapshot(now))
    }

    /// Applies the endpoints of the cluster. Hosts that stay keep their [`Host`] with all counters;
    /// an assignment that changes nothing builds no snapshot.
    pub fn handle_assignment(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        let drops = Arc::clone(&self.members.drop_overloads);
        let change = self
            .members
            .reconcile(&assignment, self.config.health_checking(), now);
        if change.added + change.removed > 0 {
            self.events.push_back(Event::MembershipChanged {
                added: change.added,
                removed: change.removed,
                total: change.total,
            });
        }
        let first = !std::mem::replace(&mut self.ready, true);
        let drops_changed = !Arc::ptr_eq(&drops, &self.members.drop_overloads);
        if first || drops_changed || !change.dirty.is_empty() {
            self.refresh(
                Dirty {
                    tables: change.dirty,
                    membership: true,
                    ..Default::default()
                },
                now,
            );
        }
    }

    /// Applies new settings. Hosts and their counters are kept.
    pub fn handle_config(&mut self, config: Arc<ClusterConfig>, now: Instant) {
        let source = |config: &ClusterConfig| config.zone_aware().map(ZoneAware::fraction_source);
        let reread = source(&self.config) != source(&config);
        let metrics = config.lrs_report_endpoint_metrics();
        if metrics != self.config.lrs_report_endpoint_metrics() {
            self.members.configure_metrics(metrics);
        }
        self.within = config.for_subsets();
        let same_subsets = config.lb_subset_config() == self.config.lb_subset_config();
        if !same_subsets {
            if let Some(subsets) = &self.subsets {
                subsets.retire(&self.stats);
            }
            self.subsets = Subsets::of(&config);
        }
        self.config = config;
        if reread && let Some(fleet) = &self.fleet {
            let source = self.fraction_source();
            let fractions = fleet.assignment.fractions(source).clone();
            // The new `fraction_source` has other fractions, as old as the assignment (0024).
            Arc::make_mut(&mut self.fractions).receive(source.into(), fractions, fleet.received_at);
        }
        self.expire_fractions(now);
        self.refresh(
            Dirty {
                config: true,
                zone: true,
                membership: !same_subsets,
                ..Default::default()
            },
            now,
        );
    }

    /// Applies the verdict of a health source (active health checking, outlier detection) on one
    /// host.
    pub fn handle_health(&mut self, address: SocketAddr, signal: HealthSignal, now: Instant) {
        if let Some(priority) = self.members.apply_signal(address, signal, now) {
            let host = self.members.place(address);
            self.refresh(
                Dirty {
                    tables: vec![priority],
                    host,
                    ..Default::default()
                },
                now,
            );
        }
    }

    /// Applies the assignment of the fleet: where the proxies are, and which fraction of demand
    /// each zone has. An update of fractions alone re-arms their staleness deadline and rebuilds no
    /// host list.
    pub fn handle_fleet_assignment(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        self.handle_cached_fleet_assignment(assignment, Some(now), now);
    }

    /// Applies a fleet assignment that arrived at `received_at`, possibly before this cluster was
    /// created. The age of its fractions counts from `received_at`; `None` = a program or file
    /// states them, and they never expire (decision 0024).
    pub fn handle_cached_fleet_assignment(
        &mut self,
        assignment: ClusterLoadAssignment,
        received_at: Option<Instant>,
        now: Instant,
    ) {
        let source = self.fraction_source();
        let fractions = assignment.fractions(source).clone();
        self.receive_fractions(source.into(), fractions, received_at, now);
        match &mut self.fleet {
            Some(fleet) if fleet.assignment.same_hosts(&assignment) => {
                fleet.assignment = assignment;
                fleet.received_at = received_at;
            }
            _ => {
                let counts = HostSetCounts::of_assignment(&assignment, 0, self.own.as_ref());
                self.fleet = Some(Fleet {
                    assignment,
                    counts: Arc::new(counts),
                    received_at,
                });
            }
        }
        self.refresh(Dirty::zone(), now);
    }

    /// Applies traffic fractions for this cluster (`LoadStatsResponse.observed_traffic`). An empty
    /// map withdraws them.
    pub fn handle_observed_traffic(&mut self, fractions: FractionMap, now: Instant) {
        self.handle_observed_traffic_at(fractions, now, now);
    }

    /// Applies traffic fractions that were observed at `observed_at`, from when on their age
    /// counts.
    pub fn handle_observed_traffic_at(
        &mut self,
        fractions: FractionMap,
        observed_at: Instant,
        now: Instant,
    ) {
        let origin = FractionOrigin::LrsResponse;
        self.receive_fractions(origin, Arc::new(fractions), Some(observed_at), now);
        self.refresh(Dirty::zone(), now);
    }

    /// Runs the timers that are due. To be called at the time that [`Self::poll_timeout`] returned;
    /// calling early or late is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |tick: Option<Instant>| tick.is_some_and(|tick| tick <= now);
        let mut dirty = Dirty {
            zone: self.expire_fractions(now),
            ..Default::default()
        };
        let ramp_changed = due(self.ramp.poll_timeout()) && self.refresh_ramp(now);
        if due(self.client_weights.poll_timeout()) && self.refresh_client_weights(now) {
            dirty.tables = (0..self.members.priorities()).collect();
        }
        dirty.zone |= due(self.routing.observed_load.poll_timeout());
        let load_tick = due(self.routing.load_aware.poll_timeout());
        if dirty.zone || ramp_changed || load_tick || !dirty.tables.is_empty() {
            self.refresh(dirty, now);
        }
    }

    /// Returns the newest snapshot if it has not been polled yet.
    pub fn poll_snapshot(&mut self) -> Option<Arc<RoutingSnapshot>> {
        self.pending.take()
    }

    /// Returns the oldest event that has not been polled yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] must be called next; `None` if no timer is armed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let fractions = self
            .config
            .staleness_threshold()
            .and_then(|threshold| self.fractions.poll_timeout(threshold));
        let timers = [
            fractions,
            self.ramp.poll_timeout(),
            self.client_weights.poll_timeout(),
            self.routing.load_aware.poll_timeout(),
            self.routing.observed_load.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    getters! {
        /// Returns the cluster settings in force.
        config: &Arc<ClusterConfig>,
        /// Returns the counters of this balancer.
        stats: &BalancerStats,
        /// Returns the counters of the load_aware_locality policy.
        load_aware_stats: &LoadAwareStats,
    }

    /// Returns all hosts with their priority and health flags, for admin pages: ordered by
    /// priority, locality (the local one first) and address.
    pub fn hosts(&self) -> impl Iterator<Item = (&Arc<Host>, u32, HealthFlags)> {
        self.members
            .iter()
            .map(|member| (&member.host, member.priority, member.health))
    }

    /// Returns the metadata of all hosts, in the order of [`Self::hosts`].
    pub fn metadata(&self) -> impl Iterator<Item = &Metadata> {
        self.members.iter().map(|member| &member.endpoint.metadata)
    }

    fn refresh_client_weights(&mut self, now: Instant) -> bool {
        self.client_weights
            .refresh(&self.config, &mut self.members, now)
    }

    fn refresh_ramp(&mut self, now: Instant) -> bool {
        let settings = self.config.endpoint_policy().slow_start();
        self.ramp.refresh(settings, &self.members, now)
    }

    fn refresh(&mut self, mut dirty: Dirty, now: Instant) {
        if (dirty.config || !dirty.tables.is_empty()) && self.refresh_client_weights(now) {
            dirty.tables = (0..self.members.priorities()).collect();
            dirty.host = None;
        }
        if dirty.zone || dirty.config {
            let within = Arc::clone(&self.within);
            self.refresh_demand(within.zone_aware());
        }
        let ramped = self.ramp.is_active();
        self.refresh_ramp(now);
        if self.ramp.is_active() != ramped || dirty.zone || dirty.config {
            dirty.host = None;
        }
        self.generation += 1;
        self.refresh_routing(&dirty, now);
        self.stats.snapshots_built.increment();
        self.pending = Some(Arc::new(self.snapshot(now)));
    }

    fn refresh_routing(&mut self, dirty: &Dirty, now: Instant) {
        let changes = Changes {
            tables: dirty
                .tables
                .iter()
                .map(|&priority| (priority, Arc::new(self.members.table(priority))))
                .collect(),
            zone: dirty.zone,
            config: dirty.config,
        };
        let zone = self.zone_context(now);
        let context = ClusterContext {
            config: &self.within,
            fleet: zone.fleet.as_deref(),
            demand: &self.demand,
            fractions: &self.fractions,
            policy: self.members.policy,
            stats: &self.stats,
            load_aware_stats: &self.load_aware_stats,
            load_tick: self.ready && self.routing.load_aware.is_due(now),
            now,
        };
        self.routing.refresh(&changes, &context, &mut self.events);
        let refresh = SubsetRefresh {
            priorities: &if dirty.config && dirty.membership {
                (0..self.members.priorities()).collect()
            } else {
                dirty.tables.clone()
            },
            membership: dirty.membership,
            host: dirty.host.filter(|_| !context.load_tick),
            zone: dirty.zone,
            config: dirty.config,
            snapshot: SnapshotContext {
                generation: self.generation,
                config: &self.within,
                own: self.own.as_ref(),
                slow_start: self.ramp.is_active(),
                zone: &zone,
            },
        };
        let (members, events) = (&self.members, &mut self.events);
        self.subset_table = self
            .subsets
            .as_mut()
            .map(|subsets| subsets.refresh(members, &refresh, &context, events));
    }

    fn snapshot(&self, now: Instant) -> RoutingSnapshot {
        RoutingSnapshot {
            generation: self.generation,
            ready: self.ready,
            config: Arc::clone(&self.within),
            own: self.own.clone(),
            loads: self.routing.loads.clone(),
            priorities: self.routing.views.clone(),
            drop_overloads: Arc::clone(&self.members.drop_overloads),
            drop_counts: Arc::clone(&self.members.drop_counts),
            slow_start: self.ramp.is_active(),
            zone: self.zone_context(now),
            subsets: self.subset_table.clone(),
        }
    }

    fn zone_context(&self, now: Instant) -> ZoneContext {
        ZoneContext {
            fleet: self.fleet_counts().cloned(),
            demand: Arc::clone(&self.demand),
            fractions: Arc::clone(&self.fractions),
            built_at: now,
        }
    }
}

#[cfg(test)]
mod tests;
