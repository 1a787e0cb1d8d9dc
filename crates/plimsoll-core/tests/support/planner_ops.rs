//! Interpreter of operation sequences for the planner: maps a byte string to reports and endpoints.
//!
//! The counterpart of `ops.rs`, with the same byte decoding and the same assignments. Used by
//! `tests/suite/planner_ops.rs` and by the fuzz target `planner_ops`; uses the public API only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment};
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fleet_weights::{FleetHosts, FleetWeights, fleet_weights};
use plimsoll_core::planner::weights::{ReceiverWeights, locality_weights};
use plimsoll_core::planner::{
    Plan, PlanScope, Planner, PlannerConfig, PlannerConfigParts, PlannerEvent, UpdateCause,
};
use plimsoll_core::time::Instant;

#[path = "ops/bytes.rs"]
#[allow(dead_code, reason = "shared with ops.rs, which reads more")]
mod bytes;
#[path = "ops/inputs.rs"]
#[allow(dead_code, reason = "shared with ops.rs, which breaks inputs too")]
mod inputs;

use bytes::Bytes;

/// Names of clusters, each of which may be a fleet and an upstream cluster.
const CLUSTERS: [&str; 3] = ["orders", "users", "fleet"];
const NODES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", ""];

/// Counters of what a string exercised, so that a test can check its coverage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) plans: BTreeMap<String, u64>,
    pub(crate) events: BTreeMap<String, u64>,
    pub(crate) fleet_weights: u64,
    pub(crate) locality_weights: u64,
    pub(crate) refused: u64,
}

/// Runs the operations that `bytes` encode. Panics if the planner violates an invariant.
pub(crate) fn run(bytes: &[u8]) -> Coverage {
    let mut bytes = Bytes::new(bytes);
    let mut world = World::new(&mut bytes);
    while !bytes.is_empty() {
        world.step(&mut bytes);
    }
    world.end();
    world.coverage
}

struct World {
    planner: Planner,
    now: Instant,
    endpoints: BTreeMap<String, ClusterLoadAssignment>,
    newest: u64,
    plans: BTreeMap<PlanScope, Arc<Plan>>,
    coverage: Coverage,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let now = Instant::from_secs(u64::from(bytes.byte()) * 100);
        let seconds =
            |bytes: &mut Bytes<'_>, choices: &[u64]| bytes.maybe(choices).map(Duration::from_secs);
        let parts = PlannerConfigParts {
            tau: seconds(bytes, &[1, 20, 3600]),
            missed_intervals: bytes.maybe(&[1, 3, 1000]),
            material_change_bp: bytes.maybe(&[1, 50, 10_000]),
            heartbeat: seconds(bytes, &[1, 20, 200]),
            default_report_interval: seconds(bytes, &[1, 10, 3600]),
            ..Default::default()
        };
        let config = PlannerConfig::try_new(parts).expect("valid settings");
        Self {
            planner: Planner::new(config, now),
            now,
            endpoints: BTreeMap::new(),
            newest: 0,
            plans: BTreeMap::new(),
            coverage: Coverage::default(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(18) {
            0..=6 => self.report(bytes),
            7..=9 => self.endpoints(bytes),
            10 => {
                let (node, fleet) = (bytes.one_of(&NODES), bytes.one_of(&CLUSTERS));
                self.planner.handle_disconnect(node, fleet, self.now);
            }
            11 => {
                let next = self.planner.poll_timeout().unwrap_or(self.now);
                self.now = next.max(self.now);
                self.timeout();
            }
            12 | 13 => {
                let steps = [
                    0,
                    1,
                    1_000_000,
                    1_000_000_000,
                    10_000_000_000,
                    61_000_000_000,
                ];
                let step = Duration::from_nanos(bytes.one_of(&steps));
                self.now = self.now.saturating_add(step);
                self.timeout();
            }
            14 => {
                let back = bytes.one_of(&[1, 1_000_000_000, 3_600_000_000_000]);
                self.now = Instant::from_nanos(self.now.as_nanos().saturating_sub(back));
            }
            15 => {
                let interval = Duration::from_secs(bytes.one_of(&[1, 10, 60, 3600]));
                let (node, fleet) = (bytes.one_of(&NODES), bytes.one_of(&CLUSTERS));
                self.planner
                    .handle_report_interval(node, fleet, interval, self.now);
            }
            16 => self.change_interval(bytes),
            _ => self.refuse(bytes),
        }
        self.drain();
        self.check_views();
    }

    /// Changes the default interval; an implausible one changes nothing.
    fn change_interval(&mut self, bytes: &mut Bytes<'_>) {
        let interval = Duration::from_secs(bytes.one_of(&[1, 10, 60, 3600, 0, u64::MAX]));
        let before = self.planner.config().clone();
        let asked = self.planner.set_default_report_interval(interval, self.now);
        let after = self.planner.config();
        match asked {
            Ok(()) => assert_eq!(after.default_report_interval(), interval),
            Err(error) => {
                assert_eq!(error.path(), "default_report_interval");
                assert_eq!(after, &before);
            }
        }
    }

    /// Checks that the administrator's views are consistent.
    fn check_views(&self) {
        for fleet in self.planner.fleets(self.now) {
            let nodes: Vec<_> = fleet.nodes().collect();
            let reported: f64 = nodes.iter().map(|node| node.rate_per_second).sum();
            for scope in fleet.scopes() {
                let demand: Vec<_> = scope.demand().collect();
                let reporters: u64 = demand.iter().map(|zone| zone.reporters).sum();
                assert_eq!(reporters, nodes.len() as u64, "every node counts once");
                let raw: f64 = demand.iter().map(|zone| zone.raw_per_second).sum();
                assert!(raw <= reported * (1.0 + 1e-9), "{raw} of {reported}");
                assert!(demand.iter().all(|zone| zone.smoothed_per_second >= 0.0));
                assert_eq!(scope.plan().is_some(), scope.plan_age().is_some());
            }
        }
    }

    fn report(&mut self, bytes: &mut Bytes<'_>) {
        let node = Node {
            id: bytes.one_of(&NODES).into(),
            cluster: bytes.one_of(&CLUSTERS).into(),
            locality: inputs::locality(bytes),
        };
        let requests = [0, 1, 100, 5000, 1_000_000, u64::MAX];
        let entry = |bytes: &mut Bytes<'_>| UpstreamLocalityStats {
            locality: inputs::locality(bytes),
            total_issued_requests: bytes.one_of(&requests),
            ..Default::default()
        };
        let entries = bytes.below(3);
        let stats = ClusterStats {
            cluster_name: bytes.one_of(&CLUSTERS).into(),
            upstream_locality_stats: (0..entries).map(|_| entry(bytes)).collect(),
            total_dropped_requests: bytes.one_of(&requests),
            load_report_interval: Duration::from_millis(bytes.one_of(&[
                10_000,
                1000,
                0,
                1,
                60_000,
                10_000_000,
                u64::MAX,
            ])),
        };
        self.planner.handle_load_report(&node, &stats, self.now);
    }

