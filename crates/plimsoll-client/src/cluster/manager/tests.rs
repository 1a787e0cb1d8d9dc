//! Tests of the manager with paused time: age of the fleet's fractions, when the fleet's assignment
//! is needed, and what the first snapshot contains.

use std::time::Duration;

use plimsoll_core::explain::FractionStatus;
use plimsoll_core::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::yaml::{parse_cluster, parse_upstream_cluster};

use super::*;
use crate::upstream::endpoint::Endpoint;

fn manager() -> ClusterManager {
    ClusterManager::new(settings()).0
}

fn settings() -> Settings {
    Settings {
        locality: Locality::zone_only("a"),
        pools: 1,
        preconnect: false,
        seed: 1,
        outlier_notify: Arc::default(),
        initial_fetch: Arc::default(),
        tracing: Tracing::default(),
    }
}

/// A fleet of one proxy, in the only zone, with all the demand.
fn fleet() -> ClusterLoadAssignment {
    let zone = LocalityParts {
        locality: Locality::zone_only("a"),
        lb_endpoints: vec![LbEndpoint::new(([10, 0, 0, 1], 1).into())],
        observed_traffic_fraction: Some(10_000),
        ..LocalityParts::default()
    };
    let parts = AssignmentParts {
        cluster_name: "local_cluster".to_owned(),
        endpoints: vec![zone],
        ..AssignmentParts::default()
    };
    ClusterLoadAssignment::try_new(parts).unwrap()
}

fn add(manager: &mut ClusterManager, name: &str, policy: &str) {
    let config = parse_cluster(&format!("name: {name}\n{policy}")).unwrap();
    manager.handle(Update::Cluster(Arc::new(config), Arc::default()));
}

fn with_measured_demand() -> String {
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    format!(
        "load_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, typed_config: \
         {{'@type': {policy}.RoundRobin, locality_lb_config: {{zone_aware_lb_config: \
         {{locality_basis: LRS_REPORTED_RATE}}}}}}}}}}]}}"
    )
}

fn status(manager: &mut ClusterManager, name: &str) -> (FractionStatus, Option<u64>) {
    let (reply, mut answer) = oneshot::channel();
    manager.handle(Update::Explain(name.into(), reply));
    let fractions = answer.try_recv().unwrap().unwrap().fractions;
    (fractions.status, fractions.age_ms.map(|age| age / 1000))
}

#[tokio::test(start_paused = true)]
async fn fractions_keep_their_age_for_clusters_added_later() {
    let mut manager = manager();
    manager.handle(Update::Originating(fleet()));
    add(&mut manager, "early", &with_measured_demand());
    assert_eq!(
        status(&mut manager, "early"),
        (FractionStatus::Fresh, Some(0))
    );
    tokio::time::advance(Duration::from_millis(50_500)).await;
    add(&mut manager, "later", &with_measured_demand());
    assert_eq!(
        status(&mut manager, "later"),
        (FractionStatus::Fresh, Some(50))
    );
    tokio::time::advance(Duration::from_secs(11)).await;
    manager.handle_timeout();
    add(&mut manager, "last", &with_measured_demand());
    for name in ["early", "later", "last"] {
        assert_eq!(
            status(&mut manager, name),
            (FractionStatus::Stale, Some(61)),
            "{name}"
        );
    }
    manager.handle(Update::Originating(fleet()));
    for name in ["early", "later", "last"] {
        assert_eq!(
            status(&mut manager, name),
            (FractionStatus::Fresh, Some(0)),
            "{name}"
        );
    }
}

