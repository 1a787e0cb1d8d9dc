//! [`State`]: the core of the control plane, a state machine without IO.
//!
//! The writer calls the `handle_*` methods for inputs and then drains [`State::poll_view`],
//! [`State::poll_traffic`], [`State::poll_event`] and [`State::poll_timeout`], in this order.
//! `delivery` decides how nodes get demand, `view` encodes resources, the planner computes demand.
//!
//! Views are shared by all receivers that see the same resources: one per fleet, class of nodes and
//! zone. After a restart, receivers that already have weights keep them until the demand of their
//! fleet is known again, or until a timeout shows that nobody reports: until then their view
//! withholds every resource that depends on demand.

mod discovered;
mod event;
mod localities;
mod membership;
mod node_checks;
mod refresh;
mod replicated;
mod shown;
mod suspects;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{Plan, PlanScope, Planner, PlannerEvent};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic};
use plimsoll_xds::node::NodeInfo;

use crate::config::{ControlConfig, Service};
use crate::fleet::{Fleets, OpenRefusal, Peer, StreamKind};
use crate::fleet_plan::{FleetPlan, Plans};
use crate::relay::{Overlay, RelayedClusters, RelayedResource};
use crate::replicas::{NodeKey, Replicas};
use crate::view::{Catalog, SentResources};

pub use discovered::{DiscoveredChanges, DiscoveredService};
pub use event::{ControlEvent, TrafficKey, ViewKey};
use node_checks::WatchedIds;
use refresh::has_demand;
pub use suspects::{Suspects, Suspicion};

/// Time beyond one load reporting interval after which views are no longer withheld. Envoy retries
/// a broken load reporting stream after 5 s; its first report then covers up to 5 s, during which
/// the demand of its fleet counts as incomplete; plus one second for everything else.
const HOLD_MARGIN: Duration = Duration::from_secs(11);
/// Limit of queued events; if the writer does not poll, the oldest are dropped.
const MAX_EVENTS: usize = 4096;

/// State of the control plane.
#[derive(Debug)]
pub struct State {
    file_config: Arc<ControlConfig>,
    fingerprint: u64,
    /// `file_config` with discovered services, and with policies and endpoints learned from the
    /// relayed server.
    config: Arc<ControlConfig>,
    discovered: BTreeMap<Arc<str>, DiscoveredService>,
    /// Discovered services that changed since the views were refreshed.
    changed_services: BTreeSet<Arc<str>>,
    /// Whether more than the endpoints of these services changed.
    settings_changed: bool,
    relayed: RelayedClusters,
    catalog: Catalog,
    fleets: Fleets,
    /// Zones of services since the start. A zone whose endpoints are all removed still has proxies,
    /// whose demand counts.
    service_zones: BTreeSet<Locality>,
    suspects: Suspects,
    watched_ids: WatchedIds,
    planner: Planner,
    plans: Plans,
    /// Generation of the plans in `plans`, and when each was received from the planner.
    plan_times: BTreeMap<PlanScope, (u64, Instant)>,
    fleet_plans: BTreeMap<Arc<str>, FleetPlan>,
    views: BTreeMap<ViewKey, Arc<View>>,
    /// Used instead of `views` if the configuration has a relay.
    overlays: BTreeMap<ViewKey, Arc<Overlay>>,
    changed_overlays: BTreeSet<ViewKey>,
    generation: u64,
    /// Unix time that corresponds to `Instant::ORIGIN`.
    unix_origin: Duration,
    hold_until: Option<Instant>,
    /// `None` without a store.
    replicas: Option<Replicas>,
    /// Plans that are not delivered before the store has been read.
    waiting_plans: BTreeMap<PlanScope, Arc<Plan>>,
    /// Fleets whose plans and views are out of date.
    dirty: BTreeSet<Arc<str>>,
    /// Fleets whose membership has changed, with the time to publish the change. Batching keeps a
    /// thousand proxies that start one by one from causing a thousand updates for each of them.
    membership_due: BTreeMap<Arc<str>, Instant>,
    changed_views: BTreeSet<ViewKey>,
    changed_traffic: BTreeSet<TrafficKey>,
    events: VecDeque<ControlEvent>,
}

