//! `kind.subset_config` and `kind.cluster_config`: settings as production reads and checks them.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::subset::{
    LbSubsetConfig, SelectorFallbackPolicy, SubsetFallbackPolicy, SubsetSelector,
};
use plimsoll_xds::yaml::parse_cluster;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inputs::{Json, SubsetConfig, fields_to_json};
use crate::vectors::CaseError;
use crate::vectors::compare::Outcome;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsetConfigInputs {
    config: Json,
    child_policies: Option<Vec<String>>,
}

/// Words of our errors, and what the cases call them.
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
    ("subset_lb_policy", "child_policy_unknown"),
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

/// What the cases call an error; one they have no word for is shown as it is.
fn refused(error: &str) -> Outcome {
    let known = ERRORS.iter().find(|(words, _)| error.contains(words));
    let name = known.map_or(error, |(_, name)| name);
    Outcome::default()
        .exact("result", "error")
        .exact("error", name)
}

pub(super) fn subset_config(inputs: SubsetConfigInputs) -> Result<Outcome, CaseError> {
    // Read once more for its own sake: keys nobody knows are refused here.
    let config = SubsetConfig::deserialize(Value::Object(inputs.config.clone()));
    let config = config.map_err(|error| CaseError::inputs(error.to_string()))?;
    let checked = match LbSubsetConfig::try_new(config.parts()?) {
        Ok(checked) => checked,
        Err(error) => return Ok(refused(&error.to_string())),
    };
    let outcome = Outcome::default()
        .exact("result", "ok")
        .exact("enabled", checked.is_enabled())
        .exact("fallback_policy", fallback(checked.fallback_policy()))
        .exact("default_subset", fields_to_json(checked.default_subset()))
        .exact(
            "subset_selectors",
            checked
                .subset_selectors()
                .iter()
                .map(selector)
                .collect::<Vec<_>>(),
        );
    let Some(children) = inputs.child_policies else {
        return Ok(outcome);
    };
    let mut typed = inputs.config;
    let policies: Vec<Value> = children
        .iter()
        .map(|name| policy(name, Map::new()))
        .collect();
    typed.insert("subset_lb_policy".into(), json!({"policies": policies}));
    let subset = policy("envoy.load_balancing_policies.subset", typed);
    let cluster = json!({"name": "case", "load_balancing_policy": {"policies": [subset]}});
    Ok(match cluster_of(&cluster) {
        Ok(cluster) => {
            let child = cluster.endpoint_policy().name();
            outcome.exact("child", format!("envoy.load_balancing_policies.{child}"))
        }
        Err(error) => refused(&error),
    })
}

fn cluster_of(cluster: &Value) -> Result<ClusterConfig, String> {
    parse_cluster(&cluster.to_string()).map_err(|error| error.to_string())
}

/// One entry of a list of policies, with its type and settings.
fn policy(name: &str, mut settings: Json) -> Value {
    let word = name.rsplit('.').next().unwrap_or(name);
    let message: String = word
        .split('_')
        .flat_map(|part| {
            let mut letters = part.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<Vec<_>>()
        })
        .collect();
    let url =
        format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{word}.v3.{message}");
    settings.insert("@type".into(), url.into());
    json!({"typed_extension_config": {"name": name, "typed_config": settings}})
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

pub(super) fn cluster_config(inputs: ClusterInputs) -> Result<Outcome, CaseError> {
    let mut cluster = Map::from_iter([("name".to_owned(), json!("case"))]);
    if let Some(lb_policy) = inputs.lb_policy {
        cluster.insert("lb_policy".into(), lb_policy.into());
    }
    if inputs.load_balancing_policy {
        let round_robin = policy("envoy.load_balancing_policies.round_robin", Map::new());
        let policies = json!({"policies": [round_robin]});
        cluster.insert("load_balancing_policy".into(), policies);
    }
    if let Some(config) = inputs.lb_subset_config {
        // Keys nobody knows are refused as inputs, not as settings.
        SubsetConfig::deserialize(Value::Object(config.clone()))
            .map_err(|error| CaseError::inputs(error.to_string()))?;
        cluster.insert("lb_subset_config".into(), Value::Object(config));
    }
    if inputs.locality_weighted_lb_config {
        let weighted = json!({"locality_weighted_lb_config": {}});
        cluster.insert("common_lb_config".into(), weighted);
    }
    Ok(match cluster_of(&Value::Object(cluster)) {
        Ok(cluster) => {
            let policy = match cluster.lb_subset_config() {
                Some(_) => "subset",
                None => cluster.endpoint_policy().name(),
            };
            Outcome::default()
                .exact("result", "ok")
                .exact("policy", policy)
        }
        Err(error) => refused(&error),
    })
}
