//! [`Routing`]: what follows from one set of hosts: loads and panic of its priorities, zone-aware
//! routing, hash tables, weights of load_aware_locality.
//!
//! The cluster has one, and with subsets so has each of them: the same code decides over the hosts
//! of a subset as over all. What they have in common is handed in as [`Shared`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::load_aware::LoadAware;
use super::observed_load::ObservedLoad;
use crate::counts::HostSetCounts;
use crate::event::Event;
use crate::host_source::SourcePolicy;
use crate::locality_picking::demand::Demand;
use crate::locality_picking::fractions::FractionStore;
use crate::locality_picking::zone_aware::{Reason, ZoneRouting, regenerate};
use crate::model::cluster::ClusterConfig;
use crate::model::zone_aware::{LocalityBasis, ZoneAware};
use crate::priority::{PriorityHealthPolicy, PriorityLoads};
use crate::snapshot::{PriorityTable, PriorityView, build_hash_table};
use crate::stats::{BalancerStats, LoadAwareStats};
use crate::time::Instant;

/// What follows from one set of hosts.
#[derive(Debug, Default)]
pub(super) struct Routing {
    pub(super) loads: PriorityLoads,
    pub(super) views: Vec<PriorityView>,
    pub(super) load_aware: LoadAware,
    pub(super) observed_load: ObservedLoad,
}

/// What all sets of hosts of a cluster have in common.
pub(super) struct Shared<'a> {
    pub(super) config: &'a ClusterConfig,
    /// Hosts of the fleet, if it is known.
    pub(super) fleet: Option<&'a HostSetCounts>,
    pub(super) demand: &'a Demand,
    pub(super) fractions: &'a FractionStore,
    pub(super) policy: PriorityHealthPolicy,
    pub(super) stats: &'a BalancerStats,
    pub(super) load_aware_stats: &'a LoadAwareStats,
    /// Weights of load_aware_locality are due. A set of hosts without any gets them at once.
    pub(super) load_tick: bool,
    pub(super) now: Instant,
}

/// What is new since the last refresh of a set of hosts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Host lists of these priorities, in ascending order.
    pub(super) tables: Vec<(usize, Arc<PriorityTable>)>,
    /// The fleet or its demand.
    pub(super) zone: bool,
    /// The settings.
    pub(super) config: bool,
}

impl Changes {
    fn table(&self, priority: usize) -> bool {
        self.tables.iter().any(|(changed, _)| *changed == priority)
    }
}

impl Routing {
    /// Recomputes what follows from the changes.
    pub(super) fn refresh(
        &mut self,
        changes: &Changes,
        shared: &Shared<'_>,
        events: &mut VecDeque<Event>,
    ) {
        self.refresh_tables(changes, shared, events);
        self.refresh_zone(changes, shared, events);
        self.refresh_hash(changes, shared);
        self.refresh_load_aware(changes, shared);
    }

