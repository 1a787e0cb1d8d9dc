//! [`LbSubsetConfig`]: how hosts are divided into subsets by their metadata, and which hosts serve
//! a request for which there is no subset (Envoy's `lb_subset_config`, and the policy
//! `envoy.load_balancing_policies.subset`).
//!
//! Settings only: subsets are built in `balancer`, looked up in `picker`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::metadata::Metadata;
use crate::units::FieldError;

/// Subsets of a cluster unless `max_subsets` says otherwise. Envoy has no limit; metadata comes
/// from a management server, and every subset costs memory in the writer and in each worker.
pub const DEFAULT_MAX_SUBSETS: u32 = 10_000;
/// The highest `max_subsets`.
pub const HIGHEST_MAX_SUBSETS: u32 = 1_000_000;

/// `fallback_policy`: which hosts serve a request for which there is no subset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubsetFallbackPolicy {
    /// None: the request fails.
    #[default]
    NoFallback,
    /// All hosts of the cluster.
    AnyEndpoint,
    /// The hosts that have the metadata of `default_subset`.
    DefaultSubset,
}

/// `subset_selectors[].fallback_policy`: the same for requests with the keys of one selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelectorFallbackPolicy {
    /// What the cluster's `fallback_policy` says.
    #[default]
    NotDefined,
    /// None: the request fails.
    NoFallback,
    /// All hosts of the cluster.
    AnyEndpoint,
    /// The hosts that have the metadata of `default_subset`.
    DefaultSubset,
    /// Whoever serves the request if only its `fallback_keys_subset` are looked at.
    KeysSubset,
}

/// `metadata_fallback_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataFallbackPolicy {
    /// `METADATA_NO_FALLBACK`: the criteria of a request are tried as they are.
    #[default]
    NoFallback,
    /// `FALLBACK_LIST`: each entry of the key `fallback_list` is tried over the other criteria,
    /// until there is a host.
    FallbackList,
}

/// `subset_selectors[]`, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsetSelectorParts {
    /// Keys, in any order. A selector without keys is passed over, as in Envoy.
    pub keys: Vec<String>,
    /// Who serves requests with these keys for which there is no subset.
    pub fallback_policy: SelectorFallbackPolicy,
    /// With `KEYS_SUBSET` only: some of the keys, but not all.
    pub fallback_keys_subset: Vec<String>,
    /// Each subset is one host, whatever its health.
    pub single_host_per_subset: bool,
}

/// `lb_subset_config`, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbSubsetConfigParts {
    /// Who serves a request for which there is no subset.
    pub fallback_policy: SubsetFallbackPolicy,
    /// Metadata of the hosts of the default subset; empty = every host.
    pub default_subset: Metadata,
    /// The sets of keys by which hosts are divided.
    pub subset_selectors: Vec<SubsetSelectorParts>,
    /// Subsets see the weights of localities.
    pub locality_weight_aware: bool,
    /// These weights shrink with the share of a locality's hosts that are in the subset.
    pub scale_locality_weight: bool,
    /// All hosts are tried when the fallback finds none.
    pub panic_mode_any: bool,
    /// A list in a host's metadata stands for each of its elements.
    pub list_as_any: bool,
    /// Whether a request may bring alternatives.
    pub metadata_fallback_policy: MetadataFallbackPolicy,
    /// Criteria beyond the keys of a selector are ignored (the policy extension only).
    pub allow_redundant_keys: bool,
    /// At most so many subsets; default [`DEFAULT_MAX_SUBSETS`].
    pub max_subsets: Option<u32>,
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

    /// Keys, sorted, each once.
    pub fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    /// Who serves requests with these keys for which there is no subset, as configured. Whether it
    /// counts is said by [`LbSubsetConfig::fallback_of`].
    pub const fn fallback_policy(&self) -> SelectorFallbackPolicy {
        self.fallback_policy
    }

    /// The keys that `KEYS_SUBSET` keeps, sorted, each once.
    pub fn fallback_keys_subset(&self) -> &[Arc<str>] {
        &self.fallback_keys_subset
    }

    /// Whether each subset is one host.
    pub const fn single_host_per_subset(&self) -> bool {
        self.single_host_per_subset
    }
}

fn sorted(keys: Vec<String>) -> Arc<[Arc<str>]> {
    let keys: BTreeSet<String> = keys.into_iter().collect();
    keys.into_iter().map(Arc::from).collect()
}

/// `lb_subset_config`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbSubsetConfig {
    parts: LbSubsetConfigParts,
    selectors: Vec<SubsetSelector>,
    /// Selectors whose fallback counts.
    fallbacks: Vec<usize>,
    max_subsets: u32,
}

impl LbSubsetConfig {
    /// Checks the settings.
    pub fn try_new(parts: LbSubsetConfigParts) -> Result<Self, FieldError> {
        let max_subsets = parts.max_subsets.unwrap_or(DEFAULT_MAX_SUBSETS);
        if !(1..=HIGHEST_MAX_SUBSETS).contains(&max_subsets) {
            let reason = format!("{max_subsets} is not between 1 and {HIGHEST_MAX_SUBSETS}");
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
            // The longest that a request has all keys of is used; of equal ones the earlier.
            selectors.sort_by_key(|selector| std::cmp::Reverse(selector.keys.len()));
        }
        Ok(Self {
            fallbacks: fallbacks(&selectors),
            selectors,
            max_subsets,
            parts,
        })
    }

    /// Whether subsets are in force: at least one selector is configured, with keys or without.
    pub const fn is_enabled(&self) -> bool {
        !self.parts.subset_selectors.is_empty()
    }

    /// What was checked, for who writes it out again.
    pub const fn parts(&self) -> &LbSubsetConfigParts {
        &self.parts
    }

    /// Who serves a request for which there is no subset.
    pub const fn fallback_policy(&self) -> SubsetFallbackPolicy {
        self.parts.fallback_policy
    }

    /// Metadata of the hosts of the default subset.
    pub const fn default_subset(&self) -> &Metadata {
        &self.parts.default_subset
    }

    /// The selectors that have keys; with `allow_redundant_keys` the longest first.
    pub fn subset_selectors(&self) -> &[SubsetSelector] {
        &self.selectors
    }

    /// Whether subsets see the weights of localities.
    pub const fn locality_weight_aware(&self) -> bool {
        self.parts.locality_weight_aware
    }

    /// Whether these weights shrink with the share of hosts.
    pub const fn scale_locality_weight(&self) -> bool {
        self.parts.scale_locality_weight
    }

    /// Whether all hosts are tried when the fallback finds none.
    pub const fn panic_mode_any(&self) -> bool {
        self.parts.panic_mode_any
    }

    /// Whether a list in a host's metadata stands for each of its elements.
    pub const fn list_as_any(&self) -> bool {
        self.parts.list_as_any
    }

    /// Whether a request may bring alternatives.
    pub const fn metadata_fallback_policy(&self) -> MetadataFallbackPolicy {
        self.parts.metadata_fallback_policy
    }

    /// Whether criteria beyond the keys of a selector are ignored.
    pub const fn allow_redundant_keys(&self) -> bool {
        self.parts.allow_redundant_keys
    }

    /// At most so many subsets.
    pub const fn max_subsets(&self) -> u32 {
        self.max_subsets
    }

    /// The selector whose fallback counts for a request with exactly these keys (sorted).
    pub fn fallback_of<'k>(
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

/// Envoy enters selectors in order into a tree of their sorted keys and records a fallback only
/// where the last key makes a new node: a selector whose keys are those of an earlier one, or the
/// first keys of an earlier one, has none of its own.
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
