//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §1–2.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

/// Two zones of two hosts each, on both sides, own zone `a`; `change` replaces inputs.
fn inputs(change: Value) -> Value {
    let set = json!({
        "has_local_locality": true,
        "localities": [{"zone": "a", "hosts": 2}, {"zone": "b", "hosts": 2}],
    });
    let mut inputs = json!({"config": {"min_cluster_size": 1}, "local": set, "upstream": set});
    let Value::Object(change) = change else {
        panic!("an object")
    };
    for (key, value) in change {
        inputs[key] = value;
    }
    inputs
}

fn set(localities: Value) -> Value {
    json!({"has_local_locality": true, "localities": localities})
}

fn picks(change: Value, expected: Value) {
    passes(run, "pick", inputs(change), expected);
}

fn is_in_state(change: Value, expected: Value) {
    passes(run, "state", inputs(change), expected);
}

#[test]
fn a_degraded_draw_takes_the_degraded_list_of_the_slot() {
    // 70 % healthy and 70 % degraded of 100: the 71st percent is degraded.
    let upstream = set(json!([
        {"zone": "a", "hosts": 2, "healthy": 1, "degraded": 1},
        {"zone": "b", "hosts": 2, "healthy": 1, "degraded": 1},
    ]));
    let degraded = json!({
        "pick": {"source": "LocalityDegradedHosts", "locality_index": 0},
        "pick_stats": {"lb_zone_routing_all_directly": 1},
        "random_draws_used": 1,
    });
    picks(
        json!({"upstream": upstream, "random": [70]}),
        degraded.clone(),
    );
    picks(json!({"random": [0], "availability": "Degraded"}), degraded);
    let healthy = json!({"pick": {"source": "LocalityHealthyHosts", "locality_index": 0}});
    picks(json!({"upstream": upstream, "random": [69]}), healthy);
    let flat = json!({"pick": {"source": "DegradedHosts"}, "pick_stats": {}});
    picks(
        json!({"random": [0], "availability": "degraded", "zone_routing_draw": false}),
        flat,
    );
}

#[test]
fn excluded_hosts_leave_the_denominator_of_panic() {
    let slot =
        |zone, excluded| json!({"zone": zone, "hosts": 4, "healthy": 1, "excluded": excluded});
    let set = |excluded| set(json!([slot("a", excluded), slot("b", excluded)]));
    let panic = json!({"pick": {"source": "AllHosts"}, "pick_stats": {"lb_healthy_panic": 1}});
    picks(json!({"upstream": set(0), "random": [0]}), panic);
    let local = json!({"pick": {"source": "LocalityHealthyHosts", "locality_index": 0}});
    picks(json!({"upstream": set(2), "random": [0]}), local.clone());
    let fleet_panic = json!({
        "pick": {"source": "HealthyHosts"}, "pick_stats": {"lb_local_cluster_not_ok": 1},
    });
    picks(json!({"local": set(0), "random": [0]}), fleet_panic);
    picks(json!({"local": set(2), "random": [0]}), local);
}

#[test]
fn panic_fails_traffic_when_told_to() {
    let config = json!({"min_cluster_size": 1, "fail_traffic_on_panic": true});
    let upstream = set(json!([{"zone": "a", "hosts": 4, "healthy": 1}, {"zone": "b", "hosts": 4}]));
    let above =
        json!({"pick": null, "pick_stats": {"lb_healthy_panic": 1}, "random_draws_used": 1});
    let change = json!({
        "config": config, "upstream": upstream, "random": [0],
        "runtime": {"upstream.healthy_panic_threshold": 63},
    });
    // 5 of 8 hosts are 62.5 %: below 63, but 87 of 100 are available, so it counts.
    picks(change, above);
}

#[test]
fn the_threshold_is_whole_percent_runtime_first_and_capped() {
    let upstream = set(json!([{"zone": "a", "hosts": 5, "healthy": 1}, {"zone": "b", "hosts": 5}]));
    let panics = |change: Value, expected: bool| {
        let mut change = change;
        change["upstream"] = upstream.clone();
        change["random"] = json!([0]);
        let count = u64::from(expected);
        picks(
            change,
            json!({"pick_stats": {
                "lb_healthy_panic": count, "lb_zone_routing_sampled": 1 - count,
            }}),
        );
    };
    // 60 % healthy: 84 of 100 available.
    panics(json!({"healthy_panic_threshold_percent": 60.9}), false);
    panics(json!({"healthy_panic_threshold_percent": 61}), true);
    let runtime = json!({"upstream.healthy_panic_threshold": 1000});
    panics(
        json!({"healthy_panic_threshold_percent": 0, "runtime": runtime}),
        true,
    );
    let runtime = json!({"upstream.healthy_panic_threshold": 0});
    panics(
        json!({"healthy_panic_threshold_percent": 100, "runtime": runtime}),
        false,
    );
}

