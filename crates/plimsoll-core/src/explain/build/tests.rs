//! Tests of explanations: the worked examples of the seeds, and the text of every special state.

use std::sync::Arc;

use super::*;
use crate::balancer::Balancer;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts};
use crate::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use crate::model::endpoint_policy::{ConsistentHashing, EndpointPolicy, Maglev};
use crate::model::health::HealthStatus;
use crate::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use crate::model::zone_aware::{ForceLocalZone, LocalityBasis, ZoneAwareParts};
use crate::time::Instant;

/// Zones: name, hosts, healthy hosts, fraction.
type Zones<'a> = &'a [(&'a str, u16, u16, Option<u64>)];

fn assignment(zones: Zones<'_>) -> ClusterLoadAssignment {
    let entry = |(index, &(zone, hosts, healthy, fraction)): (usize, &(&str, u16, u16, _))| {
        let endpoint = |host: u16| {
            let [high, low] = host.to_be_bytes();
            let zone = u8::try_from(index).unwrap();
            let mut endpoint = LbEndpoint::new(([10, zone, high, low], 80).into());
            if host >= healthy {
                endpoint.health_status = HealthStatus::Unhealthy;
            }
            endpoint
        };
        LocalityParts {
            locality: Locality::zone_only(zone),
            lb_endpoints: (0..hosts).map(endpoint).collect(),
            observed_traffic_fraction: fraction,
            ..Default::default()
        }
    };
    let endpoints = zones.iter().enumerate().map(entry).collect();
    let parts = AssignmentParts {
        cluster_name: "orders".into(),
        endpoints,
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).unwrap()
}

fn explained(
    zone_aware: ZoneAwareParts,
    own: &str,
    fleet: Option<Zones<'_>>,
    upstream: Zones<'_>,
) -> Explanation {
    let zone_aware = ZoneAware::try_new(zone_aware).unwrap();
    let config = ClusterConfigParts {
        name: "orders".into(),
        locality_policy: LocalityPolicy::ZoneAware(zone_aware),
        ..Default::default()
    };
    let config = Arc::new(ClusterConfig::try_new(config).unwrap());
    let mut balancer = Balancer::new(config, Locality::zone_only(own), Instant::ORIGIN);
    if let Some(fleet) = fleet {
        balancer.handle_fleet_assignment(assignment(fleet), Instant::ORIGIN);
    }
    balancer.handle_assignment(assignment(upstream), Instant::ORIGIN);
    balancer.poll_snapshot().unwrap().explain()
}

fn lrs() -> ZoneAwareParts {
    ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        ..Default::default()
    }
}

const FLEET: Zones<'_> = &[
    ("a", 3, 3, Some(5000)),
    ("b", 5, 5, Some(3500)),
    ("c", 2, 2, Some(1500)),
];
const UPSTREAM: Zones<'_> = &[("a", 3, 3, None), ("b", 5, 5, None), ("c", 2, 2, None)];

fn load_factors(explanation: &Explanation) -> Vec<String> {
    let factor = |row: &LocalityExplanation| {
        row.load_factor
            .map_or("none".to_owned(), |factor| format!("{factor:.2}"))
    };
    explanation.localities.iter().map(factor).collect()
}

#[test]
fn seed_000_before() {
    let explanation = explained(ZoneAwareParts::default(), "a", Some(FLEET), UPSTREAM);
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(explanation.local_percent_to_route_bp, Some(10_000));
    assert_eq!(load_factors(&explanation), ["1.67", "0.70", "0.75"]);
    assert!(
        explanation.reason.contains("30 %"),
        "{}",
        explanation.reason
    );
}

#[test]
fn seed_000_after() {
    let explanation = explained(lrs(), "a", Some(FLEET), UPSTREAM);
    assert_eq!(explanation.state, StateName::LocalityResidual);
    assert_eq!(explanation.local_percent_to_route_bp, Some(6000));
    assert_eq!(load_factors(&explanation), ["1.00", "1.00", "1.00"]);
    let rows = &explanation.localities;
    let column = |of: fn(&LocalityExplanation) -> u64| rows.iter().map(of).collect::<Vec<_>>();
    assert_eq!(column(|row| row.local_bp), [5000, 3500, 1500]);
    assert_eq!(column(|row| row.upstream_bp), [3000, 5000, 2000]);
    assert_eq!(column(|row| row.residual_bp), [0, 1500, 500]);
    let shares: Vec<_> = rows
        .iter()
        .map(|row| format!("{:.2}", row.expected_share))
        .collect();
    assert_eq!(shares, ["0.60", "0.30", "0.10"]);
    assert!(rows[0].own && !rows[1].own);
    assert_eq!(explanation.fractions.status, FractionStatus::Fresh);
    let kept: Vec<_> = explanation
        .zones
        .iter()
        .map(|zone| zone.kept_local)
        .collect();
    assert_eq!(kept, [0.6, 1.0, 1.0]);
}

