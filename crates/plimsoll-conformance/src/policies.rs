//! Policies in the format of a cluster file, so that the settings of cases are parsed and validated
//! by production code. A case names a policy; a cluster file names its message type.

use serde_json::{Map, Value, json};

/// Prefix of extension names of policies.
pub(super) const NAME: &str = "envoy.load_balancing_policies.";
const PACKAGE: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";

/// Converts a message of a case, whose durations have the unit in the field name.
pub(super) fn message(proto: Map<String, Value>) -> Map<String, Value> {
    let field = |(name, value): (String, Value)| match (name.strip_suffix("_ms"), value.as_f64()) {
        (Some(name), Some(millis)) => (name.to_owned(), format!("{:.9}s", millis / 1000.0).into()),
        _ => (name, value),
    };
    proto.into_iter().map(field).collect()
}

/// Creates an entry of `policies`: with this name, this message, and the message type of the policy
/// `of`.
pub(super) fn policy(name: &str, of: &str, mut message: Map<String, Value>) -> Value {
    message.insert("@type".into(), type_url(of).into());
    json!({"typed_extension_config": {"name": name, "typed_config": message}})
}

pub(super) fn cluster_with(policy: Value) -> Value {
    json!({"name": "case", "load_balancing_policy": {"policies": [policy]}})
}

/// Returns the message type of a policy: `round_robin` has `round_robin.v3.RoundRobin`.
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
