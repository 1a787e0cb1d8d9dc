//! JSON Schemas of the files that people write, for editors and for the reference.
//!
//! They are derived where files are read; here they get a title, short names for their messages,
//! and lose the null that our readers refuse. Printed by `cmd::schema`, turned into pages by
//! `reference`.

use std::collections::BTreeMap;

use plimsoll_sim::ScenarioParts;
use plimsoll_xds::yaml::UpstreamClusterYaml;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::scenario;

/// What a schema is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// File of `plimsoll control`, and files that it includes.
    Control,
    /// File of `plimsoll proxy`.
    Proxy,
    /// One cluster in Envoy's YAML.
    Cluster,
    /// Scenario of `plimsoll explain`.
    Explain,
    /// Scenario of `plimsoll sim` (TOML).
    Sim,
}

impl Subject {
    /// For people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Control => "The file of the control plane",
            Self::Proxy => "The file of the proxy",
            Self::Cluster => "A cluster",
            Self::Explain => "A scenario of explain",
            Self::Sim => "A scenario of sim",
        }
    }

    /// Its schema.
    pub(crate) fn schema(self) -> Value {
        let schema = match self {
            Self::Control => plimsoll_control::config::schema(),
            Self::Proxy => plimsoll_proxy::config::schema(),
            Self::Cluster => schema_for!(UpstreamClusterYaml),
            Self::Explain => scenario::schema(),
            Self::Sim => schema_for!(ScenarioParts),
        };
        let mut schema = schema.to_value();
        without_null(&mut schema);
        shorten_names(&mut schema);
        schema["title"] = json!(self.title());
        schema
    }
}

/// Where schemas stand in a schema: by name, in a list, or alone.
const BY_NAME: [&str; 2] = ["properties", "$defs"];
const IN_A_LIST: [&str; 2] = ["anyOf", "oneOf"];
const ALONE: [&str; 2] = ["items", "additionalProperties"];

/// Calls `change` for every schema inside a schema.
fn inside(schema: &mut Map<String, Value>, mut change: impl FnMut(&mut Value)) {
    for key in BY_NAME {
        if let Some(Value::Object(named)) = schema.get_mut(key) {
            named.values_mut().for_each(&mut change);
        }
    }
    for key in IN_A_LIST {
        if let Some(Value::Array(list)) = schema.get_mut(key) {
            list.iter_mut().for_each(&mut change);
        }
    }
    for key in ALONE {
        if let Some(alone) = schema.get_mut(key) {
            change(alone);
        }
    }
}

/// Takes null out: a field without a value is refused by our readers, and TOML has none.
fn without_null(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    for key in ["type", "enum"] {
        if let Some(Value::Array(list)) = schema.get_mut(key) {
            list.retain(|one| *one != json!("null") && !one.is_null());
        }
    }
    if let Some(Value::Array(types)) = schema.get("type")
        && let [one] = types.as_slice()
    {
        let one = one.clone();
        schema.insert("type".to_owned(), one);
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| *choice != json!({ "type": "null" }));
        if let [Value::Object(one)] = choices.as_slice() {
            let one = one.clone();
            schema.remove("anyOf");
            schema.extend(one.into_iter().filter(|(key, _)| key != "description"));
        }
    }
    inside(schema, without_null);
}

/// Endings of Rust names that tell nobody anything.
const ENDINGS: [&str; 4] = ["Yaml", "Fields", "Message", "Parts"];

/// Gives messages their names in Envoy where that is not ambiguous.
fn shorten_names(schema: &mut Value) {
    let Some(Value::Object(definitions)) = schema.get_mut("$defs") else {
        return;
    };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for long in definitions.keys() {
        let short = ENDINGS.iter().find_map(|ending| long.strip_suffix(ending));
        let taken = |short: &str| {
            definitions.contains_key(short) || names.values().any(|name| name == short)
        };
        let name = short.filter(|short| !taken(short)).unwrap_or(long);
        names.insert(long.clone(), name.to_owned());
    }
    let old = std::mem::take(definitions);
    definitions.extend(old.into_iter().map(|(long, value)| {
        let name = names.get(&long).cloned().unwrap_or(long);
        (name, value)
    }));
    rename_references(schema, &names);
}

fn rename_references(schema: &mut Value, names: &BTreeMap<String, String>) {
    let Value::Object(schema) = schema else {
        return;
    };
    if let Some(Value::String(reference)) = schema.get_mut("$ref")
        && let Some(name) = reference.strip_prefix("#/$defs/")
        && let Some(name) = names.get(name)
    {
        *reference = format!("#/$defs/{name}");
    }
    inside(schema, |schema| rename_references(schema, names));
}

#[cfg(test)]
mod tests;
