//! [`Metadata`] of endpoints and routes in the namespace `envoy.lb`: checked
//! `google.protobuf.Struct` values with Envoy's equality.
//!
//! Numbers are finite, so that equality is total: values can be compared, ordered and hashed, and a
//! lookup by value finds its subset. [`criteria`] derives the match criteria of requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::units::FieldError;

pub mod criteria;
mod text;

pub use criteria::MatchCriteria;

/// A metadata value. Equal as in Envoy: same kind, same content; lists in order, structs in any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataValue {
    Null,
    Bool(bool),
    /// A double; see [`MetadataValue::number`].
    Number(MetadataNumber),
    String(Arc<str>),
    List(Arc<[MetadataValue]>),
    Struct(Metadata),
}

impl MetadataValue {
    /// Creates a number. `google.protobuf.Value` has no NaN and no infinity: both are rejected.
    pub fn number(value: f64) -> Result<Self, FieldError> {
        MetadataNumber::try_new(value).map(Self::Number)
    }

    /// Creates a list of values.
    pub fn list(values: impl IntoIterator<Item = Self>) -> Self {
        Self::List(values.into_iter().collect())
    }
}

impl From<bool> for MetadataValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for MetadataValue {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<Metadata> for MetadataValue {
    fn from(value: Metadata) -> Self {
        Self::Struct(value)
    }
}

/// A finite double without negative zero.
#[derive(Clone, Copy, Debug)]
pub struct MetadataNumber(f64);

impl MetadataNumber {
    /// Checks that the number is finite.
    pub fn try_new(value: f64) -> Result<Self, FieldError> {
        if !value.is_finite() {
            return Err(FieldError::new("", format!("{value} is not finite")));
        }
        // Adding zero turns -0 into 0, which is equal.
        Ok(Self(value + 0.0))
    }

    /// Returns the number as a double.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Ord for MetadataNumber {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for MetadataNumber {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MetadataNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MetadataNumber {}

/// Metadata values by key. Cloning is cheap, and empty metadata does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata(Option<Arc<BTreeMap<Arc<str>, MetadataValue>>>);

impl Metadata {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.0.as_ref()?.get(key)
    }

    /// Whether there are no values.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Iterates over keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &MetadataValue)> {
        self.0.iter().flat_map(|values| values.iter())
    }

    /// Whether an endpoint with this metadata has all of `labels` (`default_subset`). With
    /// `list_as_any`, a list of the endpoint matches if one of its elements does.
    pub fn matches(&self, labels: &Self, list_as_any: bool) -> bool {
        labels.iter().all(|(key, label)| match self.get(key) {
            None => false,
            Some(MetadataValue::List(values)) if list_as_any => values.contains(label),
            Some(value) => value == label,
        })
    }
}

impl<K: Into<Arc<str>>> FromIterator<(K, MetadataValue)> for Metadata {
    /// The last value of a key wins.
    fn from_iter<I: IntoIterator<Item = (K, MetadataValue)>>(values: I) -> Self {
        let values: BTreeMap<Arc<str>, MetadataValue> = values
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect();
        Self((!values.is_empty()).then(|| Arc::new(values)))
    }
}

impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::describe(f, self.iter().map(|(key, value)| (&**key, value)))
    }
}

/// Displays pairs in the given order: `stage="prod", version=2`.
#[derive(Debug)]
pub struct DisplayMetadata<'a>(pub &'a [(Arc<str>, MetadataValue)]);

impl fmt::Display for DisplayMetadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::describe(f, self.0.iter().map(|(key, value)| (&**key, value)))
    }
}

#[cfg(test)]
mod tests;
