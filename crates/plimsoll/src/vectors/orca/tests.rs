//! Translation of the suite's inputs and what the runner insists on.

use super::super::tests::{differing, passes, refusal};
use super::*;

fn text(value: &str) -> Value {
    json!([["endpoint-load-metrics", value]])
}

#[test]
fn a_report_is_compared_in_every_field() {
    let headers = || json!({"headers": text("TEXT eps=1,named_metrics.a=0")});
    let expected = |report: Value| json!({"result": "ok", "report": report});
    let differing = |report| differing(run, "parse", headers(), expected(report));
    let right = json!({"eps": 1, "named_metrics": {"a": 0}});
    passes(run, "parse", headers(), expected(right.clone()));
    let with_defaults = json!({
        "eps": 1, "named_metrics": {"a": 0}, "cpu_utilization": 0.0, "rps": 0, "utilization": {},
    });
    passes(run, "parse", headers(), expected(with_defaults));
    assert_eq!(differing(json!({})), ["report.eps", "report.named_metrics"]);
    assert_eq!(
        differing(json!({"eps": 1})),
        ["report.named_metrics"],
        "an entry of 0 is an entry"
    );
    let mut wrong = right.clone();
    wrong["cpu_utilization"] = json!(0.5);
    assert_eq!(differing(wrong), ["report.cpu_utilization"]);
    let mut wrong = right.clone();
    wrong["named_metrics"]["b"] = json!(0);
    assert_eq!(differing(wrong), ["report.named_metrics.b"]);
    let mut wrong = right;
    wrong["utilization"] = json!(null);
    assert_eq!(differing(wrong), ["report.utilization"]);
}

#[test]
fn numbers_that_are_not_finite_go_by_name() {
    let document = r#"JSON {"eps": "NaN", "rps": "7", "utilization": {"a": "-Infinity"}}"#;
    passes(
        run,
        "parse",
        json!({"headers": text(document)}),
        json!({
            "result": "ok",
            "report": {"eps": "NaN", "rps": 7, "utilization": {"a": "-Infinity"}},
        }),
    );
}

#[test]
fn an_error_is_compared_by_code_and_message() {
    let inputs = || json!({"headers": text("BAD x")});
    let message = "unsupported ORCA header format: BAD";
    let expected = json!({"result": "error", "code": "InvalidArgument", "message": message});
    passes(run, "parse", inputs(), expected);
    let part = json!({"result": "error", "message_contains": "header format"});
    passes(run, "parse", inputs(), part);
    let whole = json!({"message_contains": message});
    passes(run, "parse", inputs(), whole);
    let wrong = json!({
        "result": "ok", "code": "NotFound", "message": "header format", "message_contains": "BAD!",
        "report": {},
    });
    let fields = ["code", "message", "message_contains", "report", "result"];
    assert_eq!(differing(run, "parse", inputs(), wrong), fields);
    let odd = json!({"message_contains": null});
    assert_eq!(differing(run, "parse", inputs(), odd), ["message_contains"]);
}

#[test]
fn trailers_are_used_when_headers_are_silent_or_broken() {
    for headers in [json!([]), text("TEXT eps=x")] {
        let inputs = json!({"headers": headers, "trailers": text("TEXT eps=2")});
        let expected = json!({"taken_from": "trailers", "report": {"eps": 2}});
        passes(run, "once", inputs.clone(), expected);
        let wrong = json!({"taken_from": null, "report": null});
        let fields = ["report", "taken_from"];
        assert_eq!(differing(run, "once", inputs, wrong), fields);
    }
    let inputs = json!({"headers": text("TEXT "), "trailers": text("TEXT eps=2")});
    let expected = json!({"taken_from": "headers", "report": {}});
    passes(run, "once", inputs, expected);
    let inputs = json!({"headers": [], "trailers": []});
    let expected = json!({"taken_from": null, "report": null});
    passes(run, "once", inputs.clone(), expected);
    let wrong = json!({"taken_from": "headers", "report": {}});
    assert_eq!(differing(run, "once", inputs, wrong).len(), 2);
}

#[test]
fn a_metric_that_is_named_twice_counts_twice() {
    let inputs = || {
        json!({
            "metric_names": ["named_metrics.*", "named_metrics.a", "eps"],
            "report": {"named_metrics": {"a": 0.5, "b": "Infinity"}},
        })
    };
    let stats = json!({
        "named_metrics.a": [2, 1.0], "named_metrics.b": [1, "Infinity"], "eps": [1, 0],
    });
    passes(run, "lrs_metrics", inputs(), json!({"stats": stats}));
    let mut wrong = stats;
    wrong.as_object_mut().unwrap().remove("eps");
    let found = differing(run, "lrs_metrics", inputs(), json!({"stats": wrong}));
    assert_eq!(found, ["stats.eps"]);
}

#[test]
fn a_response_may_have_trailers_only() {
    let inputs = json!({"trailers": [["endpoint-load-metrics", "TEXT eps=1"]]});
    let expected = json!({"taken_from": "trailers", "report": {"eps": 1}});
    passes(run, "once", inputs, expected);
}

#[test]
fn inputs_are_closed() {
    let reason = |kind, inputs| refusal(run, kind, inputs);
    let extra = json!({"headers": [], "headres": []});
    assert!(reason("parse", extra).contains("`headres`"));
    let triple = json!({"headers": [["a", "b", "c"]]});
    assert!(!reason("parse", triple).is_empty());
    assert!(reason("once", json!({"trailres": []})).contains("`trailres`"));
    let misspelt = json!({"metric_names": [], "report": {"cpu_utilisation": 1}});
    assert!(reason("lrs_metrics", misspelt).contains("`cpu_utilisation`"));
    let null = json!({"metric_names": [], "report": null});
    assert!(reason("lrs_metrics", null).starts_with("report: invalid JSON"));
}
