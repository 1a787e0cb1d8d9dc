//! Load reports as cases write them, for the suites `orca`, `cswrr` and `load_aware_locality`.
//!
//! The form is the JSON mapping of `OrcaLoadReport`, so that the reader is the one of production:
//! numbers may be quoted, `"NaN"` and `"Infinity"` have names, and both spellings of a field are
//! known. One thing is added: `rps` is a whole number there, and cases write fractions of it.

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_xds::orca::{self, OrcaLimits};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::CaseError;

/// A load report among the inputs of a case; fields that are left out are 0.
#[derive(Debug)]
pub(super) struct ReportInput(pub(super) OrcaLoadReport);

impl<'de> Deserialize<'de> for ReportInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let report = report(&json).map_err(|error| serde::de::Error::custom(error.actual))?;
        Ok(Self(report))
    }
}

/// A number among the inputs of a case, which may be one that JSON has no digits for.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let json = Value::deserialize(deserializer)?;
    let value = match &json {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" | "inf" => Some(f64::INFINITY),
            "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
            digits => digits.parse().ok(),
        },
        _ => None,
    };
    value.ok_or_else(|| serde::de::Error::custom(format!("{json} is not a number")))
}

/// Reads a report.
pub(super) fn report(json: &Value) -> Result<OrcaLoadReport, CaseError> {
    let mut json = json.clone();
    if let Some(rps) = json.get_mut("rps") {
        whole(rps);
    }
    let header = format!("JSON {json}");
    let headers = [(orca::ENDPOINT_LOAD_METRICS, header.as_bytes())];
    orca::parse(headers, &OrcaLimits::default())
        .map_err(|error| CaseError::inputs(format!("report: {error}")))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a field that decides nothing, and `as` ends at the bounds"
)]
fn whole(rps: &mut Value) {
    if let Some(number) = rps.as_f64().filter(|_| !rps.is_u64()) {
        *rps = (number as u64).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_names_where_json_has_no_digits() {
        let json = json!({
            "cpu_utilization": "NaN",
            "memUtilization": 0.25,
            "application_utilization": "Infinity",
            "eps": "-Infinity",
            "rps": 12.75,
            "rps_fractional": "1e2",
            "named_metrics": {"a.b": "NaN", "c": 3},
        });
        let report = report(&json).unwrap();
        assert!(report.cpu_utilization.is_nan());
        assert_eq!(report.mem_utilization, 0.25);
        assert_eq!(report.application_utilization, f64::INFINITY);
        assert_eq!(report.eps, f64::NEG_INFINITY);
        assert_eq!((report.rps, report.rps_fractional), (12, 100.0));
        assert!(report.named_metrics.get("a.b").unwrap().is_nan());
        assert_eq!(report.named_metrics.get("c"), Some(3.0));
    }

    #[test]
    fn a_report_of_another_shape_is_refused() {
        for json in [json!({"cpu": 1}), json!([]), json!({"eps": "much"})] {
            assert!(report(&json).is_err(), "{json}");
            assert!(ReportInput::deserialize(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn single_numbers_are_read_alike() {
        for (json, expected) in [
            (json!(0.5), 0.5),
            (json!("0.5"), 0.5),
            (json!(2), 2.0),
            (json!("Infinity"), f64::INFINITY),
            (json!("-Infinity"), f64::NEG_INFINITY),
        ] {
            assert_eq!(number(&json).unwrap(), expected, "{json}");
        }
        assert!(number(&json!("NaN")).unwrap().is_nan());
        assert!(number(&json!(true)).is_err());
        assert!(number(&json!("half")).is_err());
    }
}
