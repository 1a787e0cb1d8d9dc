//! [`Planner`]: the control-plane side. Load reports of fleets in, fractions and weights out.
//!
//! A fleet is the set of nodes with one `node.cluster`; its own endpoints are the assignment of
//! that name. The planner holds no clock and does no IO. A control plane calls `handle_*` when
//! something happened, and after every call drains `poll_update`, `poll_event` and `poll_timeout`,
//! in this order. Nothing is published twice for one truth: `poll_update` yields the newest plan of
//! a grain.
//!
//! Reports become rates per node in `aggregate`, sums per zone in `grain`, followed in `smoothing`,
//! shares in `fractions`, and weights in `weights` and `fleet_weights`. Encoding and delivering
//! plans (decisions D9) does not live here, nor does remembering which stream belongs to which
//! node.
//!
//! Demand is looked at with every report, and once a second while it is on its way to a value worth
//! an update. Smoothing is exact in time, so ticks decide only how soon a change is noticed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::counts::HostSetCounts;
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::load_report::{ClusterStats, Node};
use crate::time::Instant;
use crate::units::FieldError;

mod aggregate;
pub mod config;
pub mod event;
mod fleet;
pub mod fleet_weights;
pub mod fractions;
mod grain;
pub mod plan;
pub mod ramp;
mod smoothing;
mod timers;
pub mod view;
pub mod weights;

use aggregate::Change;
use config::PLAUSIBLE_INTERVAL;
pub use config::{PlannerConfig, PlannerConfigParts};
pub use event::{IgnoreReason, LeaveReason, PlannerEvent};
use fleet::{Fleet, GrainKey};
use fleet_weights::{FleetHosts, FleetWeights, fleet_weights};
use fractions::{ZoneFraction, fractions};
use grain::GrainState;
pub use plan::{Grain, Plan, UpdateCause};
use timers::{SteadyClock, Timers};
pub use view::{FleetView, Flow, GrainView, NodeView, ZoneDemand};
use weights::{ReceiverWeights, locality_weights};

/// Events that are kept for a driver that does not fetch them; the oldest go first.
const MAX_EVENTS: usize = 4096;
/// How long the first reports of others are waited for, if reports come more often than that: Envoy
/// retries a broken reporting stream after 5 s.
const LONGEST_FIRST: Duration = Duration::from_secs(5);

/// Load reports of fleets in, plans out.
#[derive(Debug)]
pub struct Planner {
    config: PlannerConfig,
    clock: SteadyClock,
    fleets: BTreeMap<Arc<str>, Fleet>,
    endpoints: BTreeMap<Arc<str>, Endpoints>,
    timers: Timers<TimerKey>,
    generation: u64,
    pending: BTreeMap<Grain, Arc<Plan>>,
    events: VecDeque<PlannerEvent>,
}

/// What matters of a cluster's assignment: its hosts at priority 0. Every cluster may be the
/// upstream of one fleet and a fleet itself.
#[derive(Debug, PartialEq, Eq)]
struct Endpoints {
    counts: HostSetCounts,
    hosts: FleetHosts,
}

/// Who wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    /// A node, because something of it is about to leave.
    Node { fleet: Arc<str>, node: Arc<str> },
    /// A grain, because it wants a look.
    Grain(Grain),
}

