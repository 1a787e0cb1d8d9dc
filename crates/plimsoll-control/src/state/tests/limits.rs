//! Tests of what peers can make the state keep, and of demand that does not count.

use std::net::IpAddr;

use plimsoll_core::planner::{IgnoreReason, PlannerEvent};

use super::driver::*;
use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::fleet::{OpenRefusal, Peer, StreamKind};
use crate::state::{ControlEvent, Suspicion};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::node::NodeInfo;
use std::sync::Arc;

fn in_fleet(fleet: &str, id: &str, zone: &str) -> NodeInfo {
    let mut info = node(NodeClass::Envoy, id, zone);
    info.node.cluster = fleet.into();
    info
}

fn ignored(driver: &Driver) -> Vec<IgnoreReason> {
    let reason = |event: &ControlEvent| match event {
        ControlEvent::Planner(PlannerEvent::ReportIgnored { reason, .. }) => Some(*reason),
        _ => None,
    };
    driver.events.iter().filter_map(reason).collect()
}

#[test]
fn reports_from_a_zone_without_endpoints_do_not_count() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    let evil = node(NodeClass::Envoy, "evil", "zone-evil");
    for node in [&a, &b, &c, &evil] {
        driver.open(node);
    }
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150), (&evil, 1_000_000)], 3);
    let plan = driver.state.fleet_plan("gateway").unwrap();
    let zones: Vec<_> = plan.zones.iter().map(|zone| zone.locality.zone()).collect();
    assert_eq!(zones, ["a", "b", "c"], "neither its demand nor its host");
    assert_eq!(ignored(&driver), [IgnoreReason::UnknownZone; 3]);
    let suspects = driver.state.suspects();
    let nodes: Vec<_> = suspects
        .recent(Suspicion::UnknownLocality, driver.now)
        .collect();
    assert_eq!(nodes, [&("gateway".into(), "evil".into())]);
}

#[test]
fn a_zone_that_loses_its_endpoints_still_has_demand() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    for node in [&a, &b, &c] {
        driver.open(node);
    }
    let traffic = [(&a, 500), (&b, 350), (&c, 150)];
    driver.traffic(&traffic, 2);
    driver.reload(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders}}, endpoints: [{{locality: {{zone: a}}, \
         lb_endpoints: ['10.0.0.1:80']}}]}}]"
    )));
    driver.traffic(&traffic, 2);
    assert_eq!(ignored(&driver), []);
    assert_eq!(driver.state.fleet_plan("gateway").unwrap().zones.len(), 3);
}

#[test]
fn zones_that_a_rule_of_identities_names_count() {
    let identities = "tls: {certificate: a, private_key: b, client_ca: c}
identities: [{uri: 'spiffe://td/x', zones: [x, 'y*']}]";
    let services = format!("services: [{{cluster: {{name: orders}}, {ENDPOINTS}}}]");
    let mut driver = Driver::with_config(parse(&format!("{HEAD}{identities}\n{services}")));
    let [a, x, y] = ["a", "x", "y1"].map(|zone| node(NodeClass::Envoy, zone, zone));
    for node in [&a, &x, &y] {
        driver.open(node);
    }
    driver.traffic(&[(&a, 100), (&x, 100), (&y, 100)], 3);
    let plan = driver.state.fleet_plan("gateway").unwrap();
    let zones: Vec<_> = plan.zones.iter().map(|zone| zone.locality.zone()).collect();
    assert_eq!(zones, ["a", "x"]);
    assert_eq!(ignored(&driver), [IgnoreReason::UnknownZone; 3], "of y1");
    // Without other zones they limit nothing.
    let services = "services: [{cluster: {name: orders}}]";
    let mut driver = Driver::with_config(parse(&format!("{HEAD}{identities}\n{services}")));
    driver.open(&a);
    driver.traffic(&[(&a, 100)], 3);
    assert_eq!(driver.state.fleet_plan("gateway").unwrap().zones.len(), 1);
}

