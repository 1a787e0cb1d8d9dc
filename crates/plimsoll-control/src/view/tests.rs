//! Tests of encoded resources, decoded without our own decoder.
//!
//! They mainly check the invariant of decision 0028: fields that only Plimsoll data planes
//! understand are never sent to other nodes, whatever the settings.

mod failing;
mod health;
mod isolation;
mod ramp;
mod shadow;
mod subsets;
mod visible;
pub(crate) mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};

use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::state::tests::driver::{Driver, fleet, node, stats, try_config_of};
use crate::state::{State, ViewKey};

const CLASSES: [NodeClass; 4] = NodeClass::ALL;
const DELIVERIES: [&str; 6] = [
    "AUTO",
    "EDS_FIELD",
    "LOCALITY_METADATA",
    "LRS_RESPONSE",
    "FLEET_WEIGHTS",
    "LOCALITY_WEIGHTS",
];
const TYPE_PREFIX: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";
/// `LRS_REPORTED_RATE`, a value of `locality_basis` with which a stock Envoy aborts.
const MEASURED_BASIS: u64 = 2;

/// A load-balancing policy by name, message and fields, as in the file.
fn policy(name: &str, message: &str, fields: &str) -> String {
    format!(
        "{{policies: [{{typed_extension_config: {{name: {name}, typed_config: {{'@type': \
         {TYPE_PREFIX}.{name}.v3.{message}{fields}}}}}}}]}}"
    )
}

/// Every kind of load-balancing policy that the control plane accepts.
pub(crate) fn policies() -> Vec<String> {
    let zone_aware = |basis: &str| {
        format!(", locality_lb_config: {{zone_aware_lb_config: {{min_cluster_size: 1{basis}}}}}")
    };
    let measured = zone_aware(", locality_basis: LRS_REPORTED_RATE");
    let by_weight = zone_aware(", locality_basis: HEALTHY_HOSTS_WEIGHT");
    let by_count = zone_aware(", locality_basis: HEALTHY_HOSTS_NUM");
    let observed = zone_aware(", locality_basis: OBSERVED_LOAD");
    let capacity = zone_aware(", upstream_locality_basis: HEALTHY_HOSTS_WEIGHT");
    let metadata = zone_aware(", lrs_rate_config: {fraction_source: LOCALITY_METADATA}");
    let six = ", locality_lb_config: {zone_aware_lb_config: {min_cluster_size: 6}}";
    let weighted = ", locality_lb_config: {locality_weighted_lb_config: {}}";
    let round_robin = policy("round_robin", "RoundRobin", "");
    let child = format!(", endpoint_picking_policy: {round_robin}");
    let convergent = format!("{child}, spill_controller: CONVERGENT");
    let orca = "client_side_weighted_round_robin";
    let modern = [
        policy("round_robin", "RoundRobin", &measured),
        policy("least_request", "LeastRequest", &measured),
        policy("random", "Random", &measured),
        policy("least_request", "LeastRequest", &by_weight),
        policy("round_robin", "RoundRobin", weighted),
        round_robin,
        policy("maglev", "Maglev", ""),
        policy("wrr_locality", "WrrLocality", &child),
        policy("load_aware_locality", "LoadAwareLocality", &child),
        policy("load_aware_locality", "LoadAwareLocality", &convergent),
        policy(orca, "ClientSideWeightedRoundRobin", ""),
        policy(orca, "ClientSideWeightedRoundRobin", &measured),
        policy(orca, "ClientSideWeightedRoundRobin", &by_weight),
        policy(orca, "ClientSideWeightedRoundRobin", weighted),
        policy("round_robin", "RoundRobin", &by_count),
        policy("round_robin", "RoundRobin", &observed),
        policy("round_robin", "RoundRobin", &capacity),
        policy("random", "Random", &metadata),
        policy("random", "Random", six),
    ]
    .map(|policy| format!("load_balancing_policy: {policy}"));
    let legacy = [
        "lb_policy: LEAST_REQUEST",
        "lb_policy: RING_HASH",
        "common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}",
        "common_lb_config: {locality_weighted_lb_config: {}}",
        "lb_subset_config: {subset_selectors: [{keys: [version]}], max_subsets: 9}",
    ];
    modern
        .into_iter()
        .chain(legacy.map(str::to_owned))
        .collect()
}

/// Values of `locality_basis` that the control plane does not change.
const EXPLICIT_BASES: [&str; 3] = [
    ", locality_basis: HEALTHY_HOSTS_WEIGHT",
    ", locality_basis: HEALTHY_HOSTS_NUM",
    ", locality_basis: OBSERVED_LOAD",
];