/// A client may get its first LRS response before its clusters, and the next one a heartbeat later.
#[tokio::test(start_paused = true)]
async fn fractions_that_came_before_their_cluster_keep_their_age() {
    let mut manager = manager();
    let observe = |manager: &mut ClusterManager, name: &str, share: u64| {
        let zone = (
            Locality::zone_only("a"),
            BasisPoints::new(share, "").unwrap(),
        );
        let fractions = [zone].into_iter().filter(|_| share > 0);
        let now = manager.clock.now();
        let fractions = fractions.collect();
        manager.handle(Update::ObservedTraffic(name.into(), fractions, now));
    };
    observe(&mut manager, "orders", 10_000);
    observe(&mut manager, "users", 10_000);
    observe(&mut manager, "users", 0);
    tokio::time::advance(Duration::from_millis(20_500)).await;
    for name in ["orders", "users"] {
        add(&mut manager, name, &with_measured_demand());
    }
    let age = |manager: &mut ClusterManager, name: &str| status(manager, name).1;
    assert_eq!(age(&mut manager, "orders"), Some(20));
    assert_eq!(age(&mut manager, "users"), None, "withdrawn");
    // The same holds for a cluster that is removed and comes back.
    manager.handle(Update::Remove("orders".into()));
    add(&mut manager, "orders", &with_measured_demand());
    assert_eq!(age(&mut manager, "orders"), Some(20));
    let names = (0..MAX_OBSERVED + 5).map(|number| format!("cluster-{number}"));
    for name in names {
        observe(&mut manager, &name, 10_000);
    }
    assert_eq!(manager.observed.len(), MAX_OBSERVED);
    observe(&mut manager, "orders", 10_000);
    assert_eq!(age(&mut manager, "orders"), Some(0), "a known name");
}

#[tokio::test(start_paused = true)]
async fn stated_fractions_never_expire() {
    let host = "{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 1}}}}";
    let zone = format!(
        "{{locality: {{zone: a}}, observed_traffic_fraction: 10000, lb_endpoints: [{host}]}}"
    );
    let listed = format!("{{cluster_name: proxies, endpoints: [{zone}]}}");
    let text = format!("name: proxies\ntype: STATIC\nload_assignment: {listed}");
    let proxies = Arc::new(parse_upstream_cluster(&text).unwrap());
    // The fleet comes from the program, or is one of its clusters that lists its hosts.
    let given = vec![Update::StatedFleet(fleet())];
    let cluster = vec![
        Update::LocalCluster(Some("proxies".into())),
        Update::Upstream(proxies),
    ];
    for updates in [given, cluster] {
        let mut manager = manager();
        updates
            .into_iter()
            .for_each(|update| manager.handle(update));
        add(&mut manager, "early", &with_measured_demand());
        tokio::time::advance(Duration::from_secs(3600)).await;
        manager.handle_timeout();
        add(&mut manager, "later", &with_measured_demand());
        for name in ["early", "later"] {
            let stated = (FractionStatus::Fresh, None);
            assert_eq!(status(&mut manager, name), stated, "{name}");
        }
    }
}

#[cfg(feature = "xds")]
#[tokio::test]
async fn the_fleet_is_needed_while_a_cluster_uses_it() {
    let mut manager = manager();
    let mut wanted = manager.fleet_needed();
    let mut poll = || {
        let changed = wanted.has_changed().unwrap();
        (changed, *wanted.borrow_and_update())
    };
    add(&mut manager, "hashed", "lb_policy: RING_HASH");
    assert_eq!(poll(), (false, false));
    add(&mut manager, "orders", "lb_policy: ROUND_ROBIN");
    assert_eq!(poll(), (true, true));
    add(&mut manager, "users", "lb_policy: RANDOM");
    manager.handle(Update::Remove("orders".into()));
    assert_eq!(poll(), (false, true));
    // Replacing the last policy that uses the fleet ends the need for it.
    add(&mut manager, "users", "lb_policy: MAGLEV");
    assert_eq!(poll(), (true, false));
}

#[tokio::test]
async fn hosts_exempt_from_checks_are_healthy_in_their_first_snapshot() {
    let cluster = parse_upstream_cluster(
        "name: orders
type: STATIC
health_checks:
- timeout: 1s
  interval: 1s
  unhealthy_threshold: 1
  healthy_threshold: 1
  tcp_health_check: {}
load_assignment:
  cluster_name: orders
  endpoints:
  - lb_endpoints:
    - endpoint:
        address: {socket_address: {address: 127.0.0.1, port_value: 1}}
        health_check_config: {disable_active_health_check: true}
    - endpoint:
        address: {socket_address: {address: 127.0.0.1, port_value: 2}}
",
    );
    let mut manager = manager();
    manager.handle(Update::Upstream(Arc::new(cluster.unwrap())));
    let clusters = manager.clusters().load_full();
    let mut snapshots = clusters["orders"].snapshots.clone();
    let counts = snapshots.latest().routing().counts(0).unwrap().flat;
    assert_eq!((counts.all, counts.healthy), (2, 1));
    let first = Arc::clone(snapshots.latest());
    manager.publish();
    assert!(Arc::ptr_eq(snapshots.latest(), &first), "published once");
}

