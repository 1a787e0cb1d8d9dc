//! What clusters that come late are given, with time under control.

use std::time::Duration;

use plimsoll_core::explain::FractionStatus;
use plimsoll_core::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use plimsoll_xds::yaml::parse_cluster;

use super::*;

fn manager() -> ClusterManager {
    let settings = Settings {
        locality: Locality::zone_only("a"),
        pools: 1,
        preconnect: false,
        seed: 1,
        suspicion: Arc::default(),
    };
    ClusterManager::new(settings).0
}

/// A proxy in the only zone, which has all the demand.
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

fn measured() -> String {
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
async fn a_cluster_that_comes_later_does_not_make_fractions_fresh() {
    let mut manager = manager();
    manager.handle(Update::Originating(fleet()));
    add(&mut manager, "early", &measured());
    assert_eq!(
        status(&mut manager, "early"),
        (FractionStatus::Fresh, Some(0))
    );
    tokio::time::advance(Duration::from_millis(50_500)).await;
    add(&mut manager, "later", &measured());
    assert_eq!(
        status(&mut manager, "later"),
        (FractionStatus::Fresh, Some(50))
    );
    tokio::time::advance(Duration::from_secs(11)).await;
    manager.handle_timeout();
    add(&mut manager, "last", &measured());
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

#[tokio::test]
async fn the_fleet_is_wanted_while_a_cluster_can_use_it() {
    let mut manager = manager();
    let mut wanted = manager.fleet_wanted();
    let mut news = || {
        let changed = wanted.has_changed().unwrap();
        (changed, *wanted.borrow_and_update())
    };
    add(&mut manager, "hashed", "lb_policy: RING_HASH");
    assert_eq!(news(), (false, false));
    add(&mut manager, "orders", "lb_policy: ROUND_ROBIN");
    assert_eq!(news(), (true, true));
    add(&mut manager, "users", "lb_policy: RANDOM");
    manager.handle(Update::Remove("orders".into()));
    assert_eq!(news(), (false, true));
    // Other settings count as well.
    add(&mut manager, "users", "lb_policy: MAGLEV");
    assert_eq!(news(), (true, false));
}
