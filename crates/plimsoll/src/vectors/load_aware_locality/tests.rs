//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §4.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

/// One priority: a is local, b is not, one host each.
fn topology() -> Value {
    let locality = |name: &str| json!({"name": name, "hosts": [format!("{name}0")]});
    json!([{"has_local_locality": true, "localities": [locality("a"), locality("b")]}])
}

/// No smoothing, no probe, no expiration.
fn plain() -> Value {
    json!({"ewma_alpha": 1.0, "remote_probe_fraction": 0.0, "weight_expiration_period_ms": 0})
}

fn report(host: &str, utilization: f64) -> Value {
    json!({"op": "report", "host": host, "application_utilization": utilization})
}

fn tick() -> Value {
    json!({"op": "tick"})
}

fn weights(inputs: Value, healthy: Value) {
    let expected = json!({"weights": [{"healthy": healthy.clone(), "all": healthy}]});
    passes(run, "weights", inputs, expected);
}

#[test]
fn hosts_may_report_before_the_first_tick() {
    let steps = json!([report("a0", 0.9), report("b0", 0.4), tick()]);
    let inputs = json!({"config": plain(), "topology": topology(), "steps": steps});
    weights(inputs.clone(), json!({"a": 0.1, "b": 0.6}));
    let expected = json!({
        "counters": {"recompute_total": 1, "spill_active_total": 1},
        "shares": {"a": 0.1 / 0.7, "b": 0.6 / 0.7},
        "all_local": [{"healthy": false, "degraded": false, "all": false}],
    });
    passes(run, "weights", inputs.clone(), expected);
    passes(
        run,
        "weights",
        inputs.clone(),
        json!({"shares": [0.1 / 0.7, 0.6 / 0.7]}),
    );
    let wrong = json!({"shares": [0.2, 0.8], "counters": {"recompute_total": 2}});
    let fields = [
        "counters.recompute_total",
        "counters.spill_active_total",
        "shares",
    ];
    assert_eq!(differing(run, "weights", inputs, wrong), fields);
}

#[test]
fn time_of_the_case_decides_about_age_and_nothing_ticks_by_itself() {
    let config = json!({"ewma_alpha": 1.0, "remote_probe_fraction": 0.0,
                        "weight_expiration_period_ms": 1000});
    // Three ticks at one moment, then a new topology long after the timer's period.
    let aged = |ms: u64, expected: Value, stale: u64| {
        let steps = json!([
            tick(), report("a0", 0.9), report("b0", 0.4), tick(), tick(), tick(),
            {"op": "advance_ms", "ms": ms}, {"op": "set_topology", "topology": topology()}, tick(),
        ]);
        let inputs = json!({"config": config.clone(), "topology": topology(), "steps": steps});
        weights(inputs.clone(), expected);
        let counters = json!({"counters": {
            "recompute_total": 5, "local_preferred_total": 1, "spill_active_total": 4,
            "stale_locality_total": stale,
        }});
        passes(run, "weights", inputs, counters);
    };
    aged(1000, json!({"a": 0.1, "b": 0.6}), 0);
    // Stale: by host counts, but compared by the values that were carried on.
    aged(1001, json!({"a": 1, "b": 1}), 2);
}

#[test]
fn smoothing_follows_the_locality_and_reports_follow_the_host() {
    let entry = |name: &str, host: &str| json!({"name": name, "hosts": [host]});
    let first = json!([{"localities": [entry("a", "x"), entry("b", "y")]}]);
    let moved = json!([{"localities": [entry("b", "x"), entry("c", "y")]}]);
    let gone = json!([{"localities": []}]);
    let config = json!({"ewma_alpha": 0.5, "weight_expiration_period_ms": 0});
    let steps = json!([
        tick(), report("x", 0.8), report("y", 0.4), tick(),
        {"op": "set_topology", "topology": moved}, tick(),
    ]);
    // b: half of the new 0.8, half of its old 0.4; c: new, hence raw.
    let inputs = json!({"config": config.clone(), "topology": first.clone(), "steps": steps});
    weights(inputs, json!({"b": 0.4, "c": 0.6}));
    let steps = json!([
        tick(), report("x", 0.8), tick(), {"op": "set_topology", "topology": gone}, tick(),
        {"op": "set_topology", "topology": first.clone()}, tick(),
    ]);
    let inputs = json!({"config": config.clone(), "topology": first.clone(), "steps": steps});
    weights(inputs, json!({"a": 0.2, "b": 1}));
    // What the last tick said stands, whatever the topology became since.
    let steps = json!([tick(), {"op": "set_topology", "topology": gone}]);
    let inputs = json!({"config": config, "topology": first, "steps": steps});
    weights(inputs, json!({"a": 1, "b": 1}));
}