/// Shadow mode: proxies go by host counts and know no fractions, the control plane knows demand.
#[test]
fn loads_follow_the_given_demand_and_decisions_the_assumed_one() {
    let fleet: Zones<'_> = &[("a", 3, 3, None), ("b", 5, 5, None), ("c", 2, 2, None)];
    let zone_aware = ZoneAware::try_new(ZoneAwareParts::default()).unwrap();
    let config = ClusterConfigParts {
        name: "orders".into(),
        locality_policy: LocalityPolicy::ZoneAware(zone_aware),
        ..Default::default()
    };
    let config = Arc::new(ClusterConfig::try_new(config).unwrap());
    let mut balancer = Balancer::new(config, Locality::zone_only("a"), Instant::ORIGIN);
    balancer.handle_fleet_assignment(assignment(fleet), Instant::ORIGIN);
    balancer.handle_assignment(assignment(UPSTREAM), Instant::ORIGIN);
    let snapshot = balancer.poll_snapshot().unwrap();
    let assumed = snapshot.explain();
    assert_eq!(load_factors(&assumed), ["1.00", "1.00", "1.00"]);
    let demand = [("a", 50.0), ("b", 35.0), ("c", 15.0)]
        .map(|(zone, rate)| (Locality::zone_only(zone), rate));
    let actual = snapshot.explain_with_demand(&demand, Instant::ORIGIN);
    assert_eq!(load_factors(&actual), ["1.67", "0.70", "0.75"]);
    assert_eq!(actual.state, assumed.state);
    assert_eq!(actual.reason, assumed.reason, "the decision is the same");
    let unknown = [
        (Locality::zone_only("a"), 0.0),
        (Locality::zone_only("b"), f64::NAN),
    ];
    let unknown = snapshot.explain_with_demand(&unknown, Instant::ORIGIN);
    assert_eq!(unknown, assumed, "no demand is no information");
}

#[test]
fn localities_seen_from_other_zones_keep_the_local_order() {
    // Seen from zone c, localities are ordered c, a, b; the matrix of shares must not mix them up.
    let explanation = explained(lrs(), "c", Some(FLEET), UPSTREAM);
    assert_eq!(explanation.localities[0].zone, "c");
    assert_eq!(load_factors(&explanation), ["1.00", "1.00", "1.00"]);
    let a = &explanation.zones[0];
    assert_eq!(a.locality, Locality::zone_only("a"));
    let shares: Vec<_> = a.shares.iter().map(|share| format!("{share:.2}")).collect();
    assert_eq!(shares, ["0.10", "0.60", "0.30"]);
}

#[test]
fn seed_002_worked_example() {
    let fleet: Zones<'_> = &[("0", 8, 8, None), ("1", 8, 8, None), ("2", 4, 4, None)];
    let upstream: Zones<'_> = &[("0", 5, 5, None), ("1", 10, 10, None), ("2", 5, 5, None)];
    let explanation = explained(ZoneAwareParts::default(), "0", Some(fleet), upstream);
    assert_eq!(explanation.local_percent_to_route_bp, Some(6250));
    let residual: Vec<_> = explanation
        .localities
        .iter()
        .map(|row| row.residual_bp)
        .collect();
    assert_eq!(residual, [0, 1000, 500]);
    assert_eq!(load_factors(&explanation), ["1.00", "1.00", "1.00"]);
}

#[test]
fn a_zone_without_upstream_hosts_is_listed_with_its_demand() {
    let fleet: Zones<'_> = &[("a", 1, 1, Some(4000)), ("x", 1, 1, Some(6000))];
    let upstream: Zones<'_> = &[("a", 4, 4, None), ("b", 4, 4, None)];
    let explanation = explained(lrs(), "a", Some(fleet), upstream);
    let last = explanation.localities.last().unwrap();
    assert_eq!(
        (last.zone.as_str(), last.hosts, last.local_bp),
        ("x", 0, 6000)
    );
    assert_eq!(last.load_factor, None);
    let traffic: f64 = explanation
        .localities
        .iter()
        .map(|row| row.traffic_share)
        .sum();
    assert!((traffic - 1.0).abs() < 1e-9, "{traffic}");
}