impl State {
    /// Creates the state of a control plane that has not seen any node yet.
    pub fn new(config: Arc<ControlConfig>, now: Instant) -> Self {
        let hold = config.load_reporting_interval + HOLD_MARGIN;
        let mut state = Self {
            catalog: Catalog::new(&config),
            fleets: Fleets::default(),
            service_zones: BTreeSet::new(),
            suspects: Suspects::default(),
            watched_ids: WatchedIds::new(),
            planner: Planner::new(config.planner.clone(), now),
            plans: Plans::new(),
            plan_times: BTreeMap::new(),
            fleet_plans: BTreeMap::new(),
            views: BTreeMap::new(),
            overlays: BTreeMap::new(),
            changed_overlays: BTreeSet::new(),
            generation: 0,
            unix_origin: Duration::ZERO,
            hold_until: Some(now.saturating_add(hold)),
            replicas: None,
            waiting_plans: BTreeMap::new(),
            dirty: BTreeSet::new(),
            membership_due: BTreeMap::new(),
            changed_views: BTreeSet::new(),
            changed_traffic: BTreeSet::new(),
            events: VecDeque::new(),
            relayed: RelayedClusters::default(),
            discovered: BTreeMap::new(),
            changed_services: BTreeSet::new(),
            settings_changed: false,
            fingerprint: config.fingerprint(),
            file_config: Arc::clone(&config),
            config,
        };
        state.set_heartbeat(now);
        state.set_limits();
        state
    }

    /// Sets the Unix time of `Instant::ORIGIN`, for timestamps in LRS responses.
    #[must_use]
    pub const fn with_unix_origin(mut self, since_epoch: Duration) -> Self {
        self.unix_origin = since_epoch;
        self
    }

    /// Activates a new configuration and updates all views.
    pub fn handle_config(&mut self, config: Arc<ControlConfig>, now: Instant) {
        let interval = config.load_reporting_interval;
        // `ControlConfig` was validated with the same range, so this cannot fail.
        let set = self.planner.set_default_report_interval(interval, now);
        debug_assert!(set.is_ok(), "{set:?}");
        self.event(ControlEvent::ConfigApplied {
            services: config.services.len(),
        });
        if config.relay != self.file_config.relay {
            // Another server has different resources: forget those of the previous one.
            self.relayed.clear();
            self.views.clear();
            self.overlays.clear();
        }
        self.fingerprint = config.fingerprint();
        self.file_config = config;
        self.complete_config(now);
        self.process_due(now);
    }

    /// Updates the policy or endpoints of a cluster of the relayed server.
    pub fn handle_relayed(&mut self, relayed: RelayedResource, now: Instant) {
        // Without services, resources are only shown.
        if self.relayed.update(relayed) && !self.wants_all_reports() {
            self.complete_config(now);
        }
        self.process_due(now);
    }

    /// Registers a stream of a node that `peer` opened. Returns the key of the node's view.
    pub fn handle_open(
        &mut self,
        node: &NodeInfo,
        kind: StreamKind,
        returning: bool,
        peer: &Peer,
        now: Instant,
    ) -> Result<ViewKey, OpenRefusal> {
        let holding = (self.hold_until.is_some_and(|until| now < until) || self.awaits_store())
            && !has_demand(&self.plans, &node.node.cluster);
        let key = ViewKey::of(node, returning && holding);
        let opened = match self.fleets.open(node, kind, peer, now) {
            Ok(opened) => opened,
            Err(refusal) => {
                let event = ControlEvent::StreamRefused {
                    fleet: Arc::clone(&node.node.cluster),
                    node: Arc::clone(&node.node.id),
                    refusal: refusal.clone(),
                };
                self.suspects.handle_event(&event, now);
                self.event(event);
                return Err(refusal);
            }
        };
        self.check_node(node, now);
        self.nodes_left(&opened.left, now);
        self.replicas_open(node, kind, now);
        if opened.changed {
            // Envoy does not route by zone if its own zone is missing in its fleet's assignment.
            let due = if opened.new_zone {
                now
            } else {
                self.next_batch(&key.fleet, now)
            };
            self.membership_changed(&key.fleet, due);
        }
        self.process_due(now);
        if kind == StreamKind::Ads && !self.has_view(&key) {
            self.add_view(&key);
        }
        Ok(key)
    }