impl Planner {
    /// A planner that knows nothing yet.
    pub fn new(config: PlannerConfig, now: Instant) -> Self {
        Self {
            config,
            clock: SteadyClock::new(now),
            fleets: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            timers: Timers::default(),
            generation: 0,
            pending: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// One node's report about one upstream cluster. A message with several is several calls; drain
    /// the planner after the last.
    pub fn handle_load_report(&mut self, node: &Node, stats: &ClusterStats, now: Instant) {
        let now = self.clock.advance(now);
        let fleet = self.fleets.entry(Arc::clone(&node.cluster)).or_default();
        let reported = match fleet.reports.handle_report(node, stats, &self.config, now) {
            Ok(reported) => reported,
            Err(reason) => {
                if fleet.reports.is_empty() {
                    self.fleets.remove(&node.cluster);
                }
                return self.event(PlannerEvent::ReportIgnored {
                    fleet: Arc::clone(&node.cluster),
                    node: Arc::clone(&node.id),
                    upstream_cluster: Arc::clone(&stats.cluster_name),
                    reason,
                });
            }
        };
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
        self.arm_node(&node.cluster, &node.id);
        // A first report after an outage covers all of it. Others need not be waited for as long:
        // who misses so many intervals does not count.
        let patience = self.config.default_report_interval();
        let patience = patience.saturating_mul(self.config.missed_intervals());
        let interval = reported.interval.min(patience.max(LONGEST_FIRST));
        let dirty = self.apply(&node.cluster, &reported.changes, Some(interval), now);
        self.look_at(dirty, false, now);
    }

    /// The endpoints of an upstream cluster or of a fleet. What is already known does nothing.
    pub fn handle_endpoints(&mut self, assignment: &ClusterLoadAssignment, now: Instant) {
        let now = self.clock.advance(now);
        let endpoints = Endpoints {
            counts: HostSetCounts::of_assignment(assignment, 0, None),
            hosts: FleetHosts::of_assignment(assignment),
        };
        let name = assignment.cluster_name();
        if self.endpoints.get(name) != Some(&endpoints) {
            self.endpoints.insert(Arc::clone(name), endpoints);
            self.look_at(self.grains_of(name), true, now);
        }
    }

    /// A cluster is gone; its endpoints are not known any more. Its demand leaves as it expires.
    pub fn handle_endpoints_removed(&mut self, cluster_name: &str, now: Instant) {
        let now = self.clock.advance(now);
        if self.endpoints.remove(cluster_name).is_some() {
            self.look_at(self.grains_of(cluster_name), true, now);
        }
    }

    /// The last open stream of a node closed. Unless it reports again within one of its intervals,
    /// its demand leaves the sums; the next report undoes this.
    pub fn handle_disconnect(&mut self, node_id: &str, fleet: &str, now: Instant) {
        let now = self.clock.advance(now);
        let Some(state) = self.fleets.get_mut(fleet) else {
            return;
        };
        if state.reports.handle_disconnect(node_id, now) {
            self.arm_node(&fleet.into(), &node_id.into());
        }
    }

    /// A node was asked for reports at another interval, which starts its timer anew. It is held to
    /// the longer of the old and the new one until its reports show which it follows. Does nothing
    /// for a node that is unknown, disconnected, or was asked for the same before.
    pub fn handle_interval(
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
        if state.reports.handle_interval(node_id, interval, now) {
            self.arm_node(&fleet.into(), &node_id.into());
        }
    }

    /// From now on every node is asked for reports at this interval: the new default for those to
    /// come, and [`Planner::handle_interval`] for all that are connected. On error nothing has
    /// happened.
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
            self.handle_interval(&node, &fleet, interval, now);
        }
        Ok(())
    }

    /// From now on silence between two updates is at most this long. Plans whose last one is older
    /// are due at once. On error nothing has happened.
    pub fn set_heartbeat(&mut self, heartbeat: Duration, now: Instant) -> Result<(), FieldError> {
        if heartbeat == self.config.heartbeat() {
            return Ok(());
        }
        self.config = self.config.clone().with_heartbeat(heartbeat)?;
        let now = self.clock.advance(now);
        self.look_at(self.all_grains().collect(), false, now);
        Ok(())
    }