#[test]
fn a_region_that_does_not_match_is_noted() {
    let explain = |own: Locality| {
        let parts = ClusterConfigParts {
            name: "orders".into(),
            ..Default::default()
        };
        let config = Arc::new(ClusterConfig::try_new(parts).unwrap());
        let mut balancer = Balancer::new(config, own, Instant::ORIGIN);
        balancer.handle_fleet_assignment(assignment(UPSTREAM), Instant::ORIGIN);
        balancer.handle_assignment(assignment(UPSTREAM), Instant::ORIGIN);
        balancer.initial_snapshot(Instant::ORIGIN).explain().notes
    };
    let notes = explain(Locality::new("r1", "a", ""));
    let upstream = "this process is in r1/a, the upstream cluster in a (no region): the regions \
                    differ, so that nothing there is local; did you mean a?";
    assert!(notes.iter().any(|note| note == upstream), "{notes:?}");
    let fleet = notes
        .iter()
        .filter(|note| note.contains(", the fleet in a "));
    assert_eq!(fleet.count(), 1, "{notes:?}");
    for own in [Locality::zone_only("a"), Locality::new("r1", "z", "")] {
        assert_eq!(explain(own), Vec::<String>::new());
    }
}

#[test]
fn the_state_names_the_policy_that_chooses() {
    let load_aware = LoadAwareLocality::try_new(LoadAwareLocalityParts::default()).unwrap();
    for (policy, state) in [
        (
            LocalityPolicy::LoadAwareLocality(load_aware),
            StateName::LoadAwareLocality,
        ),
        (
            LocalityPolicy::LocalityWeighted,
            StateName::LocalityWeighted,
        ),
        (LocalityPolicy::WrrLocality, StateName::LocalityWeighted),
        (LocalityPolicy::Flat, StateName::NoLocalityRouting),
    ] {
        let parts = ClusterConfigParts {
            name: "orders".into(),
            locality_policy: policy,
            ..Default::default()
        };
        let config = Arc::new(ClusterConfig::try_new(parts).unwrap());
        let mut balancer = Balancer::new(config, Locality::zone_only("a"), Instant::ORIGIN);
        let entry = |(zone, port): (&str, u16)| LocalityParts {
            locality: Locality::zone_only(zone),
            load_balancing_weight: Some(1),
            lb_endpoints: vec![LbEndpoint::new(([10, 0, 0, 1], port).into())],
            ..Default::default()
        };
        let parts = AssignmentParts {
            cluster_name: "orders".into(),
            endpoints: [("a", 1), ("b", 2)].map(entry).into(),
            ..Default::default()
        };
        let weighted = ClusterLoadAssignment::try_new(parts).unwrap();
        balancer.handle_assignment(weighted, Instant::ORIGIN);
        let explanation = balancer.initial_snapshot(Instant::ORIGIN).explain();
        assert_eq!(explanation.state, state, "{}", explanation.locality_policy);
        assert_eq!(explanation.priorities[0].state, state);
    }
}

#[test]
fn without_a_fleet_hosts_share_equally() {
    let explanation = explained(ZoneAwareParts::default(), "a", None, UPSTREAM);
    assert_eq!(explanation.state, StateName::NoLocalityRouting);
    assert_eq!(explanation.local_percent_to_route_bp, None);
    assert_eq!(load_factors(&explanation), ["1.00", "1.00", "1.00"]);
    assert!(explanation.zones.is_empty());
    assert!(
        explanation.reason.contains("no fleet"),
        "{}",
        explanation.reason
    );
}

