//! `kind.subset_config` and `kind.cluster_config`: subset settings, parsed and validated by
//! production code.

use plimsoll_core::model::subset::{SelectorFallbackPolicy, SubsetFallbackPolicy, SubsetSelector};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inputs::{Json, cluster_of, fields_to_json, subset_cluster};
use crate::policies::{NAME, policy};
use crate::{CaseError, CaseResult};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsetConfigInputs {
    config: Json,
    child_policies: Option<Vec<String>>,
}

/// Parts of Plimsoll's error messages, and the names of the errors in cases.
const ERRORS: [(&str, &str); 9] = [
    (
        "may be set only with fallback_policy KEYS_SUBSET",
        "fallback_keys_subset_without_keys_subset",
    ),
    (
        "must not be empty with fallback_policy KEYS_SUBSET",
        "fallback_keys_subset_empty",
    ),
    (
        "is not one of the keys of the selector",
        "fallback_keys_subset_not_in_keys",
    ),
    (
        "must not be all keys of the selector",
        "fallback_keys_subset_equals_keys",
    ),
    ("typed_config.subset_lb_policy", "child_policy_unknown"),
    ("CLUSTER_PROVIDED", "cluster_provided_with_lb_subset_config"),
    (
        "needs common_lb_config.locality_weighted_lb_config",
        "locality_weight_aware_without_locality_weighted_lb_config",
    ),
    (
        "cannot be combined with load_balancing_policy",
        "load_balancing_policy_with_lb_subset_config",
    ),
    (
        "load_balancing_policy: must be set",
        "load_balancing_policy_missing",
    ),
];

/// Maps an error message to its name in cases; other messages are shown unchanged. An unknown key
/// is an error of the case itself.
fn refused(error: &str) -> CaseResult {
    if error.contains("unknown field") {
        return Err(CaseError::inputs(error));
    }
    let known = ERRORS.iter().find(|(words, _)| error.contains(words));
    let name = known.map_or(error, |(_, name)| name);
    Ok(json!({"result": "error", "error": name}).into())
}

pub(super) fn subset_config(inputs: SubsetConfigInputs) -> CaseResult {
    let round_robin = || vec![format!("{NAME}round_robin")];
    let children = inputs.child_policies.unwrap_or_else(round_robin);
    let cluster = match subset_cluster(inputs.config, &children) {
        Ok(cluster) => cluster,
        Err(error) => return refused(&error),
    };
    let Some(checked) = cluster.lb_subset_config() else {
        return refused("the cluster has no subsets");
    };
    let selectors: Vec<_> = checked.subset_selectors().iter().map(selector).collect();
    Ok(json!({
        "result": "ok",
        "enabled": checked.is_enabled(),
        "fallback_policy": fallback(checked.fallback_policy()),
        "default_subset": fields_to_json(checked.default_subset()),
        "subset_selectors": selectors,
        "child": format!("{NAME}{}", cluster.endpoint_policy().name()),
    })
    .into())
}

const fn fallback(policy: SubsetFallbackPolicy) -> &'static str {
    match policy {
        SubsetFallbackPolicy::NoFallback => "NO_FALLBACK",
        SubsetFallbackPolicy::AnyEndpoint => "ANY_ENDPOINT",
        SubsetFallbackPolicy::DefaultSubset => "DEFAULT_SUBSET",
    }
}

fn selector(selector: &SubsetSelector) -> Value {
    let texts = |keys: &[std::sync::Arc<str>]| -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    };
    json!({
        "keys": texts(selector.keys()),
        "fallback_policy": match selector.fallback_policy() {
            SelectorFallbackPolicy::NotDefined => "NOT_DEFINED",
            SelectorFallbackPolicy::NoFallback => "NO_FALLBACK",
            SelectorFallbackPolicy::AnyEndpoint => "ANY_ENDPOINT",
            SelectorFallbackPolicy::DefaultSubset => "DEFAULT_SUBSET",
            SelectorFallbackPolicy::KeysSubset => "KEYS_SUBSET",
        },
        "fallback_keys_subset": texts(selector.fallback_keys_subset()),
        "single_host_per_subset": selector.single_host_per_subset(),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterInputs {
    lb_policy: Option<String>,
    #[serde(default)]
    load_balancing_policy: bool,
    lb_subset_config: Option<Json>,
    #[serde(default)]
    locality_weighted_lb_config: bool,
}

pub(super) fn cluster_config(inputs: ClusterInputs) -> CaseResult {
    let mut cluster = json!({"name": "case"});
    if let Some(lb_policy) = inputs.lb_policy {
        cluster["lb_policy"] = lb_policy.into();
    }
    if inputs.load_balancing_policy {
        let name = format!("{NAME}round_robin");
        let policies = json!({"policies": [policy(&name, &name, Map::new())]});
        cluster["load_balancing_policy"] = policies;
    }
    if let Some(config) = inputs.lb_subset_config {
        cluster["lb_subset_config"] = config.into();
    }
    if inputs.locality_weighted_lb_config {
        cluster["common_lb_config"] = json!({"locality_weighted_lb_config": {}});
    }
    match cluster_of(&cluster) {
        Ok(cluster) => {
            let policy = match cluster.lb_subset_config() {
                Some(_) => "subset",
                None => cluster.endpoint_policy().name(),
            };
            Ok(json!({"result": "ok", "policy": policy}).into())
        }
        Err(error) => refused(&error),
    }
}