#[test]
fn repetitions_in_a_report_are_summed_and_not_stored() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    let mut report = stats("orders", 100);
    let entry = report.upstream_locality_stats[0].clone();
    report.upstream_locality_stats = vec![entry; 10];
    let reports = vec![report; 16];
    let counted = driver.state.demand.counted("gateway", &reports);
    let [only] = &counted[..] else {
        panic!("{counted:?}");
    };
    assert_eq!(only.upstream_locality_stats.len(), 1);
    driver.state.handle_report(&a, &reports, driver.now);
    let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
    let scope = view.scopes().next().unwrap();
    let raw: f64 = scope.demand().map(|zone| zone.raw_per_second).sum();
    assert!((raw - 16.0 * 10.0 * 100.0).abs() < 1.0, "{raw}");
}

#[test]
fn without_any_endpoints_every_zone_counts() {
    let mut driver = Driver::with_config(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders}}}}]"
    )));
    let x = node(NodeClass::Envoy, "1", "x");
    driver.open(&x);
    driver.traffic(&[(&x, 100)], 3);
    assert_eq!(driver.state.fleet_plan("gateway").unwrap().zones.len(), 1);
}

#[test]
fn fleets_that_are_gone_leave_nothing_behind() {
    let mut driver = Driver::new("");
    for index in 0..20 {
        let name = format!("fleet-{index}");
        let node = in_fleet(&name, "1", "a");
        let key = driver.open(&node);
        driver.traffic(&[(&node, 100)], 3);
        assert!(driver.state.fleet_plan(&name).is_some());
        driver.close(&node);
        driver.state.handle_output_unused(&key);
        driver.advance(60_000);
        assert!(driver.state.fleet_plan(&name).is_none());
    }
    let scopes = driver.state.demand.plans().scopes();
    assert!(scopes.is_empty(), "{scopes:?}");
    assert!(!driver.state.outputs.has_plans() && driver.state.fleets.due().is_empty());
    let planner = format!("{:?}", driver.state.planner());
    assert!(!planner.contains("fleet-"), "{planner}");
}

#[test]
fn plans_of_clusters_without_demand_are_dropped() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.traffic(&[(&a, 100)], 3);
    assert_eq!(driver.state.demand.plans().scopes().len(), 2);
    driver.advance(10_000);
    let scopes = driver.state.demand.plans().scopes();
    assert!(
        scopes.iter().all(|scope| scope.upstream_cluster.is_none()),
        "{scopes:?}"
    );
}

#[test]
fn limits_of_the_configuration_apply_to_new_streams() {
    let mut driver = Driver::new("");
    let mut config = ControlConfig::clone(driver.state.config());
    config.operation.limits.fleets.fleets = 1;
    driver.reload(Arc::new(config));
    driver.open(&in_fleet("one", "1", "a"));
    let two = in_fleet("two", "2", "a");
    let refused =
        driver
            .state
            .handle_open(&two, StreamKind::Ads, false, &Peer::default(), driver.now);
    assert_eq!(refused, Err(OpenRefusal::Fleets(1)));
    driver.drain();
    let expected = ControlEvent::StreamRefused {
        fleet: "two".into(),
        node: "2".into(),
        refusal: OpenRefusal::Fleets(1),
    };
    assert!(driver.events.contains(&expected));
    // The fleet that made room gets its change of membership.
    driver.close(&in_fleet("one", "1", "a"));
    driver.open(&two);
    assert_eq!(driver.state.fleets().node_count("one"), 0);
    assert!(driver.state.fleets.due().contains_key("one"));
}

#[test]
fn a_duplicate_id_is_refused_and_reported() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    let [first, second] = [1, 2].map(|last| Peer::from(IpAddr::from([10, 0, 0, last])));
    let open = |driver: &mut Driver, peer: &Peer| {
        let now = driver.now;
        driver
            .state
            .handle_open(&a, StreamKind::Lrs, false, peer, now)
    };
    open(&mut driver, &first).unwrap();
    let refusal = open(&mut driver, &second).unwrap_err();
    let expected = OpenRefusal::DuplicateId {
        first: first.clone(),
        second,
    };
    assert_eq!(refusal, expected);
    let suspects = driver.state.suspects();
    assert_eq!(
        suspects.recent(Suspicion::DuplicateId, driver.now).count(),
        1
    );
    open(&mut driver, &first).unwrap();
}