    /// Takes new host lists over, then loads and panic of all priorities.
    fn refresh_tables(
        &mut self,
        changes: &Changes,
        shared: &Shared<'_>,
        events: &mut VecDeque<Event>,
    ) {
        for (priority, table) in &changes.tables {
            let table = Arc::clone(table);
            self.loads
                .set_health(*priority, &table.counts, shared.policy);
            match self.views.get_mut(*priority) {
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
        if changes.tables.is_empty() && !changes.config {
            return;
        }
        let sets = self.views.iter().map(|view| &view.table.counts);
        self.loads
            .recalculate(sets, shared.config.panic_threshold());
        let panics = self.views.iter_mut().zip(self.loads.panic()).enumerate();
        for (priority, (view, &panic)) in panics {
            if view.source.panic != panic {
                events.push_back(Event::PanicChanged { priority, panic });
            }
            view.source.panic = panic;
        }
    }

    /// Zone-aware routing, when the fleet, the demand or the hosts it counts have changed.
    fn refresh_zone(
        &mut self,
        changes: &Changes,
        shared: &Shared<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let config = shared.config.zone_aware();
        let basis = config.map(ZoneAware::locality_basis);
        if basis != Some(LocalityBasis::ObservedLoad) {
            // Also without zone-aware routing: a tick that nobody takes would be due for ever.
            self.observed_load.stop();
        }
        for priority in 0..self.views.len() {
            if !(changes.zone || changes.config || changes.table(priority)) {
                continue;
            }
            let zone = self.route(config, priority, shared);
            let threshold = shared.config.panic_threshold();
            let fleet_panic = shared
                .fleet
                .is_some_and(|fleet| fleet.flat.in_panic(threshold));
            let source = &mut self.views[priority].source;
            if source.zone.state.name() != zone.state.name()
                || source.zone.state.reason() != zone.state.reason()
            {
                events.push_back(Event::ZoneRoutingChanged {
                    cluster: Arc::clone(shared.config.name()),
                    priority,
                    state: zone.state.name(),
                    reason: zone.state.reason(),
                });
            }
            source.zone = zone;
            source.fleet_panic = fleet_panic;
            source.routing_enabled = config.map_or(0, ZoneAware::routing_enabled);
            source.fail_traffic_on_panic = config.is_some_and(ZoneAware::fail_traffic_on_panic);
        }
    }

    /// One regeneration, with Envoy's counters; reasons outside the preconditions count nothing.
    fn route(
        &mut self,
        config: Option<&ZoneAware>,
        priority: usize,
        shared: &Shared<'_>,
    ) -> ZoneRouting {
        let Some(config) = config else {
            return ZoneRouting::off(Reason::NotConfigured);
        };
        let observed = config.locality_basis() == LocalityBasis::ObservedLoad;
        let table = &self.views[priority].table;
        let assumed;
        let (fleet, demand) = match shared.fleet {
            Some(fleet) => (fleet, shared.demand),
            // Nobody needs to know the fleet to observe: its zones are taken to issue as much as
            // they can serve.
            None if observed && table.counts.has_local_locality => {
                assumed = Demand::from_host_counts(&table.counts);
                (&table.counts, &assumed)
            }
            None => {
                self.observed_load.pause(priority);
                return ZoneRouting::off(Reason::NoLocalCluster);
            }
        };
        if priority > 0 && !config.all_priorities() {
            self.observed_load.pause(priority);
            return ZoneRouting::off(Reason::PriorityNotZero);
        }
        let zone = regenerate(config, &table.counts, fleet, demand);
        shared.stats.lb_recalculate_zone_structures.increment();
        match zone.state.reason() {
            Some(Reason::LocalClusterHasNoHostInOwnLocality) => {
                shared.stats.lb_local_cluster_not_ok.increment();
            }
            Some(Reason::UpstreamTooSmall) => shared.stats.lb_zone_cluster_too_small.increment(),
            _ => {}
        }
        if observed {
            let place = (priority, &**table);
            return self.observed_load.routing(config, zone, place, shared.now);
        }
        zone
    }

    /// Hash tables where lists, panic or settings changed.
    fn refresh_hash(&mut self, changes: &Changes, shared: &Shared<'_>) {
        let config = shared.config;
        let by_slot = config.load_aware_locality().is_some();
        if by_slot || !config.endpoint_policy().is_hash() {
            self.views.iter_mut().for_each(|view| view.hash = None);
            return;
        }
        for (priority, view) in self.views.iter_mut().enumerate() {
            let panic = view.source.panic;
            let same_panic = view.hash.as_ref().is_some_and(|hash| hash.panic == panic);
            if changes.config || !same_panic || changes.table(priority) {
                view.hash = build_hash_table(&view.table, config, panic).map(Arc::new);
            }
        }
    }

    /// Weights of load_aware_locality: anew when their tick is due, else put into the present
    /// order.
    fn refresh_load_aware(&mut self, changes: &Changes, shared: &Shared<'_>) {
        let Some(settings) = shared.config.load_aware_locality() else {
            self.load_aware.stop();
            self.views
                .iter_mut()
                .for_each(|view| view.load_aware = None);
            return;
        };
        if shared.load_tick || (!self.views.is_empty() && self.load_aware.poll_timeout().is_none())
        {
            let asked = self.feed_forward(shared);
            let outcome = (asked.as_deref(), shared.load_aware_stats);
            self.load_aware
                .tick(settings, &self.views, outcome, shared.now);
        }
        let panics: Vec<bool> = self.views.iter().map(|view| view.source.panic).collect();
        let hash_kept =
            |priority: usize| !changes.config && !changes.table(priority) && !panics[priority];
        self.load_aware
            .publish(&mut self.views, shared.config, hash_kept);
    }

    /// The shares that measured demand asks for at priority 0, while it is fresh (decisions D8).
    fn feed_forward(&self, shared: &Shared<'_>) -> Option<Vec<f64>> {
        if !shared.config.uses_demand_feed_forward() {
            return None;
        }
        let fleet = shared.fleet?;
        let demand = Demand::from_fractions(shared.fractions.current()?.fractions, fleet)?;
        let upstream = &self.views.first()?.table.counts;
        regenerate(&ZoneAware::for_measured_demand(), upstream, fleet, &demand).expected_shares()
    }
}
