//! Tests of picks through Envoy's lists: zones, retries, health, and threads that are behind.

use std::collections::BTreeMap;

use plimsoll_core::model::health::HealthStatus;

use super::*;
use crate::host_sets::tests::{Fake, FakeHost, zone_aware};

/// A request that rejects some hosts.
#[derive(Default)]
struct FakeRequest {
    hash: Option<u64>,
    reselections: u32,
    rejected: Vec<usize>,
}

impl Request for FakeRequest {
    fn hash(&self) -> Option<u64> {
        self.hash
    }

    fn reselections(&self) -> u32 {
        self.reselections
    }

    fn rejects(&self, _: u32, index: usize) -> bool {
        self.rejected.contains(&index)
    }
}

fn balancer(cluster: &str, config: &str) -> LoadBalancer {
    let config = PolicyConfig::parse(POLICY.as_bytes(), config.as_bytes(), true).unwrap();
    LoadBalancer::new(&config, cluster).unwrap()
}

/// Picks and counts by zone.
fn zones<'h>(balancer: &mut LoadBalancer, hosts: &'h Fake, picks: u32) -> BTreeMap<&'h str, u32> {
    let mut counts = BTreeMap::new();
    for _ in 0..picks {
        let slot = balancer
            .choose_host(hosts, &FakeRequest::default())
            .unwrap();
        let host = &hosts.priorities[slot.priority as usize][slot.index];
        assert_eq!(host.health, HealthStatus::Healthy);
        let healthy = hosts.healthy_address(slot.priority, slot.healthy_index as usize);
        assert_eq!(healthy, host.address);
        *counts.entry(host.locality.zone()).or_default() += 1;
    }
    counts
}

#[test]
fn requests_follow_the_zones_of_the_fleet() {
    // The worked example of docs: fleet 4/2/2, upstream 3/3/3, this Envoy in zone a.
    let node = "node: {locality: {zone: a}}\ncluster_manager: {local_cluster_name: split.local}";
    let mut local = balancer("split.local", node);
    let mut upstream = balancer("split.orders", node);
    let hosts = Fake::zones(&[("a", 3), ("b", 3), ("c", 3)]);
    upstream.handle_membership(&hosts);
    local.handle_membership(&Fake::zones(&[("a", 4), ("b", 2), ("c", 2)]));
    // A cluster that is added later gets the fleet at once.
    let mut late = balancer("split.late", node);
    late.handle_membership(&hosts);
    for balancer in [&mut upstream, &mut late] {
        let counts = zones(balancer, &hosts, 6_000);
        let expected = [("a", 4_000), ("b", 1_000), ("c", 1_000)];
        for (zone, expected) in expected {
            assert!(counts[zone].abs_diff(expected) <= 150, "{counts:?}");
        }
    }
}

#[test]
fn a_thread_that_is_behind_picks_its_own_healthy_hosts() {
    let mut worker = balancer("behind", "{}");
    assert_eq!(
        worker.choose_host(&Fake::default(), &FakeRequest::default()),
        None
    );
    let engine = Fake::zones(&[("a", 4)]);
    worker.handle_membership(&engine);
    // The engine has four hosts; this thread has one of them and one more.
    let mut own = Fake::zones(&[("a", 1)]);
    own.priorities[0].push(FakeHost::new("b", "10.9.9.9:80"));
    worker.feeds_engine = false;
    worker.handle_membership(&own);
    let counts = zones(&mut worker, &own, 100);
    assert_eq!(counts.values().sum::<u32>(), 100);
    assert!(counts["a"] > 50, "{counts:?}");
    let mut none = own.clone();
    for host in &mut none.priorities[0] {
        host.health = HealthStatus::Unhealthy;
    }
    worker.handle_membership(&none);
    assert_eq!(worker.choose_host(&none, &FakeRequest::default()), None);
}

#[test]
fn unhealthy_and_degraded_hosts_are_never_picked() {
    let mut hosts = Fake::zones(&[("a", 10)]);
    for host in &mut hosts.priorities[0][..6] {
        host.health = HealthStatus::Degraded;
    }
    hosts.priorities[0][6].health = HealthStatus::Unhealthy;
    let mut balancer = balancer("health", "{}");
    balancer.handle_membership(&hosts);
    assert_eq!(zones(&mut balancer, &hosts, 500)["a"], 500);
}