#[test]
fn a_host_without_policy_data_loses_its_reports() {
    let steps = json!([
        tick(), report("b0", 0.9), tick(),
        {"op": "attach_policy_data", "hosts": ["b0"]}, report("a0", 0.5), tick(),
    ]);
    let inputs = |steps: Value| {
        json!({"config": plain(), "topology": topology(), "steps": steps,
               "hosts_without_policy_data": ["b0"]})
    };
    // b never reported: it counts as idle, and a is hotter than that.
    weights(inputs(steps.clone()), json!({"a": 0.5, "b": 1}));
    let mut later = steps.as_array().unwrap().clone();
    later.extend([report("b0", 0.6), tick()]);
    weights(inputs(later.into()), json!({"a": 1, "b": 0}));
}

#[test]
fn sources_have_their_own_sums_and_every_priority_its_own_locality() {
    let topology = json!([
        {"has_local_locality": true, "localities": [
            {"name": "a", "hosts": ["a0", "a1"], "healthy": ["a0"], "degraded": ["a1"]},
            {"name": "b", "hosts": ["b0", "b1"], "healthy": [], "degraded": ["b0"]},
        ]},
        {"has_local_locality": true, "localities": [
            {"name": "b", "hosts": ["c0"]}, {"name": "a", "hosts": ["c1"]},
        ]},
    ]);
    let steps = json!([tick(), report("a1", 0.5), report("b0", 0.2), tick()]);
    let inputs = json!({"config": plain(), "topology": topology, "steps": steps});
    let expected = json!({
        "weights": [
            {"healthy": {"a": 1}, "degraded": {"a": 0.5, "b": 0.8}, "all": {"a": 1.0, "b": 1.6}},
            {"healthy": {"b": 1}, "all": {"b": 1}},
        ],
        "all_local": [
            {"healthy": false, "degraded": false, "all": false},
            {"healthy": true, "degraded": false, "all": true},
        ],
    });
    passes(run, "weights", inputs.clone(), expected);
    let wrong = json!({"weights": [{"healthy": {"a": 1, "z": 0}}, {}]});
    let fields = [
        "weights.0.healthy.z",
        "weights.0.all",
        "weights.0.degraded",
        "weights.1.all",
        "weights.1.healthy",
    ];
    assert_eq!(differing(run, "weights", inputs, wrong), fields);
}

#[test]
fn a_probe_above_the_whole_is_active_even_when_there_is_nothing_to_take() {
    let config = json!({"ewma_alpha": 1.0, "remote_probe_fraction": 2.0,
                        "weight_expiration_period_ms": 0});
    let steps = json!([report("a0", 1.0), report("b0", 0.5), tick()]);
    let inputs = json!({"config": config, "topology": topology(), "steps": steps});
    weights(inputs.clone(), json!({"b": 0.5}));
    let counters = json!({"counters": {
        "recompute_total": 1, "spill_active_total": 1, "probe_active_total": 1,
    }});
    passes(run, "weights", inputs, counters);
}

#[test]
fn reports_that_say_nothing_leave_what_was_there() {
    for nothing in [
        json!({"application_utilization": 0.0}),
        json!({"application_utilization": "NaN"}),
        json!({"report": {"cpu_utilization": -1}}),
        json!({"report": {"mem_utilization": 0.7}}),
    ] {
        let mut step = json!({"op": "report", "hosts": ["a0"]});
        let fields = step.as_object_mut().unwrap();
        fields.extend(nothing.as_object().unwrap().clone());
        let steps = json!([tick(), report("a0", 0.9), tick(), step, tick()]);
        let inputs = json!({"config": plain(), "topology": topology(), "steps": steps});
        weights(inputs, json!({"a": 0.1, "b": 1}));
    }
}

