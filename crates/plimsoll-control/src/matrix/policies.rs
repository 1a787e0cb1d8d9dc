//! Rows of the matrix: every load-balancing policy, and every way to choose a locality.

use serde_json::{Map, Value, json};

use super::Policy;

/// Written weights of the zones: those of neither demand nor hosts.
const WEIGHTS: [u32; 3] = [2, 2, 6];

/// Returns all policies, in the order of the page.
pub fn policies() -> Vec<Policy> {
    let child = |field: &str| json!({ field: list(round_robin(&json!({}))) });
    let picking = child("endpoint_picking_policy");
    let mut converging = picking.clone();
    converging["spill_controller"] = json!("CONVERGENT");
    let mut not_led = converging.clone();
    not_led["demand_feed_forward"] = json!(false);
    let mut subset = child("subset_lb_policy");
    subset["subset_selectors"] = json!([{ "keys": ["stage"] }]);
    let plain = || json!({});
    let orca = "client_side_weighted_round_robin";
    let by_load = ("load_aware_locality", "LoadAwareLocality");
    let mut all = vec![
        row("round robin", round_robin(&plain())),
        row(
            "least request",
            typed("least_request", "LeastRequest", &plain()),
        ),
        row("random", typed("random", "Random", &plain())),
        row(
            "client-side weighted round robin",
            typed(orca, "ClientSideWeightedRoundRobin", &plain()),
        ),
    ];
    all.extend(bases());
    all.extend([
        row(
            "`wrr_locality`",
            typed("wrr_locality", "WrrLocality", &picking),
        ),
        row(
            "`load_aware_locality`",
            typed(by_load.0, by_load.1, &picking),
        ),
        row(
            "`load_aware_locality`, `CONVERGENT`",
            typed(by_load.0, by_load.1, &converging),
        ),
        row(
            "the same, `demand_feed_forward: false`",
            typed(by_load.0, by_load.1, &not_led),
        ),
        row("`subset`", typed("subset", "Subset", &subset)),
        row("ring hash", typed("ring_hash", "RingHash", &plain())),
        row("Maglev", typed("maglev", "Maglev", &plain())),
    ]);
    all
}

/// Returns round robin with each way to choose a locality.
fn bases() -> impl Iterator<Item = Policy> {
    let rules = [
        (
            "`routing_enabled: 60 %`",
            json!({ "routing_enabled": { "value": 60 } }),
        ),
        (
            "`fail_traffic_on_panic`, `force_local_zone`",
            json!({ "fail_traffic_on_panic": true, "force_local_zone": { "min_size": 2 } }),
        ),
        (
            "`locality_basis: LRS_REPORTED_RATE`",
            json!({ "locality_basis": "LRS_REPORTED_RATE" }),
        ),
        (
            "`locality_basis: HEALTHY_HOSTS_NUM`",
            json!({ "locality_basis": "HEALTHY_HOSTS_NUM" }),
        ),
        (
            "`locality_basis: HEALTHY_HOSTS_WEIGHT`",
            json!({ "locality_basis": "HEALTHY_HOSTS_WEIGHT" }),
        ),
        (
            "`locality_basis: OBSERVED_LOAD`",
            json!({ "locality_basis": "OBSERVED_LOAD" }),
        ),
        (
            "`min_cluster_size`, `all_priorities`",
            json!({ "min_cluster_size": 6, "all_priorities": true }),
        ),
    ];
    let zone_aware = rules.map(|(title, rules)| {
        let config = json!({ "locality_lb_config": { "zone_aware_lb_config": rules } });
        row(title, round_robin(&config))
    });
    let weighted = json!({ "locality_lb_config": { "locality_weighted_lb_config": {} } });
    let title = "`locality_weighted_lb_config`";
    let unwritten = row(title, round_robin(&weighted));
    let written = Policy {
        title: "`locality_weighted_lb_config`, written weights",
        weights: Some(WEIGHTS),
        ..unwritten.clone()
    };
    zone_aware.into_iter().chain([unwritten, written])
}

fn row(title: &'static str, policy: Value) -> Policy {
    let field = ("load_balancing_policy".to_owned(), list(policy));
    Policy {
        title,
        cluster: Map::from_iter([field]),
        weights: None,
    }
}

fn list(policy: Value) -> Value {
    json!({ "policies": [{ "typed_extension_config": policy }] })
}

fn round_robin(fields: &Value) -> Value {
    typed("round_robin", "RoundRobin", fields)
}

fn typed(name: &str, message: &str, fields: &Value) -> Value {
    let package = "envoy.extensions.load_balancing_policies";
    let mut config = fields.clone();
    config["@type"] = json!(format!("type.googleapis.com/{package}.{name}.v3.{message}"));
    json!({ "name": format!("envoy.load_balancing_policies.{name}"), "typed_config": config })
}
