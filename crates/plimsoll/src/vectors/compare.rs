//! [`Outcome`]: what a case came to, and how it differs from what the case expects.
//!
//! Every key of `expected` must be a field of the outcome; a case may expect fewer fields than
//! there are. Integers compare exactly, other numbers within a tolerance.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Tolerance where a case gives none: `exp` and `pow` may differ in the last bits by platform.
const DEFAULT_TOLERANCE: f64 = 1e-9;

/// Keys of `expected` that are not compared: remarks, what the upstream test asserted, precision.
const REMARKS: [&str; 3] = ["note", "tolerance", "upstream_asserted"];

/// The fields a case may expect.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome(BTreeMap<&'static str, Field>);

#[derive(Debug, PartialEq)]
enum Field {
    /// The whole value. Keys of an object that are null may be left out.
    Exact(Value),
    /// Numbers by name, also in tables of such tables; a name that is left out stands for 0.
    Sparse(Value),
}

impl Outcome {
    /// Adds a field that is compared as a whole.
    pub(super) fn exact(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.0.insert(field, Field::Exact(value.into()));
        self
    }

    /// Adds a table of numbers (counters, weights by index) whose zeros may be left out.
    pub(super) fn sparse<N: Into<Value>>(
        self,
        field: &'static str,
        numbers: impl IntoIterator<Item = (String, N)>,
    ) -> Self {
        let numbers = numbers
            .into_iter()
            .map(|(name, number)| (name, number.into()));
        self.sparse_tree(field, Value::Object(numbers.collect()))
    }

    /// Adds objects and lists, however deep, of tables whose zeros may be left out.
    pub(super) fn sparse_tree(mut self, field: &'static str, tables: Value) -> Self {
        self.0.insert(field, Field::Sparse(tables));
        self
    }

    /// Field, expected and actual of everything that differs.
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
            differences: Vec::new(),
        };
        for (key, expected) in compared() {
            match self.0.get(key.as_str()) {
                None => {
                    let actual = format!("unknown key `{key}`; there are {}", self.names());
                    comparison.differ(key.clone(), expected, actual.into());
                }
                Some(Field::Exact(actual)) => {
                    comparison.compare(key, expected, actual, LeftOut::Null);
                }
                Some(Field::Sparse(actual)) => {
                    comparison.compare(key, expected, actual, LeftOut::Zero);
                }
            }
        }
        comparison.differences
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.0.keys().copied().collect();
        names.join(", ")
    }
}

/// What an object may leave out.
#[derive(Clone, Copy, Debug)]
enum LeftOut {
    Null,
    Zero,
}

impl LeftOut {
    /// What stands for a value that is left out; nothing if it may not be.
    fn misses(self, value: &Value) -> Option<Value> {
        match self {
            Self::Null => (!value.is_null()).then(|| "nothing".into()),
            Self::Zero => (!is_zero(value)).then(|| 0.into()),
        }
    }
}

/// One comparison and what it has found.
struct Comparison {
    tolerance: f64,
    differences: Vec<(String, Value, Value)>,
}

