//! Priorities and eligible hosts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::assignment::AssignmentParts;
use plimsoll_core::model::health::{HealthClass, HealthFlags};
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::picker::{PickArgs, PickError, PickResult};
use plimsoll_core::snapshot::RoutingSnapshot;
use proptest::prelude::*;

use super::cases;
use super::generate;
use crate::support::{Driver, at, config};

/// Adds the policy fields that affect the health of a priority.
fn with_policy(
    parts: impl Strategy<Value = AssignmentParts>,
) -> impl Strategy<Value = AssignmentParts> {
    (parts, proptest::option::of(1_u32..300), any::<bool>()).prop_map(
        |(mut parts, factor, weighted)| {
            parts.overprovisioning_factor = factor;
            parts.weighted_priority_health = weighted;
            parts
        },
    )
}

/// Checks that loads sum to 100, and that a priority with load has hosts for it.
fn check_loads(snapshot: &RoutingSnapshot, threshold: u32) -> Result<(), TestCaseError> {
    let loads = snapshot.loads();
    let sets: Vec<_> = (0..)
        .map_while(|priority| snapshot.counts(priority))
        .collect();
    prop_assert_eq!(sets.len(), loads.healthy_load().len());
    let hosts: u64 = sets.iter().map(|set| set.flat.all).sum();
    let scores = loads.health().iter().chain(loads.degraded_availability());
    let available: u32 = scores.sum();
    if hosts == 0 || (threshold == 0 && available == 0) {
        // No host is available: priority 0 takes everything, independent of the other entries.
        prop_assert_eq!(loads.healthy_load()[0], 100);
        return Ok(());
    }
    let total_panic = loads.panic().iter().all(|&panic| panic);
    if available == 0 && !total_panic {
        return Ok(()); // scores rounded down to nothing: loads stay as they were, as in Envoy
    }
    let sum: u32 = loads
        .healthy_load()
        .iter()
        .chain(loads.degraded_load())
        .sum();
    prop_assert_eq!(sum, 100, "{:?}", loads);
    for (priority, set) in sets.iter().enumerate() {
        let load = (
            loads.healthy_load()[priority],
            loads.degraded_load()[priority],
        );
        if total_panic {
            prop_assert!(load.0 == 0 || set.flat.all > 0, "{priority}: {loads:?}");
            prop_assert_eq!(load.1, 0);
        } else {
            prop_assert!(load.0 == 0 || set.flat.healthy > 0, "{priority}: {loads:?}");
            prop_assert!(
                load.1 == 0 || set.flat.degraded > 0,
                "{priority}: {loads:?}"
            );
        }
        if available >= 100 {
            prop_assert!(
                !loads.panic()[priority],
                "no panic while total health is sufficient"
            );
        }
    }
    Ok(())
}

/// Returns the health of each address in the assignment.
fn health_of(parts: &AssignmentParts) -> BTreeMap<SocketAddr, HealthClass> {
    let endpoints = parts.endpoints.iter().flat_map(|entry| &entry.lb_endpoints);
    let class = |status| HealthFlags::from_eds(status).class();
    endpoints
        .map(|endpoint| (endpoint.address, class(endpoint.health_status)))
        .collect()
}

proptest! {
    #![proptest_config(cases(192))]

    /// Also after the hosts of an earlier assignment were removed: Envoy keeps loads between
    /// updates.
    #[test]
    fn priority_loads_sum_to_100(
        before in with_policy(generate::assignment(3, 4, generate::any_health())),
        after in with_policy(generate::assignment(3, 4, generate::any_health())),
        threshold in 0_u32..=100,
    ) {
        let config = config(|parts| {
            parts.healthy_panic_threshold = Some(f64::from(threshold));
        });
        let mut driver = Driver::new(config, "a");
        for (second, parts) in (0..).zip([before, after]) {
            driver.assignment(parts, at(second));
            check_loads(&driver.snapshot(), threshold)?;
        }
    }

    /// With real picks: the host is in the list that the pick names, and the list has only hosts of
    /// its class; a request without a host has a known reason.
    #[test]
    fn only_eligible_hosts_get_traffic(
        config in generate::cluster_config(),
        upstream in generate::assignment(4, 3, generate::healthy_or_not()),
        fleet in generate::fleet(4),
        seed in any::<u64>(),
    ) {
        let health = health_of(&upstream);
        let healthy = health.values().filter(|&&class| class == HealthClass::Healthy).count();
        let mut driver = Driver::new(config.clone(), "a");
        driver.assignment(upstream, at(0));
        driver.originating(fleet, at(0));
        let snapshot = driver.snapshot();
        let mut picker = driver.picker(seed);
        let stats = picker.stats().clone();
        let zone_aware = config.zone_aware();
        let fails = zone_aware.is_some_and(ZoneAware::fail_traffic_on_panic);
        let forced = zone_aware.and_then(ZoneAware::force_local_zone) == Some(0);
        for _ in 0..100 {
            let no_capacity = stats.lb_zone_no_capacity_left.get();
            match picker.pick(PickArgs::default()) {
                PickResult::Complete(pick) => {
                    let counts = snapshot.counts(pick.priority).expect("a priority there is");
                    let class = health[&pick.host.address()];
                    match pick.source {
                        HostSource::AllHosts => {
                            prop_assert!(snapshot.loads().panic()[pick.priority]);
                        }
                        HostSource::HealthyHosts => prop_assert_eq!(class, HealthClass::Healthy),
                        HostSource::LocalityHealthyHosts(slot) => {
                            prop_assert_eq!(class, HealthClass::Healthy);
                            let slot = &counts.localities[slot];
                            prop_assert_eq!(&slot.locality, pick.host.locality());
                            prop_assert!(slot.healthy > 0);
                        }
                        source => prop_assert!(false, "{source:?} without degraded hosts"),
                    }
                }
                PickResult::Fail(PickError::Panic) => prop_assert!(fails),
                PickResult::Fail(PickError::NoHost) => {
                    let classic = stats.lb_zone_no_capacity_left.get() > no_capacity;
                    let excused = healthy == 0 || classic || forced;
                    prop_assert!(excused, "no host although {healthy} are healthy");
                    if classic {
                        let basis = zone_aware.map(ZoneAware::locality_basis);
                        let measured = snapshot.explain().fractions.origin.is_some();
                        let lrs = basis == Some(LocalityBasis::LrsReportedRate);
                        prop_assert!(!(lrs && measured) || healthy == 0, "measured: never empty");
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
