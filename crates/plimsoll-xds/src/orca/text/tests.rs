//! Items, spaces, separators, numbers, names, and the order of the checks.

use super::*;

fn read(list: &str) -> OrcaLoadReport {
    parse(list.as_bytes()).unwrap_or_else(|error| panic!("{list:?}: {error}"))
}

fn error_of(list: &str) -> String {
    let error = parse(list.as_bytes()).unwrap_err();
    assert_eq!(error.code(), OrcaCode::InvalidArgument, "{list:?}");
    error.message().to_owned()
}

#[test]
fn every_name_has_its_field() {
    let expected = OrcaLoadReport {
        cpu_utilization: 0.7,
        mem_utilization: 0.9,
        application_utilization: 0.8,
        rps: 0,
        rps_fractional: 1000.0,
        eps: 2.0,
        named_metrics: [("foo", 123.0), ("bar", 0.2)].into_iter().collect(),
        utilization: [("total", 0.5)].into_iter().collect(),
        request_cost: MetricMap::default(),
        ..Default::default()
    };
    let list = "cpu_utilization=0.7,application_utilization=0.8,mem_utilization=0.9,\
                rps_fractional=1000,eps=2,named_metrics.foo=123,named_metrics.bar=0.2,\
                utilization.total=0.5";
    assert_eq!(read(list), expected);
    assert_eq!(read(&list.replace('=', ":")), expected);
    assert_eq!(read(&list.replacen('=', ":", 3)), expected, "mixed");
}

#[test]
fn an_empty_list_is_an_empty_report() {
    for list in ["", " ", ",", " , ,\t,", "\r\n"] {
        assert_eq!(read(list), OrcaLoadReport::default(), "{list:?}");
    }
}

#[test]
fn items_are_trimmed_and_values_may_be_padded() {
    let report = read("cpu_utilization=0.5, ,eps= 3 ,\u{b}mem_utilization=\t0.25\u{c}");
    let found = (report.cpu_utilization, report.eps, report.mem_utilization);
    assert_eq!(found, (0.5, 3.0, 0.25));
}

#[test]
fn names_are_not_trimmed() {
    let expected = "unsupported metric name: cpu_utilization ";
    assert_eq!(error_of("cpu_utilization =0.5"), expected);
    let report = read("named_metrics.a =1,named_metrics. a=2");
    let found: Vec<_> = report.named_metrics.iter().collect();
    assert_eq!(found, [(" a", 2.0), ("a ", 1.0)]);
}

#[test]
fn an_item_is_split_once() {
    let expected = "unable to parse custom backend load metric value(eps): 1=2";
    assert_eq!(error_of("eps=1=2"), expected);
    let expected = "unable to parse custom backend load metric value(eps): 1:2";
    assert_eq!(error_of("eps=1:2"), expected);
    let expected = "unable to parse custom backend load metric value(eps): =2";
    assert_eq!(error_of("eps:=2"), expected);
    assert_eq!(
        read("named_metrics.a.b.c=1").named_metrics.get("a.b.c"),
        Some(1.0)
    );
}

#[test]
fn blank_parts_are_dropped() {
    let no_value = "metric values cannot be empty strings";
    for list in [
        "not-a-list",
        "eps",
        "eps=",
        "eps:",
        "eps= ",
        "=0.5",
        " :0.5",
    ] {
        assert_eq!(error_of(list), no_value, "{list:?}");
    }
    for list in ["=", ":", "= ", " = ", "==x".trim_end_matches('x')] {
        let expected = match list {
            "==" => no_value, // the name is `=`
            _ => "metric names cannot be empty strings",
        };
        assert_eq!(error_of(list), expected, "{list:?}");
    }
}

