//! What cases about subsets say, and its translation: metadata, settings, hosts by priority and
//! locality.

use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::model::subset::{
    LbSubsetConfigParts, MetadataFallbackPolicy, SelectorFallbackPolicy, SubsetFallbackPolicy,
    SubsetSelectorParts,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::vectors::CaseError;

/// Fields of a `google.protobuf.Struct`.
pub(super) type Json = Map<String, Value>;

/// Metadata of JSON.
pub(super) fn metadata(fields: &Json) -> Result<Metadata, CaseError> {
    let pairs = fields.iter();
    pairs
        .map(|(key, json)| Ok((&**key, value(json)?)))
        .collect()
}

/// A value of JSON.
pub(super) fn value(json: &Value) -> Result<MetadataValue, CaseError> {
    Ok(match json {
        Value::Null => MetadataValue::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            MetadataValue::number(number)?
        }
        Value::String(text) => (&**text).into(),
        Value::Array(values) => {
            let values = values.iter().map(value);
            MetadataValue::list(values.collect::<Result<Vec<_>, CaseError>>()?)
        }
        Value::Object(fields) => metadata(fields)?.into(),
    })
}

/// The same value as JSON.
pub(super) fn to_json(value: &MetadataValue) -> Value {
    match value {
        MetadataValue::Null => Value::Null,
        MetadataValue::Bool(value) => json!(value),
        MetadataValue::Number(number) => json!(number.get()),
        MetadataValue::String(text) => json!(&**text),
        MetadataValue::List(values) => values.iter().map(to_json).collect(),
        MetadataValue::Struct(fields) => fields_to_json(fields),
    }
}

/// The same metadata as JSON.
pub(super) fn fields_to_json(fields: &Metadata) -> Value {
    let pairs = fields.iter();
    let fields: Map<String, Value> = pairs.map(|(k, v)| (k.to_string(), to_json(v))).collect();
    Value::Object(fields)
}

/// `lb_subset_config`, spelled as in the protobuf messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SubsetConfig {
    fallback_policy: ClusterFallback,
    default_subset: Json,
    subset_selectors: Vec<Selector>,
    locality_weight_aware: bool,
    scale_locality_weight: bool,
    panic_mode_any: bool,
    list_as_any: bool,
    metadata_fallback_policy: MetadataFallback,
    allow_redundant_keys: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Selector {
    keys: Vec<String>,
    fallback_policy: SelectorFallback,
    fallback_keys_subset: Vec<String>,
    single_host_per_subset: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ClusterFallback {
    #[default]
    NoFallback,
    AnyEndpoint,
    DefaultSubset,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum SelectorFallback {
    #[default]
    NotDefined,
    NoFallback,
    AnyEndpoint,
    DefaultSubset,
    KeysSubset,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum MetadataFallback {
    #[default]
    MetadataNoFallback,
    FallbackList,
}

impl SubsetConfig {
    /// The settings, unchecked.
    pub(super) fn parts(&self) -> Result<LbSubsetConfigParts, CaseError> {
        Ok(LbSubsetConfigParts {
            fallback_policy: match self.fallback_policy {
                ClusterFallback::NoFallback => SubsetFallbackPolicy::NoFallback,
                ClusterFallback::AnyEndpoint => SubsetFallbackPolicy::AnyEndpoint,
                ClusterFallback::DefaultSubset => SubsetFallbackPolicy::DefaultSubset,
            },
            default_subset: metadata(&self.default_subset)?,
            subset_selectors: self.subset_selectors.iter().map(Selector::parts).collect(),
            locality_weight_aware: self.locality_weight_aware,
            scale_locality_weight: self.scale_locality_weight,
            panic_mode_any: self.panic_mode_any,
            list_as_any: self.list_as_any,
            metadata_fallback_policy: match self.metadata_fallback_policy {
                MetadataFallback::MetadataNoFallback => MetadataFallbackPolicy::NoFallback,
                MetadataFallback::FallbackList => MetadataFallbackPolicy::FallbackList,
            },
            allow_redundant_keys: self.allow_redundant_keys,
            max_subsets: None,
        })
    }
}

impl Selector {
    fn parts(&self) -> SubsetSelectorParts {
        SubsetSelectorParts {
            keys: self.keys.clone(),
            fallback_policy: match self.fallback_policy {
                SelectorFallback::NotDefined => SelectorFallbackPolicy::NotDefined,
                SelectorFallback::NoFallback => SelectorFallbackPolicy::NoFallback,
                SelectorFallback::AnyEndpoint => SelectorFallbackPolicy::AnyEndpoint,
                SelectorFallback::DefaultSubset => SelectorFallbackPolicy::DefaultSubset,
                SelectorFallback::KeysSubset => SelectorFallbackPolicy::KeysSubset,
            },
            fallback_keys_subset: self.fallback_keys_subset.clone(),
            single_host_per_subset: self.single_host_per_subset,
        }
    }
}

/// One priority, or the proxy's own cluster: hosts of one locality, or of several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PriorityInput {
    pub(super) hosts: Option<Vec<HostInput>>,
    pub(super) localities: Option<Vec<LocalityInput>>,
    pub(super) has_local_locality: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LocalityInput {
    pub(super) zone: String,
    pub(super) weight: Option<u32>,
    pub(super) hosts: Vec<HostInput>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostInput {
    pub(super) id: String,
    pub(super) metadata: Option<Json>,
    #[serde(default)]
    pub(super) health: Health,
    /// In an add list: where it is.
    pub(super) zone: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Health {
    #[default]
    Healthy,
    Degraded,
    Unhealthy,
}

impl PriorityInput {
    /// Its localities; hosts without one are in one of their own.
    pub(super) fn into_localities(self) -> Vec<LocalityInput> {
        let single = self.hosts.map(|hosts| LocalityInput {
            hosts,
            ..LocalityInput::default()
        });
        let localities = self.localities.into_iter().flatten();
        single.into_iter().chain(localities).collect()
    }
}
