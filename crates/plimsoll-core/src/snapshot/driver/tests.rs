//! Tests of attached values: assignment to hosts, sharing, and picks that find them.

use std::net::SocketAddr;

use super::*;
use crate::balancer::Balancer;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts};
use crate::model::cluster::{ClusterConfig, ClusterConfigParts};
use crate::model::health::HealthSignal;
use crate::model::locality::Locality;
use crate::picker::{PickArgs, PickResult, Picker};
use crate::publish::channel;
use crate::rng::Xoshiro256;
use crate::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 80).into()
}

fn balancer() -> Balancer {
    let parts = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    let config = Arc::new(ClusterConfig::try_new(parts).unwrap());
    Balancer::new(config, Locality::default(), NOW)
}

/// The snapshot after an assignment of hosts in zones.
fn assign(balancer: &mut Balancer, zones: &[(&str, &[u8])]) -> Arc<RoutingSnapshot> {
    let entry = |(zone, hosts): &(&str, &[u8])| LocalityParts {
        locality: Locality::zone_only(zone),
        lb_endpoints: hosts
            .iter()
            .map(|host| LbEndpoint::new(address(*host)))
            .collect(),
        ..Default::default()
    };
    let parts = AssignmentParts {
        endpoints: zones.iter().map(entry).collect(),
        ..Default::default()
    };
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    balancer.handle_assignment(assignment, NOW);
    balancer.poll_snapshot().unwrap()
}

/// Addresses of the hosts, each of which has its address attached.
fn by_address(snapshot: &DriverSnapshot<SocketAddr>) -> Vec<SocketAddr> {
    let hosts = snapshot.iter().map(|(host, attached)| {
        assert_eq!(*attached, host.address());
        host.address()
    });
    hosts.collect()
}

#[test]
fn every_host_has_its_attached_value() {
    let mut balancer = balancer();
    let first = assign(&mut balancer, &[("a", &[1, 2, 3]), ("b", &[4])]);
    let snapshot = DriverSnapshot::new(first, |host| host.address());
    assert_eq!(by_address(&snapshot).len(), 4);
}

#[test]
fn hosts_that_stay_keep_their_attached_value() {
    let mut balancer = balancer();
    let first = assign(&mut balancer, &[("a", &[1, 2, 3])]);
    let first = DriverSnapshot::new(first, |host| host.address());
    let second = assign(&mut balancer, &[("a", &[2, 3, 4])]);
    let mut asked = Vec::new();
    let second = first.next(second, |host, before| {
        asked.push((host.address(), before.copied()));
        host.address()
    });
    let expected = [
        (address(2), Some(address(2))),
        (address(3), Some(address(3))),
        (address(4), None),
    ];
    assert_eq!(asked, expected);
    assert_eq!(by_address(&second), [2, 3, 4].map(address));
    let gone = first.routing().hosts().next().unwrap();
    assert_eq!(second.attached(gone), None);
}

#[test]
fn attached_values_are_shared_while_the_hosts_are_the_same() {
    let mut balancer = balancer();
    let first = assign(&mut balancer, &[("a", &[1, 2]), ("b", &[3])]);
    let first = DriverSnapshot::new(first, |host| host.address());
    balancer.handle_health(address(1), HealthSignal::OutlierEjected, NOW);
    let ejected = balancer.poll_snapshot().unwrap();
    let next = first.next(ejected, |_, _| unreachable!("no host is new"));
    assert!(Arc::ptr_eq(&first.attached, &next.attached));
    assert_eq!(by_address(&next), [1, 2, 3].map(address));
    let moved = assign(&mut balancer, &[("a", &[1]), ("b", &[2, 3])]);
    assert!(!moved.same_hosts(next.routing()));
}

#[test]
fn an_index_is_not_reused_while_a_snapshot_has_its_host() {
    let mut balancer = balancer();
    let first = assign(&mut balancer, &[("a", &[1, 2])]);
    let first = DriverSnapshot::new(first, |host| host.address());
    for host in 3..20 {
        let routing = assign(&mut balancer, &[("a", &[host])]);
        let other = first.next(routing, |host, before| {
            assert_eq!(before, None, "the index of a live host was reused");
            host.address()
        });
        assert_eq!(by_address(&other), [address(host)]);
    }
    assert_eq!(by_address(&first), [1, 2].map(address));
    drop(first);
    let last = assign(&mut balancer, &[("a", &[30, 31])]);
    let indices = last.hosts().map(|host| host.index());
    assert!(indices.max().unwrap() < 8, "indices are reused");
}

#[test]
fn a_pick_returns_the_snapshot_it_was_made_from() {
    let mut balancer = balancer();
    let first = assign(&mut balancer, &[("a", &[1, 2])]);
    let first = Arc::new(DriverSnapshot::new(first, |host| host.address()));
    let (mut publisher, reader) = channel(Arc::clone(&first));
    let mut picker = Picker::new(reader, Xoshiro256::from_seed(1));
    let second = assign(&mut balancer, &[("a", &[3])]);
    let second = first.next(second, |host, _| host.address());
    for published in [first, Arc::new(second)] {
        publisher.publish(Arc::clone(&published));
        let (snapshot, result) = picker.pick_with_snapshot(PickArgs::default());
        assert!(std::ptr::eq(snapshot, &*published));
        let PickResult::Complete(pick) = result else {
            unreachable!("there is a host");
        };
        assert_eq!(snapshot.attached(pick.host), Some(&pick.host.address()));
    }
}
