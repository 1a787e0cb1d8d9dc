//! [`Balancer`]: the writer of one cluster. Inputs in, routing snapshots and events out.
//!
//! Owns hosts, health, measured fractions, slow start and timers; holds no clock and does no IO. A
//! driver calls `handle_*` when something happened, and after every call drains `poll_snapshot`,
//! `poll_event` and `poll_timeout`, in this order. Arithmetic lives in `priority`,
//! `locality_picking` and `endpoint_picking`; picking lives in `picker`.

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
use crate::model::zone_aware::{LocalityBasis, ZoneAware};
use crate::snapshot::{RoutingSnapshot, SubsetTable, ZoneContext};
use crate::stats::{BalancerStats, LoadAwareStats};
use crate::time::Instant;

mod client_weights;
mod fractions;
mod load_aware;
mod load_stats;
mod members;
mod observed_load;
mod ramp;
mod routing;
mod subsets;

use client_weights::ClientWeights;
use members::{Members, Place};
use ramp::Ramp;
use routing::{Changes, Routing, Shared};
use subsets::{Common, Refresh, Subsets};

/// The fleet (originating cluster) as this cluster sees it.
#[derive(Debug)]
struct Fleet {
    assignment: ClusterLoadAssignment,
    counts: Arc<HostSetCounts>,
    /// When the assignment arrived.
    received_at: Instant,
}

/// The writer of one cluster.
#[derive(Debug)]
pub struct Balancer {
    config: Arc<ClusterConfig>,
    /// The settings that hold for a set of hosts: `config`, as subsets see it.
    within: Arc<ClusterConfig>,
    own: Option<Locality>,
    members: Members,
    ready: bool,
    /// What follows from all hosts. With subsets it serves the requests that fall back to any.
    routing: Routing,
    /// The subsets, where the cluster has them.
    subsets: Option<Box<Subsets>>,
    /// The subsets as workers see them.
    subset_table: Option<Arc<SubsetTable>>,
    fleet: Option<Fleet>,
    fractions: Arc<FractionStore>,
    demand: Arc<Demand>,
    ramp: Ramp,
    client_weights: ClientWeights,
    load_aware_stats: LoadAwareStats,
    /// When load was last reported.
    load_reported_at: Instant,
    generation: u64,
    pending: Option<Arc<RoutingSnapshot>>,
    events: VecDeque<Event>,
    stats: BalancerStats,
}

/// Which parts of the next snapshot must be computed anew.
#[derive(Default)]
struct Dirty {
    /// Host lists of these priorities.
    tables: Vec<usize>,
    /// Endpoints or their metadata may be others: hosts are divided into subsets anew.
    membership: bool,
    /// Nothing but the health of this host changed.
    host: Option<Place>,
    /// Zone-aware routing of every priority that has it.
    zone: bool,
    /// Everything that depends on the settings.
    config: bool,
}

