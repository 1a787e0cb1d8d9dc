//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §3.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

fn wrr(inputs: Value, expected: Value) {
    passes(run, "wrr", inputs, expected);
}

fn degraded_localities() -> Value {
    json!([
        {"hosts": 2, "healthy": 2, "weight": 1},
        {"hosts": 2, "healthy": 1, "degraded": 1, "weight": 1},
    ])
}

#[test]
fn the_degraded_schedule_is_asked_for_in_either_spelling() {
    let localities = degraded_localities();
    wrr(
        json!({"localities": localities}),
        json!({"sequence": [0, 1, 0, 1, 0]}),
    );
    let expected =
        json!({"effective_weights": {"1": 0.7}, "sequence": [1, 1, 1], "counts": [0, 9]});
    wrr(
        json!({"localities": localities, "degraded": true}),
        expected.clone(),
    );
    wrr(
        json!({"localities": localities, "availability": "Degraded"}),
        expected,
    );
}

#[test]
fn excluded_hosts_leave_the_denominator() {
    let localities = json!([
        {"hosts": 4, "healthy": 1, "excluded": 2, "weight": 10},
        {"hosts": 2, "healthy": 2, "excluded": 2, "weight": 10},
    ]);
    // 1 of 2 usable: 0.7; nothing to divide by: 0, and it may be left out.
    wrr(
        json!({"localities": localities}),
        json!({"effective_weights": {"0": 7.0}}),
    );
    wrr(
        json!({"localities": localities}),
        json!({"effective_weights": {"0": 7, "1": 0.0}}),
    );
    let wrong = json!({"effective_weights": {"1": 0.0}});
    let differences = differing(run, "wrr", json!({"localities": localities}), wrong);
    assert_eq!(differences, ["effective_weights.0"]);
}

#[test]
fn no_schedule_picks_nothing() {
    let localities = json!([{"hosts": 1}, {"hosts": 1, "weight": 0}]);
    let expected = json!({
        "scheduler": false, "effective_weights": {}, "sequence": [null], "counts": [0, 0],
    });
    wrr(json!({"localities": localities}), expected.clone());
    // The largest start there is: nothing to skip over, so it takes no time.
    let late = json!({"localities": localities, "seed": 429_496_728, "seeds": [429_496_728]});
    wrr(late, expected);
    wrr(
        json!({"localities": []}),
        json!({"scheduler": false, "sequence": []}),
    );
    let one = json!({"localities": [{"hosts": 1, "weight": 1}]});
    wrr(one.clone(), json!({"scheduler": true, "sequence": [0, 0]}));
    assert_eq!(
        differing(run, "wrr", one, json!({"scheduler": false})),
        ["scheduler"]
    );
}

#[test]
fn a_seed_starts_later_in_the_same_order() {
    let localities = json!([{"hosts": 1, "weight": 1}, {"hosts": 1, "weight": 2}]);
    wrr(
        json!({"localities": localities}),
        json!({"sequence": [1, 0, 1, 1, 0, 1]}),
    );
    wrr(
        json!({"localities": localities, "seed": 1}),
        json!({"sequence": [0, 1, 1, 0, 1]}),
    );
    let seeds = json!({"localities": localities, "seeds": [0, 1, 2, 3, 4, 5]});
    wrr(seeds, json!({"first_pick_by_seed": [2, 4]}));
}

#[test]
fn overprovisioning_has_a_default_and_an_end() {
    let localities = json!([{"hosts": 10, "healthy": 6, "weight": 10}]);
    wrr(
        json!({"localities": localities}),
        json!({"effective_weights": {"0": 8.4}}),
    );
    for (factor, weight) in [(100, 6.0), (200, 10.0)] {
        let inputs = json!({"localities": localities, "overprovisioning_factor": factor});
        wrr(inputs, json!({"effective_weights": {"0": weight}}));
    }
}

#[test]
fn absurd_numbers_of_picks_are_refused() {
    let inputs = json!({"localities": [{"hosts": 1, "weight": 1}]});
    let counts = json!({"counts": [u64::MAX, u64::MAX]});
    assert_eq!(differing(run, "wrr", inputs, counts), ["inputs"]);
    assert!(refusal(run, "wrr", json!({"localities": [{"host": 1}]})).contains("`host`"));
}
