//! Inputs that the recorded cases do not use, worked out by hand from envoy-semantics §5.

use serde_json::{Value, json};

use super::run;
use crate::vectors::tests::{differing, passes, refusal};

#[test]
fn named_metrics_come_first_unless_told_otherwise() {
    let report = json!({"application_utilization": 0.5, "named_metrics": {"foo": 0.3}});
    let names = json!(["named_metrics.foo"]);
    let prefers = |inputs: Value, utilization: f64| {
        passes(
            run,
            "utilization",
            inputs,
            json!({"utilization": utilization}),
        );
    };
    prefers(json!({"report": report, "metric_names": names}), 0.3);
    prefers(
        json!({"report": report, "metric_names": names, "named_metrics_first": false}),
        0.5,
    );
    prefers(json!({"report": report}), 0.5);
    prefers(
        json!({
            "report": {"utilization": {"a": 0.2, "b": 0.6}, "request_cost": {"c": 0.4}},
            "metric_names": ["utilization.*", "request_cost.c"],
        }),
        0.6,
    );
    let weighs = json!({"report": {"rps_fractional": 3, "application_utilization": 0.5,
        "named_metrics": {"foo": 0.3}}, "metric_names": names});
    passes(run, "weight", weighs, json!({"result": "ok", "weight": 10}));
}

#[test]
fn a_weight_or_a_message() {
    let no_utilization = json!({"report": {"rps_fractional": 3}});
    let expected = json!({"result": "error", "message": "Utilization must be positive"});
    passes(run, "weight", no_utilization.clone(), expected);
    let wrong = json!({"result": "ok", "weight": 3, "message": "x"});
    let found = differing(run, "weight", no_utilization, wrong);
    assert_eq!(found, ["message", "result", "weight"]);
    let negative = json!({"report": {}, "error_utilization_penalty": -1});
    assert!(refusal(run, "weight", negative).contains("error_utilization_penalty"));
}

#[test]
fn validity_needs_both_limits() {
    let stands = |since: Value, update: Value, weight: Value, kept: Value| {
        let inputs = json!({
            "weight": 7, "non_empty_since_s": since, "last_update_s": update,
            "max_non_empty_since_s": 20, "min_last_update_s": 10.5,
        });
        let expected = json!({"weight": weight, "non_empty_since_s": kept});
        passes(run, "validity", inputs, expected);
    };
    stands(json!(20), json!(10.5), json!(7), json!(20));
    stands(json!(20.001), json!(30), json!(null), json!(20.001));
    stands(json!(1), json!(10.499), json!(null), json!(null));
    stands(json!(1), json!(null), json!(null), json!(null));
    stands(json!(null), json!(30), json!(null), json!(null));
}

#[test]
fn a_report_sets_what_was_unset() {
    let inputs = json!({
        "report": {"rps_fractional": 8, "cpu_utilization": 0.5}, "now_s": 2.5,
        "last_update_s": 1, "weight": 3,
    });
    let expected = json!({
        "result": "ok", "weight": 16, "non_empty_since_s": 2.5, "last_update_s": 2.5,
    });
    passes(run, "report", inputs, expected);
    let refused = json!({
        "report": {"cpu_utilization": 0.5}, "now_s": 2, "last_update_s": 1, "weight": 3,
    });
    let expected = json!({
        "result": "error", "message": "QPS must be positive",
        "weight": 3, "non_empty_since_s": null, "last_update_s": 1,
    });
    passes(run, "report", refused, expected);
}

fn update(hosts: Value, now: Value, weights: Value, callback: bool) {
    let inputs = json!({
        "priorities": [hosts], "now_s": now, "blackout_s": 10, "expiration_s": 180,
    });
    let expected = json!({"lb_weights": [weights], "callback": callback});
    passes(run, "update_weights", inputs, expected);
}

