//! Compares explanations with the behavior of a receiver that decodes the resources it was sent,
//! for every policy, delivery of demand and class of nodes.

mod prepared;
mod settings;

use std::collections::BTreeMap;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy, LocalitySampling};
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::metadata::StructMessage;
use plimsoll_xds::schema::field::raw_fields;
use plimsoll_xds::schema::metadata::struct_json;
use plimsoll_xds::wire::{decode_assignment, decode_cluster};
use plimsoll_xds::yaml::{ClusterYaml, Document, cluster_config_parts};
use prost::Message as _;

use super::*;
use crate::delivery::steering;
use crate::state::tests::driver::{Driver, HEAD, config_of, fleet, parse};
use crate::view::tests::{every_config, policies};

const CLASSES: [NodeClass; 4] = NodeClass::ALL;
/// Tolerance of traffic shares: weights are integers, and Envoy truncates to basis points.
const ROUNDING: f64 = 0.005;

/// Explains the decoded resources in a receiver's view, without using `explain`.
pub(crate) fn read_back(driver: &Driver, key: &ViewKey) -> Explanation {
    let now = Instant::ORIGIN;
    let config = Arc::new(received_config(driver, key));
    let mut balancer = Balancer::new(config, key.locality.clone(), now);
    receive(driver, key, &mut balancer, now);
    balancer.poll_snapshot().unwrap().explain_at(now)
}

/// Decodes the cluster of a receiver.
pub(crate) fn received_config(driver: &Driver, key: &ViewKey) -> ClusterConfig {
    let clusters = driver.view(key).get(CLUSTER).unwrap();
    let cluster = clusters.get("orders").unwrap();
    let config = match module_config(&cluster.body) {
        Some(config) => {
            assert_eq!(key.class, NodeClass::EnvoyModule);
            config
        }
        None => decode_cluster(&cluster.body).unwrap().config,
    };
    if key.class == NodeClass::Grpc {
        // gRPC clients always select localities by weight.
        return config.with_locality_weights();
    }
    config
}

/// Passes the assignments and the demand that a receiver gets to its balancer.
pub(crate) fn receive(driver: &Driver, key: &ViewKey, balancer: &mut Balancer, now: Instant) {
    let assignment = |name: &str| {
        let resource = driver.assignment(key, name).unwrap();
        decode_assignment(&resource.body).unwrap()
    };
    balancer.handle_fleet_assignment(assignment("local_cluster"), now);
    if matches!(key.class, NodeClass::Plimsoll | NodeClass::EnvoyModule) {
        let traffic = driver.told(key.class);
        let mut clusters = traffic.clusters.iter();
        if let Some(own) = clusters.find(|own| own.cluster_name.as_ref() == "orders") {
            balancer.handle_observed_traffic(own.fractions.iter().cloned().collect(), now);
        }
    }
    balancer.handle_assignment(assignment("orders"), now);
}

/// Returns the settings in the first policy of a cluster, as the module inside an Envoy reads them;
/// `None` if that is another policy.
fn module_config(body: &[u8]) -> Option<ClusterConfig> {
    let message = ClusterMessage::decode(body).unwrap();
    let policies = message.load_balancing_policy?.policies;
    let typed = policies.first()?.typed_extension_config.clone()?;
    if typed.name != "envoy.load_balancing_policies.dynamic_modules" {
        return None;
    }
    let policy = typed.typed_config.unwrap().value;
    let last = raw_fields(&policy).last().unwrap().unwrap();
    let config: StructMessage = AnyMessage::decode(last.value).unwrap().unpack().unwrap();
    let text = struct_json(&config)["cluster"].to_string();
    let yaml: ClusterYaml = Document::parse(&text).unwrap().read().unwrap();
    let mut parts = cluster_config_parts(&yaml).unwrap();
    // The name is Envoy's.
    parts.name = message.name;
    Some(ClusterConfig::try_new(parts).unwrap())
}

fn explained(driver: &Driver, key: &ViewKey) -> Explanation {
    let question = Question {
        cluster: "orders".to_owned(),
        locality: Some(key.locality.clone()),
        ..Question::default()
    };
    explain(&driver.state, &question, driver.now).unwrap()
}

/// Clears the fields that do not describe routing: generation, ages and changes.
fn routing(mut explanation: Explanation) -> Explanation {
    explanation.generation = 0;
    explanation.fractions.age_ms = None;
    explanation.changes.clear();
    let unknown = [UTILIZATION_UNKNOWN, WAITING_TIMES_UNKNOWN];
    explanation.notes.retain(|note| {
        !unknown.contains(&note.as_str()) && !note.starts_with("demand is not delivered yet: ")
    });
    explanation
}

