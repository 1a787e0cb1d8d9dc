//! `kind.config`: settings of a case, parsed by the parser of cluster files, so that the rules for
//! child policies and ranges are those of production.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::yaml::parse_cluster;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::compare::Outcome;
use crate::policies::{NAME, cluster_with, message, policy};
use crate::translate::millis;
use crate::{Case, CaseError, CaseResult};

/// A policy of Envoy's tests whose settings Envoy refuses with this text.
const FAILING_CHILD: &str = "test.child_with_failing_load_config";
const FAILING_CHILD_ERROR: &str = "failing child loadConfig";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigInputs {
    proto: ProtoInput,
}

/// Message of the policy; keys that the case omits are unset.
#[derive(Debug, Deserialize)]
struct ProtoInput {
    #[serde(default)]
    children: Vec<ChildInput>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildInput {
    name: String,
    /// Whether the content of the child's message does not match its type.
    #[serde(default)]
    malformed: bool,
}

/// Known fields of the message: an unknown key must not pass as the error that a case expects.
const FIELDS: [&str; 8] = [
    "enable_oob_load_report",
    "metric_names_for_computing_utilization",
    "oob_reporting_period_ms",
    "remote_probe_fraction",
    "smoothing_time_constant_ms",
    "utilization_variance_threshold",
    "weight_expiration_period_ms",
    "weight_update_period_ms",
];

pub(super) fn run(case: &Case, inputs: ConfigInputs) -> CaseResult {
    let mut names = inputs.proto.fields.keys();
    if let Some(name) = names.find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(CaseError::inputs(format!("unknown field `{name}`")));
    }
    let negative = |(name, value): (&String, &Value)| {
        name.ends_with("_ms") && value.as_f64().is_some_and(|millis| millis < 0.0)
    };
    let negative = inputs.proto.fields.iter().any(negative);
    match parse_cluster(&inputs.proto.cluster().to_string()) {
        Ok(config) => {
            let outcome = json!({"result": "ok", "derived": derived(&config)?});
            Ok(Outcome::from(outcome).partial(&["derived"]))
        }
        Err(error) => {
            // Envoy throws an exception for negative durations and returns a status for other
            // errors; Plimsoll returns an error for both.
            let result = if negative { "throw" } else { "error" };
            let message = error.to_string();
            let contains = case
                .expected
                .get("message_contains")
                .and_then(Value::as_str)
                .filter(|part| message.contains(part))
                .unwrap_or(&message);
            Ok(json!({"result": result, "message_contains": contains}).into())
        }
    }
}

/// Returns the effective settings, of which cases compare some.
fn derived(config: &ClusterConfig) -> Result<Value, CaseError> {
    let settings = config
        .load_aware_locality()
        .ok_or_else(|| CaseError::inputs("the cluster has another policy"))?;
    let expiration = settings.weight_expiration_period().unwrap_or_default();
    Ok(json!({
        "weight_update_period_ms": millis(settings.weight_update_period()),
        "utilization_variance_threshold": settings.utilization_variance_threshold(),
        "ewma_alpha": settings.alpha(),
        "smoothing_time_constant_ms": millis(settings.smoothing_time_constant()),
        "remote_probe_fraction": settings.remote_probe_fraction(),
        "weight_expiration_period_ms": millis(expiration),
        "child": format!("{NAME}{}", config.endpoint_policy().name()),
    }))
}

impl ProtoInput {
    fn cluster(self) -> Value {
        let mut message = message(self.fields);
        let children: Vec<Value> = self.children.iter().map(ChildInput::policy).collect();
        let children = json!({"policies": children});
        message.insert("endpoint_picking_policy".into(), children);
        let own = format!("{NAME}load_aware_locality");
        cluster_with(policy(&own, &own, message))
    }
}

impl ChildInput {
    fn policy(&self) -> Value {
        let mut message = Map::new();
        if self.malformed {
            message.insert("malformed".into(), true.into());
        }
        if self.name == FAILING_CHILD {
            let stand_in = format!("{NAME}least_request");
            message.insert("selection_method".into(), FAILING_CHILD_ERROR.into());
            return policy(&self.name, &stand_in, message);
        }
        policy(&self.name, &self.name, message)
    }
}
