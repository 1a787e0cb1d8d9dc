//! [`MatchCriteria`]: the metadata that a request must match, sorted by key and hashed once when
//! the route is created, so that a pick compares numbers and allocates nothing.

use std::sync::Arc;

use xxhash_rust::xxh64::Xxh64;

use super::{Metadata, MetadataValue};

/// The key that `FALLBACK_LIST` removes from the criteria of a request.
pub const FALLBACK_LIST: &str = "fallback_list";

/// Metadata that the route of a request requires (`metadata_match`, namespace `envoy.lb`). Built
/// once per route or weighted cluster; cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchCriteria {
    metadata: Metadata,
    criteria: Arc<[Criterion]>,
    /// Criteria that `FALLBACK_LIST` tries in order; `None` without the key `fallback_list`.
    attempts: Option<Arc<[Arc<[Criterion]>]>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Criterion {
    pub(crate) key: Arc<str>,
    pub(crate) value: MetadataValue,
    pub(crate) hash: u64,
}

impl Criterion {
    pub(crate) fn new(key: &Arc<str>, value: &MetadataValue) -> Self {
        Self {
            key: Arc::clone(key),
            value: value.clone(),
            hash: Self::hash(key, value),
        }
    }

    pub(crate) fn hash(key: &str, value: &MetadataValue) -> u64 {
        let mut hasher = Xxh64::new(0);
        text(&mut hasher, key);
        hash_value(&mut hasher, value);
        hasher.digest()
    }
}

impl MatchCriteria {
    /// Creates the criteria of a route with this metadata.
    pub fn new(metadata: Metadata) -> Self {
        let attempts = metadata.get(FALLBACK_LIST).map(|list| {
            let rest = without(&metadata, FALLBACK_LIST);
            let MetadataValue::List(entries) = list else {
                return [criteria_of(&rest)].into();
            };
            if entries.is_empty() {
                return [criteria_of(&rest)].into();
            }
            let attempts = entries.iter().map(|entry| match entry {
                MetadataValue::Struct(over) => criteria_of(&merge(&rest, over)),
                // Envoy treats an entry of another kind as a struct without fields.
                _ => criteria_of(&rest),
            });
            attempts.collect()
        });
        Self {
            criteria: criteria_of(&metadata),
            metadata,
            attempts,
        }
    }

    /// Merges `over` on top of these criteria, as a weighted cluster does over its route.
    #[must_use]
    pub fn merged(&self, over: &Metadata) -> Self {
        Self::new(merge(&self.metadata, over))
    }

    /// Returns only the criteria of these keys.
    #[must_use]
    pub fn filtered(&self, keys: &[impl AsRef<str>]) -> Self {
        let wanted = |key: &str| keys.iter().any(|wanted| wanted.as_ref() == key);
        let kept = self.metadata.iter().filter(|(key, _)| wanted(key));
        Self::new(kept.map(|(k, v)| (Arc::clone(k), v.clone())).collect())
    }

    /// Returns keys and values, sorted by key.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn criteria(&self) -> &[Criterion] {
        &self.criteria
    }

    pub(crate) fn attempts(&self) -> Option<&[Arc<[Criterion]>]> {
        self.attempts.as_deref()
    }
}

fn criteria_of(metadata: &Metadata) -> Arc<[Criterion]> {
    let pairs = metadata.iter();
    pairs.map(|(k, v)| Criterion::new(k, v)).collect()
}

fn merge(under: &Metadata, over: &Metadata) -> Metadata {
    let pairs = under.iter().chain(over.iter());
    pairs.map(|(k, v)| (Arc::clone(k), v.clone())).collect()
}

fn without(metadata: &Metadata, key: &str) -> Metadata {
    let kept = metadata.iter().filter(|(other, _)| &***other != key);
    kept.map(|(k, v)| (Arc::clone(k), v.clone())).collect()
}

pub(crate) fn combined_hash(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, |hash: u64, next| {
        (hash.rotate_left(27) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Hashes text with its length, so that different sequences of texts have different inputs.
fn text(hasher: &mut Xxh64, text: &str) {
    hasher.update(&text.len().to_le_bytes());
    hasher.update(text.as_bytes());
}

fn hash_value(hasher: &mut Xxh64, value: &MetadataValue) {
    match value {
        MetadataValue::Null => hasher.update(&[0]),
        MetadataValue::Bool(value) => hasher.update(&[1, u8::from(*value)]),
        MetadataValue::Number(number) => {
            hasher.update(&[2]);
            hasher.update(&number.get().to_bits().to_le_bytes());
        }
        MetadataValue::String(value) => {
            hasher.update(&[3]);
            text(hasher, value);
        }
        MetadataValue::List(values) => {
            hasher.update(&[4]);
            hasher.update(&values.len().to_le_bytes());
            values.iter().for_each(|value| hash_value(hasher, value));
        }
        MetadataValue::Struct(fields) => {
            hasher.update(&[5]);
            hasher.update(&fields.iter().count().to_le_bytes());
            for (key, value) in fields.iter() {
                text(hasher, key);
                hash_value(hasher, value);
            }
        }
    }
}
