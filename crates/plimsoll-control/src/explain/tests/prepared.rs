//! Input of explanations: which proxy, demand and resources they are about.

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};

use super::settings::load_aware;
use super::*;
use crate::relay::RelayedResource;
use crate::state::tests::driver::{config, node};

fn question() -> Question {
    Question {
        cluster: "orders".to_owned(),
        ..Question::default()
    }
}

/// A fleet of one class with demand 50/35/15 % in zones a, b and c.
fn measured(mut driver: Driver, class: NodeClass) -> Driver {
    let [a, b, c] = fleet(class);
    for node in [&a, &b, &c] {
        driver.open(node);
    }
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
    driver
}

#[test]
fn questions_about_too_many_zones_are_refused() {
    let names = |count: usize| (0..count).map(|index| format!("z{index}"));
    for (hosts, demand, refused) in [(2, 2, None), (3, 0, Some("hosts")), (0, 3, Some("demand"))] {
        let question = Question {
            hosts: names(hosts).map(|zone| (zone, 1)).collect(),
            demand: names(demand).map(|zone| (zone, 1.0)).collect(),
            ..question()
        };
        let error = |field| FieldError::new(field, "3 zones exceed the limit of 2");
        assert_eq!(question.check(2).err(), refused.map(error));
    }
}

#[test]
fn only_a_large_fleet_is_explained_by_a_sample() {
    let mut driver = Driver::new("");
    let gateway: Arc<str> = "gateway".into();
    let plan_of = |driver: &Driver| driver.state.fleet_plan("gateway").unwrap().clone();
    for id in 0..MAX_ENDPOINTS {
        driver.open(&node(NodeClass::Envoy, &id.to_string(), "a"));
    }
    let plan = plan_of(&driver);
    assert_eq!(plan.counts.flat.all, 1, "the others are not published yet");
    assert_eq!(sample(&driver.state, &gateway, &plan), None);
    for id in MAX_ENDPOINTS..250 {
        driver.open(&node(NodeClass::Envoy, &id.to_string(), "a"));
    }
    driver.advance(1000);
    let mut plan = plan_of(&driver);
    assert_eq!(
        sample(&driver.state, &gateway, &plan),
        Some((250, MAX_ENDPOINTS))
    );
    let addresses = (1..=250_u8).map(|host| ([10, 0, 0, host], 80).into());
    let zone = LocalityParts::new(Locality::zone_only("a"), addresses);
    let parts = AssignmentParts::new("gateway", [zone]);
    plan.assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    assert_eq!(
        sample(&driver.state, &gateway, &plan),
        None,
        "all are there"
    );
}

#[test]
fn fleet_weights_are_explained_as_the_demand_that_they_represent() {
    let by_demand = LocalityBasis::LrsReportedRate;
    for (is_measured, asked, basis) in [
        (false, false, LocalityBasis::HealthyHostsWeight),
        (false, true, by_demand),
        (true, false, by_demand),
        (true, true, by_demand),
    ] {
        let mut driver = Driver::new("");
        let [a, ..] = fleet(NodeClass::Envoy);
        driver.open(&a);
        if is_measured {
            driver = measured(driver, NodeClass::Envoy);
        }
        let question = Question {
            demand: asked.then(|| ("a".to_owned(), 1.0)).into_iter().collect(),
            ..question()
        };
        let explained = explain(&driver.state, &question, driver.now).unwrap();
        assert_eq!(explained.locality_basis, Some(basis), "{question:?}");
    }
}

