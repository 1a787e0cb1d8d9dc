//! Tests of the planner through its public interface: reports and time in, plans and deadlines out.
//!
//! This file holds the test harness. The tests are in `reports` (which demand counts, where, how
//! long), `intervals` (changes of the reporting interval), `failing` and `long_requests` (which
//! zones fail, and which do not), `updates` (when plans are made), `adopted` (plans of other
//! planners), `closed_loop` (the effect of plans on routing), `views` (administrators' views) and
//! `sequences` (random inputs).

use super::*;
use crate::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use crate::model::load_report::UpstreamLocalityStats;
use crate::model::locality::Locality;
use std::net::SocketAddr;

mod adopted;
mod closed_loop;
mod failing;
mod intervals;
mod long_requests;
mod reports;
mod sequences;
mod updates;
mod views;

const FLEET: &str = "edge";
/// Upstream cluster of most tests.
const ORDERS: &str = "orders";
const INTERVAL: Duration = Duration::from_secs(10);
/// Two equal zones: nodes, zones and rates for [`Harness::steady`].
const LEVEL: [(&str, &str, u64); 2] = [("a1", "a", 100), ("b1", "b", 100)];

const fn at(secs: u64) -> Instant {
    Instant::from_secs(secs)
}

fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

fn node(id: &str, zone_name: &str) -> Node {
    Node {
        id: id.into(),
        cluster: FLEET.into(),
        locality: zone(zone_name),
    }
}

/// Returns a report of `requests` over `interval`, all of them sent to zone `to`.
fn stats(cluster: &str, requests: u64, interval: Duration, to: &str) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: zone(to),
            total_issued_requests: requests,
            total_successful_requests: requests,
            ..Default::default()
        }],
        total_dropped_requests: 0,
        load_report_interval: interval,
    }
}

fn assignment(name: &str, zones: &[(&str, u8)]) -> ClusterLoadAssignment {
    let entry = |(index, &(zone_name, hosts)): (usize, &(&str, u8))| {
        let third = u8::try_from(index).unwrap();
        let endpoint = |host| LbEndpoint::new(SocketAddr::from(([10, 0, third, host], 80)));
        LocalityParts {
            locality: zone(zone_name),
            lb_endpoints: (0..hosts).map(endpoint).collect(),
            ..Default::default()
        }
    };
    let parts = AssignmentParts {
        cluster_name: name.into(),
        endpoints: zones.iter().enumerate().map(entry).collect(),
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).unwrap()
}

/// A planner, and everything it has put out.
struct Harness {
    planner: Planner,
    /// Every plan about [`ORDERS`], with the time it was published.
    updates: Vec<(Instant, Arc<Plan>)>,
    events: Vec<PlannerEvent>,
}

impl Harness {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut PlannerConfigParts)) -> Self {
        let mut parts = PlannerConfigParts::default();
        change(&mut parts);
        Self {
            planner: Planner::new(PlannerConfig::try_new(parts).unwrap(), at(0)),
            updates: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Reports `per_second` requests of a node to [`ORDERS`], over 10 s.
    fn report(&mut self, id: &str, zone_name: &str, per_second: u64, now: u64) {
        let stats = stats(ORDERS, per_second * 10, INTERVAL, "anywhere");
        self.report_stats(&node(id, zone_name), &stats, at(now));
    }

    fn report_stats(&mut self, node: &Node, stats: &ClusterStats, now: Instant) {
        self.planner.handle_load_report(node, stats, now);
        self.drain(now);
    }

    fn endpoints(&mut self, name: &str, zones: &[(&str, u8)], now: u64) {
        self.planner
            .handle_endpoints(&assignment(name, zones), at(now));
        self.drain(at(now));
    }

    fn disconnect(&mut self, id: &str, now: u64) {
        self.planner.handle_disconnect(id, FLEET, at(now));
        self.drain(at(now));
    }

    /// Fires the planner's timers up to and including `until`.
    fn run(&mut self, until: u64) {
        while let Some(deadline) = self.planner.poll_timeout()
            && deadline <= at(until)
        {
            self.planner.handle_timeout(deadline);
            self.drain(deadline);
            let next = self.planner.poll_timeout();
            assert!(
                next.is_none_or(|next| next > deadline),
                "no progress at {deadline:?}"
            );
        }
    }

    /// Repeats the same nodes, zones and rates every 10 s, each node at its own phase.
    fn steady(&mut self, nodes: &[(&str, &str, u64)], from: u64, until: u64) {
        for round in (from..until).step_by(10) {
            for (phase, &(id, zone_name, per_second)) in (0..10).cycle().zip(nodes) {
                self.run(round + phase);
                self.report(id, zone_name, per_second, round + phase);
            }
        }
        self.run(until);
    }

    fn drain(&mut self, now: Instant) {
        while let Some(plan) = self.planner.poll_update() {
            check(&plan);
            if plan.scope.upstream_cluster.as_deref() == Some(ORDERS) {
                self.updates.push((now, plan));
            }
        }
        while let Some(event) = self.planner.poll_event() {
            self.events.push(event);
        }
    }

    fn plan(&self, upstream: Option<&str>) -> Option<&Arc<Plan>> {
        self.planner.plan(&PlanScope {
            fleet: FLEET.into(),
            upstream_cluster: upstream.map(Into::into),
        })
    }

    /// Returns zone and fraction of every zone of the plan in force.
    fn fractions(&self, upstream: Option<&str>) -> Vec<(String, u64)> {
        let zones = self.plan(upstream).map_or(&[][..], |plan| &plan.zones);
        let row = |zone: &ZoneFraction| (zone.locality.to_string(), zone.fraction.get());
        zones.iter().map(row).collect()
    }

    /// Returns the demand of one zone in the plan in force.
    fn rate(&self, zone_name: &str) -> Option<f64> {
        let zones = &self.plan(Some(ORDERS))?.zones;
        let here = zones.iter().find(|z| z.locality == zone(zone_name));
        here.map(|zone| zone.rate_per_second)
    }

    /// Returns and clears the causes of the updates so far.
    fn causes(&mut self) -> Vec<UpdateCause> {
        let updates = std::mem::take(&mut self.updates);
        updates.iter().map(|(_, plan)| plan.cause).collect()
    }
}

/// Returns two equal zones after warm-up, with the first updates cleared, at 40 s.
fn level() -> Harness {
    let mut harness = Harness::new();
    harness.steady(&LEVEL, 0, 40);
    harness.causes();
    harness
}

/// Checks the invariants of every plan.
fn check(plan: &Plan) {
    let sum: u64 = plan.zones.iter().map(|zone| zone.fraction.get()).sum();
    assert_eq!(sum, if plan.has_data() { 10_000 } else { 0 }, "{plan:?}");
    assert!(
        plan.zones
            .is_sorted_by(|one, other| one.locality < other.locality)
    );
    assert_eq!(plan.fractions().len(), plan.zones.len());
}

fn rows(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter()
        .map(|&(zone, bp)| (zone.to_string(), bp))
        .collect()
}
