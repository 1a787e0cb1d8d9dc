//! [`Outcome`]: the result of a case, and its comparison with the expected result.
//!
//! Every key of `expected` must be a field of the outcome; the outcome may have more fields. Within
//! a field, parts that the case omits must be null, 0 or empty. Integers are compared exactly,
//! other numbers within a tolerance.

use serde_json::{Map, Value};

/// Default tolerance of numbers: `exp` and `pow` may differ in the last bits between platforms.
const DEFAULT_TOLERANCE: f64 = 1e-9;

/// Keys of `expected` that are not compared: remarks, assertions of the original test, tolerance.
const REMARKS: [&str; 3] = ["note", "tolerance", "upstream_asserted"];

#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    fields: Map<String, Value>,
    /// Fields of the outcome whose numbers may have any value if the case omits them.
    partial: &'static [&'static str],
}

impl From<Value> for Outcome {
    fn from(fields: Value) -> Self {
        let Value::Object(fields) = fields else {
            unreachable!("an outcome is an object: {fields}")
        };
        Self {
            fields,
            partial: &[],
        }
    }
}

/// Creates a JSON object from pairs of name and number.
pub(super) fn table<N: Into<Value>>(
    numbers: impl IntoIterator<Item = (impl Into<String>, N)>,
) -> Value {
    let entry = |(name, number): (_, N)| (Into::<String>::into(name), number.into());
    Value::Object(numbers.into_iter().map(entry).collect())
}

impl Outcome {
    pub(super) const fn partial(mut self, fields: &'static [&'static str]) -> Self {
        self.partial = fields;
        self
    }

    /// Returns the path, expected value and actual value of every difference.
    pub(super) fn differences(&self, expected: &Map<String, Value>) -> Vec<(String, Value, Value)> {
        let tolerance = match expected.get("tolerance") {
            None => DEFAULT_TOLERANCE,
            Some(value) => match value.as_f64() {
                Some(tolerance) => tolerance,
                None => return vec![("tolerance".into(), "a number".into(), value.clone())],
            },
        };
        let compared = || {
            expected
                .iter()
                .filter(|(key, _)| !REMARKS.contains(&key.as_str()))
        };
        if compared().next().is_none() {
            let actual = "nothing: the case checks nothing".into();
            return vec![("expected".into(), self.names().into(), actual)];
        }
        let mut comparison = Comparison {
            tolerance,
            partial: false,
            differences: Vec::new(),
        };
        for (key, expected) in compared() {
            match self.fields.get(key) {
                None => {
                    let actual = format!("unknown key `{key}`; there are {}", self.names());
                    comparison.differ(key.clone(), expected, actual.into());
                }
                Some(actual) => {
                    comparison.partial = self.partial.contains(&key.as_str());
                    comparison.compare(key, expected, actual);
                }
            }
        }
        comparison.differences
    }

    fn names(&self) -> String {
        self.fields.keys().cloned().collect::<Vec<_>>().join(", ")
    }
}

struct Comparison {
    tolerance: f64,
    partial: bool,
    differences: Vec<(String, Value, Value)>,
}

impl Comparison {
    /// Compares objects and lists of objects element by element, so that differences have a precise
    /// path; other lists are reported as a whole: a sequence of picks is easier to read that way.
    fn compare(&mut self, path: &str, expected: &Value, actual: &Value) {
        if let Some(pairs) = objects(expected, actual) {
            for (index, (expected, actual)) in pairs.enumerate() {
                self.compare(&format!("{path}.{index}"), expected, actual);
            }
            return;
        }
        let (Value::Object(wanted), Value::Object(found)) = (expected, actual) else {
            if !same(expected, actual, self.tolerance) {
                self.differ(path.to_owned(), expected, actual.clone());
            }
            return;
        };
        for (key, expected) in wanted {
            let path = format!("{path}.{key}");
            match found.get(key) {
                Some(actual) => self.compare(&path, expected, actual),
                None => self.differ(path, expected, unknown(key)),
            }
        }
        for (key, actual) in found.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
            let ignored = self.partial && !actual.is_array() && !actual.is_object();
            if !ignored && !is_empty(actual) {
                self.differ(format!("{path}.{key}"), &"nothing".into(), actual.clone());
            }
        }
    }

    fn differ(&mut self, path: String, expected: &Value, actual: Value) {
        self.differences.push((path, expected.clone(), actual));
    }
}

fn unknown(key: &str) -> Value {
    format!("unknown key `{key}`").into()
}

/// Pairs the elements of two lists of objects of equal length.
fn objects<'a>(
    expected: &'a Value,
    actual: &'a Value,
) -> Option<impl Iterator<Item = (&'a Value, &'a Value)>> {
    let (wanted, found) = (expected.as_array()?, actual.as_array()?);
    let alike = wanted.len() == found.len() && wanted.iter().chain(found).all(Value::is_object);
    alike.then(|| wanted.iter().zip(found))
}

