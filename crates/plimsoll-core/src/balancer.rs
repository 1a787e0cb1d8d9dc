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
use crate::host_source::SourcePolicy;
use crate::locality_picking::demand::{Demand, FractionMap};
use crate::locality_picking::fractions::{FractionOrigin, FractionStore};
use crate::locality_picking::zone_aware::{Reason, ZoneRouting, regenerate};
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::cluster::ClusterConfig;
use crate::model::health::{HealthFlags, HealthSignal};
use crate::model::locality::Locality;
use crate::model::zone_aware::{LocalityBasis, ZoneAware};
use crate::priority::PriorityLoads;
use crate::snapshot::{PriorityView, RoutingSnapshot, ZoneContext, build_hash_table};
use crate::stats::{BalancerStats, LoadAwareStats};
use crate::time::Instant;

mod client_weights;
mod fractions;
mod load_aware;
mod load_stats;
mod members;
mod observed_load;
mod ramp;

use client_weights::ClientWeights;
use load_aware::LoadAware;
use members::Members;
use observed_load::ObservedLoad;
use ramp::Ramp;

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
    own: Option<Locality>,
    members: Members,
    ready: bool,
    loads: PriorityLoads,
    views: Vec<PriorityView>,
    fleet: Option<Fleet>,
    fractions: Arc<FractionStore>,
    demand: Arc<Demand>,
    ramp: Ramp,
    client_weights: ClientWeights,
    load_aware: LoadAware,
    load_aware_stats: LoadAwareStats,
    observed_load: ObservedLoad,
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
            config,
            members,
            own,
            ready: false,
            loads: PriorityLoads::default(),
            views: Vec::new(),
            fleet: None,
            fractions: Arc::default(),
            demand: Arc::default(),
            ramp: Ramp::new(now),
            client_weights: ClientWeights::default(),
            load_aware: LoadAware::default(),
            load_aware_stats: LoadAwareStats::default(),
            observed_load: ObservedLoad::default(),
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
                ..Default::default()
            },
            now,
        );
    }

    /// A judge's word on a host: an active health check, outlier detection.
    pub fn handle_health(&mut self, address: SocketAddr, signal: HealthSignal, now: Instant) {
        if let Some(priority) = self.members.apply_signal(address, signal, now) {
            self.refresh(
                Dirty {
                    tables: vec![priority],
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
        dirty.zone |= due(self.observed_load.poll_timeout());
        let load_tick = due(self.load_aware.poll_timeout());
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
            self.load_aware.poll_timeout(),
            self.observed_load.poll_timeout(),
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
        }
        self.refresh_tables(&dirty);
        self.refresh_zone(&dirty, now);
        self.refresh_hash(&dirty);
        self.refresh_load_aware(&dirty, now);
        self.refresh_ramp(now);
        self.generation += 1;
        self.stats.snapshots_built.increment();
        self.pending = Some(Arc::new(self.snapshot(now)));
    }

    /// Host lists of dirty priorities, then loads and panic of all.
    fn refresh_tables(&mut self, dirty: &Dirty) {
        for &priority in &dirty.tables {
            let table = Arc::new(self.members.table(priority));
            self.loads
                .set_health(priority, &table.counts, self.members.policy);
            match self.views.get_mut(priority) {
                Some(view) => view.table = table,
                None => self.views.push(PriorityView {
                    table,
                    source: SourcePolicy {
                        panic: false,
                        fail_traffic_on_panic: false,
                        routing_enabled: 0,
                        fleet_panic: false,
                        zone: ZoneRouting::off(Reason::NotConfigured),
                    },
                    hash: None,
                    load_aware: None,
                }),
            }
        }
        debug_assert_eq!(
            self.views.len(),
            self.members.priorities(),
            "one view per priority"
        );
        if dirty.tables.is_empty() && !dirty.config {
            return;
        }
        let sets = self.views.iter().map(|view| &view.table.counts);
        self.loads.recalculate(sets, self.config.panic_threshold());
        let panics = self.views.iter_mut().zip(self.loads.panic()).enumerate();
        for (priority, (view, &panic)) in panics {
            if view.source.panic != panic {
                self.events
                    .push_back(Event::PanicChanged { priority, panic });
            }
            view.source.panic = panic;
        }
    }

    /// Zone-aware routing, when the fleet, the demand or the hosts it counts have changed.
    fn refresh_zone(&mut self, dirty: &Dirty, now: Instant) {
        let config = self.config.zone_aware().cloned();
        let basis = config.as_ref().map(ZoneAware::locality_basis);
        if basis != Some(LocalityBasis::ObservedLoad) {
            // Also without zone-aware routing: a tick that nobody takes would be due for ever.
            self.observed_load.stop();
        }
        if dirty.zone || dirty.config {
            self.refresh_demand(config.as_ref());
        }
        for priority in 0..self.views.len() {
            if !(dirty.zone || dirty.config || dirty.tables.contains(&priority)) {
                continue;
            }
            let zone = self.route(config.as_ref(), priority, now);
            let fleet_panic = self
                .fleet
                .as_ref()
                .is_some_and(|fleet| fleet.counts.flat.in_panic(self.config.panic_threshold()));
            let source = &mut self.views[priority].source;
            if source.zone.state.name() != zone.state.name()
                || source.zone.state.reason() != zone.state.reason()
            {
                self.events.push_back(Event::ZoneRoutingChanged {
                    cluster: Arc::clone(self.config.name()),
                    priority,
                    state: zone.state.name(),
                    reason: zone.state.reason(),
                });
            }
            source.zone = zone;
            source.fleet_panic = fleet_panic;
            source.routing_enabled = config.as_ref().map_or(0, ZoneAware::routing_enabled);
            source.fail_traffic_on_panic = config
                .as_ref()
                .is_some_and(ZoneAware::fail_traffic_on_panic);
        }
    }

    /// One regeneration, with Envoy's counters; reasons outside the preconditions count nothing.
    fn route(&mut self, config: Option<&ZoneAware>, priority: usize, now: Instant) -> ZoneRouting {
        let Some(config) = config else {
            return ZoneRouting::off(Reason::NotConfigured);
        };
        let Some(fleet) = &self.fleet else {
            return ZoneRouting::off(Reason::NoLocalCluster);
        };
        if priority > 0 && !config.all_priorities() {
            return ZoneRouting::off(Reason::PriorityNotZero);
        }
        let counts = &self.views[priority].table.counts;
        let zone = regenerate(config, counts, &fleet.counts, &self.demand);
        self.stats.lb_recalculate_zone_structures.increment();
        match zone.state.reason() {
            Some(Reason::LocalClusterHasNoHostInOwnLocality) => {
                self.stats.lb_local_cluster_not_ok.increment();
            }
            Some(Reason::UpstreamTooSmall) => self.stats.lb_zone_cluster_too_small.increment(),
            _ => {}
        }
        // What is observed is priority 0; above it host counts decide.
        if priority > 0 || config.locality_basis() != LocalityBasis::ObservedLoad {
            return zone;
        }
        let table = &self.views[priority].table;
        let local = table.counts.has_local_locality;
        match self.observed_load.shares(table, now) {
            Some(shares) => zone.with_shares(shares, local),
            None => zone,
        }
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

    /// Hash tables where lists, panic or settings changed.
    fn refresh_hash(&mut self, dirty: &Dirty) {
        let by_slot = self.config.load_aware_locality().is_some();
        if by_slot || !self.config.endpoint_policy().is_hash() {
            self.views.iter_mut().for_each(|view| view.hash = None);
            return;
        }
        for (priority, view) in self.views.iter_mut().enumerate() {
            let panic = view.source.panic;
            let same_panic = view.hash.as_ref().is_some_and(|hash| hash.panic == panic);
            if dirty.config || !same_panic || dirty.tables.contains(&priority) {
                view.hash = build_hash_table(&view.table, &self.config, panic).map(Arc::new);
            }
        }
    }

    /// Weights of load_aware_locality: anew when their tick is due, else put into the present
    /// order.
    fn refresh_load_aware(&mut self, dirty: &Dirty, now: Instant) {
        let config = Arc::clone(&self.config);
        let Some(settings) = config.load_aware_locality() else {
            self.load_aware.stop();
            self.views
                .iter_mut()
                .for_each(|view| view.load_aware = None);
            return;
        };
        if self.ready && self.load_aware.is_due(now) {
            let asked = self.feed_forward();
            let stats = &self.load_aware_stats;
            self.load_aware
                .tick(settings, &self.views, (asked.as_deref(), stats), now);
        }
        let panics: Vec<bool> = self.views.iter().map(|view| view.source.panic).collect();
        let hash_kept = |priority: usize| {
            !dirty.config && !dirty.tables.contains(&priority) && !panics[priority]
        };
        self.load_aware.publish(&mut self.views, &config, hash_kept);
    }

    fn snapshot(&self, now: Instant) -> RoutingSnapshot {
        RoutingSnapshot {
            generation: self.generation,
            ready: self.ready,
            config: Arc::clone(&self.config),
            own: self.own.clone(),
            loads: self.loads.clone(),
            priorities: self.views.clone(),
            drop_overloads: Arc::clone(&self.members.drop_overloads),
            drop_counts: Arc::clone(&self.members.drop_counts),
            slow_start: self.ramp.is_active(),
            zone: ZoneContext {
                fleet: self.fleet.as_ref().map(|fleet| Arc::clone(&fleet.counts)),
                demand: Arc::clone(&self.demand),
                fractions: Arc::clone(&self.fractions),
                built_at: now,
            },
        }
    }
}

#[cfg(test)]
mod tests;
