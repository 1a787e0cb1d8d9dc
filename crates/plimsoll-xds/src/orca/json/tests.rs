//! Spellings, quoted numbers, null, and errors.

use super::super::OrcaCode;
use super::*;

fn read(document: &str) -> OrcaLoadReport {
    parse(document.as_bytes()).unwrap_or_else(|error| panic!("{document}: {error}"))
}

fn error_of(document: &str) -> String {
    let error = parse(document.as_bytes()).unwrap_err();
    assert_eq!(error.code(), OrcaCode::InvalidArgument, "{document}");
    let reason = error.message().strip_prefix("invalid JSON: ");
    reason.expect("Envoy's words").to_owned()
}

#[test]
fn every_field_in_both_spellings() {
    let expected = OrcaLoadReport {
        cpu_utilization: 0.1,
        mem_utilization: 0.2,
        application_utilization: 0.3,
        rps: 4,
        rps_fractional: 0.5,
        eps: 0.6,
        named_metrics: [("a.b", 0.7), ("", 0.0)].into_iter().collect(),
        utilization: [("u", 0.8)].into_iter().collect(),
        request_cost: [("cpuUtilization", 0.9)].into_iter().collect(),
        ..Default::default()
    };
    let snake = r#" {"cpu_utilization": 0.1, "mem_utilization": 0.2,
        "application_utilization": 0.3, "rps": 4, "rps_fractional": 0.5, "eps": 0.6,
        "named_metrics": {"a.b": 0.7, "": 0}, "utilization": {"u": 0.8},
        "request_cost": {"cpuUtilization": 0.9}} "#;
    assert_eq!(read(snake), expected);
    let camel = r#"{"requestCost":{"cpuUtilization":0.9},"utilization":{"u":0.8},
        "namedMetrics":{"a.b":0.7,"":0},"eps":0.6,"rpsFractional":0.5,"rps":4,
        "applicationUtilization":0.3,"memUtilization":0.2,"cpuUtilization":0.1}"#;
    assert_eq!(read(camel), expected);
}

#[test]
fn an_empty_object_is_an_empty_report() {
    for document in [
        "{}",
        " { } ",
        r#"{"eps": null, "rps": null, "named_metrics": null}"#,
        r#"{"utilization": {}, "requestCost": {}, "cpu_utilization": 0, "rps": "0"}"#,
    ] {
        assert_eq!(read(document), OrcaLoadReport::default(), "{document}");
    }
}

#[test]
fn numbers_may_be_quoted() {
    for (written, value) in [
        ("0.25", 0.25),
        ("\"0.25\"", 0.25),
        ("-3", -3.0),
        ("\"-3\"", -3.0),
        ("1e3", 1000.0),
        ("\"1e3\"", 1000.0),
        ("18446744073709551615", 18_446_744_073_709_551_615.0),
        ("\"Infinity\"", f64::INFINITY),
        ("\"-Infinity\"", f64::NEG_INFINITY),
    ] {
        let document = format!(r#"{{"eps": {written}, "utilization": {{"a": {written}}}}}"#);
        let report = read(&document);
        assert_eq!(report.eps, value, "{written}");
        assert_eq!(report.utilization.get("a"), Some(value), "{written}");
    }
    assert!(read(r#"{"eps": "NaN"}"#).eps.is_nan());
    for (written, value) in [
        ("3", 3),
        ("3.0", 3),
        ("\"3\"", 3),
        ("18446744073709551615", u64::MAX),
        ("\"18446744073709551615\"", u64::MAX),
    ] {
        assert_eq!(read(&format!(r#"{{"rps": {written}}}"#)).rps, value);
    }
}

#[test]
fn digits_are_read_to_the_last_bit() {
    for value in [
        0.1 + 0.2,
        1.0 / 3.0,
        5e-324,
        8.41e-21,
        123_456_789.012_345_67,
    ] {
        let found = read(&format!("{{\"eps\":{value:?}}}")).eps;
        assert_eq!(found.to_bits(), f64::to_bits(value));
        let found = read(&format!("{{\"eps\":\"{value:?}\"}}")).eps;
        assert_eq!(found.to_bits(), f64::to_bits(value));
    }
}

#[test]
fn non_numbers_are_rejected() {
    for written in [
        "\"\"",
        "\"x\"",
        "\" 1\"",
        "\"1 \"",
        "\"nan\"",
        "\"inf\"",
        "\"infinity\"",
        "\"+Infinity\"",
        "\"1e999\"",
        "\"0x1\"",
        "1e999",
        "true",
        "{}",
        "[]",
        "[1]",
        "NaN",
        "Infinity",
        "+1",
        ".5",
    ] {
        error_of(&format!(r#"{{"eps": {written}}}"#));
        error_of(&format!(r#"{{"named_metrics": {{"a": {written}}}}}"#));
    }
    for written in [
        "-1",
        "1.5",
        "\"-1\"",
        "\"x\"",
        "\"\"",
        "1e30",
        "true",
        "18446744073709551616",
    ] {
        error_of(&format!(r#"{{"rps": {written}}}"#));
    }
}

#[test]
fn unknown_fields_are_named() {
    for name in [
        "unknown_field",
        "Eps",
        "named-metrics",
        "cpuutilization",
        "",
    ] {
        let reason = error_of(&format!(r#"{{"eps": 1, "{name}": 2}}"#));
        let expected = format!("unknown field `{name}`");
        assert!(reason.starts_with(&expected), "{reason}");
    }
}

#[test]
fn duplicates_are_rejected() {
    for document in [
        r#"{"eps": 1, "eps": 1}"#,
        r#"{"cpu_utilization": 1, "cpuUtilization": 1}"#,
        r#"{"eps": 0, "eps": 0}"#,
        r#"{"utilization": {}, "utilization": {}}"#,
        r#"{"rps": null, "rps": 1}"#,
    ] {
        assert!(error_of(document).starts_with("duplicate field"));
    }
    let reason = error_of(r#"{"utilization": {"a": 1, "b": 2, "a": 1}}"#);
    assert!(reason.starts_with("a metric is set twice"), "{reason}");
}

#[test]
fn anything_but_one_object_is_rejected() {
    for document in [
        "",
        " ",
        "null",
        "[]",
        "[0.5]",
        "0.5",
        "\"{}\"",
        "{",
        "{}{}",
        "{} x",
        "JSON {}",
        "JSON not-a-valid-json-string",
        r#"{"cpu_utilization": "0.7""#,
        r#"{"cpu_utilization': 0.7,"#,
        r#"{"eps": 1,}"#,
        "{eps: 1}",
        "{'eps': 1}",
        r#"{"named_metrics": [["a", 1]]}"#,
        r#"{"named_metrics": 1}"#,
        r#"{"named_metrics": {"a": null}}"#,
        r#"{"named_metrics": {1: 1}}"#,
        "// no\n{}",
    ] {
        error_of(document);
    }
    let error = parse(b"{\"named_metrics\":{\"\xff\":1}}").unwrap_err();
    assert!(error.message().starts_with("invalid JSON: "));
}

#[test]
fn depth_does_not_matter() {
    let deep = format!("{{\"eps\":{}", "[".repeat(60_000));
    error_of(&deep);
    let deep = "{\"named_metrics\":".repeat(5_000);
    error_of(&deep);
}