#[test]
fn broken_weights_are_refused_by_name() {
    let refused = |topology: Value, steps: Value| {
        refusal(
            run,
            "weights",
            json!({"config": plain(), "topology": topology, "steps": steps}),
        )
    };
    let both = json!([{"localities": [{"name": "a", "hosts": ["x"], "degraded": ["x"]}]}]);
    assert!(refused(both, json!([])).contains("x cannot be both"));
    let twice = json!([{"localities": [{"name": "a", "hosts": ["x", "x"]}]}]);
    assert!(refused(twice, json!([])).contains("endpoints"));
    let op = refused(topology(), json!([{"op": "tock"}]));
    assert!(op.contains("unknown variant `tock`"), "{op}");
    let empty = refused(topology(), json!([{"op": "report", "hosts": ["a0"]}]));
    assert!(empty.contains("either"), "{empty}");
    let two = json!([{"op": "report", "application_utilization": 1, "report": {}}]);
    assert!(refused(topology(), two).contains("either"));
    let extra = refused(topology(), json!([{"op": "tick", "misspelt": 1}]));
    assert!(extra.contains("misspelt"), "{extra}");
    let metric = json!([{"op": "report", "report": {"cpu": 1}}]);
    assert!(refused(topology(), metric).contains("unknown field `cpu`"));
}

#[test]
fn picks_at_the_edges() {
    let pick = |weights: Value, index: u64| {
        let inputs = json!({"hash": 0, "weights": weights});
        passes(
            run,
            "locality_pick",
            inputs,
            json!({"locality_index": index}),
        );
    };
    // mix(0) is 0.883 of the whole.
    pick(json!([]), 0);
    pick(json!([0.88, 0.12]), 1);
    pick(json!([0.89, 0.11]), 0);
    pick(json!([0, 0, 1, 0]), 2);
    pick(json!([-1, 0]), 0);
    let worker = |usable: Value, index: Value| {
        let inputs = json!({"hash": 0, "aligned_weights": [0, 1, 0], "usable": usable});
        passes(run, "worker_pick", inputs, json!({"locality_index": index}));
    };
    worker(json!([true, true, true]), json!(1));
    worker(json!([true, false, true]), json!(2));
    worker(json!([true, false, false]), json!(0));
    worker(json!([false, false, false]), json!(null));
    let uneven = json!({"hash": 0, "aligned_weights": [1], "usable": []});
    assert!(refusal(run, "worker_pick", uneven).contains("one per weight"));
}

#[test]
fn every_situation_of_a_pick_has_its_counter() {
    for index in [0, 1, 4] {
        for bits in 0..16_u8 {
            let [in_panic, covered, local, all_local] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let counter = match (in_panic, covered && local) {
                (true, _) | (false, false) => None,
                _ if index > 0 => Some("lb_zone_routing_cross_zone"),
                _ if all_local => Some("lb_zone_routing_all_directly"),
                _ => Some("lb_zone_routing_sampled"),
            };
            let inputs = json!({
                "in_panic": in_panic, "snapshot_covers_priority": covered,
                "has_local_locality": local, "locality_index": index, "all_local": all_local,
            });
            passes(run, "zone_stat", inputs, json!({"counter": counter}));
        }
    }
    let far = json!({"in_panic": false, "snapshot_covers_priority": true,
                     "has_local_locality": true, "locality_index": 101, "all_local": true});
    assert!(refusal(run, "zone_stat", far).contains("at most 100"));
}

const ROUND_ROBIN: &str = "envoy.load_balancing_policies.round_robin";

fn config(proto: Value, expected: Value) {
    passes(run, "config", json!({"proto": proto}), expected);
}

#[test]
fn children_are_tried_in_order() {
    let child = |name: &str| json!({"name": name});
    let result = |children: Value, expected: Value| config(json!({"children": children}), expected);
    let itself = "envoy.load_balancing_policies.load_aware_locality";
    let none =
        json!({"result": "error", "message_contains": "No supported endpoint picking policy"});
    result(json!([]), none.clone());
    result(
        json!([
            child("test.unknown"),
            child("envoy.load_balancing_policies.pick_first")
        ]),
        none,
    );
    let malformed = json!({"name": ROUND_ROBIN, "malformed": true});
    let ok = json!({"result": "ok", "derived": {"child": ROUND_ROBIN}});
    // What nobody knows cannot be malformed; what stands behind the winner is not looked at.
    let unknown = json!({"name": "test.unknown", "malformed": true});
    let children = json!([unknown, child(ROUND_ROBIN), malformed, child(itself)]);
    result(children, ok);
    let error = json!({"result": "error"});
    result(json!([malformed, child(ROUND_ROBIN)]), error.clone());
    result(json!([child("test.child_with_failing_load_config")]), error);
    let own = json!({"result": "error", "message_contains": "its own endpoint_picking_policy"});
    result(
        json!([child("test.unknown"), child(itself), child(ROUND_ROBIN)]),
        own,
    );
    let weighted = "envoy.load_balancing_policies.client_side_weighted_round_robin";
    result(
        json!([child(weighted)]),
        json!({"result": "ok", "derived": {"child": weighted}}),
    );
}