/// Services with all combinations of [`policies`], modes and deliveries.
pub(crate) fn every_config() -> Vec<(String, Arc<ControlConfig>)> {
    let mut configs = Vec::new();
    for cluster in policies() {
        let without_demand = || {
            let bases = EXPLICIT_BASES.iter().any(|basis| cluster.contains(basis));
            let hashing = ["maglev", "RING_HASH"];
            let by_load = cluster.contains("load_aware") && !cluster.contains("CONVERGENT");
            bases || by_load || hashing.iter().any(|policy| cluster.contains(policy))
        };
        let subsets = cluster.contains("lb_subset_config");
        for delivery in DELIVERIES {
            for rest in ["", ", mode: SHADOW", ", mode: OFF", ", ramp: 37"] {
                let asked = delivery != "AUTO" || rest.contains("ramp");
                let elsewhere = delivery == "EDS_FIELD" && cluster.contains("LOCALITY_METADATA");
                // Subsets ignore locality weights, and a ramp needs them.
                let ignored = delivery == "LOCALITY_WEIGHTS" || rest.contains("ramp");
                let cannot_act = without_demand() && asked || subsets && ignored;
                let refused = (cannot_act || elsewhere) && !rest.contains("OFF");
                let service = format!("delivery: {delivery}{rest}");
                let name = format!("{cluster} {service}");
                match try_config_of(&cluster, &service) {
                    Ok(config) => {
                        assert!(!refused, "{name}");
                        configs.push((name, config));
                    }
                    Err(error) => assert!(refused, "{name}: {error}"),
                }
            }
        }
    }
    configs
}

/// Checks views of a fleet of all classes in every stage of demand: unknown, measured with zero in
/// one zone and with a zone that has no proxy, and expired.
fn each_stage(config: Arc<ControlConfig>, mut check: impl FnMut(&Driver, &[ViewKey])) {
    let mut driver = Driver::with_config(config);
    let nodes: Vec<_> = CLASSES.into_iter().flat_map(fleet).collect();
    let mut keys = Vec::new();
    for (node, returning) in nodes.iter().flat_map(|node| [(node, false), (node, true)]) {
        let open = |state: &mut State| {
            let opened = state.handle_open(
                node,
                StreamKind::Ads,
                returning,
                &crate::fleet::Peer::default(),
                at(0),
            );
            opened.unwrap()
        };
        keys.push(open(&mut driver.state));
    }
    driver.drain();
    check(&driver, &keys);
    let moved = node(NodeClass::Envoy, "Envoy-b", "d");
    for second in 1..4 {
        for (node, requests) in [(&nodes[0], 7000), (&nodes[2], 0), (&moved, 3)] {
            let report = [stats("orders", requests)];
            driver.state.handle_report(node, &report, at(second));
        }
    }
    driver.drain();
    check(&driver, &keys);
    // Views are no longer withheld, and all demand has expired.
    driver.state.handle_timeout(at(20));
    driver.drain();
    check(&driver, &keys);
}

fn at(second: u64) -> Instant {
    Instant::ORIGIN.saturating_add(Duration::from_secs(second))
}

#[test]
fn stock_nodes_are_never_sent_unsupported_fields() {
    let mut looked = 0;
    let mut complaints = BTreeSet::new();
    for (name, config) in every_config() {
        each_stage(config, |driver, keys| {
            for key in keys {
                let view = driver.view(key);
                assert_eq!(
                    unsupported_field(view, key.class),
                    None,
                    "{name} to {key:?}"
                );
                // Tests the check: as Envoy views, views of Plimsoll data planes must fail it.
                complaints.extend(unsupported_field(view, NodeClass::Envoy));
                if key.class == NodeClass::Grpc {
                    assert!(key.returning || is_usable(driver, key), "{name} to {key:?}");
                }
                looked += 1;
            }
        });
    }
    assert!(looked > 10_000, "{looked}");
    let kinds: Vec<_> = complaints.iter().map(String::as_str).collect();
    assert!(kinds.contains(&"locality_basis 2"), "{kinds:?}");
    assert!(kinds.contains(&"the module"), "{kinds:?}");
    assert!(kinds.contains(&"field 9 or 10 in gateway"), "{kinds:?}");
}

/// Whether some locality has a weight. gRPC clients drop localities without weight, and all calls
/// hang if they drop all of them.
fn is_usable(driver: &Driver, key: &ViewKey) -> bool {
    let orders = driver.assignment(key, "orders").unwrap();
    let localities = walk::at(&orders.body, &[2]);
    localities.iter().any(|locality| walk::has(locality, 3))
}

/// Whether a policy of a cluster is a module, which stock nodes do not have.
fn names_module(cluster: &[u8]) -> bool {
    let policies = walk::at(cluster, &[41, 1, 4]);
    let mut names = policies.iter().map(|policy| walk::text(policy, 1));
    names.any(|name| name.ends_with("dynamic_modules"))
}

