//! Tests of scalars in the JSON mapping of protobuf.

use serde::Deserialize;

use crate::yaml::Document;
use crate::yaml::proto_json::{
    BasisPointShare, Double, ProtoDuration, Share, Uint, WholePercent, snake_case,
};

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
    let document = Document::parse(text).unwrap();
    document.read().map_err(|error| error.to_string())
}

#[test]
fn camel_case_becomes_snake_case_and_nothing_else_changes() {
    for (written, expected) in [
        ("minClusterSize", "min_cluster_size"),
        ("min_cluster_size", "min_cluster_size"),
        ("hash2Key", "hash2_key"),
        ("name", "name"),
        ("@type", "@type"),
        ("RoundRobin", "RoundRobin"),
        ("mixed_Case", "mixed_Case"),
        ("upstream.zoneRouting", "upstream.zoneRouting"),
    ] {
        assert_eq!(snake_case(written), expected);
    }
}

#[test]
fn whole_numbers() {
    for (text, expected) in [
        ("7", 7),
        ("'7'", 7),
        ("7.0", 7),
        ("1e3", 1000),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(read::<Uint<u64>>(text).unwrap().0, expected, "{text}");
    }
    for text in [
        "-1", "1.5", "'x'", "''", "true", "[1]", ".inf", ".nan", "1e20", "'-1'",
    ] {
        assert!(read::<Uint<u64>>(text).is_err(), "{text}");
    }
    assert_eq!(read::<Uint<u32>>("4294967295").unwrap().0, u32::MAX);
    assert!(read::<Uint<u32>>("4294967296").is_err());
}

#[test]
fn doubles() {
    for (text, expected) in [("1", 1.0), ("-2", -2.0), ("2.5", 2.5), ("'2.5'", 2.5)] {
        assert_eq!(read(text), Ok(Double(expected)), "{text}");
    }
    assert!(read::<Double>(".nan").unwrap().0.is_nan());
    assert_eq!(read("-.inf"), Ok(Double(f64::NEG_INFINITY)));
    assert_eq!(read("Infinity"), Ok(Double(f64::INFINITY)));
    for text in ["'x'", "false", "{}"] {
        assert!(read::<Double>(text).is_err(), "{text}");
    }
}

#[test]
fn durations() {
    for (text, nanos) in [
        ("5s", 5_000_000_000),
        ("0.5s", 500_000_000),
        ("0s", 0),
        ("1.000000001s", 1_000_000_001),
        ("'60s'", 60_000_000_000),
        ("2m", 120_000_000_000),
        ("1ms", 1_000_000),
    ] {
        let duration = read::<ProtoDuration>(text).unwrap().0;
        assert_eq!(duration.as_nanos(), nanos, "{text}");
    }
    for text in [
        "5",
        "5.5",
        "-5s",
        "s",
        "315576000001s",
        "99999999999999999999s",
        "1_0s",
        "+5s",
        "true",
    ] {
        assert!(read::<ProtoDuration>(text).is_err(), "{text}");
    }
    let error = read::<ProtoDuration>("5").unwrap_err();
    assert!(
        error.starts_with("5 has no unit; write for example"),
        "{error}"
    );
}

#[test]
fn percentages_may_have_their_sign() {
    assert_eq!(read("55"), Ok(WholePercent(55)));
    assert_eq!(read("55%"), Ok(WholePercent(55)));
    assert_eq!(read("'55 %'"), Ok(WholePercent(55)));
    let error = read::<WholePercent>("5.5%").unwrap_err();
    assert!(error.contains("not a whole percentage"), "{error}");
    for (text, bp) in [
        ("5500", 5500),
        ("55%", 5500),
        ("0.29%", 29),
        ("100 %", 10_000),
    ] {
        assert_eq!(read(text), Ok(BasisPointShare(bp)), "{text}");
    }
    let error = read::<BasisPointShare>("0.005%").unwrap_err();
    assert!(
        error.contains("0.5 is not a whole number of basis points"),
        "{error}"
    );
    assert_eq!(read("0.6"), Ok(Share(0.6)));
    assert_eq!(read("60%"), Ok(Share(0.6)));
    for text in ["x", "x%", "[1]"] {
        assert!(read::<Share>(text).is_err(), "{text}");
    }
}
