//! Tests of membership: which hosts survive an assignment, and which parts of tables are shared.

use super::*;
use crate::host_source::HostSource;
use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use crate::model::cluster::HealthChecking;
use crate::model::health::HealthStatus;

const NOW: Instant = Instant::ORIGIN;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

fn endpoint(host: u8) -> LbEndpoint {
    LbEndpoint::new(address(host))
}

fn weighted(host: u8, weight: u32) -> LbEndpoint {
    LbEndpoint {
        load_balancing_weight: Some(weight),
        ..endpoint(host)
    }
}

fn entry(zone: &str, priority: u32, lb_endpoints: Vec<LbEndpoint>) -> LocalityParts {
    LocalityParts {
        locality: Locality::zone_only(zone),
        priority,
        lb_endpoints,
        ..Default::default()
    }
}

fn zone(zone: &str, hosts: &[u8]) -> LocalityParts {
    entry(zone, 0, hosts.iter().copied().map(endpoint).collect())
}

/// Hosts of a cluster, as the balancer of a proxy in zone b holds them.
fn members() -> Members {
    Members::new(Some(Locality::zone_only("b")))
}

fn assign(members: &mut Members, endpoints: Vec<LocalityParts>) -> Change {
    let parts = AssignmentParts {
        endpoints,
        ..Default::default()
    };
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    members.reconcile(&assignment, HealthChecking::default(), NOW)
}

fn listed(table: &PriorityTable, source: HostSource) -> Vec<Arc<Host>> {
    table.list(source).iter().cloned().collect()
}

fn addresses(table: &PriorityTable, source: HostSource) -> Vec<SocketAddr> {
    let list = table.list(source);
    list.iter().map(|host| host.address()).collect()
}

#[test]
fn lists_have_the_local_locality_first() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1, 2]), zone("b", &[4, 3])]);
    let table = members.table(0);
    let all = [3, 4, 1, 2].map(address);
    assert_eq!(addresses(&table, HostSource::AllHosts), all);
    assert_eq!(addresses(&table, HostSource::HealthyHosts), all);
    assert_eq!(
        addresses(&table, HostSource::LocalityHealthyHosts(1)),
        all[2..]
    );
    assert_eq!(addresses(&table, HostSource::LocalityAllHosts(0)), all[..2]);
    for source in [
        HostSource::DegradedHosts,
        HostSource::LocalityDegradedHosts(0),
        HostSource::LocalityHealthyHosts(2),
    ] {
        assert!(table.list(source).is_empty(), "{source:?}");
    }
    let local = |source| table.list(source).local();
    assert_eq!(local(HostSource::HealthyHosts), 2);
    assert_eq!(local(HostSource::LocalityHealthyHosts(0)), 2);
    assert_eq!(local(HostSource::LocalityHealthyHosts(1)), 0);
}

#[test]
fn lists_are_split_by_class_once_a_host_is_unhealthy() {
    let mut members = members();
    assign(
        &mut members,
        vec![zone("a", &[1, 2, 3]), zone("b", &[4, 5])],
    );
    for (host, signal) in [
        (4, HealthSignal::ActiveCheckDegraded),
        (2, HealthSignal::OutlierEjected),
        (3, HealthSignal::ActiveCheckDegraded),
    ] {
        assert_eq!(members.apply_signal(address(host), signal, NOW), Some(0));
    }
    let table = members.table(0);
    let hosts = |source| addresses(&table, source);
    assert_eq!(hosts(HostSource::AllHosts), [4, 5, 1, 2, 3].map(address));
    assert_eq!(hosts(HostSource::HealthyHosts), [5, 1].map(address));
    assert_eq!(hosts(HostSource::DegradedHosts), [4, 3].map(address));
    assert_eq!(hosts(HostSource::LocalityHealthyHosts(0)), [address(5)]);
    assert_eq!(hosts(HostSource::LocalityHealthyHosts(1)), [address(1)]);
    assert_eq!(hosts(HostSource::LocalityDegradedHosts(0)), [address(4)]);
    assert_eq!(hosts(HostSource::LocalityDegradedHosts(1)), [address(3)]);
    assert_eq!(
        hosts(HostSource::LocalityAllHosts(1)),
        [1, 2, 3].map(address)
    );
    let by_slot: Vec<u32> = table
        .hosts_by_slot(HostSource::DegradedHosts)
        .map(|list| list.len())
        .collect();
    assert_eq!(by_slot, [1, 1]);
    assert_eq!(table.list(HostSource::DegradedHosts).local(), 1);
    assert_eq!(table.counts.flat.healthy, 2);
    assert_eq!(table.counts.flat.degraded, 2);
}

