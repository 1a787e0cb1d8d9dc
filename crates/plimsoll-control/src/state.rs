//! [`State`]: the single writer. Everything the control plane knows, as a machine without IO.
//!
//! A driver calls `handle_*` when something happened and then drains [`State::poll_view`],
//! [`State::poll_traffic`], [`State::poll_event`] and [`State::poll_timeout`], in this order. Who
//! gets what is decided in `delivery`, resources are made in `view`, demand is the planner's.
//!
//! Views are shared by all receivers that see the same thing: one per fleet, kind of receiver and
//! zone. After a restart, receivers that already have weights keep them until the demand of their
//! fleet is known again, or nobody seems to report any more: until then their view holds back what
//! depends on demand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{FleetView, Grain, Plan, Planner, PlannerEvent};
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic};
use plimsoll_xds::node::NodeInfo;

use crate::config::{ControlConfig, Service};
use crate::delivery::Class;
use crate::fleet::{Fleets, StreamKind};
use crate::fleet_plan::{FleetPlan, Plans, plan};
use crate::relay::{Known, Overlay, Relayed};
use crate::view::{Catalog, Held, Sent};

/// What a held view waits for at most, beyond one reporting interval. Envoy retries a broken
/// reporting stream after 5 s; its first report then covers up to 5 s, and for as long the demand
/// of its fleet is taken to be incomplete. A second for everything else.
const HOLD_MARGIN: Duration = Duration::from_secs(11);
/// Events that are kept for a driver that does not fetch them; the oldest go first.
const MAX_EVENTS: usize = 4096;
/// How long changes of membership are gathered.
const GATHER: Duration = Duration::from_secs(1);

/// Receivers that see the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewKey {
    /// `node.cluster`.
    pub fleet: Arc<str>,
    /// What they understand.
    pub class: Class,
    /// `node.locality`.
    pub locality: Locality,
    /// They had an assignment before this control plane started.
    pub returning: bool,
}

impl ViewKey {
    /// The key of a node.
    pub fn of(node: &NodeInfo, returning: bool) -> Self {
        Self {
            fleet: Arc::clone(&node.node.cluster),
            class: Class::of(node),
            locality: node.node.locality.clone(),
            returning,
        }
    }
}

/// Something that happened, for logs and counters.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlEvent {
    /// The planner says.
    Planner(PlannerEvent),
    /// The planner made a plan. It is not delivered while the grain warms up.
    Planned(Arc<Plan>),
    /// New settings are in force.
    ConfigApplied {
        /// Services now.
        services: usize,
    },
    /// Demand is confirmed more often than the file says.
    HeartbeatShortened {
        /// The service with the shortest staleness threshold.
        cluster: Arc<str>,
        /// That threshold.
        staleness_threshold: Duration,
        /// `demand.heartbeat`, written or by default.
        written: Duration,
        /// What it is instead.
        heartbeat: Duration,
    },
    /// A fleet looks different.
    FleetChanged {
        /// Its name.
        fleet: Arc<str>,
        /// Proxies now.
        nodes: usize,
    },
}

/// Everything the control plane knows.
#[derive(Debug)]
pub struct State {
    /// As the files say it.
    written: Arc<ControlConfig>,
    /// The same, completed by what is known of relayed clusters.
    config: Arc<ControlConfig>,
    known: Known,
    catalog: Catalog,
    fleets: Fleets,
    planner: Planner,
    plans: Plans,
    /// When the plans in force were made, with their generation.
    made: BTreeMap<Grain, (u64, Instant)>,
    fleet_plans: BTreeMap<Arc<str>, FleetPlan>,
    views: BTreeMap<ViewKey, Arc<View>>,
    /// Instead of views, behind a relay.
    overlays: BTreeMap<ViewKey, Arc<Overlay>>,
    changed_overlays: BTreeSet<ViewKey>,
    generation: u64,
    /// Unix time at the origin of instants.
    unix_origin: Duration,
    hold_until: Option<Instant>,
    /// Fleets whose plans and views are out of date.
    dirty: BTreeSet<Arc<str>>,
    /// Fleets whose membership changed, and when that is to be told. A thousand proxies that come
    /// one by one must not be a thousand updates for each of them.
    gathering: BTreeMap<Arc<str>, Instant>,
    changed_views: BTreeSet<ViewKey>,
    changed_traffic: BTreeSet<Arc<str>>,
    events: VecDeque<ControlEvent>,
}

