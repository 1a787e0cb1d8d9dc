//! [`LbSubsetConfig`]: division of hosts into subsets by metadata, and the fallback of requests
//! that match no subset (Envoy's `lb_subset_config`, and the policy
//! `envoy.load_balancing_policies.subset`).
//!
//! Settings only: `balancer` builds subsets, `picker` looks them up.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::metadata::Metadata;
use crate::units::FieldError;

/// Default of `max_subsets`. Envoy has no limit; but metadata comes from a management server, and
/// every subset costs memory in the writer and in each worker.
pub const DEFAULT_MAX_SUBSETS: u32 = 10_000;
/// Largest allowed value of `max_subsets`.
pub const MAX_SUBSETS_LIMIT: u32 = 1_000_000;

/// `fallback_policy`: the hosts that serve a request without matching subset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubsetFallbackPolicy {
    #[default]
    NoFallback,
    AnyEndpoint,
    /// The hosts that match the metadata of `default_subset`.
    DefaultSubset,
}

/// `subset_selectors[].fallback_policy`: the fallback of requests with the keys of one selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelectorFallbackPolicy {
    /// The cluster's `fallback_policy` applies.
    #[default]
    NotDefined,
    NoFallback,
    AnyEndpoint,
    DefaultSubset,
    /// The subset that matches if only the keys in `fallback_keys_subset` are considered.
    KeysSubset,
}

/// Whether requests may carry alternative criteria (`metadata_fallback_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataFallbackPolicy {
    /// `METADATA_NO_FALLBACK`: the criteria of a request are tried as they are.
    #[default]
    NoFallback,
    /// `FALLBACK_LIST`: tries the entries of `fallback_list`, each merged over the other criteria.
    FallbackList,
}

/// An entry of `subset_selectors`, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsetSelectorParts {
    /// Keys in any order. A selector without keys is ignored, as in Envoy.
    pub keys: Vec<String>,
    pub fallback_policy: SelectorFallbackPolicy,
    /// With `KEYS_SUBSET` only: a proper subset of the keys.
    pub fallback_keys_subset: Vec<String>,
    pub single_host_per_subset: bool,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The message `lb_subset_config`, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbSubsetConfigParts {
    pub fallback_policy: SubsetFallbackPolicy,
    /// Metadata of the default subset; empty = every host.
    pub default_subset: Metadata,
    pub subset_selectors: Vec<SubsetSelectorParts>,
    pub locality_weight_aware: bool,
    /// Locality weights are scaled by the share of the locality's hosts that are in the subset.
    pub scale_locality_weight: bool,
    pub panic_mode_any: bool,
    pub list_as_any: bool,
    pub metadata_fallback_policy: MetadataFallbackPolicy,
    /// Criteria beyond the keys of a selector are ignored (policy extension only).
    pub allow_redundant_keys: bool,
    /// `None` stands for [`DEFAULT_MAX_SUBSETS`].
    pub max_subsets: Option<u32>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// A set of keys by which hosts are divided, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsetSelector {
    keys: Arc<[Arc<str>]>,
    fallback_policy: SelectorFallbackPolicy,
    fallback_keys_subset: Arc<[Arc<str>]>,
    single_host_per_subset: bool,
}

impl SubsetSelector {
    fn try_new(parts: SubsetSelectorParts) -> Result<Self, FieldError> {
        let keys = sorted(parts.keys);
        let fallback_keys_subset = sorted(parts.fallback_keys_subset);
        let refuse = |reason: &str| Err(FieldError::new("fallback_keys_subset", reason));
        if parts.fallback_policy != SelectorFallbackPolicy::KeysSubset {
            if !fallback_keys_subset.is_empty() {
                return refuse("may be set only with fallback_policy KEYS_SUBSET");
            }
        } else if fallback_keys_subset.is_empty() {
            return refuse("must not be empty with fallback_policy KEYS_SUBSET");
        } else if let Some(other) = fallback_keys_subset.iter().find(|key| !keys.contains(*key)) {
            return refuse(&format!("{other:?} is not one of the keys of the selector"));
        } else if keys.len() == fallback_keys_subset.len() {
            return refuse("must not be all keys of the selector: it would fall back to itself");
        }
        Ok(Self {
            keys,
            fallback_policy: parts.fallback_policy,
            fallback_keys_subset,
            single_host_per_subset: parts.single_host_per_subset,
        })
    }

    getters! {
        /// Keys, sorted and distinct.
        keys: &[Arc<str>],
        /// Fallback of requests with these keys, as configured.
        /// [`LbSubsetConfig::fallback_selector`] tells whether it applies.
        fallback_policy: SelectorFallbackPolicy,
        /// Keys that `KEYS_SUBSET` keeps, sorted and distinct.
        fallback_keys_subset: &[Arc<str>],
        /// Whether each subset is a single host.
        single_host_per_subset: bool,
    }
}

fn sorted(keys: Vec<String>) -> Arc<[Arc<str>]> {
    let keys: BTreeSet<String> = keys.into_iter().collect();
    keys.into_iter().map(Arc::from).collect()
}

/// The message `lb_subset_config`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbSubsetConfig {
    parts: LbSubsetConfigParts,
    selectors: Vec<SubsetSelector>,
    /// Indexes of the selectors whose fallback applies.
    fallbacks: Vec<usize>,
    max_subsets: u32,
}