#[test]
fn loads_are_those_of_measured_demand_unless_a_proxy_explains_itself() {
    for class in CLASSES {
        let driver = measured(Driver::new(""), class);
        for (every_zone, asked) in [(false, false), (true, false), (false, true), (true, true)] {
            let question = Question {
                demand: asked.then(|| ("a".to_owned(), 1.0)).into_iter().collect(),
                every_zone,
                ..question()
            };
            let prepared = Prepared::new(&driver.state, &question, driver.now).unwrap();
            let rounded = |demand: Vec<(Locality, f64)>| -> Vec<_> {
                let rows = demand.into_iter();
                rows.map(|(zone, rate)| (zone.zone().to_owned(), rate.round()))
                    .collect()
            };
            let engine = matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
            let is_used = !asked && (every_zone || !engine);
            let rates = [("a", 500.0), ("b", 350.0), ("c", 150.0)]
                .map(|(zone, rate)| (zone.to_owned(), rate))
                .to_vec();
            assert_eq!(
                prepared.demand.map(rounded),
                is_used.then_some(rates),
                "{class:?} {question:?}"
            );
        }
    }
}

#[test]
fn a_zone_has_the_class_of_its_least_capable_proxy() {
    let mut driver = Driver::new("");
    for (class, zone) in [
        (NodeClass::Plimsoll, "a"),
        (NodeClass::Envoy, "b"),
        (NodeClass::Plimsoll, "c"),
        (NodeClass::Grpc, "c"),
    ] {
        driver.open(&node(class, &format!("{class:?}-{zone}"), zone));
    }
    for (zone, class) in [
        ("a", NodeClass::Plimsoll),
        ("b", NodeClass::Envoy),
        ("c", NodeClass::Grpc),
        ("nowhere", NodeClass::Envoy),
    ] {
        let locality = Locality::zone_only(zone);
        assert_eq!(zone_class(&driver.state, "gateway", &locality), class);
    }
}

#[test]
fn a_question_is_about_its_fleet_and_zone_or_the_first_ones() {
    let mut driver = Driver::new("");
    for (fleet, zone) in [("one", "b"), ("one", "c"), ("two", "c")] {
        let mut info = node(NodeClass::Envoy, zone, zone);
        info.node.cluster = fleet.into();
        driver.open(&info);
    }
    for (fleet, zone, explained) in [
        (None, None, Some("b")),
        (Some("one"), None, Some("b")),
        (Some("one"), Some("c"), Some("c")),
        (Some("two"), None, Some("c")),
        (Some("two"), Some("b"), None),
        (Some("three"), None, None),
    ] {
        let question = Question {
            fleet: fleet.map(str::to_owned),
            locality: zone.map(Locality::zone_only),
            ..question()
        };
        let found = explain(&driver.state, &question, driver.now);
        let own = found.ok().and_then(|found| found.own_locality);
        assert_eq!(own, explained.map(Locality::zone_only), "{question:?}");
    }
}

/// Prepares an explanation for a proxy of a service with this policy.
fn prepared(cluster: &str) -> Prepared {
    let driver = measured(
        Driver::with_config(config_of(cluster, "")),
        NodeClass::Plimsoll,
    );
    Prepared::new(&driver.state, &question(), driver.now).unwrap()
}

#[test]
fn proxies_that_observe_load_choose_the_same_with_the_same_policy_and_demand() {
    let by_demand = load_aware(", spill_controller: CONVERGENT, demand_feed_forward: true");
    let fraction = || {
        vec![(
            Locality::zone_only("a"),
            BasisPoints::new(10_000, "").unwrap(),
        )]
    };
    let demand = |mut one: Prepared, fractions: bool, traffic: bool| {
        if fractions {
            one.input.fractions = fraction();
        }
        if traffic {
            one.input.observed_traffic = fraction();
        }
        one
    };
    for (cluster, uses_demand) in [(by_demand.as_str(), true), (&load_aware(""), false)] {
        let one = prepared(cluster);
        assert!(one.observes_load());
        for (fractions, traffic) in [(false, false), (true, false), (false, true), (true, true)] {
            let other = demand(one.clone(), fractions, traffic);
            let is_same = !uses_demand || !(fractions || traffic);
            assert_eq!(one.observes_the_same(&other), is_same, "{cluster}");
        }
    }
    let one = prepared(&load_aware(""));
    assert!(
        !one.observes_the_same(&prepared(&by_demand)),
        "the policy differs"
    );
    let by_fractions = prepared("lb_policy: LEAST_REQUEST");
    assert!(!by_fractions.observes_load());
    assert!(!by_fractions.observes_the_same(&by_fractions));
}

