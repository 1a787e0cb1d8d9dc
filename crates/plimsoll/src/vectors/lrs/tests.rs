//! Steps that the public cases do not take, and inputs that cannot be run.

use serde_json::json;

use super::*;
use crate::vectors::tests::{differing, passes, refusal};

fn foo(steps: Value) -> Value {
    let mut all = vec![
        json!({"op": "cluster", "name": "foo", "hosts": [{"locality": "z"}]}),
        json!({"op": "connect"}),
    ];
    all.extend(steps.as_array().cloned().unwrap_or_default());
    json!({ "steps": all })
}

fn ask() -> Value {
    json!({"op": "response", "clusters": ["foo"], "interval_us": 1_000_000})
}

#[test]
fn counts_before_the_first_selection_belong_to_no_report() {
    let traffic = json!({"op": "traffic", "cluster": "foo", "host": 0, "issued": 3, "success": 2});
    let steps = foo(json!([
        traffic, {"op": "time_us", "t": 5}, ask(), traffic, {"op": "time_us", "t": 9},
        {"op": "timer"},
    ]));
    let locality = json!({
        "locality": "z", "issued": 3, "success": 2, "error": 0, "in_progress": 2,
    });
    let foo = json!({"cluster_name": "foo", "localities": [locality], "interval_us": 4});
    passes(run, "lrs", steps, json!({ "last_request": [foo] }));
}

#[test]
fn a_removed_cluster_reports_what_it_counted_and_then_no_more() {
    let steps = [
        ask(),
        json!({"op": "traffic", "cluster": "foo", "host": 0, "issued": 2, "error": 2}),
        json!({"op": "remove_cluster", "name": "foo"}),
        json!({"op": "timer"}),
    ];
    let locality = json!({"locality": "z", "issued": 2, "error": 2});
    let expected = json!({"last_request": [{"cluster_name": "foo", "localities": [locality]}]});
    passes(run, "lrs", foo(json!(steps)), expected);
    let mut again = steps.to_vec();
    again.push(json!({"op": "timer"}));
    passes(run, "lrs", foo(json!(again)), json!({ "last_request": [] }));
}

#[test]
fn requests_that_end_without_a_beginning_began_before_the_case() {
    let steps = foo(json!([
        ask(),
        {"op": "traffic", "cluster": "foo", "host": 0, "success": 1, "active": 2},
        {"op": "traffic", "cluster": "foo", "host": 0, "issued": 1, "error": 3},
        {"op": "timer"},
    ]));
    let locality = json!({
        "locality": "z", "issued": 1, "success": 1, "error": 3, "in_progress": 0,
    });
    let expected = json!({"last_request": [{"cluster_name": "foo", "localities": [locality]}]});
    passes(run, "lrs", steps, expected);
}

#[test]
fn a_wrong_count_is_seen() {
    let steps = foo(json!([
        ask(), {"op": "traffic", "cluster": "foo", "host": 0, "issued": 2}, {"op": "timer"},
    ]));
    let locality = json!({"locality": "z", "issued": 3});
    let expected = json!({"last_request": [{"cluster_name": "foo", "localities": [locality]}]});
    let found = differing(run, "lrs", steps, expected);
    assert_eq!(found, ["last_request.0.localities.0.issued"]);
}

#[test]
fn what_cannot_be_run_is_said() {
    let why = |step: Value| refusal(run, "lrs", foo(json!([step])));
    let traffic =
        |cluster: &str, host: u64| json!({"op": "traffic", "cluster": cluster, "host": host});
    assert_eq!(why(traffic("bar", 0)), "no such cluster");
    assert_eq!(why(traffic("foo", 1)), "no such host");
    assert_eq!(
        why(json!({"op": "remove_cluster", "name": "bar"})),
        "no such cluster"
    );
    let dropped = json!({"op": "drop", "cluster": "foo", "drop_overload": 1});
    assert_eq!(why(dropped), "drop_overload without drop_category");
    assert_eq!(why(json!({"op": "timer"})), "no timer is armed");
}