impl Comparison {
    /// Descends into objects and lists of objects, so that the path of the difference is as long as
    /// it can be; other lists are shown whole, because a sequence of picks reads better that way.
    fn compare(&mut self, path: &str, expected: &Value, actual: &Value, left_out: LeftOut) {
        if let Some(pairs) = objects(expected, actual) {
            for (index, (expected, actual)) in pairs.enumerate() {
                self.compare(&format!("{path}.{index}"), expected, actual, left_out);
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
                Some(actual) => self.compare(&path, expected, actual, left_out),
                None => self.differ(path, expected, unknown(key)),
            }
        }
        for (key, actual) in found.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
            if let Some(expected) = left_out.misses(actual) {
                self.differ(format!("{path}.{key}"), &expected, actual.clone());
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

/// The elements of two lists of objects, if both are such lists and equally long.
fn objects<'a>(
    expected: &'a Value,
    actual: &'a Value,
) -> Option<impl Iterator<Item = (&'a Value, &'a Value)>> {
    let (wanted, found) = (expected.as_array()?, actual.as_array()?);
    let alike = wanted.len() == found.len() && wanted.iter().chain(found).all(Value::is_object);
    alike.then(|| wanted.iter().zip(found))
}

/// A zero, or a table of zeros.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(table) => table.values().all(is_zero),
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

    #[test]
    fn a_case_may_expect_less_than_there_is_but_not_nothing() {
        let outcome = Outcome::default().exact("a", 1).exact("b", json!(null));
        assert_eq!(differing(&outcome, &json!({"a": 1})), [""; 0]);
        assert_eq!(differing(&outcome, &json!({"a": 1, "b": null})), [""; 0]);
        assert_eq!(differing(&outcome, &json!({"b": 0})), ["b"]);
        assert_eq!(differing(&outcome, &json!({})), ["expected"]);
        assert_eq!(
            differing(&outcome, &json!({"note": "x", "tolerance": 1})),
            ["expected"]
        );
    }

    #[test]
    fn unknown_keys_are_named_at_every_depth() {
        let outcome = Outcome::default()
            .exact(
                "pick",
                json!({"source": "HealthyHosts", "locality_index": null}),
            )
            .sparse("stats", [("seen".to_owned(), 1)]);
        assert_eq!(differing(&outcome, &json!({"pikc": null})), ["pikc"]);
        let pick = json!({"pick": {"source": "HealthyHosts", "host": null}});
        assert_eq!(differing(&outcome, &pick), ["pick.host"]);
        assert_eq!(
            differing(&outcome, &json!({"stats": {"seen": 1, "sene": 0}})),
            ["stats.sene"]
        );
    }

    #[test]
    fn only_what_is_null_may_be_left_out_of_an_object() {
        let pick = |index: Value| {
            Outcome::default().exact("pick", json!({"source": "x", "locality_index": index}))
        };
        let expected = json!({"pick": {"source": "x"}});
        assert_eq!(differing(&pick(json!(null)), &expected), [""; 0]);
        assert_eq!(
            differing(&pick(json!(0)), &expected),
            ["pick.locality_index"]
        );
        assert_eq!(differing(&pick(json!(0)), &json!({"pick": null})), ["pick"]);
        let nothing = Outcome::default().exact("pick", json!(null));
        assert_eq!(differing(&nothing, &expected), ["pick"]);
    }

    #[test]
    fn zeros_may_be_left_out_of_a_table() {
        let table = [("a".to_owned(), 1.5), ("b".to_owned(), 0.0)];
        let outcome = Outcome::default().sparse("weights", table);
        assert_eq!(
            differing(&outcome, &json!({"weights": {"a": 1.5}})),
            [""; 0]
        );
        assert_eq!(
            differing(&outcome, &json!({"weights": {"a": 1.5, "b": 0}})),
            [""; 0]
        );
        assert_eq!(
            differing(&outcome, &json!({"weights": {"b": 0}})),
            ["weights.a"]
        );
        assert_eq!(
            differing(&outcome, &json!({"weights": {"a": 1.5, "b": 1}})),
            ["weights.b"]
        );
        assert_eq!(differing(&outcome, &json!({"weights": null})), ["weights"]);
    }

    #[test]
    fn tables_may_stand_in_lists_and_tables() {
        let tables = json!([{"healthy": {"a": 0.5, "b": 0.0}, "all": {"a": 0.0, "b": 0.0}}]);
        let outcome = Outcome::default()
            .sparse_tree("weights", tables)
            .exact("all_local", json!([{"healthy": true, "all": false}]));
        let weights = |weights: Value| differing(&outcome, &json!({"weights": weights}));
        assert_eq!(
            weights(json!([{"healthy": {"a": 0.500_000_000_1}}])),
            [""; 0]
        );
        assert_eq!(
            weights(json!([{"healthy": {"a": 0.5}, "all": {"b": 0}}])),
            [""; 0]
        );
        let misspelt = json!([{"healthy": {"a": 0.5, "c": 0}}]);
        assert_eq!(weights(misspelt), ["weights.0.healthy.c"]);
        let wrong = json!([{"healthy": {"b": 0.1}, "al": {}}]);
        let fields = ["weights.0.al", "weights.0.healthy.b", "weights.0.healthy.a"];
        assert_eq!(weights(wrong), fields);
        assert_eq!(weights(json!([{}])), ["weights.0.healthy"]);
        assert_eq!(weights(json!([])), ["weights"]);
        assert_eq!(weights(json!({"healthy": {"a": 0.5}})), ["weights"]);
        let all_local = |value: Value| differing(&outcome, &json!({"all_local": value}));
        assert_eq!(all_local(json!([{"healthy": true, "all": false}])), [""; 0]);
        assert_eq!(all_local(json!([{"healthy": true}])), ["all_local.0.all"]);
        assert_eq!(all_local(json!([])), ["all_local"]);
    }

    #[test]
    fn integers_are_exact_and_other_numbers_have_a_tolerance() {
        let outcome = Outcome::default().exact("bp", 5000).exact("factor", 0.3);
        assert_eq!(
            differing(&outcome, &json!({"bp": 5001, "tolerance": 5})),
            ["bp"]
        );
        assert_eq!(differing(&outcome, &json!({"bp": 5000.0})), [""; 0]);
        assert_eq!(
            differing(&outcome, &json!({"factor": 0.300_000_000_5})),
            [""; 0]
        );
        assert_eq!(
            differing(&outcome, &json!({"factor": 0.300_000_002})),
            ["factor"]
        );
        assert_eq!(
            differing(&outcome, &json!({"factor": 0.31, "tolerance": 0.02})),
            [""; 0]
        );
        assert_eq!(
            differing(&outcome, &json!({"factor": 0.3, "tolerance": "x"})),
            ["tolerance"]
        );
        let huge = Outcome::default().exact("hash", u64::MAX);
        assert_eq!(differing(&huge, &json!({"hash": u64::MAX - 1})), ["hash"]);
    }

    #[test]
    fn lists_are_compared_element_by_element_and_shown_whole() {
        let outcome = Outcome::default().exact("sequence", vec![1, 0, 1]);
        assert_eq!(
            differing(&outcome, &json!({"sequence": [1, 0, 1]})),
            [""; 0]
        );
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