#[test]
fn the_callback_is_that_of_any_tick() {
    let host = json!({"weight": 5, "non_empty_since_s": 1, "last_update_s": 20});
    update(json!([host]), json!(5), json!([1]), false);
    update(json!([host]), json!([5, 6]), json!([1]), false);
    update(json!([host]), json!([30, 31]), json!([5]), true);
    update(json!([host]), json!([30, 201]), json!([1]), true);
    let set = json!({"weight": 5, "non_empty_since_s": 1, "last_update_s": 20, "lb_weight": 5});
    update(json!([set]), json!([30, 31]), json!([5]), false);
    update(json!([]), json!(30), json!([]), false);
}

#[test]
fn a_weight_of_zero_is_one_and_always_a_change() {
    let zero = json!({"weight": 0, "non_empty_since_s": 1, "last_update_s": 20});
    update(
        json!([zero, {"has_data": false}]),
        json!(30),
        json!([1, 1]),
        true,
    );
}

#[test]
fn absurd_times_are_refused() {
    let at = |now: Value| {
        let inputs = json!({
            "priorities": [], "now_s": now, "blackout_s": 1, "expiration_s": 1,
        });
        refusal(run, "update_weights", inputs)
    };
    for now in [json!(-1), json!("x"), json!([1, -1]), json!(1e300)] {
        assert!(!at(now.clone()).is_empty(), "{now}");
    }
}

#[test]
fn settings_have_the_defaults_of_envoy() {
    let expected = json!({
        "enable_oob_load_report": false, "oob_reporting_period_ms": 10_000,
        "blackout_period_ms": 10_000, "weight_expiration_period_ms": 180_000,
        "weight_update_period_ms": 1000, "error_utilization_penalty": 0.0,
        "metric_names_for_computing_utilization": [],
        "oob_port": 0, "oob_authority": "", "oob_manager_created": false,
    });
    passes(run, "config", json!({"proto": {}}), expected);
}

#[test]
fn settings_are_kept() {
    let proto = json!({
        "enable_oob_load_report": true, "oob_reporting_period_ms": -5,
        "blackout_period_ms": 1, "weight_expiration_period_ms": 2,
        "weight_update_period_ms": 3, "error_utilization_penalty": 0.5,
        "metric_names_for_computing_utilization": ["named_metrics.a"],
        "oob_reporting_config": {"port_value": 9, "authority": "a"},
    });
    let expected = json!({
        "enable_oob_load_report": true, "oob_reporting_period_ms": 10_000,
        "blackout_period_ms": 1, "weight_expiration_period_ms": 2,
        "weight_update_period_ms": 3, "error_utilization_penalty": 0.5,
        "metric_names_for_computing_utilization": ["named_metrics.a"],
        "oob_port": 9, "oob_authority": "a", "oob_manager_created": true,
    });
    passes(run, "config", json!({"proto": proto}), expected);
    let port = json!({"proto": {"oob_reporting_config": {"port_value": 70_000}}});
    assert!(refusal(run, "config", port).contains("70000 is above 65535"));
}

/// Counters after the events, and whether another attempt will follow.
fn stream(events: Value, expected: Value) {
    passes(run, "oob", json!({"events": events}), expected);
}

#[test]
fn every_end_of_a_stream_is_counted() {
    for event in [
        json!({"op": "remote_close"}),
        json!({"op": "reset"}),
        json!({"op": "watchdog"}),
        json!({"op": "malformed_frame"}),
        json!({"op": "oversized_frame"}),
        json!({"op": "trailers", "status": "OK"}),
        json!({"op": "trailers", "status": 13}),
        json!({"op": "trailers"}),
        json!({"op": "headers", "status": 503, "content_type": "text/plain"}),
        json!({"op": "headers", "end_stream": true, "grpc_status": "UNAVAILABLE"}),
    ] {
        let expected = json!({
            "stream_failures": 1, "stream_terminated": 0, "active_sessions": 1,
            "reports_received": 0, "retry_scheduled": true,
        });
        stream(
            json!([{"op": "connect"}, {"op": "headers"}, event]),
            expected,
        );
    }
    let nonsense = json!([{"op": "connect"}, {"op": "trailers", "status": "FINE"}]);
    assert!(refusal(run, "oob", json!({"events": nonsense})).contains("\"FINE\""));
}