impl State {
    /// A control plane that has seen nobody yet.
    pub fn new(config: Arc<ControlConfig>, now: Instant) -> Self {
        let hold = config.load_reporting_interval + HOLD_MARGIN;
        let mut state = Self {
            catalog: Catalog::new(&config),
            fleets: Fleets::default(),
            planner: Planner::new(config.planner.clone(), now),
            plans: Plans::new(),
            made: BTreeMap::new(),
            fleet_plans: BTreeMap::new(),
            views: BTreeMap::new(),
            overlays: BTreeMap::new(),
            changed_overlays: BTreeSet::new(),
            generation: 0,
            unix_origin: Duration::ZERO,
            hold_until: Some(now.saturating_add(hold)),
            dirty: BTreeSet::new(),
            gathering: BTreeMap::new(),
            changed_views: BTreeSet::new(),
            changed_traffic: BTreeSet::new(),
            events: VecDeque::new(),
            known: Known::default(),
            written: Arc::clone(&config),
            config,
        };
        state.set_heartbeat(now);
        state
    }

    /// Says what time it was at the origin of instants, for those who are told times.
    #[must_use]
    pub const fn with_unix_origin(mut self, since_epoch: Duration) -> Self {
        self.unix_origin = since_epoch;
        self
    }

    /// New settings; everybody hears of what they change.
    pub fn handle_config(&mut self, config: Arc<ControlConfig>, now: Instant) {
        let interval = config.load_reporting_interval;
        // Checked together with the file, by the same range.
        let set = self.planner.set_default_report_interval(interval, now);
        debug_assert!(set.is_ok(), "{set:?}");
        self.event(ControlEvent::ConfigApplied {
            services: config.services.len(),
        });
        if config.relay != self.written.relay {
            // Another world: streams begin anew.
            self.known.clear();
            self.views.clear();
            self.overlays.clear();
        }
        self.written = config;
        self.complete_config(now);
        self.after(now);
    }

    /// A cluster of another server that is to be improved was seen.
    pub fn handle_relayed(&mut self, relayed: Relayed, now: Instant) {
        if self.known.learn(relayed) {
            self.complete_config(now);
        }
        self.after(now);
    }

    /// A stream of a node opened. Returns the key of what it sees.
    pub fn handle_open(
        &mut self,
        node: &NodeInfo,
        kind: StreamKind,
        returning: bool,
        now: Instant,
    ) -> ViewKey {
        let holding = self.hold_until.is_some_and(|until| now < until)
            && !has_demand(&self.plans, &node.node.cluster);
        let key = ViewKey::of(node, returning && holding);
        let new_zone = !self.fleets.is_in(&key.fleet, &key.locality);
        if self.fleets.open(node, kind, now) {
            // A zone that is not in its fleet's assignment is not routed by zones at all.
            let wait = if new_zone { Duration::ZERO } else { GATHER };
            self.membership_changed(&key.fleet, now.saturating_add(wait));
        }
        if kind == StreamKind::Ads && !self.is_seen(&key) {
            self.dirty.insert(Arc::clone(&key.fleet));
            match self.config.relay {
                // What they see is made before anybody looks.
                Some(_) => drop(self.overlays.insert(key.clone(), Arc::default())),
                None => drop(self.views.insert(key.clone(), Arc::default())),
            }
        }
        self.after(now);
        key
    }

    /// A stream of a node closed.
    pub fn handle_close(&mut self, node: &NodeInfo, kind: StreamKind, now: Instant) {
        let (fleet, id) = (&node.node.cluster, &node.node.id);
        let last = self.fleets.close(fleet, id, kind, now);
        if last && kind == StreamKind::Lrs {
            self.planner.handle_disconnect(id, fleet, now);
        }
        self.after(now);
    }