#[test]
fn lists_know_whether_their_weights_differ() {
    let mut members = members();
    let a = entry("a", 0, vec![weighted(1, 2), weighted(2, 2)]);
    let b = entry("b", 0, vec![weighted(3, 5), weighted(4, 2)]);
    assign(&mut members, vec![a, b]);
    let table = members.table(0);
    let weighted = |source| table.list(source).is_weighted();
    assert!(weighted(HostSource::AllHosts) && weighted(HostSource::LocalityHealthyHosts(0)));
    assert!(!weighted(HostSource::LocalityHealthyHosts(1)));
    members.apply_signal(address(3), HealthSignal::OutlierEjected, NOW);
    let table = members.table(0);
    let weighted = |source| table.list(source).is_weighted();
    assert!(weighted(HostSource::AllHosts) && weighted(HostSource::LocalityAllHosts(0)));
    assert!(!weighted(HostSource::HealthyHosts));
    assert!(!weighted(HostSource::LocalityHealthyHosts(0)));
}

#[test]
fn requests_in_flight_are_visible_in_every_list() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1, 2]), zone("b", &[3])]);
    let early = members.table(0);
    let requests: Vec<_> = (0..3)
        .map(|_| early.list(HostSource::AllHosts).host(2).begin_request())
        .collect();
    members.apply_signal(address(1), HealthSignal::OutlierEjected, NOW);
    // A host that is added later must not disturb the counters of the others.
    assign(&mut members, vec![zone("a", &[0, 1, 2]), zone("b", &[3])]);
    let late = members.table(0);
    for table in [&early, &late] {
        for source in [
            HostSource::AllHosts,
            HostSource::HealthyHosts,
            HostSource::LocalityHealthyHosts(1),
        ] {
            let list = table.list(source);
            for index in 0..list.len() {
                let host = list.host(index);
                assert_eq!(list.active_requests(index), host.active_requests());
                let expected = if host.address() == address(2) { 3 } else { 0 };
                assert_eq!(host.active_requests(), expected, "{}", host.address());
            }
        }
    }
    drop(requests);
    assert_eq!(late.list(HostSource::AllHosts).active_requests(3), 0);
}

#[test]
fn an_unchanged_assignment_changes_nothing() {
    let mut members = members();
    let endpoints = vec![zone("a", &[1, 2]), zone("b", &[3])];
    let first = assign(&mut members, endpoints.clone());
    assert_eq!(
        (first.added, first.removed, first.total, first.dirty),
        (3, 0, 3, vec![0])
    );
    let again = assign(&mut members, endpoints);
    assert_eq!(
        again,
        Change {
            total: 3,
            ..Default::default()
        }
    );
}

#[test]
fn new_weight_or_health_changes_no_hosts() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1, 2])]);
    let before = listed(&members.table(0), HostSource::AllHosts);
    let mut sick = endpoint(2);
    sick.health_status = HealthStatus::Unhealthy;
    let change = assign(
        &mut members,
        vec![entry("a", 0, vec![weighted(1, 7), sick])],
    );
    assert_eq!(
        (change.added, change.removed, change.dirty),
        (0, 0, vec![0])
    );
    let table = members.table(0);
    let after = listed(&table, HostSource::AllHosts);
    assert!(before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b)));
    assert_eq!(after[0].weight(), 7);
    assert_eq!(addresses(&table, HostSource::HealthyHosts), [address(1)]);
}

#[test]
fn a_new_hostname_or_hash_key_makes_a_new_host() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1, 2])]);
    let before = listed(&members.table(0), HostSource::AllHosts);
    let renamed = LbEndpoint {
        hostname: "one".into(),
        ..endpoint(1)
    };
    let change = assign(
        &mut members,
        vec![entry("a", 0, vec![renamed, endpoint(2)])],
    );
    assert_eq!((change.added, change.removed, change.total), (1, 1, 2));
    let after = listed(&members.table(0), HostSource::AllHosts);
    assert!(!Arc::ptr_eq(&before[0], &after[0]) && Arc::ptr_eq(&before[1], &after[1]));
    let keyed = LbEndpoint {
        hash_key: Some("k".into()),
        ..endpoint(2)
    };
    assert_eq!(
        assign(&mut members, vec![entry("a", 0, vec![keyed])]).added,
        1
    );
}