/// Lets the first hosts of the first priority be unhealthy; returns whether a request is served.
fn is_served(balancer: &mut LoadBalancer, hosts: &mut Fake, unhealthy: usize) -> bool {
    for (number, host) in hosts.priorities[0].iter_mut().enumerate() {
        host.health = if number < unhealthy {
            HealthStatus::Unhealthy
        } else {
            HealthStatus::Healthy
        };
    }
    balancer.handle_membership(hosts);
    let mut served = (0..100).map(|_| {
        balancer
            .choose_host(hosts, &FakeRequest::default())
            .is_some()
    });
    let first = served.next().unwrap();
    assert!(served.all(|other| other == first), "all or none");
    first
}

#[test]
fn panic_fails_requests_only_where_that_is_configured() {
    let mut hosts = Fake::zones(&[("a", 10)]);
    let rules = "common_lb_config: {zone_aware_lb_config: {fail_traffic_on_panic: true}}";
    let mut failing = balancer("panic.fails", &format!("cluster: {{{rules}}}"));
    let mut serving = balancer("panic.serves", "{}");
    assert!(is_served(&mut failing, &mut hosts, 5));
    assert!(!is_served(&mut failing, &mut hosts, 6), "below 50 %");
    assert!(is_served(&mut serving, &mut hosts, 6), "by healthy hosts");
    assert!(is_served(&mut failing, &mut hosts, 5), "panic is over");
}

/// A rollout in Kubernetes: terminating pods are draining, and no panic.
#[test]
fn draining_hosts_are_no_panic() {
    let mut hosts = Fake::zones(&[("a", 10)]);
    let rules = "common_lb_config: {zone_aware_lb_config: {fail_traffic_on_panic: true}}";
    let mut balancer = balancer("panic.draining", &format!("cluster: {{{rules}}}"));
    assert!(!is_served(&mut balancer, &mut hosts, 6), "unhealthy: panic");
    for host in &mut hosts.priorities[0][..6] {
        host.health = HealthStatus::Draining;
    }
    balancer.handle_membership(&hosts);
    assert_eq!(zones(&mut balancer, &hosts, 500)["a"], 500);
    hosts.priorities[0][6].health = HealthStatus::Unhealthy;
    hosts.priorities[0][7].health = HealthStatus::Unhealthy;
    balancer.handle_membership(&hosts);
    assert_eq!(zones(&mut balancer, &hosts, 100)["a"], 100, "2 of 4");
    hosts.priorities[0][8].health = HealthStatus::Unhealthy;
    balancer.handle_membership(&hosts);
    let refused = balancer.choose_host(&hosts, &FakeRequest::default());
    assert_eq!(refused, None, "1 of 4");
}

#[test]
fn requests_that_may_not_leave_their_zone_fail_without_a_host_there() {
    let node = "node: {locality: {zone: a}}\ncluster_manager: {local_cluster_name: forced.local}";
    balancer("forced.local", node).handle_membership(&Fake::zones(&[("a", 2), ("b", 2)]));
    let forced = |name: &str, least: u32| {
        let rules = format!("min_cluster_size: 1, force_local_zone: {{min_size: {least}}}");
        balancer(name, &format!("{node}\n{}", zone_aware(&rules)))
    };
    let mut hosts = Fake::zones(&[("a", 1), ("b", 3)]);
    let mut never = forced("forced.never", 0);
    assert!(is_served(&mut never, &mut hosts, 0));
    assert!(!is_served(&mut never, &mut hosts, 1));
    assert!(is_served(&mut forced("forced.leaves", 1), &mut hosts, 1));
}

#[test]
fn retries_reach_another_host() {
    let hosts = Fake::zones(&[("a", 2)]);
    let mut balancer = balancer("retries", "{}");
    balancer.handle_membership(&hosts);
    for _ in 0..100 {
        let retry = FakeRequest {
            reselections: 1,
            rejected: vec![0],
            ..Default::default()
        };
        let slot = balancer.choose_host(&hosts, &retry).unwrap();
        assert_eq!(slot.index, 1);
        // A predicate that rejects all hosts gets the last one.
        let hopeless = FakeRequest {
            reselections: 5,
            rejected: vec![0, 1],
            ..Default::default()
        };
        assert!(balancer.choose_host(&hosts, &hopeless).is_some());
    }
}

