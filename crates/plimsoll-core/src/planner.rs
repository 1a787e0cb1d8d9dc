//! [`Planner`]: turns the load reports of proxy fleets into traffic fractions per zone.
//!
//! A fleet is the set of nodes with one `node.cluster`; its own endpoints are the assignment of
//! that name. A control plane calls `handle_*` when something happened, and after every call drains
//! `poll_update` (only the newest plan of a scope), `poll_event` and `poll_timeout`, in this order.
//!
//! `arrivals` counts the requests of a report that arrived, `aggregate` turns reports into rates
//! per node, `scope` sums them by zone, `smoothing` filters the sums and `fractions` divides them
//! into shares: a plan. A control plane delivers it with `ramp`, `weights` and `fleet_weights`.
//!
//! Demand is evaluated with every report, and once a second while it is converging to a value worth
//! an update. Smoothing is exact in time, so the tick only decides how soon a change is noticed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::counts::HostSetCounts;
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::load_report::{ClusterStats, Node};
use crate::model::locality::Locality;
use crate::time::Instant;
use crate::units::FieldError;

mod aggregate;
mod arrivals;
pub mod capacity;
pub mod config;
pub mod cost;
pub mod distribute;
pub mod event;
mod failing;
mod fleet;
pub mod fleet_weights;
pub mod fractions;
mod losses;
mod node_reports;
mod outcomes;
pub mod plan;
mod publication;
pub mod ramp;
mod ranks;
mod rate;
mod scope;
mod smoothing;
mod spill;
pub mod steered;
mod timers;
pub mod transport;
mod unanswered;
mod unseen;
pub mod view;
pub mod weights;
pub mod zone_loss;
pub mod zone_plan;

use aggregate::{Capped, Change};
pub use arrivals::Arrivals;
use config::PLAUSIBLE_INTERVAL;
pub use config::{PlannerConfig, PlannerConfigParts};
pub use event::{IgnoreReason, LeaveReason, PlannerEvent};
use failing::Changed;
use fleet::{Fleet, ScopeKey};
use fractions::{ZoneFraction, fractions, shared_fractions};
pub use losses::Link;
use losses::fails_only_from;
pub use plan::{Plan, PlanScope, SharedPlan, SharedZone, UpdateCause};
use scope::ScopeState;
pub use spill::{Caution, Spill};
use timers::{SteadyClock, Timers};
pub use view::{DominantNode, FleetView, Flow, FlowsBySource, NodeView, ScopeView, ZoneDemand};

/// Capacity of the event queue; the oldest events are dropped when the driver does not drain it.
const MAX_EVENTS: usize = 4096;
/// Minimum limit of the warm-up: Envoy retries a broken reporting stream after 5 s.
const MIN_WARM_UP_LIMIT: Duration = Duration::from_secs(5);

/// Control-plane state machine: load reports of fleets in, plans out.
///
/// ```
/// use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
/// use plimsoll_core::model::locality::Locality;
/// use plimsoll_core::planner::{Planner, PlannerConfig};
/// use plimsoll_core::time::Instant;
///
/// let mut planner = Planner::new(PlannerConfig::default(), Instant::ORIGIN);
/// for (id, zone, requests) in [("proxy-1", "a", 600), ("proxy-2", "b", 200)] {
///     let node = Node {
///         id: id.into(),
///         cluster: "edge".into(),
///         locality: Locality::zone_only(zone),
///     };
///     let stats = ClusterStats {
///         cluster_name: "orders".into(),
///         upstream_locality_stats: vec![UpstreamLocalityStats {
///             total_issued_requests: requests,
///             ..Default::default()
///         }],
///         total_dropped_requests: 0,
///         load_report_interval: std::time::Duration::from_secs(10),
///     };
///     planner.handle_load_report(&node, &stats, Instant::ORIGIN);
/// }
/// let plan = planner.poll_update().expect("reports make a plan");
/// let fractions: Vec<u64> = plan.zones.iter().map(|zone| zone.fraction.get()).collect();
/// assert_eq!(fractions, [7500, 2500]);
/// ```
#[derive(Debug)]
pub struct Planner {
    config: PlannerConfig,
    /// Longest time between two updates, if it is shorter than the heartbeat.
    confirmation: Option<Duration>,
    clock: SteadyClock,
    fleets: BTreeMap<Arc<str>, Fleet>,
    /// Priority-0 hosts of each fleet, used to estimate zones whose proxies have not reported yet.
    fleet_hosts: BTreeMap<Arc<str>, HostSetCounts>,
    /// Zones whose reports count; `None` counts all.
    zones: Option<BTreeSet<Locality>>,
    timers: Timers<TimerKey>,
    generation: u64,
    pending: BTreeMap<PlanScope, Arc<Plan>>,
    events: VecDeque<PlannerEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Node { fleet: Arc<str>, node: Arc<str> },
    Scope(PlanScope),
    Confirmation(PlanScope),
}

