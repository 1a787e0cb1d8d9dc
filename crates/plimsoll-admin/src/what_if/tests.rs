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
fn shares_are_those_of_the_explanations() {
    let (before, after) = (explained([4, 4]), explained([9, 3]));
    let answer = WhatIf::new([&before, &after]);
    for (shares, explanation) in [(&answer.before, &before), (&answer.after, &after)] {
        let pairs = shares.localities.iter().zip(&explanation.localities);
        for (shown, own) in pairs {
            assert_eq!(shown.locality, own.locality());
            assert_eq!(shown.hosts, own.healthy);
            assert_eq!(shown.traffic_share, rounded(own.traffic_share));
            assert_eq!(shown.load_factor, own.load_factor.map(rounded));
        }
        assert_eq!(shares.localities.len(), 2);
        assert_eq!(shares.zones[0].shares.len(), 2);
    }
    // Zone a has three quarters of the proxies and half of the hosts: a quarter of all leaves.
    assert_eq!(answer.before.cross_zone_share, 0.25);
    assert_eq!(answer.after.cross_zone_share, 0.0);
    let mut states: Vec<_> = answer
        .before
        .zones
        .iter()
        .map(|zone| &*zone.state)
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["LocalityDirect", "LocalityResidual"]);
    assert_eq!(answer.enforce, None);
    let enforced = answer.with_enforce([&after, &before]).enforce.unwrap();
    assert_eq!(enforced.after.cross_zone_share, 0.25);
}

#[test]
fn a_question_with_an_unknown_field_or_without_cluster_is_refused() {
    let read = serde_json::from_str::<WhatIfQuestion>;
    assert!(read(r#"{"cluster": "orders", "fleet": null}"#).is_ok());
    assert!(read(r#"{"cluster": "orders", "host": {}}"#).is_err());
    assert!(read("{}").is_err());
}
