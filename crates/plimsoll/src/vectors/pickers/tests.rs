//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §3.2 and §8.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

fn edf(steps: Value, expected: Value) {
    let inputs = json!({"weights": [1, 2], "steps": steps});
    passes(run, "edf", inputs, json!({"sequence": expected}));
}

#[test]
fn a_rebuild_starts_the_schedule_again() {
    edf(json!([{"picks": 2}, {"picks": 3}]), json!([1, 0, 1, 1, 0]));
    edf(
        json!([{"picks": 2}, {"rebuild": true, "picks": 3}]),
        json!([1, 0, 1, 0, 1]),
    );
    edf(
        json!([{"picks": 2}, {"rebuild": false, "picks": 3}]),
        json!([1, 0, 1, 1, 0]),
    );
}

#[test]
fn a_rebuild_takes_the_weights_in_force() {
    let start_over = json!([1, 0, 0, 1, 0]);
    for step in [
        json!({"rebuild": [2, 1], "picks": 3}),
        json!({"set_weights": [2, 1], "rebuild": true, "picks": 3}),
    ] {
        edf(json!([{"picks": 2}, step]), start_over.clone());
    }
    let separate = json!([{"picks": 2}, {"set_weights": [2, 1]}, {"rebuild": true}, {"picks": 3}]);
    edf(separate, start_over);
}

#[test]
fn new_weights_alone_wait_until_a_host_returns() {
    // Host 1 is due at 0.5, 1 and, with its old weight, 1.5; only then the new one counts.
    let steps = json!([{"picks": 2}, {"set_weights": [2, 1], "picks": 4}]);
    edf(steps, json!([1, 0, 1, 0, 1, 0]));
}

#[test]
fn a_changed_membership_rebuilds() {
    edf(
        json!([{"picks": 1}, {"set_weights": [1, 1, 1], "picks": 4}]),
        json!([1, 0, 1, 2, 0]),
    );
    edf(
        json!([{"picks": 1}, {"set_weights": [5], "picks": 2}]),
        json!([1, 0, 0]),
    );
    edf(
        json!([{"picks": 1}, {"rebuild": [], "picks": 1}]),
        json!([1, null]),
    );
}

#[test]
fn schedules_refuse_what_they_cannot_hold() {
    let refused = |weights: Value, steps: Value| {
        refusal(run, "edf", json!({"weights": weights, "steps": steps}))
    };
    assert!(refused(json!([1, 0]), json!([])).contains("above 0"));
    assert!(refused(json!([1]), json!([{"rebuild": [-1]}])).contains("above 0"));
    assert!(refused(json!([1]), json!([{"picks": u64::MAX}])).contains("steps[].picks"));
    assert!(refused(json!([1]), json!([{"pick": 1}])).contains("`pick`"));
}

#[test]
fn round_robin_follows_its_cursor_over_the_end() {
    let rotates = |hosts: u64, seed: u64, sequence: Value| {
        let inputs = json!({"hosts": hosts, "seed": seed});
        passes(run, "unweighted_rr", inputs, json!({"sequence": sequence}));
    };
    rotates(3, 0, json!([0, 1, 2, 0]));
    // 2^64 - 1 is divisible by 3; then the cursor starts at 0.
    rotates(3, u64::MAX, json!([0, 0, 1]));
    rotates(0, 5, json!([null, null]));
}

#[test]
fn slow_start_has_defaults_and_an_end() {
    let ramps = |inputs: Value, factor: f64| {
        passes(run, "slow_start", inputs, json!({"factor": factor}));
    };
    ramps(json!({"elapsed_ms": 500, "window_ms": 1000}), 0.5);
    ramps(json!({"elapsed_ms": 10, "window_ms": 1000}), 0.1);
    ramps(json!({"elapsed_ms": 1000, "window_ms": 1000}), 1.0);
    ramps(
        json!({"elapsed_ms": 250, "window_ms": 1000, "aggression": 2}),
        0.5,
    );
    let loose = json!({"factor": 0.49, "tolerance": 0.02});
    passes(
        run,
        "slow_start",
        json!({"elapsed_ms": 5, "window_ms": 10}),
        loose,
    );
}

#[test]
fn least_request_counts_its_draws() {
    let choices = |inputs: Value, host: Value, draws: u64| {
        let expected = json!({"host": host, "random_draws_used": draws});
        passes(run, "least_request_choices", inputs, expected);
    };
    choices(json!({"active": [5, 1], "random": [0, 1]}), json!(1), 2);
    choices(
        json!({"active": [5, 1], "random": [0, 0, 1], "choice_count": 3}),
        json!(1),
        3,
    );
    choices(json!({"active": [5, 1], "random": [u64::MAX]}), json!(1), 2);
    let scan = |inputs: Value, host: Value, draws: u64| {
        let expected = json!({"host": host, "random_draws_used": draws});
        passes(run, "least_request_full_scan", inputs, expected);
    };
    scan(json!({"active": [2, 2, 2], "random": [0, 1]}), json!(1), 2);
    scan(json!({"active": [2, 2, 2], "random": [1, 3]}), json!(2), 2);
    scan(json!({"active": []}), json!(null), 0);
}

#[test]
fn least_request_weighs_by_active_requests() {
    let weighs = |inputs: Value, weight: f64| {
        passes(
            run,
            "least_request_weight",
            inputs,
            json!({"weight": weight}),
        );
    };
    weighs(json!({"weight": 6, "active": 2}), 2.0);
    weighs(json!({"weight": 6, "active": 2, "bias": 0}), 6.0);
    weighs(json!({"weight": 6, "active": 3, "bias": 0.5}), 3.0);
}

#[test]
fn random_and_probe_order() {
    let picks = |random: u64, hosts: u64, host: Value| {
        let inputs = json!({"random": random, "hosts": hosts});
        passes(run, "random", inputs, json!({"host": host}));
    };
    picks(u64::MAX, 10, json!(5));
    picks(7, 0, json!(null));
    let probes = |hash: u64, hosts: u64, order: Value| {
        let inputs = json!({"hash": hash, "hosts": hosts});
        passes(run, "bounded_load_order", inputs, json!({"order": order}));
    };
    probes(2, 5, json!([2, 1, 0, 4, 3]));
    // Only the low 32 bits of the hash count.
    probes((1 << 40) + 2, 5, json!([2, 1, 0, 4, 3]));
    probes(2, 0, json!([]));
    let inputs = json!({"hash": 2, "hosts": 5});
    let wrong = json!({"order": [2, 1, 0, 3, 4]});
    assert_eq!(
        differing(run, "bounded_load_order", inputs, wrong),
        ["order"]
    );
    assert!(
        refusal(
            run,
            "bounded_load_order",
            json!({"hash": 1, "hosts": u64::MAX})
        )
        .contains("hosts")
    );
}
