//! Every policy, delivery and kind of receiver: the explanation is what somebody does who reads the
//! bytes that are sent.

use std::collections::BTreeMap;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::cluster::{LocalityPolicy, LocalitySampling};
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::wire::{decode_assignment, decode_cluster};

use super::*;
use crate::delivery::steering;
use crate::state::tests::driver::{Driver, HEAD, config_of, fleet, parse};
use crate::view::tests::{every_config, policies};

const CLASSES: [Class; 3] = [Class::Plimsoll, Class::Grpc, Class::Envoy];
/// Weights are whole numbers, and Envoy cuts shares to basis points.
const ROUNDING: f64 = 0.005;

/// What receivers of `key` do with the bytes of their view, by a way of its own: no line of it is
/// shared with the explanation.
fn read_back(driver: &Driver, key: &ViewKey) -> Explanation {
    let now = Instant::ORIGIN;
    let cluster = driver
        .view(key)
        .get(CLUSTER)
        .unwrap()
        .get("orders")
        .unwrap();
    let mut config = decode_cluster(&cluster.body).unwrap().config;
    if key.class == Class::Grpc {
        // The only way that gRPC clients choose a locality.
        config = config.with_locality_weights();
    }
    let assignment = |name: &str| {
        let resource = driver.assignment(key, name).unwrap();
        decode_assignment(&resource.body).unwrap()
    };
    let mut balancer = Balancer::new(Arc::new(config), key.locality.clone(), now);
    balancer.handle_originating(assignment("local_cluster"), now);
    if key.class == Class::Plimsoll {
        let traffic = driver.state.traffic("gateway");
        let mut clusters = traffic.clusters.iter();
        if let Some(own) = clusters.find(|own| own.cluster_name.as_ref() == "orders") {
            balancer.handle_observed_traffic(own.fractions.iter().cloned().collect(), now);
        }
    }
    balancer.handle_assignment(assignment("orders"), now);
    balancer.poll_snapshot().unwrap().explain_at(now)
}

fn explained(driver: &Driver, key: &ViewKey) -> Explanation {
    let question = Question {
        cluster: "orders".to_owned(),
        locality: Some(key.locality.clone()),
        ..Question::default()
    };
    explain(&driver.state, &question, driver.now).unwrap()
}

/// Without what is not routing: how often it was made, how old it is, what was changed.
fn routing(mut explanation: Explanation) -> Explanation {
    explanation.generation = 0;
    explanation.fractions.age_ms = None;
    explanation.changes.clear();
    explanation.notes.retain(|note| note != UTILIZATION_UNKNOWN);
    explanation
}

fn shares(explanation: &Explanation) -> BTreeMap<&str, f64> {
    let rows = explanation.localities.iter();
    rows.map(|row| (row.zone.as_str(), row.expected_share))
        .collect()
}

/// Our own data planes in every word, the others in where requests go.
fn assert_same(name: &str, driver: &Driver, key: &ViewKey) {
    let (said, done) = (explained(driver, key), read_back(driver, key));
    if key.class == Class::Plimsoll {
        assert_eq!(routing(said), routing(done), "{name} to {key:?}");
        return;
    }
    let (said, done) = (shares(&said), shares(&done));
    for (zone, share) in &done {
        let near = (said[zone] - share).abs() < ROUNDING;
        assert!(
            near,
            "{name} to {key:?}: {said:?} is said, {done:?} is done"
        );
    }
}

/// Receivers of each class, without demand and with it.
fn each_stage(config: &Arc<crate::config::ControlConfig>, look: impl Fn(&Driver, &ViewKey)) {
    for class in CLASSES {
        let mut driver = Driver::with_config(Arc::clone(config));
        let [a, b, c] = fleet(class);
        let keys = [&a, &b, &c].map(|node| driver.open(node));
        keys.iter().for_each(|key| look(&driver, key));
        driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
        keys.iter().for_each(|key| look(&driver, key));
    }
}

#[test]
fn what_is_explained_is_what_is_sent() {
    for (name, config) in every_config() {
        each_stage(&config, |driver, key| assert_same(&name, driver, key));
    }
}

#[test]
fn what_is_explained_is_what_is_sent_where_hosts_have_weights() {
    let endpoints = "endpoints: [\
        {locality: {zone: a}, lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']}, \
        {locality: {zone: b}, lb_endpoints: [{address: '10.0.1.1:80', load_balancing_weight: 4}, \
        '10.0.1.2:80', '10.0.1.3:80']}, \
        {locality: {zone: c}, lb_endpoints: ['10.0.2.1:80', '10.0.2.2:80']}]";
    for cluster in policies() {
        let cluster = format!("{{name: orders, {cluster}}}");
        let config = parse(&format!(
            "{HEAD}services: [{{cluster: {cluster}, {endpoints}}}]"
        ));
        each_stage(&config, |driver, key| assert_same(&cluster, driver, key));
    }
}

