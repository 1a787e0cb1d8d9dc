//! [`Case`]: one test case of a vector file, and [`CaseError`]: why a case cannot be run.

use std::cell::RefCell;

use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::compare::Outcome;
use crate::engine::{Engine, Unsupported};

pub(super) type CaseResult = Result<Outcome, CaseError>;

/// A test case of a vector file. Unused fields are only checked for their type: the ID is taken
/// from the raw JSON, so that a malformed case has one too, and `note` is for readers.
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
    inputs: RefCell<Value>,
    pub(super) expected: Map<String, Value>,
    pub(super) plimsoll: Option<Deviation>,
}

/// An intended deviation of Plimsoll from the expectation of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "reason and decision are for people and must be there"
)]
pub(super) struct Deviation {
    /// Keys of `expected` that differ, with Plimsoll's values.
    pub(super) expected: Map<String, Value>,
    reason: String,
    /// Page in docs/decisions that explains the deviation, without `.md`.
    decision: String,
}

impl Case {
    /// Deserializes all inputs as `T`, which must refuse unknown keys.
    pub(super) fn inputs<T: DeserializeOwned>(&self) -> Result<T, CaseError> {
        let inputs = std::mem::replace(&mut *self.inputs.borrow_mut(), json!({}));
        T::deserialize(inputs).map_err(|error| CaseError::inputs(error.to_string()))
    }

    /// Removes one input and returns it. A missing input is null, so it is `None` or an error.
    pub(super) fn input<T: DeserializeOwned>(&self, key: &str) -> Result<T, CaseError> {
        let mut inputs = self.inputs.borrow_mut();
        let Value::Object(fields) = &mut *inputs else {
            let reason = format!("invalid type: {inputs}, expected an object");
            return Err(CaseError::inputs(reason));
        };
        let value = fields.remove(key).unwrap_or_default();
        T::deserialize(value).map_err(|error| CaseError::inputs(format!("{key}: {error}")))
    }

    /// Returns an error if an input is left that the suite did not read.
    pub(super) fn unknown_inputs(&self) -> Option<CaseError> {
        let inputs = self.inputs.borrow();
        let key = inputs.as_object()?.keys().next()?;
        Some(CaseError::inputs(format!("unknown field `{key}`")))
    }

    /// Replaces expected values by those of `plimsoll`; also returns whether there are any.
    pub(super) fn with_deviation(mut self) -> (Self, bool) {
        let deviation = self.plimsoll.take();
        let deviates = deviation.is_some();
        self.expected
            .extend(deviation.into_iter().flat_map(|found| found.expected));
        (self, deviates)
    }

    /// Returns the length of the list `field` of `expected`, which is the number of picks to make.
    pub(super) fn expected_len(&self, field: &str) -> usize {
        self.expected
            .get(field)
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    }
}

/// Why a case cannot be run.
#[derive(Debug, PartialEq)]
pub(super) enum CaseError {
    /// The case is wrong; shown as a difference between expected and actual values.
    Wrong {
        field: &'static str,
        expected: String,
        actual: String,
    },
    /// The case is not for this engine.
    Unsupported(Unsupported),
}

impl CaseError {
    pub(super) fn inputs(reason: impl Into<String>) -> Self {
        let expected = "inputs as the schema describes them".into();
        Self::Wrong {
            field: "inputs",
            expected,
            actual: reason.into(),
        }
    }

    pub(super) fn unknown_kind(case: &Case) -> Self {
        Self::Wrong {
            field: "kind",
            expected: "a kind of this suite".into(),
            actual: case.kind.clone(),
        }
    }

    /// Returns an error unless the engine runs cases of single functions.
    pub(super) fn unless_functions(engine: &dyn Engine) -> Result<(), Self> {
        if engine.runs_functions() {
            return Ok(());
        }
        Err(Unsupported("the case uses no cluster").into())
    }

    /// Returns what is wrong with the case, in a few words.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Wrong { actual, .. } => actual,
            Self::Unsupported(Unsupported(reason)) => reason,
        }
    }
}

impl From<Unsupported> for CaseError {
    fn from(reason: Unsupported) -> Self {
        Self::Unsupported(reason)
    }
}

impl From<FieldError> for CaseError {
    fn from(error: FieldError) -> Self {
        Self::inputs(error.to_string())
    }
}
