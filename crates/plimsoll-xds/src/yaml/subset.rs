//! Subset load balancing in YAML: `lb_subset_config` of a cluster, and `subset.v3.Subset`.
//!
//! Only names live here; what fits together is checked by the core's type of the same name. Called
//! by `cluster` for the legacy field and by `policy` for a `typed_config`.

use plimsoll_core::model::subset::{
    LbSubsetConfig, LbSubsetConfigParts, MetadataFallbackPolicy, SelectorFallbackPolicy,
    SubsetFallbackPolicy, SubsetSelectorParts,
};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::endpoint::Typed;
use super::metadata::StructYaml;
use super::policy::LoadBalancingPolicy;
use super::proto_json::{Named, ProtoEnum, Uint};

/// `Cluster.LbSubsetConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LbSubsetConfigYaml {
    /// What serves a request for which there is no subset. Default `NO_FALLBACK`.
    fallback_policy: Named<SubsetFallbackPolicy>,
    /// Metadata that a host of the default subset has. Default none, which all hosts have.
    default_subset: StructYaml,
    /// Keys by which hosts are put into subsets; without any there are no subsets at all.
    subset_selectors: Vec<LbSubsetSelectorYaml>,
    /// Subsets go by the weights of localities; needs `locality_weighted_lb_config`.
    locality_weight_aware: bool,
    /// The weight of a locality is scaled by the share of its hosts that are in the subset.
    scale_locality_weight: bool,
    /// A fallback that finds no host tries all hosts.
    panic_mode_any: bool,
    /// A list in the metadata of a host stands for each of its elements.
    list_as_any: bool,
    /// Whether `fallback_list` in the criteria of a request has further criteria to try. Default
    /// `METADATA_NO_FALLBACK`.
    metadata_fallback_policy: Named<MetadataFallbackPolicy>,
    /// Ours: at most so many subsets, 1 to 1000000. Default 10000.
    max_subsets: Option<Uint<u32>>,
}

/// `subset.v3.Subset`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SubsetYaml {
    /// What serves a request for which there is no subset. Default `NO_FALLBACK`.
    #[serde(default)]
    fallback_policy: Named<SubsetFallbackPolicy>,
    /// Metadata that a host of the default subset has. Default none, which all hosts have.
    #[serde(default)]
    default_subset: StructYaml,
    /// Keys by which hosts are put into subsets.
    #[serde(default)]
    subset_selectors: Vec<LbSubsetSelectorYaml>,
    /// Subsets go by the weights of localities.
    #[serde(default)]
    locality_weight_aware: bool,
    /// The weight of a locality is scaled by the share of its hosts that are in the subset.
    #[serde(default)]
    scale_locality_weight: bool,
    /// A fallback that finds no host tries all hosts.
    #[serde(default)]
    panic_mode_any: bool,
    /// A list in the metadata of a host stands for each of its elements.
    #[serde(default)]
    list_as_any: bool,
    /// Whether `fallback_list` in the criteria of a request has further criteria to try. Default
    /// `METADATA_NO_FALLBACK`.
    #[serde(default)]
    metadata_fallback_policy: Named<MetadataFallbackPolicy>,
    /// Criteria may have keys that no selector has.
    #[serde(default)]
    allow_redundant_keys: bool,
    /// Ours: at most so many subsets, 1 to 1000000. Default 10000.
    max_subsets: Option<Uint<u32>>,
    /// How a host is chosen within a subset.
    subset_lb_policy: LoadBalancingPolicy,
}

/// `LbSubsetSelector`, typed and legacy alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LbSubsetSelectorYaml {
    /// A host that has all of these keys is in the subset of their values.
    keys: Vec<String>,
    /// What serves a request with these keys for which there is no subset. Default `NOT_DEFINED`,
    /// which is the policy of all selectors.
    fallback_policy: Named<SelectorFallbackPolicy>,
    /// The keys that criteria are reduced to, with `KEYS_SUBSET`.
    fallback_keys_subset: Vec<String>,
    /// Every subset is one host, the first that has the values, whatever its health.
    single_host_per_subset: bool,
}

impl From<LbSubsetSelectorYaml> for SubsetSelectorParts {
    fn from(yaml: LbSubsetSelectorYaml) -> Self {
        Self {
            keys: yaml.keys,
            fallback_policy: yaml.fallback_policy.0,
            fallback_keys_subset: yaml.fallback_keys_subset,
            single_host_per_subset: yaml.single_host_per_subset,
        }
    }
}

impl LbSubsetConfigYaml {
    /// `None` without selectors: then Envoy has no subsets either. The path of an error starts
    /// inside the message.
    pub(super) fn checked(self) -> Result<Option<LbSubsetConfig>, FieldError> {
        let config = LbSubsetConfig::try_new(LbSubsetConfigParts {
            fallback_policy: self.fallback_policy.0,
            default_subset: self.default_subset.0,
            subset_selectors: self.subset_selectors.into_iter().map(Into::into).collect(),
            locality_weight_aware: self.locality_weight_aware,
            scale_locality_weight: self.scale_locality_weight,
            panic_mode_any: self.panic_mode_any,
            list_as_any: self.list_as_any,
            metadata_fallback_policy: self.metadata_fallback_policy.0,
            allow_redundant_keys: false,
            max_subsets: self.max_subsets.map(|count| count.0),
        })?;
        Ok(config.is_enabled().then_some(config))
    }
}

impl SubsetYaml {
    /// The subsets, and the policy inside each of them.
    pub(super) fn checked(self) -> Result<(LbSubsetConfig, Typed), FieldError> {
        let config = LbSubsetConfig::try_new(LbSubsetConfigParts {
            fallback_policy: self.fallback_policy.0,
            default_subset: self.default_subset.0,
            subset_selectors: self.subset_selectors.into_iter().map(Into::into).collect(),
            locality_weight_aware: self.locality_weight_aware,
            scale_locality_weight: self.scale_locality_weight,
            panic_mode_any: self.panic_mode_any,
            list_as_any: self.list_as_any,
            metadata_fallback_policy: self.metadata_fallback_policy.0,
            allow_redundant_keys: self.allow_redundant_keys,
            max_subsets: self.max_subsets.map(|count| count.0),
        })?;
        let child = self.subset_lb_policy.checked();
        let child = child.map_err(|error| error.under("subset_lb_policy"))?;
        Ok((config, child))
    }
}

impl ProtoEnum for SubsetFallbackPolicy {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("NO_FALLBACK", 0, Self::NoFallback),
        ("ANY_ENDPOINT", 1, Self::AnyEndpoint),
        ("DEFAULT_SUBSET", 2, Self::DefaultSubset),
    ];
}

impl ProtoEnum for SelectorFallbackPolicy {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("NOT_DEFINED", 0, Self::NotDefined),
        ("NO_FALLBACK", 1, Self::NoFallback),
        ("ANY_ENDPOINT", 2, Self::AnyEndpoint),
        ("DEFAULT_SUBSET", 3, Self::DefaultSubset),
        ("KEYS_SUBSET", 4, Self::KeysSubset),
    ];
}

impl ProtoEnum for MetadataFallbackPolicy {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("METADATA_NO_FALLBACK", 0, Self::NoFallback),
        ("FALLBACK_LIST", 1, Self::FallbackList),
    ];
}
