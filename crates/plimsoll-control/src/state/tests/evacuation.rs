//! A zone that is drained leaves what every class of nodes gets, by steps and unhealthy hosts by
//! none, and comes back as it was.

use plimsoll_core::evacuation::{Check, DrainRequest, Origin, ZoneName, ZoneState};
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_xds::wire::decode_assignment;

use super::driver::{Driver, fleet, parse};
use crate::delivery::NodeClass;
use crate::evacuation::ZoneCommand;
use crate::output::ViewKey;
use crate::state::ControlEvent;

fn zone(name: &str) -> ZoneName {
    ZoneName::try_new(name).unwrap()
}

fn drain(driver: &mut Driver, name: &str) {
    let request = DrainRequest {
        zone: zone(name),
        origin: Origin::Operator,
        by: "ada".into(),
        reason: "power".into(),
        for_ms: None,
        step_ms: 10_000,
        return_ms: 300_000,
        partial: false,
        force: false,
    };
    let check = Check {
        allowed: 100,
        ..Check::default()
    };
    let command = ZoneCommand::Drain(request, Box::new(check));
    driver.state.handle_command(command, driver.now).unwrap();
    driver.drain();
}

fn give_back(driver: &mut Driver, name: &str) {
    let command = ZoneCommand::Return {
        zone: zone(name),
        by: "ada".into(),
    };
    driver.state.handle_command(command, driver.now).unwrap();
    driver.drain();
}

fn sent(driver: &Driver, key: &ViewKey) -> ClusterLoadAssignment {
    let resource = driver.assignment(key, "orders").unwrap();
    decode_assignment(&resource.body).unwrap()
}

fn hosts(assignment: &ClusterLoadAssignment, name: &str) -> usize {
    let entries = assignment.endpoints().iter();
    let own = entries.filter(|entry| entry.locality.zone() == name);
    own.map(|entry| entry.lb_endpoints.len()).sum()
}

#[test]
fn a_drained_zone_leaves_every_delivery_and_comes_back_as_it_was() {
    for mode in [
        "",
        "mode: SHADOW",
        "mode: 'OFF'",
        "delivery: LOCALITY_WEIGHTS",
    ] {
        for class in NodeClass::ALL {
            let mut driver = Driver::new(mode);
            let nodes = fleet(class);
            let keys: Vec<ViewKey> = nodes.iter().map(|node| driver.open(node)).collect();
            let traffic = [(&nodes[0], 50), (&nodes[1], 35), (&nodes[2], 15)];
            driver.traffic(&traffic, 60);
            let before: Vec<_> = keys.iter().map(|key| sent(&driver, key)).collect();
            let all = hosts(&before[0], "b");
            drain(&mut driver, "b");
            let mut seen = vec![all];
            for _ in 0..90 {
                driver.traffic(&traffic, 1);
                let now = sent(&driver, &keys[0]);
                let left = hosts(&now, "b");
                assert!(
                    left <= seen[seen.len() - 1],
                    "{mode} {class:?}: hosts only leave"
                );
                seen.push(left);
                let mut endpoints = now.endpoints().iter().flat_map(|entry| &entry.lb_endpoints);
                let is_well =
                    |status| !matches!(status, HealthStatus::Unhealthy | HealthStatus::Draining);
                assert!(endpoints.all(|endpoint| is_well(endpoint.health_status)));
            }
            seen.dedup();
            assert_eq!(
                seen.len(),
                all + 1,
                "{mode} {class:?}: one host after the other"
            );
            for key in &keys {
                let out = sent(&driver, key);
                assert_eq!(hosts(&out, "b"), 0, "{mode} {class:?}");
                assert_eq!(hosts(&out, "a") + hosts(&out, "c"), 5, "{mode} {class:?}");
            }
            give_back(&mut driver, "b");
            driver.traffic(&traffic, 330);
            let after: Vec<_> = keys.iter().map(|key| sent(&driver, key)).collect();
            for (before, after) in before.iter().zip(&after) {
                for name in ["a", "b", "c"] {
                    assert_eq!(hosts(before, name), hosts(after, name), "{mode} {class:?}");
                }
            }
            let states = driver.events.iter().filter_map(|event| match event {
                ControlEvent::ZoneMoved { state, .. } => Some(*state),
                _ => None,
            });
            let expected = [
                ZoneState::Draining,
                ZoneState::Out,
                ZoneState::Returning,
                ZoneState::InService,
            ];
            assert_eq!(states.collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn a_zone_that_is_drained_stays_out_while_files_are_edited() {
    let mut driver = Driver::new("");
    let key = driver.open(&fleet(NodeClass::Envoy)[0]);
    drain(&mut driver, "b");
    driver.advance(100_000);
    assert_eq!(hosts(&sent(&driver, &key), "b"), 0);
    let edited = super::driver::config("ramp: 50");
    driver.reload(edited);
    assert_eq!(hosts(&sent(&driver, &key), "b"), 0);
    give_back(&mut driver, "b");
    driver.advance(400_000);
    assert!(hosts(&sent(&driver, &key), "b") > 0);
}

#[test]
fn hosts_that_pass_health_checks_leave_as_well() {
    let text = "services: [{cluster: {name: orders, health_checks: [{timeout: 1s, interval: 1s, \
                unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}}]}, endpoints: \
                [{locality: {zone: a}, lb_endpoints: [{endpoint: {address: {socket_address: \
                {address: 10.0.0.1, port_value: 80}}}}]}, {locality: {zone: b}, lb_endpoints: \
                [{endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}}]}]}]";
    let mut driver = Driver::with_config(parse(text));
    driver.open(&fleet(NodeClass::Envoy)[0]);
    let ignores = |driver: &Driver| {
        let service = driver.state.service("orders").unwrap();
        service.settings.written().ignore_health_on_host_removal
    };
    assert!(!ignores(&driver));
    drain(&mut driver, "b");
    driver.advance(90_000);
    assert!(ignores(&driver));
    give_back(&mut driver, "b");
    driver.advance(400_000);
    assert!(!ignores(&driver));
}