#[test]
fn demand_that_is_not_delivered_yet_is_a_note() {
    let mut driver = Driver::new("mode: ENFORCE");
    let nodes = fleet(NodeClass::Plimsoll);
    let [key, ..] = nodes.clone().map(|node| driver.open(&node));
    driver.report(&nodes[0], "orders", 100);
    let note = "demand is not delivered yet: 1 of 3 proxies have reported load";
    let notes = |driver: &Driver| explained(driver, &key).notes;
    assert!(notes(&driver).iter().any(|one| one == note));
    driver.report(&nodes[1], "orders", 100);
    driver.report(&nodes[2], "orders", 100);
    assert!(!notes(&driver).iter().any(|one| one.starts_with("demand")));
}

fn shares(explanation: &Explanation) -> BTreeMap<&str, f64> {
    let rows = explanation.localities.iter();
    rows.map(|row| (row.zone.as_str(), row.expected_share))
        .collect()
}

/// Compares complete explanations for Plimsoll data planes, only traffic shares for other nodes.
fn assert_same(name: &str, driver: &Driver, key: &ViewKey) {
    let (said, done) = (explained(driver, key), read_back(driver, key));
    if key.class == NodeClass::Plimsoll {
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

/// Calls `check` for receivers of each class, before demand is known and after.
fn each_stage(config: &Arc<crate::config::ControlConfig>, check: impl Fn(&Driver, &ViewKey)) {
    for class in CLASSES {
        let mut driver = Driver::with_config(Arc::clone(config));
        let [a, b, c] = fleet(class);
        let keys = [&a, &b, &c].map(|node| driver.open(node));
        keys.iter().for_each(|key| check(&driver, key));
        driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
        keys.iter().for_each(|key| check(&driver, key));
    }
}

#[test]
fn explanations_match_sent_resources() {
    for (name, config) in every_config() {
        each_stage(&config, |driver, key| assert_same(&name, driver, key));
    }
}

#[test]
fn explanations_match_sent_resources_with_host_weights() {
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

/// Checks the cells of docs/reference/deliveries.md that name a delivery, for the worked example:
/// zone a has half of the demand and three of ten upstream hosts.
#[test]
fn sent_resources_split_traffic_by_demand() {
    let mut forms = Vec::new();
    for (name, config) in every_config() {
        let service = &config.services["orders"];
        for class in CLASSES {
            let Steering::Demand(form) = steering(service, class) else {
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
    assert_eq!(forms.len(), 9, "{forms:?}");
}

const ORCA: &str = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                    typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                    load_balancing_policies.client_side_weighted_round_robin.v3.\
                    ClientSideWeightedRoundRobin}}}]}";

#[test]
fn orca_weights_and_demand_are_delivered_together() {
    let mut driver = Driver::with_config(config_of(ORCA, ""));
    let [a, b, c] = fleet(NodeClass::Plimsoll);
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

/// Returns the settings that a receiver in zone a is sent differently than configured: name,
/// configured value and sent value.
fn changed(
    cluster: &str,
    service: &str,
    class: NodeClass,
) -> Vec<(String, Option<String>, String)> {
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
fn changed_settings_are_listed() {
    let legacy = |fields: &str| format!("common_lb_config: {{zone_aware_lb_config: {{{fields}}}}}");
    let basis = one("locality_basis", None, "LRS_REPORTED_RATE");
    let size = one("min_cluster_size", None, "1");
    let unset = changed(&legacy(""), "", NodeClass::Plimsoll);
    assert_eq!(unset, [basis.clone(), size.clone()]);
    let six = changed(&legacy("min_cluster_size: 6"), "", NodeClass::Plimsoll);
    assert_eq!(six, std::slice::from_ref(&basis), "a written 6 stays");
    assert_eq!(
        changed(ORCA, "", NodeClass::Plimsoll),
        [basis, size.clone()]
    );
    let weights = one("locality policy", None, "wrr_locality");
    assert_eq!(changed(ORCA, "", NodeClass::Envoy), [weights]);
    let envoy = [
        one("locality_basis", None, "HEALTHY_HOSTS_WEIGHT"),
        size,
        one("upstream_locality_basis", None, "HEALTHY_HOSTS_WEIGHT"),
    ];
    assert_eq!(changed(&legacy(""), "", NodeClass::Envoy), envoy);
    let off = changed(&legacy(""), "mode: OFF", NodeClass::Plimsoll);
    assert_eq!(off, []);
}

#[test]
fn settings_that_locality_weights_lose_are_listed() {
    let cluster = |fields: &str| {
        format!(
            "load_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, \
             typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
             load_balancing_policies.round_robin.v3.RoundRobin, locality_lb_config: \
             {{zone_aware_lb_config: {{{fields}}}}}}}}}}}]}}"
        )
    };
    let all = cluster(
        "routing_enabled: {value: 20}, min_cluster_size: 2, fail_traffic_on_panic: true, \
         force_local_zone: {min_size: 9}, lrs_rate_config: {staleness_threshold: 30s}, \
         dead_band_bp: 5, all_priorities: true",
    );
    let policy = one("locality policy", Some("zone_aware"), "locality_weighted");
    let lost = [
        policy.clone(),
        one("fail_traffic_on_panic", Some("true"), "false"),
        one("all_priorities", Some("true"), "false"),
        one("staleness_threshold", Some("30s"), "never"),
        one("dead_band_bp", Some("5"), "0"),
    ];
    for (service, class) in [
        ("delivery: LOCALITY_WEIGHTS", NodeClass::Envoy),
        ("ramp: 10", NodeClass::Plimsoll),
        ("ramp: 10", NodeClass::EnvoyModule),
        ("", NodeClass::Grpc),
    ] {
        assert_eq!(changed(&all, service, class), lost, "{service} {class:?}");
    }
    let none = cluster("min_cluster_size: 2, routing_enabled: {value: 20}");
    assert_eq!(changed(&none, "ramp: 10", NodeClass::Plimsoll), [policy]);
}

