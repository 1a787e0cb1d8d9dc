//! [`ControlPlane`]: the production planner, with simulated load reports as input.
//!
//! Keyed by the reporter it works like the real control plane. Keyed by the destination it shows a
//! flawed design: each report is split and given to the same planner as if it came from the zones
//! that the requests went to, as in the sketch of seed `000…` (decision 0022 explains why that is
//! wrong). `world` models delays and outages.

use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::planner::{Plan, Planner, PlannerConfig, PlannerConfigParts};
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;

use crate::num;
use crate::policy::{CLUSTER, DemandKey};
use crate::scenario::{NEVER, Scenario};
use crate::topology::FLEET;

#[derive(Debug)]
pub(crate) struct ControlPlane {
    planner: Planner,
    demand_key: DemandKey,
}

impl ControlPlane {
    pub(crate) fn new(
        scenario: &Scenario,
        demand_key: DemandKey,
        now: u64,
    ) -> Result<Self, FieldError> {
        let settings = &scenario.control_plane;
        let config = PlannerConfig::try_new(PlannerConfigParts {
            tau: settings.planner.tau.map(|duration| duration.0),
            heartbeat: settings.planner.heartbeat.map(|duration| duration.0),
            max_times_median: settings.planner.max_times_median,
            default_report_interval: Some(std::time::Duration::from_nanos(
                settings.report_interval,
            )),
            ..Default::default()
        })
        .map_err(|error| error.under("control_plane"))?;
        Ok(Self {
            planner: Planner::new(config, Instant::from_nanos(now)),
            demand_key,
        })
    }

    pub(crate) fn handle_endpoints(&mut self, assignment: &ClusterLoadAssignment, now: u64) {
        self.planner
            .handle_endpoints(assignment, Instant::from_nanos(now));
    }

    pub(crate) fn handle_load_report(&mut self, node: &Node, stats: &ClusterStats, now: u64) {
        let now = Instant::from_nanos(now);
        match self.demand_key {
            DemandKey::Reporter => self.planner.handle_load_report(node, stats, now),
            DemandKey::Destination => {
                for (node, stats) in by_destination(node, stats) {
                    self.planner.handle_load_report(&node, &stats, now);
                }
            }
        }
    }

    pub(crate) fn handle_disconnect(&mut self, node: &Node, now: u64) {
        self.planner
            .handle_disconnect(&node.id, FLEET, Instant::from_nanos(now));
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        self.planner.handle_timeout(Instant::from_nanos(now));
    }

    pub(crate) fn poll_timeout(&self) -> u64 {
        self.planner.poll_timeout().map_or(NEVER, Instant::as_nanos)
    }

    /// Returns the newest plan for the upstream cluster that has not been polled. Plans that are
    /// still warming up are held back.
    pub(crate) fn poll_plan(&mut self) -> Option<Arc<Plan>> {
        while self.planner.poll_event().is_some() {}
        let mut newest = None;
        while let Some(plan) = self.planner.poll_update() {
            if plan.scope.upstream_cluster.as_deref() == Some(CLUSTER) && !plan.warming_up {
                newest = Some(plan);
            }
        }
        newest
    }
}

/// Splits a report into one per upstream locality, each from a node in that locality.
fn by_destination(node: &Node, stats: &ClusterStats) -> Vec<(Node, ClusterStats)> {
    let zones = stats.upstream_locality_stats.iter();
    zones
        .map(|zone| {
            let there = Node {
                id: Arc::from(format!("{}>{}", node.id, zone.locality)),
                locality: zone.locality.clone(),
                ..node.clone()
            };
            let stats = ClusterStats {
                upstream_locality_stats: vec![zone.clone()],
                total_dropped_requests: 0,
                ..stats.clone()
            };
            (there, stats)
        })
        .collect()
}

/// Returns the offset within the interval at which a proxy sends its reports.
pub(crate) fn report_phase(interval: u64, draw: f64) -> u64 {
    num::from_seconds(num::seconds(interval) * draw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::node;
    use crate::testing::three_zones;
    use plimsoll_core::model::load_report::UpstreamLocalityStats;

    const SECOND: u64 = num::SECOND;

    /// Runs one proxy in each zone; zone a sends half of its 100 requests/s to b, the others stay.
    fn fractions(demand_key: DemandKey) -> Vec<u64> {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let mut control = ControlPlane::new(&scenario, demand_key, 0).unwrap();
        let flows = [[50, 50, 0], [0, 50, 0], [0, 0, 50]];
        let mut newest = None;
        for round in 1..=3_u64 {
            for (zone, row) in scenario.zones.iter().zip(flows) {
                let sent = row
                    .iter()
                    .zip(&scenario.zones)
                    .filter(|&(&rate, _)| rate > 0);
                let stats = sent.map(|(&rate, to)| UpstreamLocalityStats {
                    locality: to.locality.clone(),
                    total_issued_requests: rate * 10,
                    ..Default::default()
                });
                let stats = ClusterStats {
                    cluster_name: CLUSTER.into(),
                    upstream_locality_stats: stats.collect(),
                    total_dropped_requests: 0,
                    load_report_interval: std::time::Duration::from_secs(10),
                };
                control.handle_load_report(&node(zone, 0), &stats, round * 10 * SECOND);
            }
            newest = control.poll_plan().or(newest);
        }
        newest
            .unwrap()
            .zones
            .iter()
            .map(|zone| zone.fraction.get())
            .collect()
    }

    #[test]
    fn demand_counts_for_the_reporter_or_the_destination() {
        assert_eq!(fractions(DemandKey::Reporter), [5000, 2500, 2500]);
        assert_eq!(fractions(DemandKey::Destination), [2500, 5000, 2500]);
    }

    #[test]
    fn plans_are_held_back_during_warm_up() {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let mut control = ControlPlane::new(&scenario, DemandKey::Reporter, 0).unwrap();
        let stats = ClusterStats {
            cluster_name: CLUSTER.into(),
            upstream_locality_stats: Vec::new(),
            total_dropped_requests: 100,
            load_report_interval: std::time::Duration::from_secs(10),
        };
        control.handle_load_report(&node(&scenario.zones[0], 0), &stats, SECOND);
        assert_eq!(control.poll_plan(), None);
        let due = control.poll_timeout();
        assert!(due < NEVER);
        control.handle_timeout(11 * SECOND);
        assert!(control.poll_plan().is_some());
    }

    #[test]
    fn proxies_report_at_different_phases() {
        assert_eq!(report_phase(10 * SECOND, 0.25), 2_500_000_000);
    }
}