#[test]
fn sessions_go_on_after_a_retry() {
    let good = json!({"application_utilization": 0.5, "rps_fractional": 1000});
    let report = json!({"op": "report", "report": good});
    let events = json!([
        {"op": "connect", "fails": true}, {"op": "connect"}, {"op": "headers"}, report, report,
    ]);
    let expected = json!({
        "stream_failures": 1, "reports_received": 2, "report_errors": 0, "weight": 2000,
        "retry_scheduled": false, "active_sessions": 1,
    });
    stream(events, expected);
    let early = json!([{"op": "host_removed"}, {"op": "connect"}]);
    assert!(refusal(run, "oob", json!({"events": early})).contains("no attempt is due"));
}

#[test]
fn reports_that_nobody_takes_are_errors() {
    let bad = json!({"application_utilization": 0.5});
    let good = json!({"application_utilization": 0.5, "rps_fractional": 1000});
    for report in [
        json!({"op": "report", "report": bad}),
        json!({"op": "report", "report": good, "recipient_error": true}),
        json!({"op": "report", "report": good, "no_recipient": true}),
    ] {
        let expected = json!({"reports_received": 1, "report_errors": 1, "stream_failures": 0});
        stream(
            json!([{"op": "connect"}, {"op": "headers"}, report]),
            expected,
        );
    }
    stream(
        json!([{"op": "connect"}]),
        json!({"weight": 1, "stream_failures": 0}),
    );
}

#[test]
fn a_host_may_leave_and_return() {
    let unimplemented = json!({"op": "trailers", "status": "UNIMPLEMENTED"});
    let gone = json!([{"op": "connect"}, unimplemented, {"op": "host_added"}]);
    stream(gone, json!({"active_sessions": 0, "stream_terminated": 1}));
    let back = json!([
        {"op": "connect"}, unimplemented, {"op": "host_removed"}, {"op": "host_added"},
    ]);
    stream(back, json!({"active_sessions": 1, "stream_terminated": 1}));
}

#[test]
fn the_first_attempt_follows_the_draw() {
    let delayed = |period: i64, draw: u64, delay: u64| {
        let inputs = json!({
            "events": [], "oob_reporting_period_ms": period, "random": [draw],
        });
        passes(run, "oob", inputs, json!({"initial_delay_ms": delay}));
    };
    delayed(0, 9999, 9999);
    delayed(-1, 10_001, 1);
    delayed(5000, 12_345, 2345);
}

#[test]
fn misspelt_keys_of_events_are_named() {
    for event in [
        json!({"op": "host_removed", "misspelt": 1}),
        json!({"op": "connect", "misspelt": 1}),
        json!({"op": "misspelt"}),
        json!({"op": "report", "report": {"misspelt": 1}}),
    ] {
        let reason = refusal(run, "oob", json!({"events": [event]}));
        assert!(reason.contains("misspelt"), "{reason}");
    }
}

#[test]
fn numbers_that_json_has_no_digits_for_have_names() {
    let nan =
        json!({"application_utilization": "NaN", "cpu_utilization": 0.5, "rps_fractional": 100});
    let inputs = json!({"report": nan, "error_utilization_penalty": "0.0"});
    passes(
        run,
        "weight",
        inputs,
        json!({"result": "ok", "weight": 200}),
    );
    let report = json!({"application_utilization": 0.5, "rps_fractional": "-Infinity"});
    let expected = json!({"result": "error", "message": "QPS must be positive"});
    passes(run, "weight", json!({"report": report}), expected);
}