#[test]
fn zone_aware_settings_that_a_stock_envoy_lacks_are_listed_in_every_mode() {
    let cluster = "load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                   typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                   load_balancing_policies.round_robin.v3.RoundRobin, locality_lb_config: \
                   {zone_aware_lb_config: {min_cluster_size: 2, fail_traffic_on_panic: true, \
                   lrs_rate_config: {staleness_threshold: 30s}, dead_band_bp: 5}}}}}]}";
    let found = changed(cluster, "mode: OFF", NodeClass::Envoy);
    let expected = [
        one("staleness_threshold", Some("30s"), "60s"),
        one("dead_band_bp", Some("5"), "the default"),
    ];
    assert_eq!(found, expected);
    assert_eq!(changed(cluster, "mode: OFF", NodeClass::Plimsoll), []);
}

#[test]
fn settings_unsupported_by_a_stock_envoy_are_listed() {
    let typed = |fields: &str| {
        format!(
            "plimsoll: {{locality_sampling: LOW_DISCREPANCY, endpoint_load_metrics_format: JSON}}, \
             load_balancing_policy: {{policies: \
             [{{typed_extension_config: {{name: x, typed_config: {{'@type': type.googleapis.com/\
             envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin, \
             locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}}}}}}}]}}"
        )
    };
    let cluster = typed("locality_basis: OBSERVED_LOAD, all_priorities: true");
    assert_eq!(changed(&cluster, "", NodeClass::Plimsoll), []);
    let envoy = [
        one("locality_basis", Some("OBSERVED_LOAD"), "HEALTHY_HOSTS_NUM"),
        one("all_priorities", Some("true"), "false"),
        one("locality_sampling", Some("LOW_DISCREPANCY"), "RANDOM"),
        one("endpoint_load_metrics_format", Some("JSON"), "not sent"),
    ];
    assert_eq!(changed(&cluster, "", NodeClass::Envoy), envoy);
    let asking = "plimsoll: {endpoint_load_metrics_format: JSON}";
    let format = &envoy[3];
    for (service, is_asked) in [
        ("", true),
        ("delivery: LOCALITY_WEIGHTS", false),
        ("mode: 'OFF'", false),
    ] {
        let found = changed(asking, service, NodeClass::EnvoyModule);
        assert_eq!(!found.contains(format), is_asked, "{service}: {found:?}");
    }
    let shadow = typed("locality_basis: LRS_REPORTED_RATE");
    let shadow = changed(&shadow, "mode: SHADOW", NodeClass::Plimsoll);
    let host_counts = one(
        "locality_basis",
        Some("LRS_REPORTED_RATE"),
        "HEALTHY_HOSTS_NUM",
    );
    assert_eq!(shadow, [host_counts]);
}

#[test]
fn weights_of_one_zone_are_explained_as_sent_unless_a_question_changes_something() {
    let asked = |hosts: bool, demand: bool, every_zone| Question {
        hosts: hosts.then(|| ("a".to_owned(), 1)).into_iter().collect(),
        demand: demand.then(|| ("a".to_owned(), 1.0)).into_iter().collect(),
        every_zone,
        ..Question::default()
    };
    let weights = Steering::Demand(Delivery::LocalityWeights);
    let as_sent = asked(false, false, false);
    assert_eq!(
        stand_in(&as_sent, NodeClass::Plimsoll, weights),
        StandIn::None
    );
    assert_eq!(
        stand_in(&as_sent, NodeClass::Grpc, Steering::HostCounts),
        StandIn::None
    );
    for (hosts, demand, every_zone) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
        (true, true, true),
    ] {
        let question = asked(hosts, demand, every_zone);
        for class in [NodeClass::Plimsoll, NodeClass::Grpc] {
            let kind = stand_in(&question, class, weights);
            assert_eq!(kind, StandIn::LocalityWeights, "{class:?} {question:?}");
        }
        for class in CLASSES {
            let kind = stand_in(&question, class, Steering::HostCounts);
            assert_eq!(kind, StandIn::None, "as written: {class:?}");
        }
    }
}