impl LbSubsetConfig {
    /// Checks the settings and sorts the selectors.
    pub fn try_new(parts: LbSubsetConfigParts) -> Result<Self, FieldError> {
        let max_subsets = parts.max_subsets.unwrap_or(DEFAULT_MAX_SUBSETS);
        if !(1..=MAX_SUBSETS_LIMIT).contains(&max_subsets) {
            let reason = format!("{max_subsets} is not between 1 and {MAX_SUBSETS_LIMIT}");
            return Err(FieldError::new("max_subsets", reason));
        }
        let mut selectors = Vec::with_capacity(parts.subset_selectors.len());
        for (index, selector) in parts.subset_selectors.iter().enumerate() {
            if selector.keys.is_empty() {
                continue;
            }
            let selector = SubsetSelector::try_new(selector.clone())
                .map_err(|error| error.under(&format!("subset_selectors[{index}]")))?;
            selectors.push(selector);
        }
        if parts.allow_redundant_keys {
            // The longest selector whose keys the request all has is used; among equals the first.
            selectors.sort_by_key(|selector| std::cmp::Reverse(selector.keys.len()));
        }
        Ok(Self {
            fallbacks: fallbacks(&selectors),
            selectors,
            max_subsets,
            parts,
        })
    }

    /// Whether subsets are in use: at least one selector is configured, with keys or without.
    pub const fn is_enabled(&self) -> bool {
        !self.parts.subset_selectors.is_empty()
    }

    /// Returns the settings as configured, for encoding them again.
    pub const fn parts(&self) -> &LbSubsetConfigParts {
        &self.parts
    }

    /// Returns the fallback of requests without matching subset.
    pub const fn fallback_policy(&self) -> SubsetFallbackPolicy {
        self.parts.fallback_policy
    }

    /// Returns the metadata of the default subset.
    pub const fn default_subset(&self) -> &Metadata {
        &self.parts.default_subset
    }

    /// Returns the selectors that have keys; with `allow_redundant_keys` the longest first.
    pub fn subset_selectors(&self) -> &[SubsetSelector] {
        &self.selectors
    }

    /// Whether locality weights apply within subsets.
    pub const fn locality_weight_aware(&self) -> bool {
        self.parts.locality_weight_aware
    }

    /// Whether locality weights are scaled by the share of hosts in the subset.
    pub const fn scale_locality_weight(&self) -> bool {
        self.parts.scale_locality_weight
    }

    /// Whether all hosts are tried if the fallback finds none.
    pub const fn panic_mode_any(&self) -> bool {
        self.parts.panic_mode_any
    }

    /// Whether a list in a host's metadata matches each of its elements.
    pub const fn list_as_any(&self) -> bool {
        self.parts.list_as_any
    }

    /// Returns whether requests may carry alternative criteria.
    pub const fn metadata_fallback_policy(&self) -> MetadataFallbackPolicy {
        self.parts.metadata_fallback_policy
    }

    /// Whether criteria beyond the keys of a selector are ignored.
    pub const fn allow_redundant_keys(&self) -> bool {
        self.parts.allow_redundant_keys
    }

    /// Returns the largest allowed number of subsets.
    pub const fn max_subsets(&self) -> u32 {
        self.max_subsets
    }

    /// Returns the selector whose fallback applies to a request with exactly these sorted keys.
    pub fn fallback_selector<'k>(
        &self,
        keys: impl Iterator<Item = &'k str> + Clone,
    ) -> Option<&SubsetSelector> {
        let mut counting = self.fallbacks.iter().map(|&index| &self.selectors[index]);
        counting.find(|selector| selector.keys().iter().map(|key| &**key).eq(keys.clone()))
    }

    /// Whether some request can be served by all hosts of the cluster.
    pub fn uses_any_endpoint(&self) -> bool {
        self.parts.panic_mode_any
            || self.parts.fallback_policy == SubsetFallbackPolicy::AnyEndpoint
            || self.some_selector_falls_back_to(SelectorFallbackPolicy::AnyEndpoint)
    }

    /// Whether some request can be served by the default subset.
    pub fn uses_default_subset(&self) -> bool {
        self.parts.fallback_policy == SubsetFallbackPolicy::DefaultSubset
            || self.some_selector_falls_back_to(SelectorFallbackPolicy::DefaultSubset)
    }

    fn some_selector_falls_back_to(&self, policy: SelectorFallbackPolicy) -> bool {
        let mut counting = self.fallbacks.iter();
        counting.any(|&index| self.selectors[index].fallback_policy == policy)
    }
}

/// Selectors whose fallback applies. Envoy records a fallback only if a selector's sorted keys
/// create a new node in its tree: not if they equal, or are a prefix of, those of an earlier one.
fn fallbacks(selectors: &[SubsetSelector]) -> Vec<usize> {
    let mut nodes: BTreeSet<&[Arc<str>]> = BTreeSet::new();
    let mut counting = Vec::new();
    for (index, selector) in selectors.iter().enumerate() {
        let keys = selector.keys();
        let mut new = false;
        for end in 1..=keys.len() {
            new = nodes.insert(&keys[..end]);
        }
        if new {
            counting.push(index);
        }
    }
    counting
}

#[cfg(test)]
mod tests;