impl Planner {
    /// Creates a planner that knows no fleets (processes that send requests) and no load reports.
    pub fn new(config: PlannerConfig, now: Instant) -> Self {
        Self {
            config,
            confirmation: None,
            clock: SteadyClock::new(now),
            fleets: BTreeMap::new(),
            fleet_hosts: BTreeMap::new(),
            zones: None,
            timers: Timers::default(),
            generation: 0,
            pending: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Handles one node's report about one upstream cluster. [`Planner::handle_load_reports`] takes
    /// all clusters of an LRS message at once, which is less work.
    pub fn handle_load_report(&mut self, node: &Node, stats: &ClusterStats, now: Instant) {
        self.handle_load_reports(node, std::slice::from_ref(stats), now);
    }

    /// Handles one node's report about its upstream clusters. Drain the planner afterwards.
    pub fn handle_load_reports(&mut self, node: &Node, stats: &[ClusterStats], now: Instant) {
        let now = self.clock.advance(now);
        if let Some(zones) = &self.zones
            && !node.locality.is_unset()
            && !zones.contains(&node.locality)
        {
            return self.ignore(node, stats, IgnoreReason::UnknownZone);
        }
        let fleet = self.fleets.entry(Arc::clone(&node.cluster)).or_default();
        let (stats, refused) = fleet.admit(stats, self.config.max_upstream_clusters());
        let reported = fleet.reports.handle_report(node, &stats, &self.config, now);
        if fleet.reports.is_empty() {
            self.fleets.remove(&node.cluster);
        }
        for cluster in refused {
            self.ignore_cluster(node, cluster, IgnoreReason::TooManyClusters);
        }
        let reported = match reported {
            Ok(reported) => reported,
            Err(reason) => return self.ignore(node, &stats, reason),
        };
        for (cluster, reason) in reported.ignored {
            self.ignore_cluster(node, cluster, reason);
        }
        if reported.joined {
            self.event(PlannerEvent::NodeJoined {
                fleet: Arc::clone(&node.cluster),
                node: Arc::clone(&node.id),
                locality: node.locality.clone(),
            });
        }
        if let Some(from) = reported.moved_from {
            self.event(PlannerEvent::NodeMoved {
                fleet: Arc::clone(&node.cluster),
                node: Arc::clone(&node.id),
                from,
                to: node.locality.clone(),
            });
        }
        self.capped(&node.cluster, reported.effects.capped);
        let changes = reported.effects.changes;
        if changes.is_empty() {
            return;
        }
        self.arm_node(&node.cluster, &node.id);
        // The first report after an outage covers all of it, but the warm-up need not last as long:
        // nodes that miss `missed_intervals` reports no longer count.
        let limit = self
            .config
            .default_report_interval()
            .saturating_mul(self.config.missed_intervals())
            .max(MIN_WARM_UP_LIMIT);
        let interval = reported.interval.min(limit);
        let dirty = self.apply(&node.cluster, &changes, Some(interval), now);
        self.evaluate(dirty, now);
    }

    /// Sets the zones whose reports count; `None` counts all. A report from another zone is ignored
    /// ([`IgnoreReason::UnknownZone`]): a zone that nobody has configured would take demand away
    /// from all others. Nodes that reported from such a zone before expire.
    pub fn set_zones(&mut self, zones: Option<BTreeSet<Locality>>) {
        self.zones = zones;
    }

    /// Replaces the endpoints of a fleet, that is its proxies. Idempotent.
    pub fn handle_endpoints(&mut self, assignment: &ClusterLoadAssignment, now: Instant) {
        let counts = HostSetCounts::of_assignment(assignment, 0, None);
        let fleet = assignment.cluster_name();
        self.handle_fleet_hosts(fleet, counts, now);
    }

    /// Like [`Planner::handle_endpoints`], with the proxies of a fleet already counted by zone.
    pub fn handle_fleet_hosts(&mut self, fleet: &Arc<str>, counts: HostSetCounts, now: Instant) {
        let now = self.clock.advance(now);
        // Names of fleets come from the network: a fleet without hosts is forgotten.
        let counts = Some(counts).filter(|counts| !counts.localities.is_empty());
        if self.fleet_hosts.get(fleet) != counts.as_ref() {
            match counts {
                Some(counts) => self.fleet_hosts.insert(Arc::clone(fleet), counts),
                None => self.fleet_hosts.remove(fleet),
            };
            let scopes = self.all_scopes().filter(|scope| scope.fleet == *fleet);
            self.evaluate(scopes.collect(), now);
        }
    }

    /// Handles the end of a node's last open stream. Unless the node reports again within one of
    /// its intervals, its demand is removed from the sums; the next report restores it.
    pub fn handle_disconnect(&mut self, node_id: &str, fleet: &str, now: Instant) {
        let now = self.clock.advance(now);
        let Some(state) = self.fleets.get_mut(fleet) else {
            return;
        };
        if state.reports.handle_disconnect(node_id, now) {
            self.arm_node(&fleet.into(), &node_id.into());
        }
    }

    /// Handles a node being asked to report at another interval, which restarts its reporting
    /// timer. The node is held to the longer of the old and the new interval until its reports show
    /// which one it follows. Does nothing for a node that is unknown, disconnected, or was already
    /// asked for this interval.
    pub fn handle_report_interval(
        &mut self,
        node_id: &str,
        fleet: &str,
        interval: Duration,
        now: Instant,
    ) {
        let now = self.clock.advance(now);
        let Some(state) = self.fleets.get_mut(fleet) else {
            return;
        };
        let interval = interval.clamp(*PLAUSIBLE_INTERVAL.start(), *PLAUSIBLE_INTERVAL.end());
        if state.reports.handle_report_interval(node_id, interval, now) {
            self.arm_node(&fleet.into(), &node_id.into());
        }
    }

    /// Asks every node to report at this interval: it becomes the default for new nodes, and
    /// [`Planner::handle_report_interval`] is applied to all connected ones. Changes nothing on
    /// error.
    pub fn set_default_report_interval(
        &mut self,
        interval: Duration,
        now: Instant,
    ) -> Result<(), FieldError> {
        self.config = self.config.clone().with_default_report_interval(interval)?;
        let nodes: Vec<_> = self
            .fleets
            .iter()
            .flat_map(|(fleet, state)| {
                state
                    .reports
                    .node_ids()
                    .map(|id| (fleet.clone(), id.clone()))
            })
            .collect();
        for (fleet, node) in nodes {
            self.handle_report_interval(&node, &fleet, interval, now);
        }
        Ok(())
    }

    /// Sets the longest time between two measurements that receivers get. Scopes whose last plan is
    /// older are due at once. Changes nothing on error.
    pub fn set_heartbeat(&mut self, heartbeat: Duration, now: Instant) -> Result<(), FieldError> {
        if heartbeat == self.config.heartbeat() {
            return Ok(());
        }
        self.config = self.config.clone().with_heartbeat(heartbeat)?;
        let now = self.clock.advance(now);
        self.evaluate(self.all_scopes().collect(), now);
        Ok(())
    }

    /// Expires reports whose deadline has passed and makes the plans that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        let mut dirty = BTreeSet::new();
        let mut to_confirm = Vec::new();
        for key in self.timers.take_due(now) {
            match key {
                TimerKey::Node { fleet, node } => dirty.extend(self.expire(&fleet, &node, now)),
                TimerKey::Scope(scope) => {
                    dirty.insert(scope);
                }
                TimerKey::Confirmation(scope) => to_confirm.push(scope),
            }
        }
        self.evaluate(dirty, now);
        to_confirm.iter().for_each(|scope| self.confirm(scope, now));
    }

    /// Replaces the plan of a scope by one that another planner made from the same load reports, as
    /// if this planner had made it. Planners that start from one plan publish the next one for the
    /// same reason, and demand is smoothed from its rates on, so a set of planners stays together.
    /// Returns the plan. A scope without load reports here is not remembered.
    pub fn adopt(&mut self, shared: &SharedPlan, now: Instant) -> Arc<Plan> {
        let now = self.clock.advance(now);
        let PlanScope {
            fleet,
            upstream_cluster,
        } = &shared.scope;
        let fleet = self.fleets.get_mut(fleet);
        let state = fleet.and_then(|fleet| fleet.scope_mut(upstream_cluster));
        let observed_at = state.as_ref().map_or(now, |state| state.observed_at());
        self.generation += 1;
        let plan = Arc::new(Plan {
            scope: shared.scope.clone(),
            generation: self.generation,
            cause: shared.cause,
            warming_up: shared.warming_up,
            observed_at: self.clock.to_driver_past(observed_at),
            zones: shared_fractions(&shared.zones).unwrap_or_default(),
            failing: state
                .as_ref()
                .map(|state| state.failing().clone())
                .unwrap_or_default(),
            unseen: state
                .as_ref()
                .map(|state| state.unseen().clone())
                .unwrap_or_default(),
            tried: state
                .as_ref()
                .map(|state| state.unseen.tried().clone())
                .unwrap_or_default(),
            failed_shares: state
                .as_ref()
                .map(|state| state.failed_shares().clone())
                .unwrap_or_default(),
        });
        self.pending.remove(&shared.scope);
        if let Some(state) = state {
            state.adopt(Arc::clone(&plan), now);
            self.evaluate(BTreeSet::from([shared.scope.clone()]), now);
        }
        plan
    }

    /// Returns the newest undelivered plan. The plan of a whole fleet comes before those of its
    /// upstream clusters.
    pub fn poll_update(&mut self) -> Option<Arc<Plan>> {
        self.pending.pop_first().map(|(_, plan)| plan)
    }

    /// Returns the next event, for logs and counters.
    pub fn poll_event(&mut self) -> Option<PlannerEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`Planner::handle_timeout`]; a time in the past means now.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.timers.next()?;
        Some(self.clock.to_driver(deadline))
    }

    /// Returns the plan in force, for a receiver that has just connected. `None` if there never was
    /// one.
    pub fn plan(&self, scope: &PlanScope) -> Option<&Arc<Plan>> {
        let fleet = self.fleets.get(&scope.fleet)?;
        fleet.scope(&scope.upstream_cluster)?.plan()
    }

    /// Returns the settings in force.
    pub const fn config(&self) -> &PlannerConfig {
        &self.config
    }

    fn ignore(&mut self, node: &Node, stats: &[ClusterStats], reason: IgnoreReason) {
        for stats in stats {
            self.ignore_cluster(node, Arc::clone(&stats.cluster_name), reason);
        }
    }

    fn ignore_cluster(&mut self, node: &Node, upstream_cluster: Arc<str>, reason: IgnoreReason) {
        self.event(PlannerEvent::ReportIgnored {
            fleet: Arc::clone(&node.cluster),
            node: Arc::clone(&node.id),
            upstream_cluster,
            reason,
        });
    }

    fn capped(&mut self, fleet: &Arc<str>, capped: Vec<Capped>) {
        for node in capped {
            self.event(PlannerEvent::NodeCapped {
                fleet: Arc::clone(fleet),
                node: node.node,
                locality: node.locality,
                reported_per_second: node.reported.per_second(),
                counted_per_second: node.counted.per_second(),
            });
        }
    }

    /// Tells which upstream zones of a cluster began to fail or recovered.
    fn failures(&mut self, scope: &PlanScope, changed: Changed) {
        let Some(cluster) = &scope.upstream_cluster else {
            return;
        };
        let fleet = self.fleets.get(&scope.fleet);
        let shares = fleet.map(|fleet| fleet.failed_shares(&scope.upstream_cluster));
        let share = |zone: &Locality| shares.as_ref()?.get(zone).copied();
        let state = fleet.and_then(|fleet| fleet.scope(&scope.upstream_cluster));
        let failed = changed.failed.into_iter().map(|zone| {
            let from = state.map(|state| fails_only_from(state.failed_shares(), &zone));
            PlannerEvent::ZoneFails {
                fleet: Arc::clone(&scope.fleet),
                upstream_cluster: Arc::clone(cluster),
                failed_share: share(&zone).unwrap_or_default(),
                from: from.unwrap_or_default().into_iter().cloned().collect(),
                locality: zone,
            }
        });
        let recovered = changed
            .recovered
            .into_iter()
            .map(|zone| PlannerEvent::ZoneRecovered {
                fleet: Arc::clone(&scope.fleet),
                upstream_cluster: Arc::clone(cluster),
                locality: zone,
            });
        let events: Vec<_> = failed.chain(recovered).collect();
        events.into_iter().for_each(|event| self.event(event));
    }

    fn event(&mut self, event: PlannerEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Sets the node's timer to the earliest expiry of one of its reports.
    fn arm_node(&mut self, fleet: &Arc<str>, node: &Arc<str>) {
        let reports = self.fleets.get(fleet).map(|fleet| &fleet.reports);
        let deadline = reports.and_then(|reports| reports.deadline(node, &self.config));
        let key = TimerKey::Node {
            fleet: Arc::clone(fleet),
            node: Arc::clone(node),
        };
        self.timers.set(&key, deadline);
    }

    fn expire(&mut self, fleet: &Arc<str>, node: &Arc<str>, now: Instant) -> BTreeSet<PlanScope> {
        let Some(state) = self.fleets.get_mut(fleet) else {
            return BTreeSet::new();
        };
        let expired = state.reports.expire(node, &self.config, now);
        self.arm_node(fleet, node);
        self.capped(fleet, expired.effects.capped);
        if let Some((locality, reason)) = expired.left {
            self.event(PlannerEvent::NodeLeft {
                fleet: Arc::clone(fleet),
                node: Arc::clone(node),
                locality,
                reason,
            });
        }
        self.apply(fleet, &expired.effects.changes, None, now)
    }

    fn apply(
        &mut self,
        fleet: &Arc<str>,
        changes: &[Change],
        interval: Option<Duration>,
        now: Instant,
    ) -> BTreeSet<PlanScope> {
        let Some(state) = self.fleets.get_mut(fleet) else {
            return BTreeSet::new();
        };
        let touched = state.apply(changes, interval, self.config.tau(), now);
        let scope = |upstream_cluster| PlanScope {
            fleet: Arc::clone(fleet),
            upstream_cluster,
        };
        touched.into_iter().map(scope).collect()
    }

    fn all_scopes(&self) -> impl Iterator<Item = PlanScope> {
        self.fleets.iter().flat_map(|(fleet, state)| {
            state.scope_keys().map(|key| PlanScope {
                fleet: Arc::clone(fleet),
                upstream_cluster: key.clone(),
            })
        })
    }

    /// Decides for each scope whether to publish a plan, and when to evaluate it next.
    fn evaluate(&mut self, scopes: BTreeSet<PlanScope>, now: Instant) {
        for scope in scopes {
            let next = self.update(&scope, now);
            let Some(fleet) = self.fleets.get_mut(&scope.fleet) else {
                continue;
            };
            let key = &scope.upstream_cluster;
            let alive = fleet.scope(key).is_some_and(ScopeState::has_reporters);
            if !alive {
                fleet.remove_scope(key);
            }
            if fleet.reports.is_empty() && fleet.scope_keys().next().is_none() {
                self.fleets.remove(&scope.fleet);
            }
            self.arm_confirmation(&scope);
            self.timers
                .set(&TimerKey::Scope(scope), next.filter(|_| alive));
        }
    }

    fn scope_mut(&mut self, scope: &PlanScope) -> Option<&mut ScopeState> {
        let fleet = self.fleets.get_mut(&scope.fleet)?;
        fleet.scope_mut(&scope.upstream_cluster)
    }

    /// Fractions of a scope from demand `smoothed` at a moment, or its targets; empty without data.
    fn zones(
        &self,
        fleet: &Arc<str>,
        key: &ScopeKey,
        smoothed: Option<(Duration, Instant)>,
    ) -> Vec<ZoneFraction> {
        let counts = self.fleet_hosts.get(fleet);
        let known = self
            .fleets
            .get(fleet)
            .map(|state| state.reported_zones(key, smoothed));
        fractions(&known.unwrap_or_default(), counts).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
