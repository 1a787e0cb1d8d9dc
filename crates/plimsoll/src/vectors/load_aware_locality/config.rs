//! `kind.config`: a message as cases write it, through the reader of cluster files.
//!
//! The case becomes the JSON of a cluster, so that the rules about children and ranges are those of
//! production. Cases name a child policy; a file names its message, whose name follows from it.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::yaml::parse_cluster;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::millis;
use crate::vectors::compare::Outcome;
use crate::vectors::{Case, CaseError};

/// Names of policies, and packages of their messages, start with these.
const NAME: &str = "envoy.load_balancing_policies.";
const PACKAGE: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";

/// A policy of Envoy's tests whose own settings are refused with this text.
const FAILING_CHILD: &str = "test.child_with_failing_load_config";
const FAILING_CHILD_SAYS: &str = "failing child loadConfig";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigInputs {
    proto: ProtoInput,
}

/// The message; keys that are left out are unset.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProtoInput {
    weight_update_period_ms: Option<f64>,
    smoothing_time_constant_ms: Option<f64>,
    weight_expiration_period_ms: Option<f64>,
    oob_reporting_period_ms: Option<f64>,
    utilization_variance_threshold: Option<Value>,
    remote_probe_fraction: Option<Value>,
    metric_names_for_computing_utilization: Option<Value>,
    enable_oob_load_report: Option<Value>,
    children: Vec<ChildInput>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildInput {
    name: String,
    /// Its message does not hold what its type says.
    #[serde(default)]
    malformed: bool,
}

pub(super) fn run(case: &Case, inputs: ConfigInputs) -> Result<Outcome, CaseError> {
    let negative = inputs.proto.durations().any(|(_, millis)| millis < 0.0);
    let text = inputs.proto.cluster().to_string();
    match parse_cluster(&text) {
        Ok(config) => Ok(Outcome::default()
            .exact("result", "ok")
            .exact("derived", derived(case, &config)?)),
        Err(error) => {
            // Envoy refuses a negative duration by an exception, the rest by a status; here both
            // are an error.
            let result = if negative { "throw" } else { "error" };
            let message = error.to_string();
            let wanted = case.expected.get("message_contains");
            let found = wanted.and_then(Value::as_str);
            let found = found.filter(|wanted| message.contains(wanted));
            Ok(Outcome::default()
                .exact("result", result)
                .exact("message_contains", found.unwrap_or(&message)))
        }
    }
}

/// What the settings came to; cases list what they are about.
fn derived(case: &Case, config: &ClusterConfig) -> Result<Value, CaseError> {
    let settings = config.load_aware_locality();
    let settings = settings.ok_or_else(|| CaseError::inputs("another policy was read"))?;
    let expiration = settings.weight_expiration_period().unwrap_or_default();
    let mut all = json!({
        "weight_update_period_ms": millis(settings.weight_update_period()),
        "utilization_variance_threshold": settings.utilization_variance_threshold(),
        "ewma_alpha": settings.alpha(),
        "smoothing_time_constant_ms": millis(settings.smoothing_time_constant()),
        "remote_probe_fraction": settings.remote_probe_fraction(),
        "weight_expiration_period_ms": millis(expiration),
        "child": format!("{NAME}{}", config.endpoint_policy().name()),
    });
    let listed = case.expected.get("derived").and_then(Value::as_object);
    if let (Some(all), Some(listed)) = (all.as_object_mut(), listed) {
        all.retain(|key, _| listed.contains_key(key));
    }
    Ok(all)
}

impl ProtoInput {
    /// The durations that are set, in milliseconds.
    fn durations(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("weight_update_period", self.weight_update_period_ms),
            ("smoothing_time_constant", self.smoothing_time_constant_ms),
            ("weight_expiration_period", self.weight_expiration_period_ms),
            ("oob_reporting_period", self.oob_reporting_period_ms),
        ]
        .into_iter()
        .filter_map(|(field, millis)| millis.map(|millis| (field, millis)))
    }

    /// A cluster with this policy.
    fn cluster(self) -> Value {
        let mut message = Map::new();
        for (field, millis) in self.durations() {
            message.insert(field.into(), format!("{:.9}s", millis / 1000.0).into());
        }
        let others = [
            (
                "utilization_variance_threshold",
                self.utilization_variance_threshold,
            ),
            ("remote_probe_fraction", self.remote_probe_fraction),
            (
                "metric_names_for_computing_utilization",
                self.metric_names_for_computing_utilization,
            ),
            ("enable_oob_load_report", self.enable_oob_load_report),
        ];
        for (field, value) in others {
            message.extend(value.map(|value| (field.to_owned(), value)));
        }
        let children: Vec<Value> = self.children.iter().map(ChildInput::policy).collect();
        message.insert(
            "endpoint_picking_policy".into(),
            json!({"policies": children}),
        );
        let own = format!("{NAME}load_aware_locality");
        json!({
            "name": "case",
            "load_balancing_policy": {"policies": [policy(&own, &own, message)]},
        })
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
            message.insert("selection_method".into(), FAILING_CHILD_SAYS.into());
            return policy(&self.name, &stand_in, message);
        }
        policy(&self.name, &self.name, message)
    }
}

/// An entry of a list of policies: its own name, the policy whose message it holds, the message.
fn policy(name: &str, of: &str, mut message: Map<String, Value>) -> Value {
    message.insert("@type".into(), type_url(of).into());
    json!({"typed_extension_config": {"name": name, "typed_config": message}})
}

/// The message of a policy: `round_robin` has `round_robin.v3.RoundRobin`.
fn type_url(name: &str) -> String {
    let Some(snake) = name.strip_prefix(NAME) else {
        return format!("type.googleapis.com/{name}");
    };
    let capital = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => String::new(),
    };
    let camel: String = snake.split('_').map(capital).collect();
    format!("{PACKAGE}.{snake}.v3.{camel}")
}
