//! Tests of the manager with paused time: age of the fleet's fractions, when the fleet's assignment
//! is needed, and what the first snapshot contains.

use std::time::Duration;

use plimsoll_core::explain::FractionStatus;
use plimsoll_core::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use plimsoll_xds::yaml::{parse_cluster, parse_upstream_cluster};

use super::*;

fn manager() -> ClusterManager {
    let settings = Settings {
        locality: Locality::zone_only("a"),
        pools: 1,
        preconnect: false,
        seed: 1,
        outlier_notify: Arc::default(),
        initial_fetch: Arc::default(),
        tracing: Tracing::default(),
    };
    ClusterManager::new(settings).0
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
