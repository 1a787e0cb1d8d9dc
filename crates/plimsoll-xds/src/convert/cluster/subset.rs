//! Decoding and encoding of subset load balancing: `lb_subset_config` of a cluster, and the policy
//! `subset.v3.Subset`.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::subset::{LbSubsetConfig, LbSubsetConfigParts, SubsetSelectorParts};
use plimsoll_core::units::FieldError;

use super::super::{Strictness, named, number};
use super::decode_policy::{Policies, load_balancing_policy};
use super::encode_policy::list;
use plimsoll_schema::metadata::{decode_struct, encode_struct};
use plimsoll_schema::pb::policy::PolicyMessage;
use plimsoll_schema::pb::refuse_set;
use plimsoll_schema::pb::subset::{SubsetMessage, SubsetSelectorMessage};

/// Returns `None` without selectors, as in Envoy. Error paths start inside the message.
pub(super) fn legacy(
    message: &SubsetMessage,
    locality: Option<&LocalityPolicy>,
) -> Result<Option<LbSubsetConfig>, FieldError> {
    // Fields of the policy message, which have no meaning in `lb_subset_config`.
    refuse_set(&[
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

pub(super) fn typed(
    mut message: SubsetMessage,
    strictness: Strictness,
) -> Result<(LbSubsetConfig, Policies), FieldError> {
    let child = message.subset_lb_policy.take();
    let config = LbSubsetConfig::try_new(parts(message)?)?;
    let child = load_balancing_policy(&child.unwrap_or_default(), strictness)
        .map_err(|error| error.under("subset_lb_policy"))?;
    Ok((config, child))
}

fn parts(message: SubsetMessage) -> Result<LbSubsetConfigParts, FieldError> {
    let default_subset = decode_struct(message.default_subset.unwrap_or_default());
    let selectors = message
        .subset_selectors
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            let place = format!("subset_selectors[{index}]");
            selector(message).map_err(|error| error.under(&place))
        });
    Ok(LbSubsetConfigParts {
        fallback_policy: named(message.fallback_policy, "fallback_policy")?,
        default_subset: default_subset.map_err(|error| error.under("default_subset"))?,
        subset_selectors: selectors.collect::<Result<_, _>>()?,
        locality_weight_aware: message.locality_weight_aware,
        scale_locality_weight: message.scale_locality_weight,
        panic_mode_any: message.panic_mode_any,
        list_as_any: message.list_as_any,
        metadata_fallback_policy: named(
            message.metadata_fallback_policy,
            "metadata_fallback_policy",
        )?,
        allow_redundant_keys: message.allow_redundant_keys,
        max_subsets: message.max_subsets,
        _non_exhaustive: (),
    })
}

fn selector(message: SubsetSelectorMessage) -> Result<SubsetSelectorParts, FieldError> {
    let fallback = message.fallback_policy;
    Ok(SubsetSelectorParts {
        keys: message.keys,
        fallback_policy: named(fallback, "fallback_policy")?,
        fallback_keys_subset: message.fallback_keys_subset,
        single_host_per_subset: message.single_host_per_subset,
        _non_exhaustive: (),
    })
}

/// Encodes `subset.v3.Subset` around `child`, with Plimsoll's extension fields if `own`.
/// Encodes the settings, with the policies of subsets in the order of preference.
pub(super) fn encode(
    config: &LbSubsetConfig,
    policies: Vec<PolicyMessage>,
    own: bool,
) -> SubsetMessage {
    let parts = config.parts();
    let selectors = parts.subset_selectors.iter();
    SubsetMessage {
        fallback_policy: number(parts.fallback_policy),
        default_subset: (!parts.default_subset.is_empty())
            .then(|| encode_struct(&parts.default_subset)),
        subset_selectors: selectors.map(encode_selector).collect(),
        locality_weight_aware: parts.locality_weight_aware,
        scale_locality_weight: parts.scale_locality_weight,
        panic_mode_any: parts.panic_mode_any,
        list_as_any: parts.list_as_any,
        metadata_fallback_policy: number(parts.metadata_fallback_policy),
        subset_lb_policy: Some(list(policies)),
        allow_redundant_keys: parts.allow_redundant_keys,
        max_subsets: parts.max_subsets.filter(|_| own),
    }
}

fn encode_selector(parts: &SubsetSelectorParts) -> SubsetSelectorMessage {
    SubsetSelectorMessage {
        keys: parts.keys.clone(),
        fallback_policy: number(parts.fallback_policy),
        fallback_keys_subset: parts.fallback_keys_subset.clone(),
        single_host_per_subset: parts.single_host_per_subset,
    }
}

/// Checks the requirements of `lb_subset_config` on the legacy policy; the typed policy has none.
/// Error paths start inside the message.
fn check_legacy(
    config: &LbSubsetConfig,
    locality: Option<&LocalityPolicy>,
) -> Result<(), FieldError> {
    let weighted = matches!(locality, Some(LocalityPolicy::LocalityWeighted));
    if config.locality_weight_aware() && !weighted {
        let reason = "needs common_lb_config.locality_weighted_lb_config";
        return Err(FieldError::new("locality_weight_aware", reason));
    }
    Ok(())
}
