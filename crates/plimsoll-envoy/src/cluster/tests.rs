//! Tests of what a cluster says in Envoy's log.

use std::time::Duration;

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::units::BasisPoints;

use super::*;
use crate::config::ModuleConfig;
use crate::host_sets::assignment;
use crate::host_sets::tests::{Fake, zone_aware};
use crate::log::Level;
use crate::log::tests::lines_of;

const NOW: Instant = Instant::from_secs(1);

fn cluster() -> Cluster {
    let rules = "min_cluster_size: 1, locality_basis: LRS_REPORTED_RATE, \
                 lrs_rate_config: {staleness_threshold: 60s}";
    let module = ModuleConfig::parse(&zone_aware(rules)).unwrap();
    let config = module.cluster("orders").unwrap();
    Cluster::new(config, Locality::zone_only("a"), None, NOW)
}

fn hosts(unhealthy: usize) -> ClusterLoadAssignment {
    let mut hosts = Fake::zones(&[("a", 2), ("b", 2)]);
    for host in &mut hosts.priorities[0][..unhealthy] {
        host.health = HealthStatus::Unhealthy;
    }
    assignment(&hosts, "orders").unwrap()
}

fn demand(a: u64) -> FractionMap {
    let fraction = |value| BasisPoints::new(value, "fraction").unwrap();
    let zones = [("a", a), ("b", 10_000 - a)];
    zones
        .map(|(zone, share)| (Locality::zone_only(zone), fraction(share)))
        .into()
}

/// Asserts that there is one line of this level with all these parts.
fn assert_line(lines: &[(Level, String)], level: Level, parts: &[&str]) {
    let fits = |(one, line): &&(Level, String)| {
        *one == level && parts.iter().all(|part| line.contains(part))
    };
    assert_eq!(
        lines.iter().filter(fits).count(),
        1,
        "{parts:?}: {lines:#?}"
    );
}

#[test]
fn stale_demand_is_a_warning_with_its_age_and_fresh_demand_ends_it() {
    let cluster = cluster();
    let later = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    let routed = lines_of(|| {
        cluster.handle_fleet(hosts(0), NOW);
        cluster.handle_hosts(hosts(0), NOW);
        cluster.handle_observed_traffic(demand(7000), NOW, NOW);
    });
    let state = [
        "zone-aware routing changed state",
        "cluster=\"orders\"",
        "LocalityResidual",
    ];
    assert_line(&routed, Level::Info, &state);
    let before = lines_of(|| cluster.handle_timeout(later(59)));
    assert_eq!(before, [], "the last demand is kept");
    let stale = lines_of(|| cluster.handle_timeout(later(61)));
    let parts = [
        "fractions are stale",
        "cluster=\"orders\"",
        "age_s=",
        "threshold_s=60.0",
    ];
    assert_line(&stale, Level::Warn, &parts);
    let again = lines_of(|| cluster.handle_timeout(later(300)));
    assert_eq!(again, [], "once");
    let fresh = lines_of(|| {
        cluster.handle_observed_traffic(demand(6000), later(301), later(301));
    });
    assert_line(
        &fresh,
        Level::Info,
        &["fractions are fresh again", "LrsResponse"],
    );
    cluster.update_tick_values(1, later(302));
    let stats = cluster.tick_values().stats.clone().unwrap();
    let of = |name| stats.get(name).unwrap();
    assert_eq!(
        (of("lrs_fractions_stale"), of("lrs_fractions_received")),
        (1, 2)
    );
    assert!(of("lb_recalculate_zone_structures") > 0);
}

#[test]
fn panic_is_a_warning_and_its_end_is_a_line() {
    let cluster = cluster();
    cluster.handle_hosts(hosts(0), NOW);
    let panic = lines_of(|| cluster.handle_hosts(hosts(3), NOW));
    assert_line(&panic, Level::Warn, &["entered panic mode", "priority=0"]);
    let over = lines_of(|| cluster.handle_hosts(hosts(0), NOW));
    assert_line(&over, Level::Info, &["left panic mode", "priority=0"]);
}
