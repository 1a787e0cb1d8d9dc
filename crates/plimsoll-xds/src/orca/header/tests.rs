//! Header precedence, prefixes, base64, limits.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::super::OrcaCode;
use super::*;

/// Encodes a report with only `eps`.
fn encoded(eps: f64) -> Vec<u8> {
    message::encode(&OrcaLoadReport {
        eps,
        ..Default::default()
    })
}

fn found(headers: &[(&str, &str)]) -> Result<OrcaLoadReport, OrcaError> {
    let pairs = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()));
    parse(pairs, &OrcaLimits::default())
}

fn eps(headers: &[(&str, &str)]) -> f64 {
    found(headers).unwrap().eps
}

/// Returns code and message of the error.
fn error_of(headers: &[(&str, &str)]) -> (OrcaCode, String) {
    let error = found(headers).unwrap_err();
    (error.code(), error.message().to_owned())
}

fn invalid(headers: &[(&str, &str)]) -> String {
    let (code, message) = error_of(headers);
    assert_eq!(code, OrcaCode::InvalidArgument, "{message}");
    message
}

#[test]
fn a_missing_header_is_not_an_error() {
    for headers in [&[][..], &[("wrong-header", "TEXT eps=1")]] {
        let expected = "no ORCA data sent from the backend".to_owned();
        assert_eq!(error_of(headers), (OrcaCode::NotFound, expected));
    }
    for near in [
        "endpoint-load-metric",
        "endpoint-load-metrics-json",
        "endpoint-load-metrics-bin2",
        "x-endpoint-load-metrics",
    ] {
        assert_eq!(error_of(&[(near, "TEXT eps=1")]).0, OrcaCode::NotFound);
    }
}

#[test]
fn header_names_are_case_insensitive() {
    assert_eq!(eps(&[("Endpoint-Load-METRICS", "TEXT eps=1")]), 1.0);
    let value = STANDARD.encode(encoded(2.0));
    assert_eq!(eps(&[("Endpoint-Load-Metrics-Bin", &value)]), 2.0);
}

#[test]
fn the_first_value_of_a_header_counts() {
    let text = "endpoint-load-metrics";
    assert_eq!(eps(&[(text, "TEXT eps=1"), (text, "TEXT eps=2")]), 1.0);
    let broken_first = invalid(&[(text, "nonsense"), (text, "TEXT eps=2")]);
    assert_eq!(broken_first, "unsupported ORCA header format: nonse");
    let values = [1.0, 2.0].map(|eps| STANDARD.encode(encoded(eps)));
    let bin = ENDPOINT_LOAD_METRICS_BIN;
    assert_eq!(eps(&[(bin, &values[0]), (bin, &values[1])]), 1.0);
}

#[test]
fn the_binary_header_takes_precedence_in_any_position() {
    let value = STANDARD.encode(encoded(2.0));
    let bin = (ENDPOINT_LOAD_METRICS_BIN, value.as_str());
    let text = (ENDPOINT_LOAD_METRICS, "TEXT eps=1");
    assert_eq!(eps(&[text, bin]), 2.0);
    assert_eq!(eps(&[bin, text]), 2.0);
    let broken = (ENDPOINT_LOAD_METRICS_BIN, "%%%%");
    for headers in [[text, broken], [broken, text]] {
        let expected = "unable to decode ORCA binary header value: %%%%";
        assert_eq!(invalid(&headers), expected);
    }
}

#[test]
fn prefixes_are_exact() {
    for (value, word) in [
        ("", ""),
        ("TEXT", "TEXT"),
        ("text eps=1", "text"),
        ("BAD random-value", "BAD"),
        ("BADBAD random-value", "BADBA"),
        (" TEXT eps=1", ""),
        ("TEXT\teps=1", "TEXT\t"),
        ("TEXTeps=1", "TEXTe"),
        ("{\"eps\": 1}", "{\"eps"),
        ("BIN", "BIN"),
        ("JSON{}", "JSON{"),
        ("eps=1", "eps=1"),
    ] {
        let expected = format!("unsupported ORCA header format: {word}");
        assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS, value)]), expected);
    }
    let error = parse(
        [(ENDPOINT_LOAD_METRICS, &b"\xff\xffabcdef"[..])],
        &OrcaLimits::default(),
    );
    let message = error.unwrap_err().message().to_owned();
    assert_eq!(
        message, "unsupported ORCA header format: \u{fffd}\u{fffd}abc",
        "bytes that are no text are shown as such"
    );
}

#[test]
fn each_prefix_has_its_format() {
    let bin = format!("BIN {}", STANDARD.encode(encoded(3.0)));
    for (value, expected) in [("TEXT eps=1", 1.0), ("JSON {\"eps\": 2}", 2.0), (&bin, 3.0)] {
        assert_eq!(eps(&[(ENDPOINT_LOAD_METRICS, value)]), expected, "{value}");
    }
}

/// Messages whose last base64 group has one, two and three bytes.
fn padded_and_not() -> Vec<(String, String)> {
    let with_key = |key: &str| {
        let mut report = OrcaLoadReport::default();
        report.named_metrics.insert(key, 1.0);
        message::encode(&report)
    };
    let messages = ["a", "aa", "aaa"].map(with_key);
    let both = |message: &Vec<u8>| (STANDARD.encode(message), STANDARD_NO_PAD.encode(message));
    messages.iter().map(both).collect()
}

