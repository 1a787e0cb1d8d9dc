//! Routing decisions over one set of hosts: priority loads and panic, zone-aware routing, hash
//! tables and weights of load_aware_locality.
//!
//! A cluster has one [`Routing`] over all hosts, and one for each of its subsets.

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

#[derive(Debug, Default)]
pub(super) struct Routing {
    pub(super) loads: PriorityLoads,
    pub(super) views: Vec<PriorityView>,
    pub(super) load_aware: LoadAware,
    pub(super) observed_load: ObservedLoad,
}

pub(super) struct ClusterContext<'a> {
    pub(super) config: &'a ClusterConfig,
    pub(super) fleet: Option<&'a HostSetCounts>,
    pub(super) demand: &'a Demand,
    pub(super) fractions: &'a FractionStore,
    pub(super) policy: PriorityHealthPolicy,
    pub(super) stats: &'a BalancerStats,
    pub(super) load_aware_stats: &'a LoadAwareStats,
    /// Weights of load_aware_locality are due; a host set without weights computes them anyway.
    pub(super) load_tick: bool,
    pub(super) now: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    /// New host tables by priority, ascending.
    pub(super) tables: Vec<(usize, Arc<PriorityTable>)>,
    pub(super) zone: bool,
    pub(super) config: bool,
}

impl Changes {
    fn table(&self, priority: usize) -> bool {
        self.tables.iter().any(|(changed, _)| *changed == priority)
    }
}

impl Routing {
    pub(super) fn refresh(
        &mut self,
        changes: &Changes,
        context: &ClusterContext<'_>,
        events: &mut VecDeque<Event>,
    ) {
        self.refresh_tables(changes, context, events);
        self.refresh_zone(changes, context, events);
        self.refresh_hash(changes, context);
        self.refresh_load_aware(changes, context);
    }

    fn refresh_tables(
        &mut self,
        changes: &Changes,
        context: &ClusterContext<'_>,
        events: &mut VecDeque<Event>,
    ) {
        for (priority, table) in &changes.tables {
            let table = Arc::clone(table);
            self.loads
                .set_health(*priority, &table.counts, context.policy);
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
            .recalculate(sets, context.config.panic_threshold());
        let panics = self.views.iter_mut().zip(self.loads.panic()).enumerate();
        for (priority, (view, &panic)) in panics {
            if view.source.panic != panic {
                events.push_back(Event::PanicChanged { priority, panic });
            }
            view.source.panic = panic;
        }
    }

    fn refresh_zone(
        &mut self,
        changes: &Changes,
        context: &ClusterContext<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let config = context.config.zone_aware();
        let basis = config.map(ZoneAware::locality_basis);
        if basis != Some(LocalityBasis::ObservedLoad) {
            // Stop even if zone-aware routing is off: a tick that nobody handles would stay due.
            self.observed_load.stop();
        }
        for priority in 0..self.views.len() {
            if !(changes.zone || changes.config || changes.table(priority)) {
                continue;
            }
            let zone = self.route(config, priority, context);
            let threshold = context.config.panic_threshold();
            let fleet_panic = context
                .fleet
                .is_some_and(|fleet| fleet.flat.in_panic(threshold));
            let source = &mut self.views[priority].source;
            if source.zone.state.name() != zone.state.name()
                || source.zone.state.reason() != zone.state.reason()
            {
                events.push_back(Event::ZoneRoutingChanged {
                    cluster: Arc::clone(context.config.name()),
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

    /// Regenerates the zone-aware routing of a priority, and updates Envoy's counters for it.
    fn route(
        &mut self,
        config: Option<&ZoneAware>,
        priority: usize,
        context: &ClusterContext<'_>,
    ) -> ZoneRouting {
        let Some(config) = config else {
            return ZoneRouting::off(Reason::NotConfigured);
        };
        let observed = config.locality_basis() == LocalityBasis::ObservedLoad;
        let table = &self.views[priority].table;
        let assumed;
        let (fleet, demand) = match context.fleet {
            Some(fleet) => (fleet, context.demand),
            // `OBSERVED_LOAD` needs no fleet: each zone is assumed to issue what it can serve.
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
        context.stats.lb_recalculate_zone_structures.increment();
        match zone.state.reason() {
            Some(Reason::LocalClusterHasNoHostInOwnLocality) => {
                context.stats.lb_local_cluster_not_ok.increment();
            }
            Some(Reason::UpstreamTooSmall) => context.stats.lb_zone_cluster_too_small.increment(),
            _ => {}
        }
        if observed {
            return self
                .observed_load
                .routing(config, zone, priority, table, context.now);
        }
        zone
    }

    fn refresh_hash(&mut self, changes: &Changes, context: &ClusterContext<'_>) {
        let config = context.config;
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

    /// Recomputes the weights of load_aware_locality if due, else reorders them.
    fn refresh_load_aware(&mut self, changes: &Changes, context: &ClusterContext<'_>) {
        let Some(settings) = context.config.load_aware_locality() else {
            self.load_aware.stop();
            self.views
                .iter_mut()
                .for_each(|view| view.load_aware = None);
            return;
        };
        if context.load_tick || (!self.views.is_empty() && self.load_aware.poll_timeout().is_none())
        {
            let feed_forward = self.feed_forward(context);
            self.load_aware.tick(
                settings,
                &self.views,
                feed_forward.as_deref(),
                context.load_aware_stats,
                context.now,
            );
        }
        let panics: Vec<bool> = self.views.iter().map(|view| view.source.panic).collect();
        let hash_kept =
            |priority: usize| !changes.config && !changes.table(priority) && !panics[priority];
        self.load_aware
            .publish(&mut self.views, context.config, hash_kept);
    }

    /// Shares that measured demand calls for at priority 0, while fractions are fresh (0027).
    fn feed_forward(&self, context: &ClusterContext<'_>) -> Option<Vec<f64>> {
        if !context.config.uses_demand_feed_forward() {
            return None;
        }
        let fleet = context.fleet?;
        let demand = Demand::from_fractions(context.fractions.current()?.fractions, fleet)?;
        let upstream = &self.views.first()?.table.counts;
        regenerate(&ZoneAware::for_measured_demand(), upstream, fleet, &demand).expected_shares()
    }
}