fn hosts(ports: &[u16], fields: &str) -> String {
    let host = |port: &u16| {
        let address = format!("socket_address: {{address: 127.0.0.1, port_value: {port}}}");
        format!("{{endpoint: {{address: {{{address}}}, {fields}}}}}")
    };
    let hosts: Vec<String> = ports.iter().map(host).collect();
    let hosts = hosts.join(", ");
    format!("{{cluster_name: orders, endpoints: [{{lb_endpoints: [{hosts}]}}]}}")
}

fn upstream(fields: &str, listed: &str) -> Arc<UpstreamCluster> {
    let text = format!("{{name: orders, type: STATIC, load_assignment: {listed}, {fields}}}");
    Arc::new(parse_upstream_cluster(&text).unwrap())
}

/// Endpoint of the first host in the snapshot that requests see.
fn endpoint(manager: &mut ClusterManager) -> Arc<Endpoint> {
    manager.publish();
    let clusters = manager.clusters().load_full();
    let mut snapshots = clusters["orders"].snapshots.clone();
    let snapshot = snapshots.latest();
    let host = snapshot.routing().hosts().next().unwrap();
    Arc::clone(snapshot.attached(host).unwrap())
}

fn healthy(manager: &mut ClusterManager) -> (u64, u64) {
    manager.publish();
    let clusters = manager.clusters().load_full();
    let mut snapshots = clusters["orders"].snapshots.clone();
    let counts = snapshots.latest().routing().counts(0).unwrap().flat;
    (counts.all, counts.healthy)
}

#[tokio::test]
async fn endpoints_are_replaced_only_if_they_are_dialed_differently() {
    let mut manager = manager();
    let set = |manager: &mut ClusterManager, fields: &str, listed: &str| {
        manager.handle(Update::Upstream(upstream(fields, listed)));
        endpoint(manager)
    };
    let listed = hosts(&[1, 2], "");
    let breakers = "circuit_breakers: {thresholds: [{max_requests: 7}]}";
    let first = set(&mut manager, "", &listed);
    let limited = set(&mut manager, breakers, &listed);
    assert!(Arc::ptr_eq(&first, &limited));
    let clusters = manager.clusters().load_full();
    let options = clusters["orders"].options.load_full();
    assert_eq!(options.circuit_breakers.max_requests, 7);
    let patient = set(&mut manager, "connect_timeout: 9s", &listed);
    assert!(!Arc::ptr_eq(&first, &patient));
    let same = set(&mut manager, "connect_timeout: 9s", &listed);
    assert!(Arc::ptr_eq(&same, &patient));
    let more = "additional_addresses: [{address: {socket_address: \
                {address: 127.0.0.2, port_value: 1}}}]";
    let extended = set(&mut manager, "connect_timeout: 9s", &hosts(&[1, 2], more));
    assert!(!Arc::ptr_eq(&extended, &patient));
    let fewer = set(&mut manager, "connect_timeout: 9s", &hosts(&[1], more));
    assert!(Arc::ptr_eq(&extended, &fewer), "another host is gone");
}

#[tokio::test]
async fn hosts_are_healthy_once_their_check_has_passed() {
    let mut manager = manager();
    let checks = "health_checks: [{timeout: 1s, interval: 1s, unhealthy_threshold: 1, \
                  healthy_threshold: 1, tcp_health_check: {}}]";
    let listed = hosts(&[1, 2], "");
    manager.handle(Update::Upstream(upstream(checks, &listed)));
    assert_eq!(healthy(&mut manager), (2, 0));
    let passed = |port: u16, check| Update::Checked {
        cluster: "orders".into(),
        address: ([127, 0, 0, 1], port).into(),
        check,
        signal: HealthSignal::ActiveCheckPassed,
    };
    manager.handle(passed(2, 0));
    assert_eq!(healthy(&mut manager), (2, 1));
    // A result of a check that does not exist, and of a host that is gone.
    manager.handle(passed(1, 1));
    manager.handle(passed(3, 0));
    assert_eq!(healthy(&mut manager), (2, 1));
    manager.handle(passed(1, 0));
    assert_eq!(healthy(&mut manager), (2, 2));
}