    fn endpoints(&mut self, bytes: &mut Bytes<'_>) {
        let name = bytes.one_of(&CLUSTERS).to_owned();
        let parts = AssignmentParts {
            cluster_name: name.clone(),
            ..inputs::assignment(bytes)
        };
        let assignment = ClusterLoadAssignment::try_new(parts).expect("a valid assignment");
        self.planner.handle_endpoints(&assignment, self.now);
        self.endpoints.insert(name, assignment.clone());
        self.drain();
        // Repeating the same endpoints is a no-op.
        self.planner.handle_endpoints(&assignment, self.now);
        assert!(self.planner.poll_update().is_none(), "nothing changed");
    }

    /// Fires the timer; afterwards nothing is due at that very time.
    fn timeout(&mut self) {
        self.planner.handle_timeout(self.now);
        let next = self.planner.poll_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "{next:?} at {:?}",
            self.now
        );
    }

    /// Checks that settings out of range name their field.
    fn refuse(&mut self, bytes: &mut Bytes<'_>) {
        let zero = Some(Duration::ZERO);
        let mut parts = PlannerConfigParts::default();
        let field = match bytes.below(5) {
            0 => {
                parts.tau = bytes.one_of(&[zero, Some(Duration::MAX)]);
                "tau"
            }
            1 => {
                parts.missed_intervals = bytes.one_of(&[Some(0), Some(u32::MAX)]);
                "missed_intervals"
            }
            2 => {
                parts.material_change_bp = bytes.one_of(&[Some(0), Some(10_001)]);
                "material_change_bp"
            }
            3 => {
                parts.heartbeat = bytes.one_of(&[zero, Some(Duration::MAX)]);
                "heartbeat"
            }
            _ => {
                parts.default_report_interval = bytes.one_of(&[zero, Some(Duration::MAX)]);
                "default_report_interval"
            }
        };
        let error = PlannerConfig::try_new(parts).expect_err("out of range");
        assert_eq!(error.path(), field);
        self.coverage.refused += 1;
    }

    fn drain(&mut self) {
        while let Some(plan) = self.planner.poll_update() {
            assert!(plan.generation > self.newest, "generations grow");
            self.newest = plan.generation;
            self.check(&plan);
            *self
                .coverage
                .plans
                .entry(format!("{:?}", plan.cause))
                .or_default() += 1;
            self.plans.insert(plan.scope.clone(), plan);
        }
        while let Some(event) = self.planner.poll_event() {
            let name = match event {
                PlannerEvent::NodeJoined { .. } => "joined",
                PlannerEvent::NodeLeft { .. } => "left",
                PlannerEvent::NodeMoved { .. } => "moved",
                PlannerEvent::NodeCapped { .. } => "capped",
                PlannerEvent::ZoneFails { .. } => "fails",
                PlannerEvent::ZoneRecovered { .. } => "recovered",
                PlannerEvent::ReportIgnored { .. } => "ignored",
            };
            *self.coverage.events.entry(name.to_owned()).or_default() += 1;
        }
        for (scope, plan) in &self.plans {
            let kept = self.planner.plan(scope);
            assert!(
                kept.is_none_or(|kept| Arc::ptr_eq(kept, plan)),
                "the plan in force"
            );
        }
    }

    /// Disconnects all nodes: everything is withdrawn, and no timer is left.
    fn end(&mut self) {
        for fleet in CLUSTERS {
            for node in NODES {
                self.planner.handle_disconnect(node, fleet, self.now);
            }
        }
        // One interval is enough; the longest that is accepted is an hour.
        self.now = self.now.saturating_add(Duration::from_secs(2 * 3600));
        self.timeout();
        self.drain();
        assert_eq!(self.planner.poll_timeout(), None, "no timer is left");
        for (scope, plan) in &self.plans {
            assert!(!plan.has_data(), "{scope:?} still has data");
            assert!(self.planner.plan(scope).is_none(), "{scope:?} is removed");
        }
    }

    fn check(&mut self, plan: &Plan) {
        let zones = &plan.zones;
        assert!(
            zones.is_sorted_by(|one, other| one.locality < other.locality),
            "{zones:?}"
        );
        let sum: u64 = zones.iter().map(|zone| zone.fraction.get()).sum();
        assert_eq!(sum, if plan.has_data() { 10_000 } else { 0 }, "{zones:?}");
        for zone in zones {
            assert!(
                zone.rate_per_second.is_finite() && zone.rate_per_second >= 0.0,
                "{zone:?}"
            );
            assert!(
                !zone.locality.is_unset() || zone.estimated,
                "no reporter is without locality"
            );
            assert!(!zone.estimated || zone.reporters == 0, "{zone:?}");
        }
        assert_eq!(plan.fractions().len(), zones.len());
        assert!(plan.cause != UpdateCause::NoData || !plan.has_data());
        let fleet = self.endpoints.get(&*plan.scope.fleet);
        if let Some(fleet) = fleet.filter(|_| plan.has_data()) {
            self.coverage.fleet_weights += 1;
            let hosts = FleetHosts::of_assignment(fleet);
            check_fleet_weights(&fleet_weights(&plan.zones, &hosts), plan);
        }
        let upstream = plan.scope.upstream_cluster.as_deref();
        if let Some(upstream) = upstream.and_then(|name| self.endpoints.get(name)) {
            let counts = |assignment| HostSetCounts::of_assignment(assignment, 0, None);
            let (upstream, fleet) = (counts(upstream), fleet.map(counts));
            let rules = ZoneAware::default()
                .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
                .without_dead_band();
            for receiver in locality_weights(&rules, &upstream, fleet.as_ref(), &plan.zones) {
                self.coverage.locality_weights += 1;
                Self::check_locality_weights(&receiver, &upstream, plan);
            }
        }
    }

    /// Checks that locality weights sum to 10000, unless no host is healthy.
    fn check_locality_weights(receiver: &ReceiverWeights, counts: &HostSetCounts, plan: &Plan) {
        let slots = counts.localities.iter().map(|slot| &slot.locality);
        assert!(
            slots.eq(receiver.weights.iter().map(|(locality, _)| locality)),
            "{receiver:?}"
        );
        let weights = || receiver.weights.iter().filter_map(|&(_, weight)| weight);
        assert!(weights().all(|weight| weight > 0), "{receiver:?}");
        let sum: u32 = weights().sum();
        assert!(sum == 10_000 || counts.flat.healthy == 0, "{receiver:?}");
        // Without data the rules of host counts apply, which may choose an empty locality as a last
        // resort.
        if plan.has_data() {
            let mut slots = counts.localities.iter().zip(&receiver.weights);
            let empty = slots.find(|(slot, (_, weight))| slot.healthy == 0 && weight.is_some());
            assert!(
                empty.is_none(),
                "traffic to an empty locality: {receiver:?}"
            );
        }
    }
}

