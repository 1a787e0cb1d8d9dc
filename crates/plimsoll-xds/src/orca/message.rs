//! Decoding and encoding of `xds.data.orca.v3.OrcaLoadReport`.
//!
//! Unknown fields are ignored, values are not validated. A known field with a wrong wire type is an
//! error, although Envoy skips such a field.

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};

use crate::protobuf::{Value, WireError, fields, put_bytes, put_double, put_string, put_uint};

/// Decodes a message; no bytes are an empty report.
pub(super) fn decode(bytes: &[u8]) -> Result<OrcaLoadReport, WireError> {
    let mut report = OrcaLoadReport::default();
    let mut maps: [Vec<(&str, f64)>; 3] = Default::default();
    for field in fields(bytes) {
        let (number, value) = field?;
        match number {
            1 => report.cpu_utilization = value.double()?,
            2 => report.mem_utilization = value.double()?,
            3 => report.rps = value.varint()?,
            4 => maps[0].push(entry(value)?),
            5 => maps[1].push(entry(value)?),
            6 => report.rps_fractional = value.double()?,
            7 => report.eps = value.double()?,
            8 => maps[2].push(entry(value)?),
            9 => report.application_utilization = value.double()?,
            _ => {}
        }
    }
    let [request_cost, utilization, named_metrics] = maps.map(MetricMap::from_iter);
    Ok(OrcaLoadReport {
        request_cost,
        utilization,
        named_metrics,
        ..report
    })
}

/// Reads a map entry; a missing key is empty, a missing value 0.
fn entry(entry: Value<'_>) -> Result<(&str, f64), WireError> {
    let (mut key, mut metric) = ("", 0.0);
    for field in fields(entry.bytes()?) {
        match field? {
            (1, value) => key = value.string()?,
            (2, value) => metric = value.double()?,
            _ => {}
        }
    }
    Ok((key, metric))
}

/// Encodes a message; fields that are 0 are omitted.
pub(super) fn encode(report: &OrcaLoadReport) -> Vec<u8> {
    let mut out = Vec::new();
    put_double(&mut out, 1, report.cpu_utilization);
    put_double(&mut out, 2, report.mem_utilization);
    put_uint(&mut out, 3, report.rps);
    put_map(&mut out, 4, &report.request_cost);
    put_map(&mut out, 5, &report.utilization);
    put_double(&mut out, 6, report.rps_fractional);
    put_double(&mut out, 7, report.eps);
    put_map(&mut out, 8, &report.named_metrics);
    put_double(&mut out, 9, report.application_utilization);
    out
}

/// Encodes an empty report as non-empty bytes: `cpu_utilization` is written although it is 0.
pub(super) fn encode_zero() -> Vec<u8> {
    // Field 1 with a 64-bit value.
    const KEY: u8 = 1 << 3 | 1;
    [&[KEY][..], &0_f64.to_le_bytes()].concat()
}

fn put_map(out: &mut Vec<u8>, number: u32, metrics: &MetricMap) {
    let mut entry = Vec::new();
    for (name, value) in metrics.iter() {
        entry.clear();
        put_string(&mut entry, 1, name);
        put_double(&mut entry, 2, value);
        put_bytes(out, number, &entry);
    }
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