#[test]
fn numbers_are_decimal() {
    for (written, value) in [
        ("0", 0.0),
        ("+1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("2.5e+2", 250.0),
        ("007", 7.0),
        ("-0", 0.0),
        ("1e-999", 0.0),
        ("1.7976931348623157e308", f64::MAX),
    ] {
        assert_eq!(read(&format!("eps={written}")).eps, value, "{written}");
    }
    for written in [
        "\"0.7\"", "abc", "0x10", "1e", "1e+", ".", "+", "-", "+-1", "++1", "1_0", "1 0", "1f",
        "٣", "1;2", "½", "true",
    ] {
        let what = "unable to parse custom backend load metric value";
        let expected = format!("{what}(eps): {written}");
        assert_eq!(error_of(&format!("eps={written}")), expected);
    }
    let expected = "unable to parse custom backend load metric value(eps):  x";
    assert_eq!(error_of("eps= x "), expected, "the value is not trimmed");
}

#[test]
fn non_finite_and_negative_values_are_rejected() {
    for (written, fault) in [
        ("nan", "NaN"),
        ("NaN", "NaN"),
        ("-nan", "NaN"),
        ("inf", "infinity"),
        ("Infinity", "infinity"),
        ("-inf", "infinity"),
        ("+INF", "infinity"),
        ("1e999", "infinity"),
        ("-1e999", "infinity"),
        ("-1", "negative"),
        ("-0.0001", "negative"),
    ] {
        let expected = format!("custom backend load metric value(eps) cannot be {fault}.");
        assert_eq!(error_of(&format!("eps={written}")), expected);
    }
}

#[test]
fn unknown_names_are_rejected() {
    for name in [
        "rps",
        "request_cost.x",
        "unsupported_metric",
        "CPU_utilization",
        "cpuUtilization",
        "named_metrics",
        "utilization",
        "named_metric.x",
        "\"eps\"",
    ] {
        let expected = format!("unsupported metric name: {name}");
        assert_eq!(error_of(&format!("eps=1,{name}=1")), expected);
    }
    assert_eq!(error_of("named_metrics.=1"), "named metric key is empty.");
    assert_eq!(
        error_of("utilization.=1"),
        "utilization metric key is empty."
    );
}

#[test]
fn duplicate_names_are_rejected() {
    for (list, name) in [
        ("eps=1,eps=1", "eps"),
        ("eps=1,cpu_utilization=1,eps:2", "eps"),
        ("named_metrics.a=1,named_metrics.a=2", "named_metrics.a"),
        ("utilization.a=1,eps=1,utilization.a=1", "utilization.a"),
        ("eps=1,eps=x", "eps"),
        ("eps=1,eps=", "eps"),
        ("eps=0,eps=-1", "eps"),
    ] {
        let error = parse(list.as_bytes()).unwrap_err();
        assert_eq!(error.code(), OrcaCode::AlreadyExists, "{list}");
        let expected = format!("endpoint-load-metrics contains duplicate metric: {name}");
        assert_eq!(error.message(), expected, "{list}");
    }
    read("named_metrics.a=1,utilization.a=1,named_metrics.A=1");
}

#[test]
fn the_first_error_is_reported() {
    assert!(error_of("eps=x,rps=1").starts_with("unable to parse"));
    assert!(error_of("rps=1,eps=x").starts_with("unsupported metric name"));
    assert!(
        error_of("rps=x").starts_with("unable to parse"),
        "value first"
    );
    assert!(error_of("named_metrics.=-1").ends_with("cannot be negative."));
    assert!(error_of("rps=").starts_with("metric values"));
}

#[test]
fn values_have_no_upper_bound() {
    let report = read("utilization.q=7.5,cpu_utilization=1.5");
    assert_eq!(report.utilization.get("q"), Some(7.5));
    assert_eq!(report.cpu_utilization, 1.5);
}

#[test]
fn invalid_utf8_is_rejected() {
    let error = parse(b"named_metrics.\xff=1").unwrap_err();
    assert_eq!(error.message(), "ORCA text header value is not UTF-8");
    assert_eq!(read("named_metrics.é=1").named_metrics.get("é"), Some(1.0));
}
