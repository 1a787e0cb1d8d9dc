//! Tests of what-if answers from explanations of real balancers.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;

use super::*;

fn assignment(name: &str, net: u8, zones: [u8; 2]) -> ClusterLoadAssignment {
    let entry = |(zone, hosts): (&str, u8)| LocalityParts {
        locality: Locality::new("r1", zone, ""),
        lb_endpoints: (0..hosts)
            .map(|host| {
                let third = zone.as_bytes()[0];
                LbEndpoint::new(SocketAddr::from(([10, net, third, host], 80)))
            })
            .collect(),
        ..Default::default()
    };
    // Zones are not sorted by name on purpose.
    let endpoints = [("b", zones[1]), ("a", zones[0])].map(entry);
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: name.to_owned(),
        endpoints: endpoints.into(),
        ..Default::default()
    })
    .unwrap()
}

fn explained(upstream: [u8; 2]) -> Explanation {
    let config = ClusterConfig::try_new(ClusterConfigParts {
        name: "orders".to_owned(),
        ..Default::default()
    })
    .unwrap();
    let own = Locality::new("r1", "b", "");
    let mut balancer = Balancer::new(Arc::new(config), own, Instant::ORIGIN);
    balancer.handle_fleet_assignment(assignment("fleet", 1, [3, 1]), Instant::ORIGIN);
    balancer.handle_assignment(assignment("orders", 2, upstream), Instant::ORIGIN);
    balancer.poll_snapshot().unwrap().explain()
}

#[test]
fn zones_are_sorted_and_shares_match_the_explanation() {
    let (before, after) = (explained([4, 4]), explained([9, 3]));
    let answer = WhatIfAnswer::new(&before, &after);
    for (outcome, explanation) in [(&answer.before, &before), (&answer.after, &after)] {
        let names: Vec<_> = outcome
            .zones
            .iter()
            .map(|zone| zone.locality.zone.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        for zone in &outcome.zones {
            let mut all = explanation.localities.iter();
            let own = all.find(|each| each.zone == zone.locality.zone).unwrap();
            assert_eq!(zone.healthy_hosts, own.healthy);
            assert_eq!(zone.traffic_share, rounded(own.traffic_share));
            assert_eq!(zone.load, own.load_factor.map(rounded));
        }
    }
    // Zone a has three quarters of the proxies and half of the hosts: a quarter of all leaves.
    assert_eq!(answer.before.cross_zone_share, 0.25);
    assert_eq!(answer.after.cross_zone_share, 0.0);
    let states: Vec<_> = answer
        .before
        .zones
        .iter()
        .map(|zone| zone.state.as_deref())
        .collect();
    assert_eq!(states, [Some("LocalityResidual"), Some("LocalityDirect")]);
}

#[test]
fn a_question_with_an_unknown_field_is_refused() {
    let read = serde_json::from_str::<WhatIfQuestion>(r#"{"cluster": "orders", "host": {}}"#);
    assert!(read.is_err());
    assert_eq!(rounded(2.0 / 3.0), 0.667);
}
