//! Output of each format, and the limits of TEXT. Round trips of random reports are in
//! `tests/orca.rs`.

use plimsoll_core::model::orca::MetricMap;

use super::super::{OrcaCode, OrcaLimits, parse};
use super::*;

const ALL: [OrcaFormat; 4] = [Text, Json, Bin, BinHeader];

fn metrics(metrics: &[(&str, f64)]) -> MetricMap {
    metrics.iter().copied().collect()
}

fn full() -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: 0.7,
        mem_utilization: 0.9,
        application_utilization: 0.8,
        rps: 0,
        rps_fractional: 1000.0,
        eps: 2.0,
        named_metrics: metrics(&[("foo", 123.0), ("bar", 0.2)]),
        utilization: metrics(&[("total", 0.5)]),
        request_cost: MetricMap::default(),
        ..Default::default()
    }
}

fn value(report: &OrcaLoadReport, format: OrcaFormat) -> String {
    encode(report, format).unwrap().1
}

#[test]
fn each_format_has_its_header() {
    let name = |format| encode(&full(), format).unwrap().0;
    let expected = [
        ENDPOINT_LOAD_METRICS,
        ENDPOINT_LOAD_METRICS,
        ENDPOINT_LOAD_METRICS,
        ENDPOINT_LOAD_METRICS_BIN,
    ];
    assert_eq!(ALL.map(name), expected);
}

#[test]
fn text_lists_nonzero_fields() {
    let expected = "TEXT cpu_utilization=0.7,mem_utilization=0.9,application_utilization=0.8,\
                    rps_fractional=1000.0,eps=2.0,named_metrics.bar=0.2,named_metrics.foo=123.0,\
                    utilization.total=0.5";
    assert_eq!(value(&full(), Text), expected);
    let zero_entry = OrcaLoadReport {
        named_metrics: metrics(&[("idle", 0.0)]),
        ..Default::default()
    };
    assert_eq!(value(&zero_entry, Text), "TEXT named_metrics.idle=0.0");
}

#[test]
fn json_has_the_names_of_the_proto() {
    let mut report = full();
    report.rps = u64::MAX;
    report.request_cost = metrics(&[("a \"b\"", f64::NAN), ("c", f64::INFINITY)]);
    report.eps = f64::NEG_INFINITY;
    report.mem_utilization = 1e300;
    let expected = concat!(
        r#"JSON {"cpu_utilization":0.7,"mem_utilization":1e300,"application_utilization":0.8,"#,
        r#""rps_fractional":1000.0,"eps":"-Infinity","rps":"18446744073709551615","#,
        r#""named_metrics":{"bar":0.2,"foo":123.0},"utilization":{"total":0.5},"#,
        r#""request_cost":{"a \"b\"":"NaN","c":"Infinity"}}"#,
    );
    assert_eq!(value(&report, Json), expected);
}

#[test]
fn json_is_ascii_whatever_the_keys_are() {
    let report = OrcaLoadReport {
        utilization: metrics(&[("é\u{7f}\n\u{1f600}\\", 1.0)]),
        ..Default::default()
    };
    let expected = r#"JSON {"utilization":{"\u00e9\u007f\u000a\ud83d\ude00\\":1.0}}"#;
    assert_eq!(value(&report, Json), expected);
}

#[test]
fn binary_is_base64_with_padding() {
    let expected = "CWZmZmZmZuY/Ec3MzMzMzOw/KhAKBXRvdGFsEQAAAAAAAOA/MQAAAAAAQI9AOQAAAAAAAABA\
                    Qg4KA2JhchGamZmZmZnJP0IOCgNmb28RAAAAAADAXkBJmpmZmZmZ6T8=";
    assert_eq!(value(&full(), BinHeader), expected);
    assert_eq!(value(&full(), Bin), format!("BIN {expected}"));
    assert_eq!(STANDARD.encode(encode_message(&full())), expected);
}

#[test]
fn an_empty_report_survives_every_format() {
    let empty = OrcaLoadReport::default();
    assert_eq!(value(&empty, Text), "TEXT cpu_utilization=0");
    assert_eq!(value(&empty, Json), "JSON {}");
    assert_eq!(encode_message(&empty), b"");
    for format in ALL {
        let (name, value) = encode(&empty, format).unwrap();
        let found = parse([(name, value.as_bytes())], &OrcaLimits::default());
        assert_eq!(found, Ok(empty.clone()), "{format:?}");
    }
}

/// Returns the error of a report that TEXT cannot express.
fn not_in_text(change: impl FnOnce(&mut OrcaLoadReport)) -> String {
    let mut report = full();
    change(&mut report);
    for format in [Json, Bin, BinHeader] {
        assert!(encode(&report, format).is_ok(), "{format:?} can");
    }
    let error = encode(&report, Text).unwrap_err();
    assert_eq!(error.code(), OrcaCode::InvalidArgument);
    let name = error
        .message()
        .strip_prefix("the TEXT format cannot express ");
    name.expect("says so").to_owned()
}

#[test]
fn text_rejects_what_it_cannot_express() {
    assert_eq!(not_in_text(|report| report.rps = 1), "rps");
    let cost = metrics(&[("a", 1.0)]);
    assert_eq!(
        not_in_text(|report| report.request_cost = cost),
        "request_cost"
    );
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
        let plain = not_in_text(|report| report.application_utilization = bad);
        assert_eq!(plain, "application_utilization");
        let entry = not_in_text(|report| {
            report.named_metrics.insert("x", bad);
        });
        assert_eq!(entry, "named_metrics.x");
    }
    for (key, shown) in [
        ("", ""),
        ("a,b", "a,b"),
        ("a=b", "a=b"),
        ("a:b", "a:b"),
        ("a\r\nx-injected", "a\\r\\nx-injected"),
        ("é", "é"),
        ("\u{7f}", "\\u{7f}"),
    ] {
        let found = not_in_text(|report| {
            report.utilization.insert(key, 1.0);
        });
        assert_eq!(found, format!("utilization.{shown}"));
    }
}
