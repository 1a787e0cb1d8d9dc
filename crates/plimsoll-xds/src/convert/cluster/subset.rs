//! Subset load balancing to and from bytes: `lb_subset_config` of a cluster, and `subset.v3.Subset`
//! around another policy.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::subset::{
    LbSubsetConfig, LbSubsetConfigParts, MetadataFallbackPolicy, SelectorFallbackPolicy,
    SubsetFallbackPolicy, SubsetSelectorParts,
};
use plimsoll_core::units::FieldError;

use super::super::metadata::{decode_struct, encode_struct};
use super::super::pb::policy::PolicyMessage;
use super::super::pb::refuse;
use super::super::pb::subset::{SubsetMessage, SubsetSelectorMessage};
use super::decode_policy::{Typed, choice, load_balancing_policy};
use super::encode_policy::list;
use crate::subset::check_legacy;

/// `lb_subset_config` around the legacy policy `locality` belongs to. `None` without selectors:
/// then Envoy has no subsets either. The path of an error starts inside the message.
pub(super) fn legacy(
    message: &SubsetMessage,
    locality: Option<&LocalityPolicy>,
) -> Result<Option<LbSubsetConfig>, FieldError> {
    // Fields of the policy, which have no meaning here.
    refuse(&[
        ("subset_lb_policy", message.subset_lb_policy.is_some()),
        ("allow_redundant_keys", message.allow_redundant_keys),
    ])?;
    let config = LbSubsetConfig::try_new(parts(message.clone())?)?;
    if !config.is_enabled() {
        return Ok(None);
    }
    check_legacy(&config, locality)?;
    Ok(Some(config))
}

/// `subset.v3.Subset`: the subsets, and the policy inside each of them.
pub(super) fn typed(mut message: SubsetMessage) -> Result<(LbSubsetConfig, Typed), FieldError> {
    let child = message.subset_lb_policy.take();
    let config = LbSubsetConfig::try_new(parts(message)?)?;
    let child = load_balancing_policy(&child.unwrap_or_default(), None);
    let child = child.map_err(|error| error.under("subset_lb_policy"))?;
    Ok((config, child))
}

fn parts(message: SubsetMessage) -> Result<LbSubsetConfigParts, FieldError> {
    let default_subset = decode_struct(message.default_subset.unwrap_or_default());
    let selectors = message.subset_selectors.into_iter().enumerate();
    let selectors = selectors.map(|(index, message)| {
        let place = format!("subset_selectors[{index}]");
        selector(message).map_err(|error| error.under(&place))
    });
    Ok(LbSubsetConfigParts {
        fallback_policy: choice(message.fallback_policy, &FALLBACKS, "fallback_policy")?,
        default_subset: default_subset.map_err(|error| error.under("default_subset"))?,
        subset_selectors: selectors.collect::<Result<_, _>>()?,
        locality_weight_aware: message.locality_weight_aware,
        scale_locality_weight: message.scale_locality_weight,
        panic_mode_any: message.panic_mode_any,
        list_as_any: message.list_as_any,
        metadata_fallback_policy: choice(
            message.metadata_fallback_policy,
            &METADATA_FALLBACKS,
            "metadata_fallback_policy",
        )?,
        allow_redundant_keys: message.allow_redundant_keys,
        max_subsets: message.max_subsets,
    })
}

fn selector(message: SubsetSelectorMessage) -> Result<SubsetSelectorParts, FieldError> {
    let fallback = message.fallback_policy;
    Ok(SubsetSelectorParts {
        keys: message.keys,
        fallback_policy: choice(fallback, &SELECTOR_FALLBACKS, "fallback_policy")?,
        fallback_keys_subset: message.fallback_keys_subset,
        single_host_per_subset: message.single_host_per_subset,
    })
}

/// `subset.v3.Subset` with `child` inside each subset; `own` for plimsoll data planes.
pub(super) fn encode(config: &LbSubsetConfig, child: PolicyMessage, own: bool) -> SubsetMessage {
    let parts = config.parts();
    let selectors = parts.subset_selectors.iter();
    SubsetMessage {
        fallback_policy: number(parts.fallback_policy, &FALLBACKS),
        default_subset: (!parts.default_subset.is_empty())
            .then(|| encode_struct(&parts.default_subset)),
        subset_selectors: selectors.map(encode_selector).collect(),
        locality_weight_aware: parts.locality_weight_aware,
        scale_locality_weight: parts.scale_locality_weight,
        panic_mode_any: parts.panic_mode_any,
        list_as_any: parts.list_as_any,
        metadata_fallback_policy: number(parts.metadata_fallback_policy, &METADATA_FALLBACKS),
        subset_lb_policy: Some(list(vec![child])),
        allow_redundant_keys: parts.allow_redundant_keys,
        max_subsets: parts.max_subsets.filter(|_| own),
    }
}

fn encode_selector(parts: &SubsetSelectorParts) -> SubsetSelectorMessage {
    SubsetSelectorMessage {
        keys: parts.keys.clone(),
        fallback_policy: number(parts.fallback_policy, &SELECTOR_FALLBACKS),
        fallback_keys_subset: parts.fallback_keys_subset.clone(),
        single_host_per_subset: parts.single_host_per_subset,
    }
}

/// The number of a value is its place in the list.
fn number<T: PartialEq>(value: T, values: &[T]) -> i32 {
    let place = values.iter().position(|other| *other == value);
    place.and_then(|place| place.try_into().ok()).unwrap_or(0)
}

const FALLBACKS: [SubsetFallbackPolicy; 3] = [
    SubsetFallbackPolicy::NoFallback,
    SubsetFallbackPolicy::AnyEndpoint,
    SubsetFallbackPolicy::DefaultSubset,
];

const SELECTOR_FALLBACKS: [SelectorFallbackPolicy; 5] = [
    SelectorFallbackPolicy::NotDefined,
    SelectorFallbackPolicy::NoFallback,
    SelectorFallbackPolicy::AnyEndpoint,
    SelectorFallbackPolicy::DefaultSubset,
    SelectorFallbackPolicy::KeysSubset,
];

const METADATA_FALLBACKS: [MetadataFallbackPolicy; 2] = [
    MetadataFallbackPolicy::NoFallback,
    MetadataFallbackPolicy::FallbackList,
];