    /// Nobody looks at a view any more.
    pub fn handle_unused(&mut self, key: &ViewKey) {
        self.views.remove(key);
        self.changed_views.remove(key);
        self.overlays.remove(key);
        self.changed_overlays.remove(key);
    }

    /// A node reported. Clusters that are not ours say nothing about demand for ours.
    pub fn handle_report(&mut self, node: &NodeInfo, stats: &[ClusterStats], now: Instant) {
        let all = self.wants_all_reports();
        for stats in stats {
            let counts = match all {
                true => has_localities(stats),
                false => self.config.services.contains_key(&stats.cluster_name),
            };
            if counts {
                self.planner.handle_load_report(&node.node, stats, now);
                self.fleets.reported(&node.node, &stats.cluster_name);
            }
        }
        self.after(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.planner.handle_timeout(now);
        for fleet in self.fleets.expire(self.config.leave_after, now) {
            self.membership_changed(&fleet, now.saturating_add(GATHER));
        }
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
            let keys = self.views.keys().chain(self.overlays.keys());
            let held = keys.filter(|key| key.returning);
            self.dirty.extend(held.map(|key| Arc::clone(&key.fleet)));
        }
        self.after(now);
    }

    /// A view that changed; the newest only.
    pub fn poll_view(&mut self) -> Option<(ViewKey, Arc<View>)> {
        self.refresh();
        let key = self.changed_views.pop_first()?;
        let view = Arc::clone(self.views.get(&key)?);
        Some((key, view))
    }

    /// The same behind a relay.
    pub fn poll_overlay(&mut self) -> Option<(ViewKey, Arc<Overlay>)> {
        self.refresh();
        let key = self.changed_overlays.pop_first()?;
        let overlay = Arc::clone(self.overlays.get(&key)?);
        Some((key, overlay))
    }

    /// A fleet whose demand by service changed, for nodes that take it with the LRS response.
    pub fn poll_traffic(&mut self) -> Option<(Arc<str>, Arc<LrsTraffic>)> {
        self.refresh();
        let fleet = self.changed_traffic.pop_first()?;
        let traffic = self.traffic(&fleet);
        Some((fleet, traffic))
    }