    /// Unregisters a stream of a node.
    pub fn handle_close(&mut self, node: &NodeInfo, kind: StreamKind, now: Instant) {
        let (fleet, id) = (&node.node.cluster, &node.node.id);
        let last = self.fleets.close(fleet, id, kind, now);
        if let Some(replicas) = &mut self.replicas {
            // The node may be moving to another replica: it counts for a while.
            replicas.handle_close(&NodeKey::of(&node.node), kind, now);
        } else if last && kind == StreamKind::Lrs {
            self.planner.handle_disconnect(id, fleet, now);
        }
        self.process_due(now);
    }

    /// Drops a view that has no receivers left.
    pub fn handle_view_unused(&mut self, key: &ViewKey) {
        self.views.remove(key);
        self.changed_views.remove(key);
        self.overlays.remove(key);
        self.changed_overlays.remove(key);
    }

    /// Processes a load report. Only configured clusters count, unless `wants_all_reports`.
    pub fn handle_report(&mut self, node: &NodeInfo, stats: &[ClusterStats], now: Instant) {
        let counted = self.counted(stats);
        for stats in &counted {
            self.fleets.reported(&node.node, &stats.cluster_name);
        }
        if let Some(replicas) = &mut self.replicas
            && !counted.is_empty()
        {
            replicas.handle_report(node, &counted, now);
        }
        // Before the store is read they are a part of the demand; the rest would be a step, which
        // smoothing follows slowly. They count when it has been read, with all others.
        if !self.awaits_store() {
            self.planner.handle_load_reports(&node.node, &counted, now);
        }
        self.process_due(now);
    }

