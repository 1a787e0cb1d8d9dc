//! Decoding and encoding of `xds.data.orca.v3.OrcaLoadReport`.
//!
//! Unknown fields are ignored, values are not validated. A known field with a wrong wire type is an
//! error, although Envoy skips such a field. Called by `orca`.

use std::collections::BTreeMap;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};
use prost::{DecodeError, Message};

/// Hand-written declaration of the message.
#[derive(Clone, PartialEq, Message)]
struct ReportMessage {
    #[prost(double, tag = "1")]
    cpu_utilization: f64,
    #[prost(double, tag = "2")]
    mem_utilization: f64,
    #[prost(uint64, tag = "3")]
    rps: u64,
    #[prost(btree_map = "string, double", tag = "4")]
    request_cost: BTreeMap<String, f64>,
    #[prost(btree_map = "string, double", tag = "5")]
    utilization: BTreeMap<String, f64>,
    #[prost(double, tag = "6")]
    rps_fractional: f64,
    #[prost(double, tag = "7")]
    eps: f64,
    #[prost(btree_map = "string, double", tag = "8")]
    named_metrics: BTreeMap<String, f64>,
    #[prost(double, tag = "9")]
    application_utilization: f64,
}

/// Decodes a message; no bytes are an empty report.
pub(crate) fn decode(bytes: &[u8]) -> Result<OrcaLoadReport, DecodeError> {
    let message = ReportMessage::decode(bytes)?;
    Ok(OrcaLoadReport {
        cpu_utilization: message.cpu_utilization,
        mem_utilization: message.mem_utilization,
        application_utilization: message.application_utilization,
        rps: message.rps,
        rps_fractional: message.rps_fractional,
        eps: message.eps,
        named_metrics: message.named_metrics.into_iter().collect(),
        utilization: message.utilization.into_iter().collect(),
        request_cost: message.request_cost.into_iter().collect(),
    })
}

/// Encodes a message; fields that are 0 are omitted.
pub(crate) fn encode(report: &OrcaLoadReport) -> Vec<u8> {
    let message = ReportMessage {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.mem_utilization,
        rps: report.rps,
        request_cost: entries(&report.request_cost),
        utilization: entries(&report.utilization),
        rps_fractional: report.rps_fractional,
        eps: report.eps,
        named_metrics: entries(&report.named_metrics),
        application_utilization: report.application_utilization,
    };
    message.encode_to_vec()
}

/// Encodes an empty report as non-empty bytes: `cpu_utilization` is written although it is 0.
pub(crate) fn encode_zero() -> Vec<u8> {
    // Field 1 with a 64-bit value.
    const KEY: u8 = 1 << 3 | 1;
    [&[KEY][..], &0_f64.to_le_bytes()].concat()
}

fn entries(metrics: &MetricMap) -> BTreeMap<String, f64> {
    let entries = metrics.iter();
    entries
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(metrics: &[(&str, f64)]) -> MetricMap {
        metrics.iter().copied().collect()
    }

    /// Returns one report per field, with its field number.
    fn one_field_each() -> Vec<(u8, OrcaLoadReport)> {
        let fields: [fn(&mut OrcaLoadReport); 9] = [
            |report| report.cpu_utilization = 1.5,
            |report| report.mem_utilization = 1.5,
            |report| report.rps = 300,
            |report| report.request_cost = metrics(&[("k", 1.5)]),
            |report| report.utilization = metrics(&[("k", 1.5)]),
            |report| report.rps_fractional = 1.5,
            |report| report.eps = 1.5,
            |report| report.named_metrics = metrics(&[("k", 1.5)]),
            |report| report.application_utilization = 1.5,
        ];
        let with = |set: fn(&mut OrcaLoadReport)| {
            let mut report = OrcaLoadReport::default();
            set(&mut report);
            report
        };
        (1..).zip(fields.map(with)).collect()
    }

    #[test]
    fn every_field_has_its_number_and_wire_type() {
        let double = 1.5_f64.to_le_bytes();
        for (number, report) in one_field_each() {
            let rest = match number {
                3 => vec![0xac, 0x02],
                4 | 5 | 8 => {
                    let entry = [&[0x0a, 1, b'k', 0x11][..], &double].concat();
                    [&[12][..], &entry].concat()
                }
                _ => double.to_vec(),
            };
            let wire_type = match number {
                3 => 0,
                4 | 5 | 8 => 2,
                _ => 1,
            };
            let expected = [&[number << 3 | wire_type][..], &rest].concat();
            assert_eq!(encode(&report), expected, "field {number}");
            assert_eq!(decode(&expected), Ok(report), "field {number}");
        }
    }

    #[test]
    fn an_empty_report_is_encoded_as_nothing_or_as_explicit_zero() {
        let empty = OrcaLoadReport::default();
        assert_eq!(encode(&empty), b"");
        assert_eq!(decode(b""), Ok(empty.clone()));
        assert_eq!(encode_zero(), [9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&encode_zero()), Ok(empty));
    }

    #[test]
    fn unknown_fields_are_ignored_and_the_last_occurrence_wins() {
        let report = |eps| OrcaLoadReport {
            eps,
            ..Default::default()
        };
        let mut bytes = encode(&report(1.0));
        bytes.extend([15 << 3, 7]); // field 15, a number
        bytes.extend([0xfa, 0x01, 3, 1, 2, 3]); // field 31, three bytes
        bytes.extend(encode(&report(2.0)));
        assert_eq!(decode(&bytes), Ok(report(2.0)));
    }

    #[test]
    fn map_entries_may_omit_key_or_value_and_repeat_keys() {
        let empty_entry = [8 << 3 | 2, 0];
        let found = decode(&empty_entry).unwrap();
        assert_eq!(found.named_metrics, metrics(&[("", 0.0)]));
        let twice = [
            encode(&OrcaLoadReport {
                named_metrics: metrics(&[("a", 1.0), ("b", 1.0)]),
                ..Default::default()
            }),
            encode(&OrcaLoadReport {
                named_metrics: metrics(&[("a", 2.0)]),
                ..Default::default()
            }),
        ];
        let found = decode(&twice.concat()).unwrap();
        assert_eq!(found.named_metrics, metrics(&[("a", 2.0), ("b", 1.0)]));
    }

    #[test]
    fn malformed_messages_are_errors() {
        for bad in [
            &[9][..],                              // a double without bytes
            &[9, 0, 0, 0],                         // too few of them
            &[0],                                  // field 0
            &[0x0d, 0, 0, 0, 0],                   // field 1 with four bytes
            &[8 << 3 | 2, 200, 1],                 // an entry longer than the message
            &[8 << 3 | 2, 3, 0x0a, 1, 0xff],       // a key that is not UTF-8
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // a key without end
        ] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn unusual_values_survive_a_round_trip() {
        let report = OrcaLoadReport {
            cpu_utilization: f64::NAN,
            mem_utilization: f64::NEG_INFINITY,
            eps: -1.0,
            rps: u64::MAX,
            utilization: metrics(&[("ü", f64::INFINITY), ("", -0.5)]),
            ..Default::default()
        };
        let found = decode(&encode(&report)).unwrap();
        assert_eq!(format!("{found:?}"), format!("{report:?}"));
    }
}