    /// Something that happened.
    pub fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop_front()
    }

    /// When to call [`State::handle_timeout`]; the past means now.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.planner.poll_timeout(),
            self.fleets.deadline(self.config.leave_after),
            self.hold_until,
            self.gathering.values().min().copied(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// What proxies are asked to report: all clusters where a client understands that, else the
    /// names. grpc-js skips the first name of a list; and a new service needs no new response then,
    /// which would restart the report timer of an Envoy. What Envoys add of their own (the clusters
    /// of their management servers) is left out by [`State::handle_report`].
    pub fn lrs_settings(&self) -> LrsSettings {
        LrsSettings {
            interval: self.config.load_reporting_interval,
            send_all_clusters: true,
            clusters: self.config.services.keys().cloned().collect(),
            report_endpoint_granularity: self.config.report_endpoint_granularity,
        }
    }

    /// The settings in force, with what is known of relayed clusters.
    pub const fn config(&self) -> &Arc<ControlConfig> {
        &self.config
    }

    /// The proxies seen.
    pub const fn fleets(&self) -> &Fleets {
        &self.fleets
    }

    /// Demand.
    pub const fn planner(&self) -> &Planner {
        &self.planner
    }

    /// What a fleet is told; `None` for one that nobody has seen.
    pub fn fleet_plan(&self, fleet: &str) -> Option<&FleetPlan> {
        self.fleet_plans.get(fleet)
    }

    /// Time since the demand was confirmed that a fleet is told: about one service, or about the
    /// fleet as a whole. `None` when it is told host counts.
    pub fn delivered_age(
        &self,
        fleet: &Arc<str>,
        service: Option<&Arc<str>>,
        now: Instant,
    ) -> Option<Duration> {
        let plan = self.fleet_plans.get(fleet)?;
        let own = service.map(|name| plan.services.get(name));
        let (zones, epoch) = match own {
            Some(own) => own.map(|own| (&own.zones, own.epoch))?,
            None => (&plan.zones, plan.epoch),
        };
        // A service without reports of its own has the demand of the whole fleet.
        let grains = [service, None].map(|upstream| Grain {
            fleet: Arc::clone(fleet),
            upstream_cluster: upstream.cloned(),
        });
        let mut made = grains.iter().filter_map(|grain| self.made.get(grain));
        let (_, at) = made.find(|(generation, _)| *generation == epoch)?;
        (!zones.is_empty()).then(|| now.saturating_duration_since(*at))
    }

    /// What receivers of `key` see.
    pub fn view(&self, key: &ViewKey) -> Option<&Arc<View>> {
        self.views.get(key)
    }

    /// What receivers of `key` are sent about `service`, read back.
    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
    ) -> Result<Sent, DecodeError> {
        self.catalog.sent(service, key, plan)
    }

    /// What receivers of `key` behind a relay see.
    pub fn overlay_of(&self, key: &ViewKey) -> Option<&Arc<Overlay>> {
        self.overlays.get(key)
    }

    fn membership_changed(&mut self, fleet: &Arc<str>, due: Instant) {
        let nodes = self.fleets.len_of(fleet);
        self.event(ControlEvent::FleetChanged {
            fleet: Arc::clone(fleet),
            nodes,
        });
        let waiting = self.gathering.entry(Arc::clone(fleet)).or_insert(due);
        *waiting = due.min(*waiting);
    }

    /// Takes what the planner has to say.
    fn after(&mut self, now: Instant) {
        let gathering = self.gathering.iter();
        let due: Vec<_> = gathering
            .filter(|(_, due)| **due <= now)
            .map(|(fleet, _)| Arc::clone(fleet))
            .collect();
        for fleet in due {
            self.gathering.remove(&fleet);
            let assignment = self.fleets.assignment(&fleet);
            self.planner.handle_endpoints(&assignment, now);
            self.dirty.insert(fleet);
        }
        if self.planner.poll_timeout().is_some_and(|due| due <= now) {
            self.planner.handle_timeout(now);
        }
        while let Some(plan) = self.planner.poll_update() {
            self.event(ControlEvent::Planned(Arc::clone(&plan)));
            // Demand of a part of the fleet is worse than none: what was delivered stays.
            if plan.warming_up && !self.everybody_is_heard(&plan.grain.fleet, now) {
                continue;
            }
            self.dirty.insert(Arc::clone(&plan.grain.fleet));
            self.made.insert(plan.grain.clone(), (plan.generation, now));
            self.plans.insert(plan.grain.clone(), plan);
        }
        while let Some(event) = self.planner.poll_event() {
            self.event(ControlEvent::Planner(event));
        }
    }

    /// Whether every proxy of a fleet has reported demand: then sums are complete before the first
    /// interval is over. After a restart of this control plane that is so with the first reports.
    fn everybody_is_heard(&self, fleet: &str, now: Instant) -> bool {
        let view = self.planner.fleet(fleet, now);
        let nodes = view.iter().flat_map(FleetView::nodes);
        let heard = nodes.filter(|node| node.rate_per_second > 0.0).count();
        heard > 0 && heard >= self.fleets.len_of(fleet)
    }

    /// Everybody hears of other settings, or of what is now known of clusters.
    fn complete_config(&mut self, now: Instant) {
        self.config = self.known.complete(&self.written);
        self.set_heartbeat(now);
        self.catalog = Catalog::new(&self.config);
        let keys = self.views.keys().chain(self.overlays.keys());
        self.dirty.extend(keys.map(|key| Arc::clone(&key.fleet)));
        self.dirty
            .extend(self.fleets.iter().map(|(name, _)| Arc::clone(name)));
    }

    /// Confirms demand as often as the most impatient receiver needs it, whatever was written.
    fn set_heartbeat(&mut self, now: Instant) {
        let (heartbeat, shortened) = self.config.heartbeat();
        let before = self.planner.config().heartbeat();
        // A third of the shortest staleness threshold is within the range of heartbeats.
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

    fn is_seen(&self, key: &ViewKey) -> bool {
        self.views.contains_key(key) || self.overlays.contains_key(key)
    }

    /// Whether every cluster that is reported counts: behind a relay that improves none by name.
    pub(crate) fn wants_all_reports(&self) -> bool {
        self.config.relay.is_some() && self.config.services.is_empty()
    }

    /// Brings plans and views of dirty fleets up to date.
    fn refresh(&mut self) {
        while let Some(fleet) = self.dirty.pop_first() {
            let plan = FleetPlan::new(&fleet, &self.fleets, &self.config, &self.plans);
            let holding = self.hold_until.is_some() && !has_demand(&self.plans, &fleet);
            for (key, view) in self.views.range_mut(first_key(&fleet)..) {
                if key.fleet != fleet {
                    break;
                }
                self.generation += 1;
                let held = held(key, holding);
                let next = self.catalog.view(key, &plan, held, self.generation);
                *view = Arc::new(next);
                self.changed_views.insert(key.clone());
            }
            for (key, overlay) in self.overlays.range_mut(first_key(&fleet)..) {
                if key.fleet != fleet {
                    break;
                }
                self.generation += 1;
                let held = held(key, holding);
                let next = self.catalog.overlay(key, &plan, held, self.generation);
                *overlay = Arc::new(next);
                self.changed_overlays.insert(key.clone());
            }
            self.changed_traffic.insert(Arc::clone(&fleet));
            if self.is_gone(&fleet) {
                self.plans.retain(|grain, _| grain.fleet != fleet);
                self.fleet_plans.remove(&fleet);
            } else {
                self.fleet_plans.insert(fleet, plan);
            }
        }
    }

    /// Whether nobody is left of a fleet, and nobody looks at what it is told. Names of fleets come
    /// from the network: they must not be remembered for ever.
    fn is_gone(&self, fleet: &Arc<str>) -> bool {
        let first = first_key(fleet);
        let view = self.views.range(&first..).next().map(|(key, _)| key);
        let overlay = self.overlays.range(&first..).next().map(|(key, _)| key);
        self.fleets.members(fleet).next().is_none()
            && [view, overlay]
                .into_iter()
                .flatten()
                .all(|key| key.fleet != *fleet)
    }

    /// Demand by service of a fleet, for nodes that take it with the LRS response.
    pub fn traffic(&self, fleet: &str) -> Arc<LrsTraffic> {
        let plan = self.fleet_plans.get(fleet);
        let traffic = plan.map(|plan| self.catalog.traffic(plan, self.unix_origin));
        Arc::new(traffic.unwrap_or_default())
    }

    fn event(&mut self, event: ControlEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Whether a cluster that nobody named may be one of a relayed server. Those that a proxy has for
/// its own management servers are reported with `send_all_clusters` too, and their hosts are in no
/// locality: an Envoy's `xds` always has its stream in progress there (live-envoy D).
fn has_localities(stats: &ClusterStats) -> bool {
    let localities = &stats.upstream_locality_stats;
    localities.is_empty() || localities.iter().any(|entry| !entry.locality.is_unset())
}

/// Whether demand of a fleet is known, of all of it.
fn has_demand(plans: &Plans, fleet: &Arc<str>) -> bool {
    plan(plans, fleet, None).is_some_and(|plan| plan.has_data())
}

/// What a view or overlay of `key` leaves out.
fn held(key: &ViewKey, holding: bool) -> Held {
    match key.returning && holding {
        true => Held::Demand,
        false => Held::Nothing,
    }
}

/// The first key that a fleet could have.
fn first_key(fleet: &Arc<str>) -> ViewKey {
    ViewKey {
        fleet: Arc::clone(fleet),
        class: Class::Plimsoll,
        locality: Locality::default(),
        returning: false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