#[test]
fn without_own_cluster_or_above_priority_0_nothing_is_regenerated() {
    let expected = json!({
        "early_exit": null, "state": "NoLocalityRouting", "percentages": null,
        "local_percent_to_route": null, "residual_capacity": null, "regenerate_stats": {},
    });
    is_in_state(json!({"local": null}), expected.clone());
    is_in_state(json!({"priority": 1}), expected);
    let flat = json!({"pick": {"source": "HealthyHosts"}, "random_draws_used": 1});
    picks(json!({"local": null, "random": [0]}), flat);
}

#[test]
fn one_upstream_locality_ends_it_without_a_counter() {
    is_in_state(
        json!({"upstream": set(json!([{"zone": "a", "hosts": 9}]))}),
        json!({
            "early_exit": "upstream_fewer_than_2_localities",
            "regenerate_stats": {"lb_recalculate_zone_structures": 1},
        }),
    );
}

#[test]
fn sampling_that_can_never_succeed_does_not() {
    let flat = json!({"pick": {"source": "HealthyHosts"}, "random_draws_used": 1});
    let direct = json!({"pick": {"source": "LocalityHealthyHosts", "locality_index": 0}});
    let never = json!({"min_cluster_size": 1, "routing_enabled_percent": 0});
    picks(json!({"config": never, "random": [0]}), flat.clone());
    let runtime = json!({"upstream.zone_routing.enabled": 0});
    picks(json!({"runtime": runtime, "random": [0]}), flat.clone());
    picks(
        json!({"runtime": runtime, "random": [0], "zone_routing_draw": true}),
        direct.clone(),
    );
    let some = json!({"min_cluster_size": 1, "routing_enabled_percent": 0.5});
    picks(
        json!({"config": some, "random": [0], "zone_routing_draw": true}),
        direct,
    );
    picks(
        json!({"config": some, "random": [0], "zone_routing_draw": false}),
        flat,
    );
}

#[test]
fn flat_sizes_replace_the_sums_one_by_one() {
    let upstream = json!({
        "has_local_locality": true,
        "localities": [{"zone": "a", "hosts": 2}, {"zone": "b", "hosts": 2}],
        "flat": {"healthy": 0},
    });
    let change = json!({"upstream": upstream, "random": [0]});
    picks(
        change,
        json!({
            "early_exit": "upstream_too_small", "pick_stats": {"lb_healthy_panic": 1},
            "regenerate_stats": {
                "lb_recalculate_zone_structures": 1, "lb_zone_cluster_too_small": 1,
            },
        }),
    );
}

#[test]
fn localities_match_by_the_whole_triple() {
    let triple = |region: &str, sub_zone: &str| {
        set(json!([
            {"region": region, "zone": "a", "sub_zone": sub_zone, "hosts": 1},
            {"region": region, "zone": "b", "hosts": 1},
        ]))
    };
    let same = json!({"percentages": [[5000, 5000], [5000, 5000]]});
    is_in_state(
        json!({"local": triple("r", "s"), "upstream": triple("r", "s")}),
        same,
    );
    let other_rack = json!({"percentages": [[0, 5000], [5000, 5000]]});
    is_in_state(
        json!({"local": triple("r", "s"), "upstream": triple("r", "")}),
        other_rack,
    );
    let other_region = json!({"percentages": [[0, 5000], [0, 5000]]});
    is_in_state(
        json!({"local": triple("q", "s"), "upstream": triple("r", "s")}),
        other_region,
    );
}

#[test]
fn every_basis_is_accepted() {
    let local = set(json!([
        {"zone": "a", "hosts": 2, "healthy_weights": [1, 1]},
        {"zone": "b", "hosts": 1, "healthy_weights": [8]},
    ]));
    let shares = |basis: &str, a: u64, b: u64| {
        let config = json!({"min_cluster_size": 1, "locality_basis": basis});
        let change = json!({"config": config, "local": local});
        is_in_state(change, json!({"percentages": [[a, 5000], [b, 5000]]}));
    };
    shares("HEALTHY_HOSTS_NUM", 6666, 3333);
    shares("HEALTHY_HOSTS_WEIGHT", 2000, 8000);
    // Nothing was measured: counts.
    shares("LRS_REPORTED_RATE", 6666, 3333);
    let unknown = json!({"locality_basis": "HEALTHY_HOSTS"});
    assert!(refusal(run, "state", inputs(json!({"config": unknown}))).contains("HEALTHY_HOSTS"));
}

#[test]
fn literal_fractions_lose_zones_without_healthy_proxies() {
    // envoy-semantics §10, problem 5.
    let local = set(json!([
        {"zone": "a", "hosts": 3},
        {"zone": "b", "hosts": 5},
        {"zone": "c", "hosts": 2, "healthy": 0},
    ]));
    let upstream = set(json!([
        {"zone": "a", "hosts": 3}, {"zone": "b", "hosts": 5}, {"zone": "c", "hosts": 2},
    ]));
    let fraction = |zone: &str, bp: u64| json!({"locality": {"zone": zone}, "basis_points": bp});
    let fractions = json!([
        fraction("a", 5000),
        fraction("b", 3500),
        fraction("c", 1500)
    ]);
    is_in_state(
        json!({"local": local, "upstream": upstream, "literal_fractions": fractions}),
        json!({
            "percentages": [[5882, 3000], [4117, 5000], [0, 2000]],
            "local_percent_to_route": 5100,
            "residual_capacity": [0, 883, 2883],
        }),
    );
}

