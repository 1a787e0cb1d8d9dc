//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §1.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

fn hosts(priority: usize, hosts: u64, healthy: u64) -> Value {
    json!({"priority": priority, "host_set": {"hosts": hosts, "healthy": healthy}})
}

fn loads(updates: Value, expected: Value) {
    passes(run, "load", json!({"updates": updates}), expected);
}

#[test]
fn an_update_may_change_only_the_threshold() {
    // Not recalculated by itself: 4 of 10 stay in panic until the next host set arrives.
    let updates = json!([hosts(0, 10, 4), {"panic_threshold": 30}]);
    loads(updates, json!({"panic": [true], "healthy_load": [100]}));
    let updates = json!([hosts(0, 10, 4), {"panic_threshold": 30}, hosts(0, 10, 4)]);
    loads(updates, json!({"panic": [false]}));
    let mut both = hosts(0, 10, 4);
    both["panic_threshold"] = json!(30);
    loads(json!([both]), json!({"panic": [false]}));
}

#[test]
fn a_threshold_of_zero_keeps_the_flags_when_all_is_lost() {
    // 1 of 4 is panic. Nothing of 4 at a threshold of 0 is a rule of its own: flags stay.
    let updates = json!([hosts(0, 4, 1), {"panic_threshold": 0}, hosts(0, 4, 0)]);
    loads(
        updates,
        json!({"health": [0], "healthy_load": [100], "panic": [true]}),
    );
    loads(
        json!([{"panic_threshold": 0}, hosts(0, 4, 0)]),
        json!({"panic": [false]}),
    );
}

#[test]
fn missing_lower_priorities_are_empty() {
    loads(
        json!([hosts(2, 4, 2)]),
        json!({"health": [0, 0, 70], "healthy_load": [0, 0, 100], "panic": [true, true, false]}),
    );
}

#[test]
fn defaults_are_healthy_hosts_and_a_threshold_of_50() {
    let updates = json!([{"priority": 0, "host_set": {"hosts": 3}}]);
    loads(
        updates,
        json!({"health": [100], "degraded_availability": [0], "panic": [false]}),
    );
    passes(
        run,
        "load",
        json!({"panic_threshold": 200, "updates": [hosts(0, 10, 5), hosts(1, 10, 1)]}),
        json!({"panic": [true, true]}),
    );
}

#[test]
fn excluded_weight_leaves_the_total() {
    let class = |class: &str, weight: u64| json!({"class": class, "weight": weight});
    let weights = json!([
        class("healthy", 3),
        class("degraded", 2),
        class("unhealthy", 5),
        class("excluded", 90),
    ]);
    let host_set = json!({
        "hosts": 4, "healthy": 1, "degraded": 1, "excluded": 1, "overprovisioning_factor": 100,
        "weighted_priority_health": true, "host_weights": weights,
    });
    let expected = json!({"health": [30], "degraded_availability": [20], "panic": [false]});
    loads(json!([{"priority": 0, "host_set": host_set}]), expected);
    // Without the flag the weights do not count: 1 of 3.
    let mut by_count = host_set;
    by_count["weighted_priority_health"] = json!(false);
    loads(
        json!([{"priority": 0, "host_set": by_count}]),
        json!({"health": [33]}),
    );
}

#[test]
fn a_hash_picks_a_list() {
    let picks = |hash: u64, fail: bool, expected: Value| {
        let set = json!({"hosts": 10, "healthy": 4, "degraded": 2});
        let inputs = json!({
            "updates": [{"priority": 0, "host_set": set}, hosts(1, 10, 1)],
            "hash": hash, "fail_traffic_on_panic": fail,
        });
        passes(run, "load", inputs, json!({"pick": expected}));
    };
    // Health 56 and 14, degraded 28, in all 98: 57 + 14 + 28, and the 1 left over to the first.
    picks(57, false, json!({"priority": 0, "source": "HealthyHosts"}));
    picks(58, false, json!({"priority": 1, "source": "AllHosts"}));
    picks(58, true, json!({"priority": 1, "source": null}));
    picks(71, true, json!({"priority": 1, "source": null}));
    picks(72, true, json!({"priority": 0, "source": "DegradedHosts"}));
    picks(99, false, json!({"priority": 0, "source": "DegradedHosts"}));
}

#[test]
fn without_a_hash_nothing_is_picked() {
    let inputs = json!({"updates": [hosts(0, 1, 1)]});
    let pick = json!({"pick": {"priority": 0, "source": "HealthyHosts"}});
    assert_eq!(differing(run, "load", inputs, pick), ["pick"]);
}

#[test]
fn what_cannot_be_applied_is_refused() {
    let refused = |update: Value| refusal(run, "load", json!({"updates": [update]}));
    assert!(refused(hosts(129, 1, 1)).contains("updates[0]"));
    assert!(refused(json!({})).contains("updates[0]"));
    assert!(refused(json!({"priority": 0})).contains("updates[0]"));
    assert!(refused(json!({"host_set": {"hosts": 1}})).contains("updates[0]"));
    let factor = json!({"hosts": 1, "overprovisioning_factor": 0});
    assert!(
        refused(json!({"priority": 0, "host_set": factor})).contains("overprovisioning_factor")
    );
    let class = json!({"hosts": 1, "host_weights": [{"class": "dead", "weight": 1}]});
    assert!(refused(json!({"priority": 0, "host_set": class})).contains("dead"));
    assert!(refused(json!({"priority": 0, "hostset": {}})).contains("`hostset`"));
}

#[test]
fn choosing_walks_healthy_then_degraded_load() {
    let chooses = |hash: u64, priority: usize, availability: &str| {
        passes(
            run,
            "choose_priority",
            json!({"hash": hash, "healthy_load": [0, 10], "degraded_load": [40, 50]}),
            json!({"priority": priority, "availability": availability}),
        );
    };
    chooses(9, 1, "Healthy");
    chooses(10, 0, "Degraded");
    chooses(49, 0, "Degraded");
    chooses(50, 1, "Degraded");
    chooses(u64::MAX, 0, "Degraded"); // …615 mod 100 + 1 = 16
}