#[test]
fn views_of_unknown_zones_are_one() {
    let mut driver = Driver::new("");
    let [x, y] = ["x", "y"].map(|zone| driver.open(&node(NodeClass::Grpc, zone, zone)));
    assert!(Arc::ptr_eq(driver.view(&x), driver.view(&y)));
    let a = driver.open(&node(NodeClass::Grpc, "1", "a"));
    assert!(!driver.view(&a).has_same_content(driver.view(&x)));
    assert!(Arc::ptr_eq(driver.view(&x), driver.view(&y)), "also now");
}

#[test]
fn a_stream_with_a_new_key_builds_its_own_view_only() {
    let relay = "relay: {address: 'h:1'}\nservices: [{cluster: {name: orders}}]";
    for (config, relays) in [
        (config(""), false),
        (parse(&format!("{HEAD}{relay}")), true),
    ] {
        let mut driver = Driver::with_config(config);
        for node in &fleet(NodeClass::Envoy) {
            driver.open(node);
        }
        driver.advance(60_000);
        driver.published.clear();
        for zone in ["a", "b"].repeat(10) {
            let odd = node(NodeClass::Grpc, "odd", zone);
            let (before, now) = (driver.state.outputs.generation(), driver.now);
            let opened =
                driver
                    .state
                    .handle_open(&odd, StreamKind::Ads, false, &Peer::default(), now);
            let key = opened.unwrap();
            assert!(driver.state.is_current("gateway"));
            let woken = driver.state.poll_traffic();
            assert_eq!(woken, None, "no load reporting stream");
            driver.drain();
            assert_eq!(driver.state.outputs.generation() - before, 1);
            let (view, patch) = (driver.state.view(&key), driver.state.patch(&key));
            assert_eq!((view.is_some(), patch.is_some()), (!relays, relays));
            driver.state.handle_close(&odd, StreamKind::Ads, now);
            driver.state.handle_output_unused(&key);
        }
        assert!(driver.published.is_empty(), "{:?}", driver.published);
    }
}

#[test]
fn a_view_that_is_added_is_the_one_that_a_rebuild_would_make() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    for node in [&a, &b, &c] {
        driver.open(node);
    }
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 30);
    let added = [NodeClass::Grpc, NodeClass::Plimsoll, NodeClass::EnvoyModule].map(|class| {
        let mut other = a.clone();
        other.user_agent_name = node(class, "1", "a").user_agent_name;
        other.client_features = node(class, "1", "a").client_features;
        driver.open(&other)
    });
    let views = added.clone().map(|key| Arc::clone(driver.view(&key)));
    driver.state.outputs.handle_fleet("gateway".into());
    driver.drain();
    for (key, before) in added.iter().zip(&views) {
        assert!(Arc::ptr_eq(driver.view(key), before), "{key:?}");
    }
}

#[test]
fn a_view_whose_content_did_not_change_is_not_published() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    driver.publications(&key);
    let config = Arc::clone(driver.state.config());
    driver.reload(config);
    assert_eq!(driver.publications(&key), 0);
    driver.open(&node(NodeClass::Envoy, "2", "b"));
    assert_eq!(driver.publications(&key), 1, "another zone");
}

#[test]
fn destinations_that_the_service_does_not_have_are_shown_as_one() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    let mut report = stats("orders", 100);
    let mut entry = report.upstream_locality_stats[0].clone();
    for index in 0..500 {
        entry.locality = Locality::zone_only(&format!("z{index}"));
        report.upstream_locality_stats.push(entry.clone());
    }
    driver.state.handle_report(&a, &[report], driver.now);
    let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
    let scope = view.scopes().next().unwrap();
    assert!(scope.flows().count() <= 2);
    let raw: f64 = scope.demand().map(|zone| zone.raw_per_second).sum();
    assert!((raw - 501.0 * 100.0).abs() < 1.0, "{raw}");
}
