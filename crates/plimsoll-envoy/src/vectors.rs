//! Runs the recorded cases of zone-aware routing through the conversion of host sets: hosts as
//! Envoy shows them in, the routing state of the engine out. Those of `load_aware_locality` are run
//! in the module of that name.
//!
//! Cases whose numbers no host set can have (sizes of flat lists, fractions without a message) are
//! left to `plimsoll-conformance`.

mod load_aware_locality;

use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::locality_picking::zone_aware::{Reason, ZoneState};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::config::ModuleConfig;
use crate::host_sets::assignment;
use crate::host_sets::tests::{Fake, FakeHost};

const NOW: Instant = Instant::from_secs(1);
/// Cases that must have run, so that a change of their format does not skip them all.
const LEAST: usize = 35;

fn cases(suite: &str) -> Vec<Value> {
    let file = format!("{}/../../vectors/{suite}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    match document["cases"].take() {
        Value::Array(cases) => cases,
        other => panic!("no list of cases: {other}"),
    }
}

/// Returns the settings with the values of runtime keys, which replace those of the configuration.
fn config(inputs: &Value) -> Value {
    let written = &inputs["config"];
    let mut rules = Map::new();
    for (field, value) in written.as_object().into_iter().flatten() {
        match field.as_str() {
            "routing_enabled_percent" => {
                rules.insert("routing_enabled".to_owned(), json!({ "value": value }));
            }
            _ => {
                rules.insert(field.clone(), value.clone());
            }
        }
    }
    let runtime = |key: &str| inputs["runtime"].get(key).cloned();
    if let Some(value) = runtime("upstream.zone_routing.enabled") {
        rules.insert("routing_enabled".to_owned(), json!({ "value": value }));
    }
    if let Some(value) = runtime("upstream.zone_routing.min_cluster_size") {
        rules.insert("min_cluster_size".to_owned(), value);
    }
    if let Some(value) = runtime("upstream.zone_routing.force_local_zone.min_size")
        && rules.contains_key("force_local_zone")
    {
        rules.insert("force_local_zone".to_owned(), json!({ "min_size": value }));
    }
    let mut common = Map::new();
    let threshold = runtime("upstream.healthy_panic_threshold");
    let written = inputs.get("healthy_panic_threshold_percent").cloned();
    if let Some(threshold) = threshold.or(written) {
        common.insert(
            "healthy_panic_threshold".to_owned(),
            json!({ "value": threshold }),
        );
    }
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    json!({ "cluster": {
        "common_lb_config": common,
        "load_balancing_policy": { "policies": [{ "typed_extension_config": {
            "name": "envoy.load_balancing_policies.round_robin",
            "typed_config": {
                "@type": format!("{package}.round_robin.v3.RoundRobin"),
                "locality_lb_config": { "zone_aware_lb_config": rules },
            },
        } }] },
    } })
}

/// Returns the hosts of a host set; `None` if hosts cannot have its numbers.
fn hosts(set: &Value, network: u8) -> Option<Fake> {
    if set.get("flat").is_some() {
        return None;
    }
    let mut hosts = Vec::new();
    for (slot, locality) in (0_u8..).zip(set["localities"].as_array()?) {
        if locality.get("excluded").is_some() {
            return None;
        }
        let zone: &'static str = locality["zone"].as_str()?.to_owned().leak();
        let count = usize::try_from(locality["hosts"].as_u64()?).ok()?;
        if slot == 0 && count == 0 {
            // A local locality exists through its hosts.
            return None;
        }
        let healthy = locality.get("healthy").and_then(Value::as_u64);
        let healthy = healthy.map_or(count, |healthy| usize::try_from(healthy).unwrap());
        let weights = locality.get("healthy_weights").and_then(Value::as_array);
        for number in 0..count {
            let (high, low) = (number / 250, number % 250);
            let address = format!("10.{network}.{}.{low}:{}", slot, 80 + high);
            let mut host = FakeHost::new(zone, &address);
            if number >= healthy {
                host.health = HealthStatus::Unhealthy;
            } else if let Some(weights) = weights {
                host.weight = u32::try_from(weights[number].as_u64()?).ok()?;
            }
            hosts.push(host);
        }
    }
    Some(Fake {
        priorities: vec![hosts],
        weights: Vec::new(),
    })
}

