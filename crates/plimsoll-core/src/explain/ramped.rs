//! [`Explanation::ramped`]: routing during a ramp, from the explanations of its two ends.

use super::Explanation;
use super::above_line::NOTICED;
use crate::units::BASIS_POINTS;

impl Explanation {
    /// Returns the explanation of proxies that send `percent` of their requests as explained here,
    /// and the others as in `start`: the same hosts and zones, before the ramp. A locality above
    /// its line is there because of what is left of the start.
    #[must_use]
    pub fn ramped(mut self, start: &Self, percent: u32) -> Self {
        let part = f64::from(percent.min(100)) / 100.0;
        let blend = |before: f64, after: f64| before * (1.0 - part) + after * part;
        for zone in &mut self.zones {
            let mut befores = start.zones.iter();
            let Some(before) = befores.find(|before| before.locality == zone.locality) else {
                continue;
            };
            for (share, before) in zone.shares.iter_mut().zip(&before.shares) {
                *share = blend(*before, *share);
            }
            zone.kept_local = blend(before.kept_local, zone.kept_local);
        }
        for (row, before) in self.localities.iter_mut().zip(&start.localities) {
            row.expected_share = blend(before.expected_share, row.expected_share);
        }
        self.sum_up(start);
        self
    }

    /// Computes what follows from the shares of all zones.
    fn sum_up(&mut self, start: &Self) {
        let known: f64 = self.zones.iter().map(|zone| zone.demand_share).sum();
        for (slot, row) in self.localities.iter_mut().enumerate() {
            let to_here = self.zones.iter().map(|zone| {
                let share = zone.shares.get(slot).copied().unwrap_or(0.0);
                zone.demand_share * share
            });
            row.traffic_share = if known > 0.0 {
                to_here.sum()
            } else {
                row.expected_share
            };
            row.load_factor =
                (row.capacity_share > 0.0).then(|| row.traffic_share / row.capacity_share);
            let before = start.localities.get(slot);
            let above = before.and_then(|before| before.above_line.clone());
            row.above_line = above
                .or_else(|| row.above_line.take())
                .filter(|_| row.load_factor.is_some_and(|load| load > NOTICED));
        }
        let own = self.localities.iter().find(|row| row.own);
        if let (Some(kept), Some(own)) = (&mut self.local_percent_to_route_bp, own) {
            *kept = basis_points(own.expected_share);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share is 0.0 to 1.0"
)]
fn basis_points(share: f64) -> u64 {
    (share * BASIS_POINTS as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use crate::balancer::Balancer;
    use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
    use crate::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
    use crate::model::locality::Locality;
    use crate::model::zone_aware::{ZoneAware, ZoneAwareParts};
    use crate::time::Instant;

    fn assignment(name: &str, hosts: [u8; 2]) -> ClusterLoadAssignment {
        let zones = ["a", "b"].into_iter().zip(hosts).zip(0_u8..);
        let locality = |((zone, hosts), net): ((&str, u8), u8)| {
            let hosts = (1..=hosts).map(|host| SocketAddr::from(([10, 0, net, host], 80)));
            LocalityParts::new(Locality::zone_only(zone), hosts)
        };
        let parts = AssignmentParts::new(name, zones.map(locality));
        ClusterLoadAssignment::try_new(parts).unwrap()
    }

    /// Two hosts in each zone, and three proxies in zone a for one in zone b.
    fn explained(routing_enabled: f64) -> Explanation {
        let rules = ZoneAware::try_new(ZoneAwareParts {
            routing_enabled: Some(routing_enabled),
            min_cluster_size: Some(1),
            ..Default::default()
        });
        let config = ClusterConfig::try_new(ClusterConfigParts {
            name: "orders".to_owned(),
            locality_policy: LocalityPolicy::ZoneAware(rules.unwrap()),
            ..Default::default()
        });
        let (zone, now) = (Locality::zone_only("a"), Instant::ORIGIN);
        let mut balancer = Balancer::new(Arc::new(config.unwrap()), zone, now);
        balancer.handle_fleet_assignment(assignment("fleet", [3, 1]), now);
        balancer.handle_assignment(assignment("orders", [2, 2]), now);
        balancer.poll_snapshot().unwrap().explain()
    }

    #[test]
    fn a_ramp_is_explained_by_its_two_ends() {
        let (start, end) = (explained(0.0), explained(100.0));
        let shares = |explanation: &Explanation| -> Vec<f64> {
            let zones = explanation.zones.iter();
            zones.flat_map(|zone| zone.shares.clone()).collect()
        };
        assert_eq!(shares(&start), [0.5; 4]);
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-3;
        for (percent, part) in [(0, 0.0), (1, 0.01), (37, 0.37), (100, 1.0), (200, 1.0)] {
            let ramped = end.clone().ramped(&start, percent);
            let ends = shares(&start).into_iter().zip(shares(&end));
            for (share, (before, after)) in shares(&ramped).into_iter().zip(ends) {
                assert!(near(share, before + (after - before) * part), "{percent}");
            }
            // Zone a keeps two thirds of three quarters at the end, and gets the half at first.
            let kept = 0.5 + part / 6.0;
            let shown = ramped.local_percent_to_route_bp.unwrap();
            assert!(shown.abs_diff(basis_points(kept)) <= 2, "{shown}");
            assert!(near(ramped.zones[0].kept_local, kept), "{percent}");
            assert!(near(ramped.localities[0].expected_share, kept));
            let served: f64 = ramped.localities.iter().map(|row| row.traffic_share).sum();
            assert!(near(served, 1.0) && near(ramped.localities[0].load_factor.unwrap(), 1.0));
            assert!(ramped.localities.iter().all(|row| row.above_line.is_none()));
        }
    }

    #[test]
    fn a_locality_above_its_line_says_why_it_was_there_before() {
        let mut start = explained(0.0);
        for zone in &mut start.zones {
            zone.shares = vec![1.0, 0.0];
        }
        start.localities[0].load_factor = Some(2.0);
        let reason = |explanation: &Explanation| {
            let above = explanation.localities[0].above_line.as_ref();
            above.map(|above| above.code)
        };
        start.localities[0].above_line = Some(super::super::AboveLine {
            code: super::super::AboveLineCode::AssumedDemand,
            text: "host counts".to_owned(),
        });
        let ramped = explained(100.0).ramped(&start, 40);
        assert_eq!(reason(&ramped), reason(&start));
        assert!((ramped.localities[0].load_factor.unwrap() - 1.6).abs() < 1e-3);
        assert_eq!(reason(&explained(100.0).ramped(&start, 100)), None);
    }
}