#[test]
fn panic_routing_enabled_and_fleet_panic_are_noted() {
    let sick: Zones<'_> = &[("a", 3, 1, None), ("b", 5, 1, None), ("c", 2, 0, None)];
    let explanation = explained(lrs(), "a", Some(FLEET), sick);
    assert!(
        explanation.notes[0].contains("panic"),
        "{:?}",
        explanation.notes
    );
    let shares: Vec<_> = explanation
        .localities
        .iter()
        .map(|row| format!("{:.1}", row.expected_share))
        .collect();
    assert_eq!(shares, ["0.3", "0.5", "0.2"], "all hosts count in panic");

    let fails = ZoneAwareParts {
        fail_traffic_on_panic: true,
        ..lrs()
    };
    let explanation = explained(fails, "a", Some(FLEET), sick);
    assert!(
        explanation.notes[0].contains("fail"),
        "{:?}",
        explanation.notes
    );
    assert!(
        explanation
            .localities
            .iter()
            .all(|row| row.expected_share == 0.0)
    );

    let explanation = explained(
        lrs(),
        "a",
        Some(&[("a", 3, 1, None), ("b", 5, 1, None)]),
        UPSTREAM,
    );
    assert!(
        explanation
            .notes
            .iter()
            .any(|note| note.contains("fleet itself is in panic"))
    );

    let half = ZoneAwareParts {
        routing_enabled: Some(50.0),
        ..lrs()
    };
    let explanation = explained(half, "a", Some(FLEET), UPSTREAM);
    assert!(
        explanation.notes[0].contains("50 %"),
        "{:?}",
        explanation.notes
    );
    let own = explanation.localities[0].expected_share;
    assert!((own - (0.5 * 0.6 + 0.5 * 0.3)).abs() < 1e-12, "{own}");
}

#[test]
fn forced_direct_and_the_dead_band_are_named() {
    let forced = ZoneAwareParts {
        force_local_zone: Some(ForceLocalZone { min_size: Some(2) }),
        ..lrs()
    };
    let explanation = explained(forced, "a", Some(FLEET), UPSTREAM);
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert!(
        explanation.reason.contains("force_local_zone"),
        "{}",
        explanation.reason
    );
    let near: Zones<'_> = &[
        ("a", 3, 3, Some(3050)),
        ("b", 5, 5, Some(4950)),
        ("c", 2, 2, Some(2000)),
    ];
    let explanation = explained(lrs(), "a", Some(near), UPSTREAM);
    assert!(
        explanation.reason.contains("dead band"),
        "{}",
        explanation.reason
    );
}

/// Returns zone, code and text of every locality above its line.
fn above_line(explanation: &Explanation) -> Vec<(&str, &str, &str)> {
    let rows = explanation.localities.iter();
    rows.filter_map(|row| {
        let above = row.above_line.as_ref()?;
        Some((row.zone.as_str(), above.code.as_str(), above.text.as_str()))
    })
    .collect()
}

#[test]
fn a_zone_above_its_line_has_a_reason() {
    let near: Zones<'_> = &[
        ("a", 3, 3, Some(3060)),
        ("b", 5, 5, Some(4950)),
        ("c", 2, 2, Some(1990)),
    ];
    let seen = |parts, fleet| explained(parts, "b", Some(fleet), UPSTREAM);
    let balanced = seen(lrs(), FLEET);
    assert_eq!(above_line(&balanced), [], "nothing is above its line");
    assert_eq!(
        above_line(&seen(lrs(), near)),
        [(
            "a",
            "dead_band",
            "demand is 2 % above the capacity of the zone, within the dead band of 3 % of that \
             capacity"
        )]
    );
    let forced = ZoneAwareParts {
        force_local_zone: Some(ForceLocalZone { min_size: Some(2) }),
        ..lrs()
    };
    let text = "force_local_zone keeps all requests of the zone";
    assert_eq!(
        above_line(&seen(forced, FLEET)),
        [("a", "force_local_zone", text)]
    );
    let half = ZoneAwareParts {
        routing_enabled: Some(50.0),
        ..ZoneAwareParts::default()
    };
    let text = "routing_enabled is 50 %: the other requests ignore zones";
    assert_eq!(
        above_line(&seen(half, FLEET)),
        [("a", "routing_enabled", text)]
    );
}

#[test]
fn demand_that_routing_does_not_use_is_a_reason() {
    let by_hosts = explained(ZoneAwareParts::default(), "a", Some(FLEET), UPSTREAM);
    assert_eq!(
        above_line(&by_hosts),
        [(
            "a",
            "assumed_demand",
            "routing assumes 30 % of the demand here, but 50 % arrives"
        )]
    );
    let too_small = ZoneAwareParts {
        min_cluster_size: Some(99),
        ..lrs()
    };
    let upstream: Zones<'_> = &[("a", 3, 3, None), ("b", 5, 5, None), ("c", 2, 2, None)];
    let small = explained(too_small, "a", Some(FLEET), upstream);
    assert_eq!(above_line(&small), [], "without zones, load is even");
}