/// Returns the locality of the node, if the sets agree on it.
fn own_zone(inputs: &Value) -> Option<Locality> {
    let local_zone = |set: &Value| {
        let flag = set["has_local_locality"].as_bool().unwrap_or(false);
        flag.then(|| {
            set["localities"][0]["zone"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
    };
    let has = |set: &Value, zone: &str| {
        let all = set["localities"].as_array().cloned().unwrap_or_default();
        all.iter().any(|locality| locality["zone"] == zone)
    };
    let sets = [&inputs["upstream"], &inputs["local"]];
    let zone = sets
        .iter()
        .find_map(|set| local_zone(set))
        .unwrap_or_else(|| "elsewhere".to_owned());
    let agree = |set: &&Value| match local_zone(set) {
        Some(own) => own == zone,
        None => !has(set, &zone),
    };
    sets.iter().all(agree).then(|| Locality::zone_only(&zone))
}

/// Returns the state of a case as the module computes it; `None` if hosts cannot have its numbers.
fn run(inputs: &Value) -> Option<Cluster> {
    let unusual = ["literal_fractions", "priority"];
    if unusual.iter().any(|key| inputs.get(*key).is_some())
        || inputs["config"].get("dead_band_bp").is_some()
    {
        return None;
    }
    let upstream = hosts(&inputs["upstream"], 1)?;
    let own = own_zone(inputs)?;
    let config = ModuleConfig::parse(&config(inputs).to_string()).unwrap();
    let cluster = Cluster::new(config.cluster("upstream").unwrap(), own, None, NOW);
    cluster.handle_hosts(assignment(&upstream, "upstream").unwrap(), NOW);
    if inputs["local"].is_object() {
        let local = hosts(&inputs["local"], 2)?;
        cluster.handle_fleet(assignment(&local, "local").unwrap(), NOW);
    }
    let measured = inputs["measured_fractions"]
        .as_array()
        .into_iter()
        .flatten();
    let fractions: FractionMap = measured
        .map(|one| {
            let zone = one["locality"]["zone"].as_str().unwrap();
            let fraction = BasisPoints::new(one["basis_points"].as_u64().unwrap(), "fraction");
            (Locality::zone_only(zone), fraction.unwrap())
        })
        .collect();
    cluster.handle_observed_traffic(fractions, NOW, NOW);
    Some(cluster)
}

#[test]
fn zone_aware_cases_hold_for_hosts_of_envoy() {
    let mut ran = 0;
    for case in cases("zone_aware") {
        let kind = case["kind"].as_str().unwrap();
        if !["state", "pick"].contains(&kind) {
            continue;
        }
        let Some(cluster) = run(&case["inputs"]) else {
            continue;
        };
        ran += 1;
        let id = &case["id"];
        let expected = &case["expected"];
        let snapshot = cluster.snapshot();
        let zone = &snapshot.source_policy(0).unwrap().zone;
        let (state, residual) = match &zone.state {
            ZoneState::NoLocalityRouting(_) => ("NoLocalityRouting", None),
            ZoneState::LocalityDirect => ("LocalityDirect", None),
            ZoneState::LocalityResidual(residual) => ("LocalityResidual", Some(residual)),
        };
        assert_eq!(expected["state"], state, "{id}");
        if let Some(early_exit) = expected.get("early_exit") {
            let failed = zone.preconditions.iter().find(|test| !test.passed);
            let code = failed.map(|test| Reason::code(test.reason));
            assert_eq!(*early_exit, json!(code), "{id}");
        }
        if let Some(local) = expected.get("local_percent_to_route") {
            let percent = residual.map(|residual| residual.local_percent_to_route);
            assert_eq!(*local, json!(percent), "{id}");
        }
    }
    assert!(ran >= LEAST, "{ran} cases");
}