#[test]
fn knobs_are_checked_and_derived() {
    let children = json!([{"name": ROUND_ROBIN}]);
    let with = |field: &str, value: Value, expected: Value| {
        config(
            json!({"children": children.clone(), field: value}),
            expected,
        );
    };
    let error = |text: &str| json!({"result": "error", "message_contains": text});
    with(
        "smoothing_time_constant_ms",
        json!(0.5),
        error("smoothing_time_constant"),
    );
    with(
        "weight_update_period_ms",
        json!(99),
        error("at least 100ms"),
    );
    with(
        "utilization_variance_threshold",
        json!("NaN"),
        error("utilization_variance_threshold"),
    );
    with(
        "remote_probe_fraction",
        json!(-0.01),
        error("remote_probe_fraction"),
    );
    for field in [
        "smoothing_time_constant_ms",
        "weight_update_period_ms",
        "weight_expiration_period_ms",
        "oob_reporting_period_ms",
    ] {
        with(field, json!(-1), json!({"result": "throw"}));
    }
    let names = json!(["named_metrics.foo", "whatever"]);
    with(
        "metric_names_for_computing_utilization",
        names,
        json!({"result": "ok"}),
    );
    let derived = |field: &str, value: Value| json!({"result": "ok", "derived": {field: value}});
    let off = derived("weight_expiration_period_ms", json!(0));
    with("weight_expiration_period_ms", json!(0), off);
    let alpha = derived("ewma_alpha", json!(1.0 - (-0.25_f64).exp()));
    with("smoothing_time_constant_ms", json!(4000), alpha);
    let wrong = json!({"result": "ok", "derived": {"ewma_alpha": 0.5}, "message_contains": "x"});
    let fields = ["derived.ewma_alpha", "message_contains"];
    let inputs = json!({"proto": {"children": children}});
    assert_eq!(differing(run, "config", inputs, wrong), fields);
}

#[test]
fn the_order_of_metrics_decides_what_is_stored() {
    let stored = |metrics: Value, first: Value, expected: Value| {
        let mut inputs = json!({"report": metrics, "metric_names": ["utilization.q"]});
        if !first.is_null() {
            inputs["named_metrics_first"] = first;
        }
        passes(run, "utilization", inputs, expected);
    };
    let both = json!({"application_utilization": 0.3, "utilization": {"q": 0.6}});
    let value = |value: f64| json!({"stored": true, "utilization": value});
    stored(both.clone(), json!(null), value(0.6));
    stored(both.clone(), json!(true), value(0.6));
    stored(both, json!(false), value(0.3));
    stored(
        json!({"cpu_utilization": "NaN"}),
        json!(null),
        json!({"stored": false}),
    );
    stored(
        json!({}),
        json!(null),
        json!({"stored": false, "utilization": null}),
    );
}

#[test]
fn one_report_feeds_both_or_one() {
    let fed = |report: Value, penalty: f64, utilization: Value, weight: Value| {
        let inputs = json!({"report": report, "error_utilization_penalty": penalty});
        let expected = json!({"locality_utilization": utilization, "cswrr_weight": weight});
        passes(run, "fanout", inputs, expected);
    };
    let report = json!({"cpu_utilization": 0.5, "rps_fractional": 100, "eps": 50});
    fed(report.clone(), 0.0, json!(0.5), json!(200));
    fed(report, 1.0, json!(0.5), json!(100));
    fed(
        json!({"cpu_utilization": 0.5}),
        0.0,
        json!(0.5),
        json!(null),
    );
    fed(
        json!({"rps_fractional": 10, "eps": 10}),
        1.0,
        json!(null),
        json!(10),
    );
}