#[test]
fn padding_is_all_or_nothing() {
    let lengths: Vec<_> = padded_and_not()
        .iter()
        .map(|(padded, bare)| padded.len() - bare.len())
        .collect();
    assert_eq!(lengths.iter().sum::<usize>(), 3, "0, 1 and 2: {lengths:?}");
    for (padded, bare) in padded_and_not() {
        for prefix in ["", "BIN "] {
            let name = match prefix {
                "" => ENDPOINT_LOAD_METRICS_BIN,
                _ => ENDPOINT_LOAD_METRICS,
            };
            let read = |value: &str| found(&[(name, &format!("{prefix}{value}"))]);
            assert_eq!(read(&padded).unwrap(), read(&bare).unwrap());
            let expected = format!("unable to decode ORCA binary header value: {padded}=");
            assert_eq!(read(&format!("{padded}=")).unwrap_err().message(), expected);
            if padded.ends_with("==") {
                assert!(read(&format!("{bare}=")).is_err(), "half of the padding");
            }
        }
    }
}

#[test]
fn invalid_base64_is_quoted() {
    for value in [
        "not-a-valid-binary-proto",
        "====",
        "=",
        "A",
        "AAAAA",
        "AAAB\n",
        " AAAA",
        "AA AA",
        "AAAA,AAAA",
        "AB", // left-over bits that are not zero
        "AB==",
        "ABC=",
    ] {
        let expected = format!("unable to decode ORCA binary header value: {value}");
        assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS_BIN, value)]), expected);
        let prefixed = format!("BIN {value}");
        assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS, &prefixed)]), expected);
    }
}

#[test]
fn a_malformed_message_is_quoted() {
    let cut = STANDARD.encode(&encoded(1.0)[..4]);
    let expected = format!("unable to parse binaryheader to OrcaLoadReport: {cut}");
    assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS_BIN, &cut)]), expected);
}

#[test]
fn an_empty_binary_value_is_rejected() {
    let expected = "ORCA binary header value is empty";
    assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS_BIN, "")]), expected);
    assert_eq!(invalid(&[(ENDPOINT_LOAD_METRICS, "BIN ")]), expected);
}

#[test]
fn long_values_are_rejected_before_parsing() {
    let limits = OrcaLimits {
        max_bytes: 10,
        ..Default::default()
    };
    let with = |name, value: &str| parse([(name, value.as_bytes())], &limits);
    assert_eq!(with(ENDPOINT_LOAD_METRICS, "TEXT eps=1").unwrap().eps, 1.0);
    for name in [ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN] {
        let error = with(name, "TEXT eps=10").unwrap_err();
        assert_eq!(error.code(), OrcaCode::ResourceExhausted);
        let expected = "ORCA report has 11 bytes, at most 10 are allowed";
        assert_eq!(error.message(), expected);
    }
    let default = OrcaLimits::default();
    assert_eq!((default.max_bytes, default.max_metrics), (65_536, 1_000));
    let longest = format!("TEXT {:>65531}", "eps=1");
    assert_eq!(eps(&[(ENDPOINT_LOAD_METRICS, &longest)]), 1.0);
    let longer = format!("{longest} ");
    let (code, _) = error_of(&[(ENDPOINT_LOAD_METRICS, &longer)]);
    assert_eq!(code, OrcaCode::ResourceExhausted);
}

#[test]
fn too_many_metrics_are_rejected_in_every_format() {
    let limits = OrcaLimits {
        max_metrics: 2,
        ..Default::default()
    };
    let with = |metrics: usize| {
        let mut report = OrcaLoadReport::default();
        for index in 0..metrics {
            report.named_metrics.insert(format!("m{index}"), 1.0);
        }
        let message = message::encode(&report);
        let items: Vec<_> = (0..metrics)
            .map(|m| format!("named_metrics.m{m}=1"))
            .collect();
        let fields: Vec<_> = (0..metrics).map(|m| format!("\"m{m}\":1")).collect();
        let values = [
            format!("TEXT {}", items.join(",")),
            format!("JSON {{\"named_metrics\":{{{}}}}}", fields.join(",")),
            format!("BIN {}", STANDARD.encode(&message)),
        ];
        (values, message)
    };
    let (values, message) = with(2);
    for value in &values {
        let found = parse([(ENDPOINT_LOAD_METRICS, value.as_bytes())], &limits);
        assert_eq!(found.unwrap().named_metrics.len(), 2, "{value}");
    }
    assert!(parse_message(&message, &limits).is_ok());
    let (values, message) = with(3);
    let expected = "ORCA report has 3 metrics, at most 2 are allowed";
    for value in &values {
        let found = parse([(ENDPOINT_LOAD_METRICS, value.as_bytes())], &limits);
        assert_eq!(found.unwrap_err().message(), expected, "{value}");
    }
    let error = parse_message(&message, &limits).unwrap_err();
    assert_eq!(error.message(), expected);
}

#[test]
fn a_stream_message_is_parsed_without_base64() {
    let limits = OrcaLimits::default();
    assert_eq!(parse_message(&encoded(2.0), &limits).unwrap().eps, 2.0);
    assert_eq!(parse_message(b"", &limits), Ok(OrcaLoadReport::default()));
    let error = parse_message(&encoded(2.0)[..5], &limits).unwrap_err();
    assert_eq!(error.code(), OrcaCode::InvalidArgument);
    assert!(
        error
            .message()
            .starts_with("unable to parse OrcaLoadReport: ")
    );
    let error = parse_message(&[0; 65_537], &limits).unwrap_err();
    assert_eq!(error.code(), OrcaCode::ResourceExhausted);
}