/// Whether a value is null, zero, or consists only of null and zero values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(table) => table.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        number => same(&0.into(), number, 0.0),
    }
}

fn same(expected: &Value, actual: &Value, tolerance: f64) -> bool {
    match (expected, actual) {
        (Value::Number(wanted), Value::Number(found)) => {
            if wanted == found {
                return true;
            }
            if !wanted.is_f64() && !found.is_f64() {
                return false;
            }
            match (wanted.as_f64(), found.as_f64()) {
                (Some(wanted), Some(found)) => {
                    (wanted - found).abs() <= tolerance * wanted.abs().max(1.0)
                }
                _ => false,
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| same(wanted, found, tolerance))
        }
        _ => expected == actual,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differing(outcome: &Outcome, expected: &Value) -> Vec<String> {
        let differences = outcome.differences(expected.as_object().unwrap());
        differences.into_iter().map(|(field, _, _)| field).collect()
    }

    fn outcome(fields: Value) -> Outcome {
        fields.into()
    }

    #[test]
    fn a_case_may_expect_some_fields_but_at_least_one() {
        let outcome = outcome(json!({"a": 1, "b": null}));
        for (expected, fields) in [
            (json!({"a": 1}), &[][..]),
            (json!({"a": 1, "b": null}), &[]),
            (json!({"b": 0}), &["b"]),
            (json!({"c": null}), &["c"]),
            (json!({}), &["expected"]),
            (json!({"note": "x", "tolerance": 1}), &["expected"]),
        ] {
            assert_eq!(differing(&outcome, &expected), fields, "{expected}");
        }
    }

    #[test]
    fn omitted_parts_must_be_empty_and_unknown_keys_are_reported() {
        let outcome = outcome(json!({
            "pick": {"source": "x", "index": null},
            "weights": [{"healthy": {"a": 0.5, "b": 0.0}, "all": {"a": 0.0}}],
            "all_local": [{"healthy": true, "all": false}],
        }));
        for (expected, fields) in [
            (json!({"pick": {"source": "x"}}), &[][..]),
            (json!({"pick": {"source": "x", "host": 0}}), &["pick.host"]),
            (json!({"pick": {"index": null}}), &["pick.source"]),
            (json!({"pick": null}), &["pick"]),
            (
                json!({"weights": [{"healthy": {"a": 0.500_000_000_1}}]}),
                &[],
            ),
            (
                json!({"weights": [{"healthy": {"b": 0}}]}),
                &["weights.0.healthy.a"],
            ),
            (
                json!({"weights": [{"healthy": {"a": 0.5, "c": 0}}]}),
                &["weights.0.healthy.c"],
            ),
            (json!({"weights": [{}]}), &["weights.0.healthy"]),
            (json!({"weights": []}), &["weights"]),
            (
                json!({"all_local": [{"healthy": true}]}),
                &["all_local.0.all"],
            ),
        ] {
            assert_eq!(differing(&outcome, &expected), fields, "{expected}");
        }
    }

    #[test]
    fn numbers_may_be_omitted_from_a_partial_field() {
        let outcome =
            outcome(json!({"sent": [{"a": 1, "b": 2, "drops": ["x"]}]})).partial(&["sent"]);
        let whole = json!({"sent": [{"b": 2, "drops": ["x"]}]});
        assert_eq!(differing(&outcome, &whole), [""; 0]);
        let dropped = json!({"sent": [{"b": 3}]});
        assert_eq!(differing(&outcome, &dropped), ["sent.0.b", "sent.0.drops"]);
    }

    #[test]
    fn integers_are_exact_and_other_numbers_have_a_tolerance() {
        let outcome = outcome(json!({"bp": 5000, "factor": 0.3, "hash": u64::MAX}));
        for (expected, fields) in [
            (json!({"bp": 5001, "tolerance": 5}), &["bp"][..]),
            (json!({"bp": 5000.0}), &[]),
            (json!({"factor": 0.300_000_000_5}), &[]),
            (json!({"factor": 0.300_000_002}), &["factor"]),
            (json!({"factor": 0.31, "tolerance": 0.02}), &[]),
            (json!({"factor": 0.3, "tolerance": "x"}), &["tolerance"]),
            (json!({"hash": u64::MAX - 1}), &["hash"]),
        ] {
            assert_eq!(differing(&outcome, &expected), fields, "{expected}");
        }
    }

    #[test]
    fn lists_are_compared_by_element_and_reported_as_a_whole() {
        let outcome = outcome(json!({"sequence": [1, 0, 1]}));
        assert_eq!(
            differing(&outcome, &json!({"sequence": [1, 0]})),
            ["sequence"]
        );
        let expected = json!({"sequence": [1, 0, 0]});
        let differences = outcome.differences(expected.as_object().unwrap());
        assert_eq!(
            differences,
            [("sequence".into(), json!([1, 0, 0]), json!([1, 0, 1]))]
        );
    }
}
