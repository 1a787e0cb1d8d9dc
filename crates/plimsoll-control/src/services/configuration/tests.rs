//! Tests of the owner of services, without the other owners.

use plimsoll_core::model::locality::Locality;

use super::*;
use crate::services::{Found, SourceId};
use crate::state::tests::driver::{HEAD, config, parse};

fn service(name: &str, zone: &str, rest: &str) -> String {
    format!(
        "{{cluster: {{name: {name}}}, {rest} endpoints: [{{locality: {{zone: {zone}}}, \
         lb_endpoints: ['10.0.0.1:80']}}]}}"
    )
}

fn file(rest: &str, services: &[String]) -> Arc<ControlConfig> {
    parse(&format!("{HEAD}{rest}services: [{}]", services.join(", ")))
}

fn names(change: &Change) -> Vec<&str> {
    change.services.names.iter().map(AsRef::as_ref).collect()
}

fn discovered(name: &str, zone: &str) -> ServiceChanges {
    let parsed = file("", &[service(name, zone, "")]);
    let found = Found {
        service: Arc::clone(&parsed.services[name]),
        object: Some("Service n/x".into()),
    };
    ServiceChanges {
        source: SourceId::Kubernetes,
        is_complete: false,
        services: [(name.into(), Some(found))].into(),
    }
}

#[test]
fn a_change_names_what_changed_and_no_more() {
    let both = |orders: &str, zone: &str| {
        let carts = service("carts", "a", "");
        file("", &[service("orders", zone, orders), carts])
    };
    let mut configuration = Configuration::new(both("", "a"));
    assert_eq!(configuration.poll_change(), None, "it starts with that");
    for (orders, zone, expected) in [
        ("", "a", (&[][..], false, false)),
        ("", "b", (&["orders"][..], false, true)),
        ("mode: SHADOW,", "b", (&["orders"], true, false)),
        ("mode: SHADOW,", "a", (&["orders"], false, false)),
    ] {
        configuration.handle_config(both(orders, zone), Instant::ORIGIN);
        let change = configuration.poll_change().unwrap();
        let (expected, settings, has_new_zones) = expected;
        assert_eq!(names(&change), expected, "{orders} {zone}");
        assert_eq!(change.services.settings, settings, "{orders} {zone}");
        assert_eq!(change.has_new_zones, has_new_zones, "{orders} {zone}");
        assert!(change.is_edit && !change.is_all && !change.is_other_relay);
        assert_eq!(configuration.poll_change(), None);
    }
}

#[test]
fn another_setting_of_the_file_changes_everything() {
    let services = [service("orders", "a", "")];
    let mut configuration = Configuration::new(file("", &services));
    configuration.handle_config(
        file("fleets: {leave_after: 1s}\n", &services),
        Instant::ORIGIN,
    );
    let change = configuration.poll_change().unwrap();
    assert!(change.is_all && change.services.names.is_empty());
    let settings = configuration.fleet_settings();
    assert_eq!(settings.leave_after, Duration::from_secs(1));
}

#[test]
fn services_of_other_sources_are_in_force_beside_those_of_the_files() {
    let mut configuration = Configuration::new(file("", &[service("orders", "a", "")]));
    configuration.handle_services(discovered("carts", "b"));
    let change = configuration.poll_change().unwrap();
    assert_eq!((names(&change), change.is_edit), (vec!["carts"], false));
    assert!(change.has_new_zones && change.services.settings);
    let zones = configuration.fleet_settings().counted.unwrap();
    assert_eq!(zones, ["a", "b"].map(Locality::zone_only).into());
    assert_eq!(configuration.in_force().services.len(), 2);
    assert_eq!(configuration.files().services.len(), 1);
    // That of the file wins, so that nothing changes.
    configuration.handle_services(discovered("orders", "c"));
    assert_eq!(configuration.poll_change(), None);
    let conflict = configuration.poll_event();
    assert!(matches!(conflict, Some(ControlEvent::ServiceConflict(_))));
}

#[test]
fn what_a_relayed_server_sends_changes_everything_once() {
    let relay = "relay: {address: '127.0.0.1:1'}\n";
    let named = "services: [{cluster: {name: orders}}]";
    for (services, changes) in [(named, true), ("", false)] {
        let mut configuration = Configuration::new(parse(&format!("{HEAD}{relay}{services}")));
        let theirs = RelayedResource::cluster_of(&config("").services["orders"], "1");
        configuration.handle_relayed(theirs.clone());
        let change = configuration.poll_change();
        assert_eq!(change.is_some_and(|change| change.is_all), changes);
        configuration.handle_relayed(theirs);
        assert_eq!(configuration.poll_change(), None, "the same again");
        assert_eq!(configuration.wants_all_reports(), !changes);
    }
}

#[test]
fn another_relayed_server_is_a_change_of_its_own() {
    let relay = |port| {
        let services = "services: [{cluster: {name: orders}}]";
        parse(&format!(
            "{HEAD}relay: {{address: '127.0.0.1:{port}'}}\n{services}"
        ))
    };
    let mut configuration = Configuration::new(relay(1));
    let theirs = RelayedResource::cluster_of(&config("").services["orders"], "1");
    configuration.handle_relayed(theirs);
    assert!(configuration.relayed().body("orders").is_some());
    configuration.handle_config(relay(2), Instant::ORIGIN);
    let change = configuration.poll_change().unwrap();
    assert!(change.is_other_relay && change.is_all);
    assert!(configuration.relayed().body("orders").is_none());
}

#[test]
fn zones_that_slices_invent_are_forgotten_before_those_that_were_there() {
    let mut configuration = Configuration::new(file("", &[service("orders", "a", "")]));
    configuration.handle_services(discovered("carts", "b"));
    // Zone b has no endpoints any more, and each invented zone has them for a moment.
    for zone in 0..3 * MAX_FORMER_ZONES {
        configuration.handle_services(discovered("carts", &format!("fake-{zone}")));
    }
    let zones = configuration.fleet_settings().counted.unwrap();
    assert!(zones.len() <= MAX_FORMER_ZONES + 2, "{}", zones.len());
    for kept in ["a", "b", "fake-0", "fake-191"] {
        assert!(zones.contains(&Locality::zone_only(kept)), "{kept}");
    }
    assert!(!zones.contains(&Locality::zone_only("fake-190")));
}