#[test]
fn least_request_reads_envoys_gauges() {
    let mut hosts = Fake::zones(&[("a", 2)]);
    hosts.priorities[0][0].active = 100;
    let mut balancer = balancer("gauges", "cluster: {lb_policy: LEAST_REQUEST}");
    balancer.handle_membership(&hosts);
    let mut idle = 0;
    for _ in 0..400 {
        let slot = balancer.choose_host(&hosts, &FakeRequest::default());
        idle += u32::from(slot.unwrap().index == 1);
    }
    // Both draws hit the busy host in a quarter of the picks.
    assert!((250..350).contains(&idle), "{idle}");
}

#[test]
fn hashing_uses_the_hash_of_the_request() {
    let hosts = Fake::zones(&[("a", 5)]);
    let mut balancer = balancer("hash", "cluster: {lb_policy: MAGLEV}");
    balancer.handle_membership(&hosts);
    let mut pick = |hash: u64| {
        let request = FakeRequest {
            hash: Some(hash),
            ..Default::default()
        };
        balancer.choose_host(&hosts, &request).unwrap().index
    };
    let first: Vec<_> = (0..50).map(&mut pick).collect();
    let again: Vec<_> = (0..50).map(&mut pick).collect();
    assert_eq!(first, again);
    assert!(first.iter().any(|index| *index != first[0]));
}

#[test]
fn the_next_priority_takes_over() {
    let mut hosts = Fake::zones(&[("a", 2)]);
    hosts
        .priorities
        .push(vec![FakeHost::new("b", "10.0.9.1:80")]);
    let mut balancer = balancer("priorities", "{}");
    balancer.handle_membership(&hosts);
    assert_eq!(
        zones(&mut balancer, &hosts, 100),
        BTreeMap::from([("a", 100)])
    );
    for host in &mut hosts.priorities[0] {
        host.health = HealthStatus::Unhealthy;
    }
    balancer.handle_membership(&hosts);
    assert_eq!(
        zones(&mut balancer, &hosts, 100),
        BTreeMap::from([("b", 100)])
    );
}

#[test]
fn another_policy_name_is_rejected() {
    let error = PolicyConfig::parse(b"other", b"", true).unwrap_err();
    assert_eq!(error.path(), "lb_policy_name");
    assert!(PolicyConfig::parse(POLICY.as_bytes(), b"\xff", true).is_err());
}

#[test]
fn metrics_are_written_once_per_tick_however_many_requests_there_are() {
    use crate::metrics::MetricKind;
    use crate::metrics::tests::Recorded;

    let node = "node: {locality: {zone: a}}\ncluster_manager: {local_cluster_name: ticks.local}";
    balancer("ticks.local", node).handle_membership(&Fake::zones(&[("a", 4), ("b", 2)]));
    let mut config = PolicyConfig::parse(POLICY.as_bytes(), node.as_bytes(), true).unwrap();
    let recorded = Recorded::default();
    let lines = Arc::clone(&recorded.0);
    let mut counters = 0;
    config.set_metrics(PickMetrics::new(Box::new(recorded), |kind, _| {
        counters += usize::from(kind == MetricKind::Counter);
        Some(if kind == MetricKind::Counter { 0 } else { 1 })
    }));
    let mut worker = LoadBalancer::new(&config, "ticks.orders").unwrap();
    let hosts = Fake::zones(&[("a", 3), ("b", 3)]);
    worker.handle_membership(&hosts);
    let mut picks = |requests| {
        zones(&mut worker, &hosts, requests);
        std::mem::take(&mut *lines.lock().unwrap())
    };
    picks(1);
    assert_eq!(picks(1000), [], "no tick");
    Process::global().advance_tick();
    let written = picks(1000);
    let of = |kind: usize| written.iter().filter(move |(id, ..)| *id == kind);
    // One counter is the sum of two.
    assert!(of(0).count() <= counters + 1, "{written:?}");
    // Every request has counted where it went.
    assert!(of(0).map(|(.., value)| value).sum::<u64>() >= 1000);
    let shares = of(1).filter(|(_, labels, _)| labels == "ticks.orders/a");
    assert!(shares.count() >= 3, "{written:?}");
    assert_eq!(picks(1000), [], "until the next tick");
}