impl Balancer {
    /// A balancer for a proxy in `local` (unset = the node has no locality).
    pub fn new(config: Arc<ClusterConfig>, local: Locality, now: Instant) -> Self {
        let own = (!local.is_unset()).then_some(local);
        let mut members = Members::new(own.clone());
        members.configure_metrics(config.lrs_report_endpoint_metrics());
        Self {
            within: config.within_subsets(),
            subsets: Subsets::of(&config),
            subset_table: None,
            config,
            members,
            own,
            ready: false,
            routing: Routing::default(),
            fleet: None,
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

    /// A snapshot to start readers with: no assignment yet, picks queue.
    pub fn initial_snapshot(&self, now: Instant) -> Arc<RoutingSnapshot> {
        Arc::new(self.snapshot(now))
    }

    /// The endpoints of the cluster. One that changes nothing builds nothing.
    pub fn handle_assignment(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        let drops = Arc::clone(&self.members.drop_overloads);
        let change = self
            .members
            .reconcile(&assignment, self.config.health_checking(), now);
        if change.added + change.removed > 0 {
            let (added, removed, total) = (change.added, change.removed, change.total);
            self.events.push_back(Event::MembershipChanged {
                added,
                removed,
                total,
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

    /// New settings; hosts and their counters stay.
    pub fn handle_config(&mut self, config: Arc<ClusterConfig>, now: Instant) {
        let source = |config: &ClusterConfig| config.zone_aware().map(ZoneAware::fraction_source);
        let reread = source(&self.config) != source(&config);
        let metrics = config.lrs_report_endpoint_metrics();
        if metrics != self.config.lrs_report_endpoint_metrics() {
            self.members.configure_metrics(metrics);
        }
        self.within = config.within_subsets();
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
            // Read anew, but as old as the assignment they came with (decisions D3).
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

    /// A judge's word on a host: an active health check, outlier detection.
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

    /// The fleet's own assignment: where proxies are, and what fraction of demand each zone has. An
    /// update of fractions alone is an update: it re-arms their deadline and touches no host list.
    pub fn handle_originating(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        self.handle_known_originating(assignment, now, now);
    }

    /// The same with an assignment that arrived at `received_at`, before this cluster did: its
    /// fractions are as old as that (decisions D3).
    pub fn handle_known_originating(
        &mut self,
        assignment: ClusterLoadAssignment,
        received_at: Instant,
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
        self.refresh(
            Dirty {
                zone: true,
                ..Default::default()
            },
            now,
        );
    }

    /// Fractions for this very cluster (`LoadStatsResponse.observed_traffic`); empty withdraws
    /// them.
    pub fn handle_observed_traffic(&mut self, fractions: FractionMap, now: Instant) {
        self.handle_observation(fractions, now, now);
    }

    /// The same with fractions that were observed at `observed_at`, from when on their age counts.
    pub fn handle_observation(
        &mut self,
        fractions: FractionMap,
        observed_at: Instant,
        now: Instant,
    ) {
        let origin = FractionOrigin::LrsResponse;
        self.receive_fractions(origin, Arc::new(fractions), observed_at, now);
        self.refresh(
            Dirty {
                zone: true,
                ..Default::default()
            },
            now,
        );
    }

    /// The moment asked for by [`Self::poll_timeout`] has come (calling early or late is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut dirty = Dirty {
            zone: self.expire_fractions(now),
            ..Default::default()
        };
        let tick = self.ramp.poll_timeout().is_some_and(|tick| tick <= now);
        let ramp_changed = tick && self.refresh_ramp(now);
        if self
            .client_weights
            .poll_timeout()
            .is_some_and(|tick| tick <= now)
            && self
                .client_weights
                .refresh(&self.config, &mut self.members, now)
        {
            dirty.tables = (0..self.members.priorities()).collect();
        }
        let due = |tick: Option<Instant>| tick.is_some_and(|tick| tick <= now);
        dirty.zone |= due(self.routing.observed_load.poll_timeout());
        let load_tick = due(self.routing.load_aware.poll_timeout());
        if dirty.zone || ramp_changed || load_tick || !dirty.tables.is_empty() {
            self.refresh(dirty, now);
        }
    }

    /// The newest snapshot, once.
    pub fn poll_snapshot(&mut self) -> Option<Arc<RoutingSnapshot>> {
        self.pending.take()
    }

    /// The oldest event not yet seen.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let fractions = self
            .config
            .staleness_threshold()
            .and_then(|threshold| self.fractions.poll_timeout(threshold));
        let ticks = [
            self.ramp.poll_timeout(),
            self.client_weights.poll_timeout(),
            self.routing.load_aware.poll_timeout(),
            self.routing.observed_load.poll_timeout(),
        ];
        ticks.into_iter().chain([fractions]).flatten().min()
    }

    /// Settings in force.
    pub const fn config(&self) -> &Arc<ClusterConfig> {
        &self.config
    }

    /// All hosts with their priority and every judge's word on them, for pages: by priority,
    /// locality (own first) and address.
    pub fn hosts(&self) -> impl Iterator<Item = (&Arc<Host>, u32, HealthFlags)> {
        let members = self.members.iter();
        members.map(|member| (&member.host, member.priority, member.health))
    }

    /// The metadata of all hosts, in the order of [`Self::hosts`].
    pub fn metadata(&self) -> impl Iterator<Item = &Metadata> {
        self.members.iter().map(|member| &member.endpoint.metadata)
    }

    /// Counters of the writer.
    pub const fn stats(&self) -> &BalancerStats {
        &self.stats
    }

    /// Counters of load_aware_locality.
    pub const fn load_aware_stats(&self) -> &LoadAwareStats {
        &self.load_aware_stats
    }

    fn refresh_ramp(&mut self, now: Instant) -> bool {
        let settings = self.config.endpoint_policy().slow_start();
        self.ramp.refresh(settings, &self.members, now)
    }

    /// Recomputes what is dirty and makes the next snapshot.
    fn refresh(&mut self, mut dirty: Dirty, now: Instant) {
        if (dirty.config || !dirty.tables.is_empty())
            && self
                .client_weights
                .refresh(&self.config, &mut self.members, now)
        {
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
            // More changes than the health of one host.
            dirty.host = None;
        }
        self.generation += 1;
        self.refresh_routing(&dirty, now);
        self.stats.snapshots_built.increment();
        self.pending = Some(Arc::new(self.snapshot(now)));
    }

    /// What follows from the hosts: of the cluster, then of its subsets.
    fn refresh_routing(&mut self, dirty: &Dirty, now: Instant) {
        let tables = dirty.tables.iter();
        let tables = tables.map(|&priority| (priority, Arc::new(self.members.table(priority))));
        let changes = Changes {
            tables: tables.collect(),
            zone: dirty.zone,
            config: dirty.config,
        };
        let zone = self.zone_context(now);
        let shared = Shared {
            config: &self.within,
            fleet: self.fleet.as_ref().map(|fleet| &*fleet.counts),
            demand: &self.demand,
            fractions: &self.fractions,
            policy: self.members.policy,
            stats: &self.stats,
            load_aware_stats: &self.load_aware_stats,
            load_tick: self.ready && self.routing.load_aware.is_due(now),
            now,
        };
        self.routing.refresh(&changes, &shared, &mut self.events);
        let refresh = Refresh {
            priorities: &if dirty.config && dirty.membership {
                (0..self.members.priorities()).collect()
            } else {
                dirty.tables.clone()
            },
            membership: dirty.membership,
            host: dirty.host.filter(|_| !shared.load_tick),
            zone: dirty.zone,
            config: dirty.config,
            common: Common {
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
            .map(|subsets| subsets.refresh(members, &refresh, &shared, events));
    }

    /// The demand side in force: measured while fresh, else assumed from hosts (decisions D2, D3).
    fn refresh_demand(&mut self, config: Option<&ZoneAware>) {
        let (Some(config), Some(fleet)) = (config, &self.fleet) else {
            self.demand = Arc::default();
            return;
        };
        let fleet = &*fleet.counts;
        self.demand = Arc::new(match config.locality_basis() {
            LocalityBasis::HealthyHostsNum | LocalityBasis::ObservedLoad => {
                Demand::from_host_counts(fleet)
            }
            LocalityBasis::HealthyHostsWeight => Demand::from_host_weights(fleet),
            LocalityBasis::LrsReportedRate => match self.fractions.current() {
                None => Demand::from_host_counts(fleet),
                Some(current) => match Demand::from_fractions(current.fractions, fleet) {
                    None => {
                        self.stats.lrs_fractions_all_zero.increment();
                        Demand::from_host_counts(fleet)
                    }
                    Some(demand) => {
                        if demand.is_partial() {
                            self.stats.lrs_fractions_partial.increment();
                        }
                        demand
                    }
                },
            },
        });
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
            fleet: self.fleet.as_ref().map(|fleet| Arc::clone(&fleet.counts)),
            demand: Arc::clone(&self.demand),
            fractions: Arc::clone(&self.fractions),
            built_at: now,
        }
    }
}

#[cfg(test)]
mod tests;