/// Explains `orders` of a relayed server with this policy, for a proxy in zone a.
fn relayed(policy: &str, service: &str, class: NodeClass) -> Explanation {
    relayed_with(policy, "", service, class)
}

/// The same with further fields of the cluster in the relay's file.
fn relayed_with(policy: &str, file: &str, service: &str, class: NodeClass) -> Explanation {
    let upstream = config_of(policy, "mode: 'OFF'");
    let orders = &upstream.services["orders"];
    let mut driver = Driver::with_config(parse(&format!(
        "{HEAD}relay: {{address: 'a:1'}}\n\
         services: [{{cluster: {{name: orders{file}}}, {service}}}]"
    )));
    for resource in [
        RelayedResource::cluster_of(orders, "1"),
        RelayedResource::Assignment {
            cluster: "orders".into(),
            name: "orders".into(),
            version: "1".into(),
            assignment: Arc::clone(&orders.assignment),
        },
    ] {
        driver.state.handle_relayed(resource, driver.now);
    }
    let driver = measured(driver, class);
    explain(&driver.state, &question(), driver.now).unwrap()
}

#[test]
fn a_relayed_policy_is_explained_as_it_is_unless_demand_steers_it() {
    let zone_aware = "common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}";
    for class in [
        NodeClass::Plimsoll,
        NodeClass::EnvoyModule,
        NodeClass::Envoy,
    ] {
        let steered = relayed(zone_aware, "mode: ENFORCE", class);
        let basis = steered.locality_basis;
        assert_eq!(basis, Some(LocalityBasis::LrsReportedRate), "{class:?}");
        let local = steered.local_percent_to_route_bp;
        assert_eq!(local, Some(6000), "{class:?}");
        let shadow = relayed(zone_aware, "mode: SHADOW", class);
        let basis = shadow.locality_basis;
        assert_eq!(basis, Some(LocalityBasis::HealthyHostsNum), "{class:?}");
        assert_eq!(shadow.changes, [], "{class:?}");
    }
}

#[test]
fn a_policy_of_a_relays_file_is_explained_by_what_replaces_the_other_servers() {
    let weighted = "common_lb_config: {locality_weighted_lb_config: {}}";
    let ring = ", lb_policy: RING_HASH";
    for class in CLASSES {
        for mode in ["", "mode: SHADOW", "mode: 'OFF'"] {
            let explained = relayed_with(weighted, ring, mode, class);
            assert_eq!(explained.endpoint_policy, "ring_hash", "{class:?} {mode}");
        }
    }
}

#[test]
fn a_relay_only_withdraws_demand_of_other_services_from_who_would_use_it() {
    let convergent = load_aware(", spill_controller: CONVERGENT");
    for (class, expected) in [
        (NodeClass::Plimsoll, &["demand_feed_forward"][..]),
        (NodeClass::EnvoyModule, &["demand_feed_forward"]),
        (NodeClass::Envoy, &[]),
    ] {
        let explained = relayed(&convergent, "mode: SHADOW", class);
        let changes = explained.changes.iter();
        let settings: Vec<_> = changes.map(|change| change.setting.as_str()).collect();
        assert_eq!(settings, expected, "{class:?}");
    }
}

#[test]
fn hypothetical_demand_replaces_that_of_load_reports() {
    for class in CLASSES {
        let driver = measured(Driver::with_config(config("")), class);
        let question = Question {
            demand: [
                ("a".to_owned(), 3.0),
                ("b".to_owned(), 5.0),
                ("c".to_owned(), 2.0),
            ]
            .into(),
            ..question()
        };
        let explained = explain(&driver.state, &question, driver.now).unwrap();
        let own = shares(&explained)["a"];
        assert!((own - 1.0).abs() < ROUNDING, "{class:?}: {own}");
    }
}
