//! ORCA load reports in cases, for the suites `orca`, `cswrr` and `load_aware_locality`.
//!
//! Cases use the JSON mapping of `OrcaLoadReport`, which production code parses: numbers may be
//! quoted, `"NaN"` and `"Infinity"` are accepted, and fields have two spellings. One conversion is
//! added: `rps` is a whole number in the message, but cases write fractions.

use plimsoll_core::model::orca::{OrcaLoadReport, UtilizationPrecedence};
use plimsoll_xds::orca::{self, OrcaLimits};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Case, CaseError};

/// A load report in the inputs of a case; missing fields are 0.
#[derive(Debug)]
pub(super) struct ReportInput(pub(super) OrcaLoadReport);

impl<'de> Deserialize<'de> for ReportInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let report = report(&json).map_err(|error| serde::de::Error::custom(error.reason()))?;
        Ok(Self(report))
    }
}

/// A number in the inputs of a case, which may be `"NaN"` or `"Infinity"`; 0 if missing.
#[derive(Debug)]
pub(super) struct Number(pub(super) f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let value = match &json {
            Value::Null => Some(0.0),
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                digits => digits.parse().ok(),
            },
            _ => None,
        };
        value
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format!("{json} is not a number")))
    }
}

/// Reads `metric_names` and `named_metrics_first`. Envoy prefers named metrics by default, and so
/// do the cases; Plimsoll does not by default.
pub(super) fn metric_rules(case: &Case) -> Result<(Vec<String>, UtilizationPrecedence), CaseError> {
    let names: Option<Vec<String>> = case.input("metric_names")?;
    let precedence = match case.input("named_metrics_first")? {
        Some(false) => UtilizationPrecedence::ApplicationFirst,
        _ => UtilizationPrecedence::NamedMetricsFirst,
    };
    Ok((names.unwrap_or_default(), precedence))
}

pub(super) fn report(json: &Value) -> Result<OrcaLoadReport, CaseError> {
    let mut json = json.clone();
    if let Some(rps) = json.get_mut("rps") {
        truncate(rps);
    }
    let header = format!("JSON {json}");
    let headers = [(orca::ENDPOINT_LOAD_METRICS, header.as_bytes())];
    orca::parse(headers, &OrcaLimits::default())
        .map_err(|error| CaseError::inputs(format!("report: {error}")))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no outcome depends on the field, and `as` saturates"
)]
fn truncate(rps: &mut Value) {
    if let Some(number) = rps.as_f64().filter(|_| !rps.is_u64()) {
        *rps = (number as u64).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn non_finite_numbers_are_parsed_by_name() {
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
    fn single_numbers_are_parsed_like_reports() {
        let number = |json: Value| Number::deserialize(json).map(|number| number.0);
        for (json, expected) in [
            (json!(0.5), 0.5),
            (json!("0.5"), 0.5),
            (json!(null), 0.0),
            (json!("Infinity"), f64::INFINITY),
            (json!("-Infinity"), f64::NEG_INFINITY),
        ] {
            assert_eq!(number(json).unwrap(), expected);
        }
        assert!(number(json!("NaN")).unwrap().is_nan());
        assert!(number(json!(true)).is_err() && number(json!("half")).is_err());
    }
}