    /// Time has passed: what is due leaves, and plans that are due are made.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.clock.advance(now);
        let mut dirty = BTreeSet::new();
        for key in self.timers.take_due(now) {
            match key {
                TimerKey::Node { fleet, node } => dirty.extend(self.expire(&fleet, &node, now)),
                TimerKey::Grain(grain) => {
                    dirty.insert(grain);
                }
            }
        }
        self.look_at(dirty, false, now);
    }

    /// The newest plan of a grain whose last one is out of date; the fleet as a whole comes before
    /// its upstream clusters.
    pub fn poll_update(&mut self) -> Option<Arc<Plan>> {
        self.pending.pop_first().map(|(_, plan)| plan)
    }

    /// Something that happened.
    pub fn poll_event(&mut self) -> Option<PlannerEvent> {
        self.events.pop_front()
    }

    /// When to call [`Planner::handle_timeout`]; the past means now.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.timers.next()?;
        Some(self.clock.to_driver(deadline))
    }

    /// The plan in force, for a receiver that has just arrived. `None` while there never was one.
    pub fn plan(&self, grain: &Grain) -> Option<&Arc<Plan>> {
        let fleet = self.fleets.get(&grain.fleet)?;
        fleet.grain(&grain.upstream_cluster)?.plan()
    }

    /// The settings.
    pub const fn config(&self) -> &PlannerConfig {
        &self.config
    }

    fn event(&mut self, event: PlannerEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Sets the deadline of a node to the next thing of it that would leave.
    fn arm_node(&mut self, fleet: &Arc<str>, node: &Arc<str>) {
        let reports = self.fleets.get(fleet).map(|fleet| &fleet.reports);
        let missed = self.config.missed_intervals();
        let deadline = reports.and_then(|reports| reports.deadline(node, missed));
        let key = TimerKey::Node {
            fleet: Arc::clone(fleet),
            node: Arc::clone(node),
        };
        self.timers.set(&key, deadline);
    }

    /// Takes out what is due of a node; returns the grains to look at.
    fn expire(&mut self, fleet: &Arc<str>, node: &Arc<str>, now: Instant) -> BTreeSet<Grain> {
        let Some(state) = self.fleets.get_mut(fleet) else {
            return BTreeSet::new();
        };
        let expired = state
            .reports
            .expire(node, self.config.missed_intervals(), now);
        self.arm_node(fleet, node);
        if let Some((locality, reason)) = expired.left {
            self.event(PlannerEvent::NodeLeft {
                fleet: Arc::clone(fleet),
                node: Arc::clone(node),
                locality,
                reason,
            });
        }
        self.apply(fleet, &expired.changes, None, now)
    }

    fn apply(
        &mut self,
        fleet: &Arc<str>,
        changes: &[Change],
        interval: Option<Duration>,
        now: Instant,
    ) -> BTreeSet<Grain> {
        let Some(state) = self.fleets.get_mut(fleet) else {
            return BTreeSet::new();
        };
        let touched = state.apply(changes, interval, self.config.tau(), now);
        let grain = |upstream_cluster| Grain {
            fleet: Arc::clone(fleet),
            upstream_cluster,
        };
        touched.into_iter().map(grain).collect()
    }

    /// The grains that the endpoints of a cluster have a part in.
    fn grains_of(&self, cluster_name: &str) -> BTreeSet<Grain> {
        let concerned = |grain: &Grain| {
            &*grain.fleet == cluster_name || grain.upstream_cluster.as_deref() == Some(cluster_name)
        };
        self.all_grains().filter(concerned).collect()
    }

    fn all_grains(&self) -> impl Iterator<Item = Grain> {
        self.fleets.iter().flat_map(|(fleet, state)| {
            state.grain_keys().map(|key| Grain {
                fleet: Arc::clone(fleet),
                upstream_cluster: key.clone(),
            })
        })
    }

    /// Decides for each grain whether a plan goes out, and when to look again.
    fn look_at(&mut self, grains: BTreeSet<Grain>, endpoints_changed: bool, now: Instant) {
        for grain in grains {
            let next = self.update(&grain, endpoints_changed, now);
            let Some(fleet) = self.fleets.get_mut(&grain.fleet) else {
                continue;
            };
            let key = &grain.upstream_cluster;
            let alive = fleet.grain(key).is_some_and(GrainState::has_reporters);
            if !alive {
                fleet.remove_grain(key);
            }
            if fleet.reports.is_empty() && fleet.grain_keys().next().is_none() {
                self.fleets.remove(&grain.fleet);
            }
            self.timers
                .set(&TimerKey::Grain(grain), next.filter(|_| alive));
        }
    }

    /// Makes a plan if receivers must hear of it; returns when to look again.
    fn update(&mut self, grain: &Grain, endpoints_changed: bool, now: Instant) -> Option<Instant> {
        let key = &grain.upstream_cluster;
        let zones = self.zones(&grain.fleet, key, Some((self.config.tau(), now)));
        let targets = self.zones(&grain.fleet, key, None);
        let state = self.fleets.get(&grain.fleet)?.grain(key)?;
        let mut cause = state.cause(&zones, &self.config, now);
        if endpoints_changed && matches!(cause, None | Some(UpdateCause::Heartbeat)) {
            let weights = self.weights(grain, &zones);
            let changed = |plan: &Arc<Plan>| {
                (&plan.fleet_weights, &plan.locality_weights) != (&weights.0, &weights.1)
            };
            if state.plan().is_some_and(changed) {
                cause = Some(UpdateCause::EndpointsChanged);
            }
        }
        if let Some(cause) = cause {
            let warming_up = state.is_warming_up(now);
            let observed_at = self.clock.to_driver_past(state.observed_at());
            let (fleet_weights, locality_weights) = self.weights(grain, &zones);
            let plan = Plan {
                grain: grain.clone(),
                generation: self.generation + 1,
                cause,
                warming_up,
                observed_at,
                zones,
                fleet_weights,
                locality_weights,
            };
            self.publish(plan, now);
        }
        let state = self.fleets.get(&grain.fleet)?.grain(key)?;
        state.next_look(&targets, &self.config, now)
    }

    fn publish(&mut self, mut plan: Plan, now: Instant) {
        self.generation = plan.generation;
        // A heartbeat must not hide a change that nobody has fetched yet.
        if let Some(waiting) = self.pending.get(&plan.grain)
            && plan.heartbeat()
        {
            plan.cause = waiting.cause;
        }
        let grain = plan.grain.clone();
        let plan = Arc::new(plan);
        let fleet = self.fleets.get_mut(&grain.fleet);
        if let Some(state) = fleet.and_then(|fleet| fleet.grain_mut(&grain.upstream_cluster)) {
            state.publish(Arc::clone(&plan), now);
        }
        self.pending.insert(grain, plan);
    }

    /// The fractions of a grain, smoothed at a moment or as they will end; empty without data.
    fn zones(
        &self,
        fleet: &Arc<str>,
        key: &GrainKey,
        smoothed: Option<(Duration, Instant)>,
    ) -> Vec<ZoneFraction> {
        let counts = self.endpoints.get(fleet).map(|endpoints| &endpoints.counts);
        let known = self
            .fleets
            .get(fleet)
            .map(|state| state.known(key, smoothed));
        fractions(&known.unwrap_or_default(), counts).unwrap_or_default()
    }

    fn weights(
        &self,
        grain: &Grain,
        zones: &[ZoneFraction],
    ) -> (Option<FleetWeights>, Vec<ReceiverWeights>) {
        let fleet = self.endpoints.get(&grain.fleet);
        match &grain.upstream_cluster {
            None => {
                let hosts = fleet.filter(|_| !zones.is_empty());
                let weights = hosts.map(|endpoints| fleet_weights(zones, &endpoints.hosts));
                (weights, Vec::new())
            }
            Some(upstream) => {
                let counts = fleet.map(|endpoints| &endpoints.counts);
                let upstream = self.endpoints.get(upstream);
                let weights = upstream.map(|upstream| {
                    locality_weights(self.config.zone_aware(), &upstream.counts, counts, zones)
                });
                (None, weights.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests;