#[test]
fn literal_fractions_have_neither_dead_band_nor_proportional_rest() {
    let fraction = |zone: &str, bp: u64| json!({"locality": {"zone": zone}, "basis_points": bp});
    let fractions = json!([fraction("a", 5100), fraction("b", 4900)]);
    is_in_state(
        json!({"literal_fractions": fractions}),
        json!({"state": "LocalityResidual", "local_percent_to_route": 9803}),
    );
    // 4499 and 5500 upstream: no residual, so the third draw picks any slot, as in Envoy.
    let upstream = set(json!([{"zone": "a", "hosts": 44_999}, {"zone": "b", "hosts": 55_001}]));
    let fractions = json!([fraction("a", 4500), fraction("b", 5500)]);
    for index in [0, 1] {
        let change = json!({
            "upstream": upstream, "literal_fractions": fractions, "random": [0, 9999, 2 + index],
        });
        picks(
            change,
            json!({
                "residual_capacity": [0, 0],
                "pick": {"source": "LocalityHealthyHosts", "locality_index": index},
            }),
        );
    }
}

#[test]
fn settings_resolve_as_in_envoy() {
    let resolves = |inputs: Value, expected: Value| passes(run, "config", inputs, expected);
    resolves(
        json!({"config": {"routing_enabled_percent": 99.9}}),
        json!({"routing_enabled": 99}),
    );
    resolves(
        json!({"config": {"force_locality_direct_routing": true}, "runtime": {}}),
        json!({"force_min": 1}),
    );
    resolves(
        json!({"config": {"force_local_zone": {"min_size": 0}}, "runtime": {}}),
        json!({"force_min": 0}),
    );
    let zero = json!({"upstream.zone_routing.force_local_zone.min_size": 0});
    let config = json!({"force_local_zone": {"min_size": 3}});
    resolves(
        json!({"config": config, "runtime": zero}),
        json!({"force_min": 3}),
    );
    let runtime = json!({
        "upstream.zone_routing.min_cluster_size": 9, "upstream.zone_routing.enabled": 7,
    });
    let expected = json!({"min_cluster_size": 9, "routing_enabled": 7, "fail_on_panic": true});
    let config = json!({"fail_traffic_on_panic": true});
    resolves(json!({"config": config, "runtime": runtime}), expected);
    resolves(
        json!({}),
        json!({"panic_threshold": 50, "basis": "HEALTHY_HOSTS_NUM"}),
    );
    let reason = refusal(
        run,
        "config",
        json!({"config": {"routing_enabled_percent": 101}}),
    );
    assert!(reason.starts_with("routing_enabled.value: "), "{reason}");
}

#[test]
fn order_groups_and_needs_an_own_locality_that_is_set() {
    let localities = json!([["", "b", ""], ["", "a", ""], ["", "b", ""], ["", "", ""]]);
    let order = |node: Value, expected: Value, local: bool| {
        passes(
            run,
            "order",
            json!({"node_locality": node, "localities": localities}),
            json!({"order": expected, "has_local_locality": local}),
        );
    };
    let sorted = json!([["", "", ""], ["", "a", ""], ["", "b", ""]]);
    order(json!(null), sorted.clone(), false);
    order(json!(["", "", ""]), sorted, false);
    order(
        json!(["", "b", ""]),
        json!([["", "b", ""], ["", "", ""], ["", "a", ""]]),
        true,
    );
    assert!(refusal(run, "order", json!({"localities": [["a", "b"]]})).contains("length"));
}

#[test]
fn a_state_is_not_picked_from() {
    for (key, value) in [
        ("random", json!([0])),
        ("zone_routing_draw", json!(true)),
        ("availability", json!("Healthy")),
    ] {
        let mut change = json!({});
        change[key] = value;
        assert!(refusal(run, "state", inputs(change)).contains(key));
    }
    let pick = json!({"pick": null});
    assert_eq!(differing(run, "state", inputs(json!({})), pick), ["pick"]);
}

#[test]
fn a_wrong_outcome_is_told_by_its_path() {
    let wrong = json!({
        "pick": {"source": "LocalityHealthyHosts", "locality_index": 1},
        "pick_stats": {"lb_zone_routing_sampled": 1},
        "random_draws_used": 2,
    });
    assert_eq!(
        differing(run, "pick", inputs(json!({"random": [0]})), wrong),
        [
            "pick.locality_index",
            "pick_stats.lb_zone_routing_sampled",
            "pick_stats.lb_zone_routing_all_directly",
            "random_draws_used",
        ]
    );
}
