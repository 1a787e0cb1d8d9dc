//! Round trips of reports in every format, and robustness against any input.

use std::collections::BTreeSet;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};
use plimsoll_xds::orca::{
    ENDPOINT_LOAD_METRICS, OrcaFormat, OrcaLimits, encode, encode_message, parse,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::support::orca::{FORMATS, KINDS, Outcome, reads_back, run};

/// Any double; special values often.
fn any_value() -> impl Strategy<Value = f64> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        0.1 + 0.2,
    ];
    prop_oneof![any::<f64>(), select(special.to_vec()), 0.0..2.0]
}

fn a_map(
    key: impl Strategy<Value = String>,
    value: impl Strategy<Value = f64>,
) -> impl Strategy<Value = MetricMap> {
    vec((key, value), 0..6).prop_map(|list| list.into_iter().collect())
}

fn a_report<V: Strategy<Value = f64>>(
    value: fn() -> V,
    map: impl Strategy<Value = MetricMap> + Clone,
) -> impl Strategy<Value = OrcaLoadReport> {
    let plain = [value(), value(), value(), value(), value()];
    (plain, map.clone(), map).prop_map(|(plain, named_metrics, utilization)| {
        let [cpu, mem, application, rps_fractional, eps] = plain;
        OrcaLoadReport {
            cpu_utilization: cpu,
            mem_utilization: mem,
            application_utilization: application,
            rps_fractional,
            eps,
            named_metrics,
            utilization,
            ..Default::default()
        }
    })
}

/// Any report that the type can hold.
fn any_report() -> impl Strategy<Value = OrcaLoadReport> {
    let any_key = || prop_oneof![any::<String>(), "[a-c.*]{0,3}", "[\\x00-\\x7f]{0,6}"];
    let map = || a_map(any_key(), any_value()).boxed();
    let report = a_report(any_value, map());
    (report, any::<u64>(), map()).prop_map(|(report, rps, request_cost)| OrcaLoadReport {
        rps,
        request_cost,
        ..report
    })
}

/// Reports that TEXT can express.
fn plain_report() -> impl Strategy<Value = OrcaLoadReport> {
    let value = || prop_oneof![0.0..f64::MAX, 0.0..1.0, Just(0.0)];
    a_report(value, a_map("[ -+\\--9;<>-~]{1,8}", value()).boxed())
}

/// Tokens of the formats, combined at random.
fn almost_a_value() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        select(vec![
            "TEXT ",
            "JSON ",
            "BIN ",
            "-bin:",
            "cpu_utilization",
            "named_metrics",
            "utilization.",
            "request_cost",
            "rps",
            "eps",
            "=",
            ":",
            ",",
            " ",
            "\n",
            "\"",
            "{",
            "}",
            "[",
            "null",
            "NaN",
            "Infinity",
            "inf",
            "0.5",
            "-1",
            "1e999",
            "é",
            "\\u00",
            "CWZmZmZmZuY/",
            "==",
            "A",
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
        vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Valid value with one byte changed or truncated.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = (any::<Index>(), any::<u8>(), any::<bool>());
    (any_report(), select(FORMATS.to_vec()), damage).prop_map(|(report, format, damage)| {
        let value = encode(&report, format).or_else(|_| encode(&report, OrcaFormat::Json));
        let mut value = value.expect("JSON can").1.into_bytes();
        let (index, byte, cut) = damage;
        let at = index.index(value.len());
        if cut {
            value.truncate(at);
        } else {
            value[at] = byte;
        }
        value
    })
}

proptest! {
    #[test]
    fn every_report_survives_every_format_that_can_express_it(report in any_report()) {
        reads_back(&report);
    }

    #[test]
    fn text_can_express_finite_plain_reports(report in plain_report()) {
        prop_assert!(encode(&report, OrcaFormat::Text).is_ok(), "{report:?}");
        reads_back(&report);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        report in any_report(),
        at in any::<Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode_message(&report);
        bytes.insert(0, 5);
        let at = at.index(bytes.len());
        if at > 0 {
            bytes[at] = byte;
        }
        run(&bytes);
        run(&bytes[..at.max(1)]);
    }

    #[test]
    fn random_tokens_never_panic(
        kind in 0..KINDS,
        value in prop_oneof![almost_a_value(), damaged()],
    ) {
        run(&[&[kind][..], &value].concat());
    }
}

/// Guards against checks that never run.
#[test]
fn each_kind_of_input_can_be_accepted_and_rejected() {
    let message = encode_message(&OrcaLoadReport {
        eps: 1.0,
        ..Default::default()
    });
    let base64 = "OQAAAAAAAPA/";
    let bin = format!("BIN {base64}");
    let lines = format!("nonsense\n-bin:x\n{bin}\nTEXT eps=2");
    let good: [&[u8]; KINDS as usize] = [
        b"eps=1",
        b"{\"eps\":1}",
        base64.as_bytes(),
        bin.as_bytes(),
        base64.as_bytes(),
        &message,
        lines.as_bytes(),
    ];
    for (kind, good) in (0..KINDS).zip(good) {
        let seen = |bytes: &[u8]| run(&[&[kind][..], bytes].concat());
        assert_eq!(seen(good), Outcome::Report, "kind {kind}");
        assert_eq!(seen(b"\xff?"), Outcome::Rejected, "kind {kind}");
    }
    assert_eq!(run(b""), Outcome::Nothing);
}

/// Long repetitive inputs, which the generators do not produce.
#[test]
fn repetitive_input_never_panics() {
    let mut seen = BTreeSet::new();
    for piece in [
        &b"a=1,"[..],
        b"named_metrics.a=1,",
        b"=,",
        b"[",
        b"{\"named_metrics\":",
        b"{\"eps\":1}",
        b"AAAA",
        b"\x42\x00",
        b"\x0b",
        b"\xff",
        b"\n",
        b"TEXT \n",
    ] {
        for kind in 0..KINDS {
            for times in [1, 100, 2_000] {
                seen.insert(run(&[&[kind][..], &piece.repeat(times)].concat()));
            }
        }
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn distinct_names_are_accepted_up_to_the_limit() {
    let limits = OrcaLimits::default();
    let value = |metrics: usize| {
        let items: Vec<_> = (0..metrics)
            .map(|m| format!("utilization.{m}=0.5"))
            .collect();
        format!("TEXT {}", items.join(","))
    };
    let read = |metrics| {
        parse(
            [(ENDPOINT_LOAD_METRICS, value(metrics).as_bytes())],
            &limits,
        )
    };
    assert_eq!(
        read(1_000).map(|report| report.utilization.len()),
        Ok(1_000)
    );
    let error = read(1_001).expect_err("one too many");
    let expected = "ORCA report has 1001 metrics, at most 1000 are allowed";
    assert_eq!(error.message(), expected);
}