/// Explains a cluster with consistent hashing, seen from a, with the given localities.
fn hashed(locality_policy: LocalityPolicy, entries: &[LocalityParts]) -> Explanation {
    let maglev = Maglev::try_new(Some(10_007), ConsistentHashing::default()).unwrap();
    let config = ClusterConfigParts {
        name: "orders".into(),
        locality_policy,
        endpoint_policy: EndpointPolicy::Maglev(maglev),
        ..Default::default()
    };
    let config = Arc::new(ClusterConfig::try_new(config).unwrap());
    let mut balancer = Balancer::new(config, Locality::zone_only("a"), Instant::ORIGIN);
    let parts = AssignmentParts {
        endpoints: entries.to_vec(),
        ..Default::default()
    };
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    balancer.handle_assignment(assignment, Instant::ORIGIN);
    balancer.poll_snapshot().unwrap().explain()
}

fn zone(index: u8, statuses: &[HealthStatus], weight: Option<u32>) -> LocalityParts {
    let endpoint = |(host, &health_status): (u8, &HealthStatus)| LbEndpoint {
        health_status,
        ..LbEndpoint::new(([10, index, 0, host], 80).into())
    };
    LocalityParts {
        locality: Locality::zone_only(["a", "b"][usize::from(index)]),
        lb_endpoints: (1..).zip(statuses).map(endpoint).collect(),
        load_balancing_weight: weight,
        ..Default::default()
    }
}

fn expected_shares(explanation: &Explanation) -> Vec<String> {
    explanation
        .localities
        .iter()
        .map(|row| format!("{:.2}", row.expected_share))
        .collect()
}

#[test]
fn consistent_hashing_is_explained_by_its_table() {
    use HealthStatus::{Degraded, Healthy, Unhealthy};
    // Availability does not scale locality weights in a hash table.
    let half = [
        zone(0, &[Healthy, Unhealthy], Some(1)),
        zone(1, &[Healthy, Healthy], Some(1)),
    ];
    assert_eq!(
        expected_shares(&hashed(LocalityPolicy::LocalityWeighted, &half)),
        ["0.50", "0.50"]
    );
    // Without any locality weight the hash table is empty and requests fail.
    let bare = [zone(0, &[Healthy], None), zone(1, &[Healthy], None)];
    assert_eq!(
        expected_shares(&hashed(LocalityPolicy::LocalityWeighted, &bare)),
        ["0.00", "0.00"]
    );
    assert_eq!(
        expected_shares(&hashed(LocalityPolicy::Flat, &bare)),
        ["0.50", "0.50"]
    );
    // Degraded hosts are never in a hash table.
    let degraded = [zone(0, &[Degraded], Some(1))];
    assert_eq!(
        expected_shares(&hashed(LocalityPolicy::Flat, &degraded)),
        ["0.00"]
    );
}

#[test]
fn degraded_load_is_part_of_the_shares() {
    use HealthStatus::{Degraded, Healthy};
    let entries = [zone(0, &[Healthy; 2], None), zone(1, &[Degraded; 8], None)];
    let config = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    let config = Arc::new(ClusterConfig::try_new(config).unwrap());
    let mut balancer = Balancer::new(config, Locality::zone_only("a"), Instant::ORIGIN);
    let parts = AssignmentParts {
        endpoints: entries.to_vec(),
        ..Default::default()
    };
    balancer.handle_assignment(
        ClusterLoadAssignment::try_new(parts).unwrap(),
        Instant::ORIGIN,
    );
    let explanation = balancer.poll_snapshot().unwrap().explain();
    assert_eq!(expected_shares(&explanation), ["0.28", "0.72"]);
    let positive = |row: &LocalityExplanation| row.expected_share.is_sign_positive();
    assert!(
        explanation.localities.iter().all(positive),
        "no negative zero"
    );
}

#[test]
fn states_have_the_names_of_envoy() {
    let names = [
        StateName::NoLocalityRouting,
        StateName::LocalityDirect,
        StateName::LocalityResidual,
        StateName::LoadAwareLocality,
        StateName::LocalityWeighted,
    ]
    .map(StateName::as_str);
    let expected = [
        "NoLocalityRouting",
        "LocalityDirect",
        "LocalityResidual",
        "LoadAwareLocality",
        "LocalityWeighted",
    ];
    assert_eq!(names, expected);
}