/// Checks that a stock Envoy reads the plan from the weights, exact to the basis point, or one less
/// where zones without demand have hosts.
fn check_fleet_weights(weights: &FleetWeights, plan: &Plan) {
    let mut sums: BTreeMap<&Locality, u64> = BTreeMap::new();
    let endpoints = weights
        .endpoints
        .iter()
        .map(|endpoint| (&endpoint.locality, endpoint.weight));
    let phantoms = weights
        .phantom
        .iter()
        .map(|phantom| (&phantom.locality, phantom.weight));
    for (locality, weight) in endpoints.chain(phantoms) {
        assert!(weight >= 1, "Envoy rejects weight 0");
        *sums.entry(locality).or_default() += u64::from(weight);
    }
    let total: u64 = sums.values().sum();
    assert!(
        sums.values().all(|&sum| sum <= u64::from(u32::MAX)),
        "{sums:?}"
    );
    for zone in &plan.zones {
        let read = 10_000 * sums.get(&zone.locality).copied().unwrap_or(0) / total;
        let expected = zone.fraction.get();
        assert!(
            read == expected || read + 1 == expected,
            "read {read}, expected {expected}: {weights:?}"
        );
    }
    let phantom = |locality: &Locality| plan.zones.iter().any(|zone| zone.locality == *locality);
    assert!(
        weights.phantom.iter().all(|p| phantom(&p.locality)),
        "{weights:?}"
    );
}