    /// Processes timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        // Before the planner, so that it does not forget reports that are repeated.
        self.replicas_timeout(now);
        self.planner.handle_timeout(now);
        if !self.store_is_away() {
            let left = self.fleets.expire(self.config.leave_after, now);
            self.nodes_left(&left, now);
        }
        self.check_shared_ids(now);
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
            if let Some(replicas) = &mut self.replicas {
                replicas.forget_start();
            }
            let keys = self.views.keys().chain(self.overlays.keys());
            let returning = keys.filter(|key| key.returning);
            self.dirty
                .extend(returning.map(|key| Arc::clone(&key.fleet)));
        }
        self.process_due(now);
    }

    /// Returns the latest version of a view that has changed since the last call.
    pub fn poll_view(&mut self) -> Option<(ViewKey, Arc<View>)> {
        self.refresh();
        let key = self.changed_views.pop_first()?;
        let view = Arc::clone(self.views.get(&key)?);
        Some((key, view))
    }

    /// Like `poll_view`, if the configuration has a relay.
    pub fn poll_overlay(&mut self) -> Option<(ViewKey, Arc<Overlay>)> {
        self.refresh();
        let key = self.changed_overlays.pop_first()?;
        let overlay = Arc::clone(self.overlays.get(&key)?);
        Some((key, overlay))
    }

    /// Returns receivers whose demand has changed, with the demand for their LRS responses.
    pub fn poll_traffic(&mut self) -> Option<(TrafficKey, Arc<LrsTraffic>)> {
        self.refresh();
        let key = self.changed_traffic.pop_first()?;
        let traffic = self.traffic(&key);
        Some((key, traffic))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`State::handle_timeout`]; may be in the past.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.planner.poll_timeout(),
            (!self.store_is_away())
                .then(|| self.fleets.deadline(self.config.leave_after))
                .flatten(),
            self.replicas.as_ref().and_then(Replicas::poll_timeout),
            self.hold_until,
            self.membership_due.values().min().copied(),
            self.watched_ids.values().min().copied(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Returns the load reporting settings. Clients that support `send_all_clusters` report all
    /// clusters, others the listed ones. Reporting all has two advantages: grpc-js skips the first
    /// name of a list, and a new service needs no new response, which would restart the report
    /// timer of an Envoy. Clusters that Envoys add on their own (their management servers) are
    /// ignored in [`State::handle_report`].
    pub fn lrs_settings(&self) -> LrsSettings {
        LrsSettings {
            interval: self.config.load_reporting_interval,
            send_all_clusters: true,
            clusters: self.config.services.keys().cloned().collect(),
            report_endpoint_granularity: self.config.report_endpoint_granularity,
        }
    }

    /// Returns the active configuration, with policies and endpoints of the relayed server.
    pub const fn config(&self) -> &Arc<ControlConfig> {
        &self.config
    }

    /// Returns a hash of the configuration, which replicas should have in common.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the active configuration as it was applied.
    pub const fn file_config(&self) -> &Arc<ControlConfig> {
        &self.file_config
    }

    /// Returns the nodes of each fleet.
    pub const fn fleets(&self) -> &Fleets {
        &self.fleets
    }

    /// Returns nodes with recent signs of a wrong identity or load report.
    pub const fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Returns the planner, which measures demand.
    pub const fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns what is delivered to a fleet; `None` if no node of the fleet has been seen.
    pub fn fleet_plan(&self, fleet: &str) -> Option<&FleetPlan> {
        self.fleet_plans.get(fleet)
    }

    /// Returns the time since the demand that is delivered to a fleet was confirmed: for one
    /// service, or for the fleet as a whole. `None` if host counts are delivered.
    pub fn delivered_age(
        &self,
        fleet: &Arc<str>,
        service: Option<&Arc<str>>,
        now: Instant,
    ) -> Option<Duration> {
        let plan = self.fleet_plans.get(fleet)?;
        let own = service.map(|name| plan.services.get(name));
        let (zones, epoch) = match own {
            Some(own) => own.map(|own| (&own.zones[..], own.epoch))?,
            None => (self.delivered(fleet), plan.epoch),
        };
        // A service without load reports uses the demand of the whole fleet.
        let scopes = [service, None].map(|upstream| PlanScope {
            fleet: Arc::clone(fleet),
            upstream_cluster: upstream.cloned(),
        });
        let mut times = scopes.iter().filter_map(|scope| self.plan_times.get(scope));
        let (_, at) = times.find(|(generation, _)| *generation == epoch)?;
        (!zones.is_empty()).then(|| now.saturating_duration_since(*at))
    }

    /// Returns the view with `key`.
    pub fn view(&self, key: &ViewKey) -> Option<&Arc<View>> {
        self.views.get(key)
    }

    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
    ) -> Result<SentResources, DecodeError> {
        self.catalog.sent(service, key, plan)
    }

    /// Returns the overlay with `key`; `None` if there is no relay.
    pub fn overlay(&self, key: &ViewKey) -> Option<&Arc<Overlay>> {
        self.overlays.get(key)
    }

    /// Applies due membership changes and processes updates and events of the planner.
    fn process_due(&mut self, now: Instant) {
        self.replicas_timeout(now);
        let due: Vec<_> = self
            .membership_due
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(fleet, _)| Arc::clone(fleet))
            .collect();
        for fleet in due {
            self.membership_due.remove(&fleet);
            let counts = self.fleets.counts(&fleet);
            self.planner.handle_fleet_hosts(&fleet, counts, now);
            self.dirty.insert(fleet);
        }
        if self.planner.poll_timeout().is_some_and(|due| due <= now) {
            self.planner.handle_timeout(now);
        }
        while let Some(plan) = self.planner.poll_update() {
            self.handle_plan(plan, now);
        }
        while let Some(event) = self.planner.poll_event() {
            if let (Some(replicas), PlannerEvent::NodeLeft { fleet, node, .. }) =
                (&mut self.replicas, &event)
            {
                let (fleet, id) = (Arc::clone(fleet), Arc::clone(node));
                replicas.handle_silent(&NodeKey { fleet, id });
            }
            let event = ControlEvent::Planner(event);
            self.suspects.handle_event(&event, now);
            self.event(event);
        }
    }

    /// Delivers a plan, unless demand is still incomplete. Replicas agree on it first.
    fn handle_plan(&mut self, plan: Arc<Plan>, now: Instant) {
        if self.awaits_store() {
            // Other replicas may know more nodes.
            self.waiting_plans.insert(plan.scope.clone(), plan);
            return;
        }
        let fleet = &plan.scope.fleet;
        let replicas = self.replicas.as_ref();
        let complete = replicas.is_some_and(|replicas| replicas.knew(fleet));
        // Partial demand of a fleet would mislead more than the previous plan, which stays.
        if plan.warming_up && !complete && !self.all_nodes_reported(fleet, now) {
            return self.event(ControlEvent::Planned(plan));
        }
        let alone = match &mut self.replicas {
            Some(replicas) => replicas.handle_plan(plan, now),
            None => Some(plan),
        };
        if let Some(plan) = alone {
            self.deliver(plan, now);
        }
    }

    /// Makes a plan the one that views are built from.
    fn deliver(&mut self, plan: Arc<Plan>, now: Instant) {
        self.event(ControlEvent::Planned(Arc::clone(&plan)));
        self.dirty.insert(Arc::clone(&plan.scope.fleet));
        if let Some(replicas) = &mut self.replicas
            && !plan.has_data()
        {
            replicas.forget_plan(&plan.scope);
        }
        if plan.scope.upstream_cluster.is_some() && !plan.has_data() {
            // Names of clusters come from load reports: they must not be kept forever.
            self.plan_times.remove(&plan.scope);
            self.plans.remove(&plan.scope);
            return;
        }
        self.plan_times
            .insert(plan.scope.clone(), (plan.generation, now));
        self.plans.insert(plan.scope.clone(), plan);
    }

    /// Whether every node of a fleet has reported demand, so that the sums are complete before the
    /// first reporting interval is over, as with the first reports after a restart.
    fn all_nodes_reported(&self, fleet: &str, now: Instant) -> bool {
        let view = self.planner.fleet(fleet, now);
        let reporting = view.map_or(0, |view| view.nodes_with_demand());
        reporting > 0 && reporting >= self.fleets.counted_nodes(fleet)
    }

    /// Recomputes the effective configuration and marks all fleets for update.
    fn complete_config(&mut self, now: Instant) {
        let completed = self.relayed.complete(&self.file_config);
        self.config = self.with_discovered(completed);
        self.set_heartbeat(now);
        self.set_limits();
        self.replicas_config();
        self.catalog = Catalog::new(&self.config);
        let keys = self.views.keys().chain(self.overlays.keys());
        self.dirty.extend(keys.map(|key| Arc::clone(&key.fleet)));
        for (name, _) in self.fleets.iter() {
            self.dirty.insert(Arc::clone(name));
            // The zones that count may have changed.
            self.membership_due.insert(Arc::clone(name), now);
        }
    }

    /// Applies the limits and the zones of the configuration to fleets and demand. With a relay,
    /// the zones of clusters are learned one by one, so only those of the file limit demand. Zones
    /// of identities are known, but limit nothing on their own: most rules name none.
    fn set_limits(&mut self) {
        let services = self.config.services.values();
        let entries = services.flat_map(|service| service.assignment.endpoints());
        let zones = entries.map(|entry| entry.locality.clone());
        self.service_zones
            .extend(zones.filter(|zone| !zone.is_unset()));
        let mut known = self.config.zones.clone();
        if self.config.relay.is_none() {
            known.extend(self.service_zones.iter().cloned());
        }
        if !known.is_empty() {
            known.extend(self.config.rules.zones());
        }
        let known = Some(known).filter(|known| !known.is_empty());
        self.fleets.set_limits(self.config.limits.fleets);
        self.fleets.set_zones(known.clone());
        self.planner.set_zones(known);
    }

    fn set_heartbeat(&mut self, now: Instant) {
        let (heartbeat, shortened) = self.config.heartbeat();
        let before = self.planner.config().heartbeat();
        // A third of any valid staleness threshold is a valid heartbeat.
        let set = self.planner.set_heartbeat(heartbeat, now);
        debug_assert!(set.is_ok(), "{set:?}");
        if let Some((service, staleness_threshold)) = shortened
            && before != heartbeat
        {
            let cluster = Arc::clone(service.name());
            self.event(ControlEvent::HeartbeatShortened {
                cluster,
                staleness_threshold,
                written: self.config.planner.heartbeat(),
                heartbeat,
            });
        }
    }

    fn has_view(&self, key: &ViewKey) -> bool {
        self.views.contains_key(key) || self.overlays.contains_key(key)
    }

    /// Whether demand for every reported cluster counts: if a relay is configured without services.
    pub(crate) fn wants_all_reports(&self) -> bool {
        self.config.relay.is_some() && self.config.services.is_empty()
    }

    /// Returns the demand of a fleet by service, for nodes that get demand with LRS responses.
    pub fn traffic(&self, key: &TrafficKey) -> Arc<LrsTraffic> {
        let plan = self.fleet_plans.get(&key.fleet);
        let origin = self.unix_origin;
        let traffic = plan.map(|plan| self.catalog.traffic(plan, key.class, origin));
        Arc::new(traffic.unwrap_or_default())
    }

    fn event(&mut self, event: ControlEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
pub(crate) mod tests;