/// Returns a field in a view that nodes of `class` do not support, if there is one.
fn unsupported_field(view: &View, class: NodeClass) -> Option<String> {
    for cluster in view.get(CLUSTER)?.iter() {
        if class != NodeClass::EnvoyModule && names_module(&cluster.body) {
            return Some("the module".to_owned());
        }
        for zone_aware in zone_aware_configs(&cluster.body) {
            if class == NodeClass::Plimsoll {
                continue;
            }
            if walk::has(&cluster.body, 50_001) {
                return Some("field 50001 of Cluster".to_owned());
            }
            if walk::number(&zone_aware, 6) >= MEASURED_BASIS {
                return Some("locality_basis 2".to_owned());
            }
            let ours = walk::fields(&zone_aware);
            if let Some((number, _)) = ours.iter().find(|(number, _)| *number > 6) {
                return Some(format!("field {number} of ZoneAwareLbConfig"));
            }
        }
    }
    for assignment in view.get(CLUSTER_LOAD_ASSIGNMENT)?.iter() {
        for locality in walk::at(&assignment.body, &[2]) {
            if class != NodeClass::Plimsoll && (walk::has(&locality, 10) || walk::has(&locality, 9))
            {
                return Some(format!("field 9 or 10 in {}", assignment.name));
            }
            let own = walk::at(&locality, &[3]);
            let endpoints = walk::at(&locality, &[2, 4]);
            for weight in own.iter().chain(&endpoints) {
                if walk::number(weight, 1) == 0 {
                    return Some(format!("weight 0 in {}", assignment.name));
                }
            }
        }
    }
    None
}

/// Returns every `ZoneAwareLbConfig` in a cluster, including nested policies and legacy fields.
fn zone_aware_configs(cluster: &[u8]) -> Vec<Vec<u8>> {
    let mut found = walk::at(cluster, &[27, 1]);
    let mut open = walk::at(cluster, &[41]);
    while let Some(policy) = open.pop() {
        for any in walk::at(&policy, &[1, 4, 2]) {
            let message = walk::at(&any, &[2]).pop().unwrap_or_default();
            let url = walk::text(&any, 1);
            let field = match url.rsplit('.').next().unwrap() {
                "RoundRobin" => Some(2),
                "LeastRequest" => Some(4),
                "Random" => Some(1),
                "WrrLocality" | "LoadAwareLocality" => {
                    open.extend(walk::at(&message, &[1]));
                    None
                }
                "Subset" => {
                    open.extend(walk::at(&message, &[9]));
                    None
                }
                // Field 50002 is Plimsoll's extension, which is only sent to Plimsoll data planes.
                "ClientSideWeightedRoundRobin" => Some(50_002),
                // Policies without locality settings, or without measured demand.
                "Maglev" | "RingHash" => None,
                // Read by the module only, see `names_module`.
                "DynamicModulesLoadBalancerConfig" => None,
                other => panic!("{other} is not looked into"),
            };
            found.extend(
                field
                    .map(|field| walk::at(&message, &[field, 1]))
                    .into_iter()
                    .flatten(),
            );
        }
    }
    found
}

#[test]
fn grpc_clusters_request_load_reports() {
    let mut driver = Driver::new("");
    for (class, asked) in [
        (NodeClass::Grpc, true),
        (NodeClass::Plimsoll, true),
        (NodeClass::Envoy, false),
    ] {
        let [a, ..] = fleet(class);
        let key = driver.open(&a);
        let clusters = driver.view(&key).get(CLUSTER).unwrap();
        // `Cluster.lrs_server`; stock Envoys have load reporting in their bootstrap.
        let body = &clusters.get("orders").unwrap().body;
        assert_eq!(walk::has(body, 42), asked, "{class:?}");
    }
}

#[test]
fn versions_change_exactly_with_the_content() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    let keys = [&a, &b, &c].map(|node| driver.open(node));
    let traffic = [(&a, 500), (&b, 350), (&c, 150)];
    driver.traffic(&traffic, 10);
    let versions = |driver: &Driver| {
        let resource = |name| driver.assignment(&keys[0], name).unwrap().version;
        (resource("orders"), resource("local_cluster"))
    };
    let before = versions(&driver);
    driver.traffic(&traffic, 60);
    assert_eq!(versions(&driver), before, "nothing moved");
    driver.traffic(&[(&a, 100), (&b, 350), (&c, 150)], 3);
    let after = versions(&driver);
    assert_eq!(after.0, before.0, "the service has not changed");
    assert_ne!(after.1, before.1);
    let zone_b = driver.assignment(&keys[1], "local_cluster").unwrap();
    assert_eq!(zone_b.version, after.1, "one for all zones");
}