#[tokio::test]
async fn health_of_the_program_applies_to_its_cluster_and_host() {
    let mut manager = manager();
    manager.handle(Update::Upstream(upstream("", &hosts(&[1, 2], ""))));
    let address = ([127, 0, 0, 1], 1).into();
    let failed = HealthSignal::ActiveCheckFailed;
    manager.handle(Update::Health("others".into(), address, failed));
    assert_eq!(healthy(&mut manager), (2, 2));
    manager.handle(Update::Health("orders".into(), address, failed));
    assert_eq!(healthy(&mut manager), (2, 1));
    let (reply, mut answer) = oneshot::channel();
    manager.handle(Update::Status(reply));
    let [status] = &answer.try_recv().unwrap()[..] else {
        panic!("one cluster");
    };
    assert_eq!((&*status.name, status.added_via_api), ("orders", false));
    let ports: Vec<u16> = status
        .hosts
        .iter()
        .map(|of| of.host.address().port())
        .collect();
    assert_eq!(ports, [1, 2]);
    assert_ne!(status.hosts[0].health, status.hosts[1].health);
}

#[tokio::test(start_paused = true)]
async fn timers_of_clusters_are_served_when_they_are_due() {
    let mut manager = manager();
    let idle = |seconds: u64| {
        let protocol = "type.googleapis.com/envoy.extensions.upstreams.http.v3";
        format!(
            "typed_extension_protocol_options: {{envoy.extensions.upstreams.http.v3.\
             HttpProtocolOptions: {{'@type': {protocol}.HttpProtocolOptions, \
             common_http_protocol_options: {{idle_timeout: {seconds}s}}, \
             explicit_http_config: {{http_protocol_options: {{}}}}}}}}"
        )
    };
    assert_eq!(manager.deadline(), None);
    let cluster = upstream(&idle(8), &hosts(&[1], ""));
    manager.handle(Update::Upstream(cluster));
    let after = |manager: &ClusterManager| {
        let now = manager.clock.now();
        manager.deadline().unwrap().saturating_duration_since(now)
    };
    // Expired connections are looked for four times per idle timeout.
    assert_eq!(after(&manager), Duration::from_secs(2));
    tokio::time::advance(Duration::from_millis(1500)).await;
    manager.handle_timeout();
    assert_eq!(after(&manager), Duration::from_millis(500));
    tokio::time::advance(Duration::from_millis(500)).await;
    manager.handle_timeout();
    assert_eq!(after(&manager), Duration::from_secs(2));
}

#[tokio::test]
async fn every_change_of_the_list_of_clusters_has_its_epoch() {
    let mut manager = manager();
    let epoch = manager.epoch();
    let epoch = || epoch.load(Ordering::Relaxed);
    let start = epoch();
    manager.handle(Update::Upstream(upstream("", &hosts(&[1], ""))));
    assert_eq!(epoch(), start + 1);
    manager.handle(Update::Upstream(upstream("", &hosts(&[1, 2], ""))));
    assert_eq!(epoch(), start + 1);
    manager.handle(Update::Remove("others".into()));
    assert_eq!(epoch(), start + 1);
    manager.handle(Update::Remove("orders".into()));
    assert_eq!(epoch(), start + 2);
    assert!(manager.clusters().load().is_empty());
}

#[tokio::test]
async fn names_are_resolved_while_their_cluster_exists() {
    let dns = |kind: &str| {
        let host = "{endpoint: {address: {socket_address: {address: localhost, port_value: 1}}}}";
        let listed = format!("{{cluster_name: orders, endpoints: [{{lb_endpoints: [{host}]}}]}}");
        let text = format!("{{name: orders, type: {kind}, load_assignment: {listed}}}");
        Arc::new(parse_upstream_cluster(&text).unwrap())
    };
    let (mut manager, _updates) = ClusterManager::new(settings());
    manager.handle(Update::Upstream(dns("STRICT_DNS")));
    let resolved = manager.updates.recv().await;
    let Some(Update::Endpoints(name, endpoints)) = resolved else {
        panic!("{resolved:?}");
    };
    assert_eq!(&*name, "orders");
    assert_eq!(endpoints.assignment.endpoints().len(), 1);
    assert_eq!(manager.dns.count(), 1);
    manager.handle(Update::Upstream(upstream("", &hosts(&[1], ""))));
    assert_eq!(manager.dns.count(), 0, "the hosts are addresses now");
    manager.handle(Update::Upstream(dns("LOGICAL_DNS")));
    assert_eq!(manager.dns.count(), 1);
    manager.handle(Update::Remove("orders".into()));
    assert_eq!(manager.dns.count(), 0);
}
