//! JSON Schemas of configuration files and scenarios, for editors and for the reference.
//!
//! The schemas are derived from the types that read the files. This module adds a title, shortens
//! the names of messages, and removes `null`, which the parsers reject. Printed by `cmd::schema`,
//! converted to pages by `reference`.

use std::collections::BTreeMap;

use plimsoll_sim::ScenarioParts;
use plimsoll_xds::yaml::ClusterYaml;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::scenario;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Configuration of `plimsoll control`, and of files that it includes.
    Control,
    /// Configuration of `plimsoll proxy`.
    Proxy,
    /// One cluster in Envoy's YAML.
    Cluster,
    /// Scenario of `plimsoll explain`.
    Explain,
    /// Scenario of `plimsoll sim` (TOML).
    Sim,
}

impl Subject {
    /// Title of the schema and of the reference page.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Control => "Control plane configuration",
            Self::Proxy => "Proxy configuration",
            Self::Cluster => "Cluster configuration",
            Self::Explain => "Explain scenario",
            Self::Sim => "Simulator scenario",
        }
    }

    pub(crate) fn schema(self) -> Value {
        let schema = match self {
            Self::Control => plimsoll_control::config::schema(),
            Self::Proxy => plimsoll_proxy::config::schema(),
            Self::Cluster => schema_for!(ClusterYaml),
            Self::Explain => scenario::schema(),
            Self::Sim => schema_for!(ScenarioParts),
        };
        let mut schema = schema.to_value();
        remove_null(&mut schema);
        shorten_names(&mut schema);
        schema["title"] = json!(self.title());
        schema
    }
}

/// Keywords of JSON Schema whose values are schemas: by name, in a list, or a single one.
const BY_NAME: [&str; 2] = ["properties", "$defs"];
const IN_A_LIST: [&str; 2] = ["anyOf", "oneOf"];
const SINGLE: [&str; 2] = ["items", "additionalProperties"];

/// Calls `change` for every direct subschema.
fn for_each_subschema(schema: &mut Map<String, Value>, mut change: impl FnMut(&mut Value)) {
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
    for key in SINGLE {
        if let Some(single) = schema.get_mut(key) {
            change(single);
        }
    }
}

/// Removes the type `null`: the parsers reject a field without a value, and TOML has no null.
fn remove_null(schema: &mut Value) {
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
    for_each_subschema(schema, remove_null);
}

/// Suffixes of Rust type names that are removed from the names of messages.
const SUFFIXES: [&str; 4] = ["Yaml", "Fields", "Message", "Parts"];

/// Renames messages to their names in Envoy, unless two messages would get the same name.
fn shorten_names(schema: &mut Value) {
    let Some(Value::Object(definitions)) = schema.get_mut("$defs") else {
        return;
    };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for long in definitions.keys() {
        let short = SUFFIXES.iter().find_map(|suffix| long.strip_suffix(suffix));
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
    for_each_subschema(schema, |schema| rename_references(schema, names));
}

#[cfg(test)]
mod tests;