#[test]
fn a_host_that_moves_to_another_priority_is_kept() {
    let mut members = members();
    assign(
        &mut members,
        vec![zone("a", &[1, 2]), entry("a", 1, vec![endpoint(9)])],
    );
    let host = Arc::clone(members.table(0).list(HostSource::AllHosts).host(0));
    let request = host.begin_request();
    let moved = vec![
        zone("a", &[2]),
        entry("a", 1, vec![weighted(1, 3), endpoint(9)]),
    ];
    let change = assign(&mut members, moved.clone());
    assert_eq!(
        (change.added, change.removed, change.total),
        (0, 0, 3),
        "it only moved"
    );
    let table = members.table(1);
    let list = table.list(HostSource::AllHosts);
    assert!(Arc::ptr_eq(list.host(0), &host));
    assert_eq!((host.weight(), list.active_requests(0)), (3, 1));
    // The spare counter allocated during the move goes to one new host, and counts only that one.
    let mut next = moved;
    next.push(entry("c", 0, vec![endpoint(4), endpoint(5), endpoint(6)]));
    assign(&mut members, next);
    let table = members.table(0);
    let list = table.list(HostSource::LocalityAllHosts(1));
    assert!((0..3).all(|index| list.active_requests(index) == 0));
    assert_eq!(host.active_requests(), 1);
    drop(request);
}

#[test]
fn a_host_that_moves_to_another_locality_is_new() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1]), zone("c", &[2])]);
    let change = assign(&mut members, vec![zone("a", &[]), zone("c", &[1, 2])]);
    assert_eq!((change.added, change.removed), (1, 1));
}

#[test]
fn tables_share_unchanged_slots() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[1, 2]), zone("b", &[3])]);
    let first = members.table(0);
    members.apply_signal(address(1), HealthSignal::OutlierEjected, NOW);
    let sick = members.table(0);
    assert!(first.shares_roster(&sick), "health changes no roster");
    assign(&mut members, vec![zone("a", &[1, 2, 7]), zone("b", &[3])]);
    let grown = members.table(0);
    assert!(!sick.shares_roster(&grown));
    assert!(sick.shares_slot(&grown, 0), "zone b is unchanged");
    assert!(!sick.shares_slot(&grown, 1));
}

#[test]
fn hosts_are_found_by_address_after_every_change() {
    let mut members = members();
    assign(&mut members, vec![zone("a", &[5, 1]), zone("b", &[3, 2])]);
    let eject = HealthSignal::OutlierEjected;
    assert_eq!(members.apply_signal(address(5), eject, NOW), Some(0));
    assert_eq!(
        members.apply_signal(address(9), eject, NOW),
        None,
        "unknown"
    );
    assert_eq!(members.apply_signal(address(5), eject, NOW), None, "known");
    assign(&mut members, vec![zone("a", &[0, 5]), zone("b", &[3, 2])]);
    assert_eq!(members.apply_signal(address(1), eject, NOW), None, "gone");
    assert_eq!(members.apply_signal(address(0), eject, NOW), Some(0));
    let table = members.table(0);
    assert_eq!(
        addresses(&table, HostSource::LocalityHealthyHosts(1)),
        Vec::<SocketAddr>::new()
    );
}

#[test]
fn reported_weights_count_until_the_next_assignment() {
    let mut members = members();
    let endpoints = vec![zone("a", &[1, 2])];
    assign(&mut members, endpoints.clone());
    let weighs = |members: &mut Members| {
        let table = members.table(0);
        (
            table.counts.weights.all,
            table.list(HostSource::AllHosts).is_weighted(),
        )
    };
    assert_eq!(weighs(&mut members), (2, false));
    members.use_reported_weights();
    if let Some(host) = members.hosts_of(0).next() {
        host.set_weight(40);
    }
    assert_eq!(weighs(&mut members), (41, true));
    let change = assign(&mut members, endpoints.clone());
    assert_eq!(change.dirty, [0], "the assignment's weights are back");
    assert_eq!(weighs(&mut members), (2, false));
    assert!(assign(&mut members, endpoints).dirty.is_empty());
}

#[test]
fn an_assigned_weight_equal_to_the_reported_one_is_kept() {
    let mut members = members();
    assign(&mut members, vec![entry("a", 0, vec![weighted(1, 9)])]);
    members.use_reported_weights();
    members.hosts_of(0).for_each(|host| host.set_weight(1));
    let change = assign(&mut members, vec![entry("a", 0, vec![weighted(1, 1)])]);
    assert_eq!(change.dirty, [0; 0], "tables already have that weight");
    assert_eq!(members.table(0).counts.weights.all, 1, "and not 9 again");
}
