//! [`Case`]: the envelope of one case, and [`CaseError`]: why it cannot be run.

use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A case as it stands in a file. What is not read here is only checked: its name is taken from the
/// raw JSON, so that a broken case is named too, and remarks are for people.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "present so that they are known keys of the right type"
)]
pub(super) struct Case {
    id: String,
    pub(super) kind: String,
    #[serde(default)]
    source_test: String,
    #[serde(default)]
    origin: Value,
    #[serde(default)]
    note: Value,
    inputs: Value,
    pub(super) expected: Map<String, Value>,
    pub(super) plimsoll: Option<Deviation>,
}

/// What we do instead of what a case expects, on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "reason and decision are for people and must be there"
)]
pub(super) struct Deviation {
    /// Keys of `expected` that differ, with our values.
    pub(super) expected: Map<String, Value>,
    /// Why, in a sentence.
    reason: String,
    /// The page of docs/decisions, without its ending.
    decision: String,
}

impl Case {
    /// The inputs as `T`, which refuses keys it does not know.
    pub(super) fn inputs<'a, T: Deserialize<'a>>(&'a self) -> Result<T, CaseError> {
        T::deserialize(&self.inputs).map_err(|error| CaseError::inputs(error.to_string()))
    }

    /// The same with our values where they differ on purpose, and whether there are any.
    pub(super) fn with_deviation(mut self) -> (Self, bool) {
        let deviation = self.plimsoll.take();
        let deviates = deviation.is_some();
        self.expected
            .extend(deviation.into_iter().flat_map(|found| found.expected));
        (self, deviates)
    }

    /// How many entries the list `field` of `expected` has: how many picks the case asks for.
    pub(super) fn expected_len(&self, field: &str) -> usize {
        self.expected
            .get(field)
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    }
}

/// A case that cannot be run.
#[derive(Debug, PartialEq)]
pub(super) struct CaseError {
    pub(super) field: &'static str,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl CaseError {
    pub(super) fn inputs(reason: impl Into<String>) -> Self {
        let expected = "inputs as the schema describes them".into();
        Self {
            field: "inputs",
            expected,
            actual: reason.into(),
        }
    }

    pub(super) fn unknown_kind(case: &Case, known: &[&str]) -> Self {
        let expected = format!("one of {}", known.join(", "));
        Self {
            field: "kind",
            expected,
            actual: case.kind.clone(),
        }
    }
}

impl From<FieldError> for CaseError {
    fn from(error: FieldError) -> Self {
        Self::inputs(error.to_string())
    }
}