/// The cells of docs/reference/deliveries.md that name a form: the worked example, zone a issues
/// half of the demand and has three of ten hosts.
#[test]
fn where_demand_steers_the_bytes_split_as_it_asks() {
    let mut forms = Vec::new();
    for (name, config) in every_config() {
        let service = &config.services["orders"];
        for class in CLASSES {
            let Steering::Demand(form) = steering(service, class, 100) else {
                continue;
            };
            if service.ramp != 100 {
                continue;
            }
            let mut driver = Driver::with_config(Arc::clone(&config));
            let nodes = fleet(class);
            let [a, b, c] = nodes.each_ref();
            let keys = [a, b, c].map(|node| driver.open(node));
            driver.traffic(&[(a, 500), (b, 350), (c, 150)], 5);
            let done = read_back(&driver, &keys[0]);
            let split = shares(&done);
            for (zone, share) in [("a", 0.6), ("b", 0.3), ("c", 0.1)] {
                let near = (split[zone] - share).abs() < ROUNDING;
                assert!(near, "{name} to {class:?} by {form:?}: {split:?}");
            }
            forms.push((class, form));
        }
    }
    forms.sort();
    forms.dedup();
    assert_eq!(forms.len(), 7, "{forms:?}");
}

const ORCA: &str = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                    typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                    load_balancing_policies.client_side_weighted_round_robin.v3.\
                    ClientSideWeightedRoundRobin}}}]}";

#[test]
fn weights_from_orca_and_demand_between_zones_arrive_together() {
    let mut driver = Driver::with_config(config_of(ORCA, ""));
    let [a, b, c] = fleet(Class::Plimsoll);
    let keys = [&a, &b, &c].map(|node| driver.open(node));
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
    for explanation in [explained(&driver, &keys[0]), read_back(&driver, &keys[0])] {
        assert_eq!(
            explanation.endpoint_policy,
            "client_side_weighted_round_robin"
        );
        let basis = explanation.locality_basis;
        assert_eq!(basis, Some(LocalityBasis::LrsReportedRate));
        assert_eq!(explanation.local_percent_to_route_bp, Some(6000));
    }
    let cluster = driver.view(&keys[0]).get(CLUSTER).unwrap();
    let config = decode_cluster(&cluster.get("orders").unwrap().body).unwrap();
    let sampling = config.config.locality_sampling();
    assert_eq!(sampling, LocalitySampling::LowDiscrepancy);
    let policy = config.config.locality_policy();
    assert!(matches!(policy, LocalityPolicy::ZoneAware(_)), "{policy:?}");
}

/// Settings that a receiver in zone a is sent otherwise: name, as written, as sent.
fn changed(cluster: &str, service: &str, class: Class) -> Vec<(String, Option<String>, String)> {
    let mut driver = Driver::with_config(config_of(cluster, service));
    let [a, b, _] = fleet(class);
    let keys = [&a, &b].map(|node| driver.open(node));
    let changes = explained(&driver, &keys[0]).changes.into_iter();
    changes
        .map(|change| {
            assert!(change.sentence().contains(&change.reason));
            (change.setting, change.written, change.sent)
        })
        .collect()
}

fn one(setting: &str, written: Option<&str>, sent: &str) -> (String, Option<String>, String) {
    (
        setting.to_owned(),
        written.map(str::to_owned),
        sent.to_owned(),
    )
}

#[test]
fn what_is_changed_on_the_way_is_said() {
    let legacy = |fields: &str| format!("common_lb_config: {{zone_aware_lb_config: {{{fields}}}}}");
    let basis = one("locality_basis", None, "LRS_REPORTED_RATE");
    let size = one("min_cluster_size", None, "1");
    let unset = changed(&legacy(""), "", Class::Plimsoll);
    assert_eq!(unset, [basis.clone(), size.clone()]);
    let six = changed(&legacy("min_cluster_size: 6"), "", Class::Plimsoll);
    assert_eq!(six, std::slice::from_ref(&basis), "a written 6 stays");
    assert_eq!(changed(ORCA, "", Class::Plimsoll), [basis, size.clone()]);
    let weights = one("locality policy", None, "wrr_locality");
    assert_eq!(changed(ORCA, "", Class::Envoy), [weights]);
    let envoy = [
        one("locality_basis", None, "HEALTHY_HOSTS_WEIGHT"),
        size,
        one("upstream_locality_basis", None, "HEALTHY_HOSTS_WEIGHT"),
    ];
    assert_eq!(changed(&legacy(""), "", Class::Envoy), envoy);
    let off = changed(&legacy(""), "mode: OFF", Class::Plimsoll);
    assert_eq!(off, []);
}

#[test]
fn what_a_stock_envoy_does_not_know_is_said_to_be_missing() {
    let typed = |fields: &str| {
        format!(
            "plimsoll: {{locality_sampling: LOW_DISCREPANCY}}, load_balancing_policy: {{policies: \
             [{{typed_extension_config: {{name: x, typed_config: {{'@type': type.googleapis.com/\
             envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin, \
             locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}}}}}}}]}}"
        )
    };
    let cluster = typed("locality_basis: OBSERVED_LOAD, all_priorities: true");
    assert_eq!(changed(&cluster, "", Class::Plimsoll), []);
    let envoy = [
        one("locality_basis", Some("OBSERVED_LOAD"), "HEALTHY_HOSTS_NUM"),
        one("all_priorities", Some("true"), "false"),
        one("locality_sampling", Some("LOW_DISCREPANCY"), "RANDOM"),
    ];
    assert_eq!(changed(&cluster, "", Class::Envoy), envoy);
    let shadow = typed("locality_basis: LRS_REPORTED_RATE");
    let shadow = changed(&shadow, "mode: SHADOW", Class::Plimsoll);
    let host_counts = one(
        "locality_basis",
        Some("LRS_REPORTED_RATE"),
        "HEALTHY_HOSTS_NUM",
    );
    assert_eq!(shadow, [host_counts]);
}
