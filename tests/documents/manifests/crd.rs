//! The custom resource has a structural schema, and its values are those of the control file.

use std::process::Command;

use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use super::built::{all, list};

/// Returns the schema of the only version, with field names in snake_case.
fn schema() -> Value {
    let all = all();
    let definition = all[0].of("CustomResourceDefinition").next().unwrap();
    let versions = list(&definition["spec"]["versions"]);
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0]["name"], "v1alpha1");
    assert_eq!(versions[0]["subresources"], json!({"status": {}}));
    versions[0]["schema"]["open_a_p_i_v3_schema"].clone()
}

/// The rules of structural schemas (KEP-1693): every node has a type, lists have items, objects
/// have properties or explicitly keep unknown fields, and nothing refers elsewhere.
fn assert_structural(schema: &Value, path: &str) -> usize {
    for forbidden in ["$ref", "definitions", "deprecated", "unique_items"] {
        assert!(schema.get(forbidden).is_none(), "{path}: {forbidden}");
    }
    let Some(kind) = schema["type"].as_str() else {
        panic!("{path} has no type");
    };
    let documented = schema["description"].is_string() || !path.starts_with(".spec.");
    assert!(
        documented,
        "{path} has no description: kubectl explain shows it"
    );
    let mut nodes = 1;
    match kind {
        "object" => {
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let properties = schema["properties"].as_object();
            assert!(
                open || properties.is_some() || path == ".metadata",
                "{path}"
            );
            for required in list(&schema["required"]) {
                let known = properties.is_some_and(|all| {
                    let name = required.as_str().unwrap();
                    all.contains_key(name) || all.contains_key(&snake(name))
                });
                assert!(known, "{path}: required {required} does not exist");
            }
            for (name, inner) in properties.into_iter().flatten() {
                nodes += assert_structural(inner, &format!("{path}.{name}"));
            }
        }
        "array" => {
            let bounded = schema["max_items"].is_u64();
            assert!(bounded, "{path}: CEL needs a bound of its cost");
            assert!(schema["x-kubernetes-list-type"].is_string(), "{path}");
            nodes += assert_structural(&schema["items"], &format!("{path}[]"));
        }
        "string" | "integer" | "number" | "boolean" => {}
        other => panic!("{path}: {other} is not a type of ours"),
    }
    nodes
}

fn snake(name: &str) -> String {
    let mut all = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            all.push('_');
        }
        all.extend(letter.to_lowercase());
    }
    all
}

#[test]
fn the_schema_is_structural() {
    let nodes = assert_structural(&schema(), "");
    assert!(nodes > 30, "only {nodes} nodes found");
}

/// `FLEET_WEIGHTS` as users of Kubernetes write it: `FleetWeights`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_lowercase())
    };
    name.split('_').map(word).collect()
}

#[test]
fn modes_and_deliveries_are_those_of_the_control_file() {
    let output = Command::new(plimsoll())
        .args(["schema", "control"])
        .output()
        .unwrap();
    let control: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spec = schema()["properties"]["spec"]["properties"].clone();
    for field in ["mode", "delivery"] {
        let mut expected: Vec<String> = values(&control, field)
            .iter()
            .map(|one| camel(one))
            .collect();
        let mut found: Vec<String> = list(&spec[field]["enum"])
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{field}");
    }
    assert_eq!(spec["ramp"]["minimum"], 0);
    assert_eq!(spec["ramp"]["maximum"], 100);
}

/// Returns the values of a field of a service in the JSON Schema of control files.
fn values(schema: &Value, field: &str) -> Vec<String> {
    let definitions = schema["$defs"].as_object().unwrap();
    let service = &definitions["Service"]["properties"][field];
    let mut found = Vec::new();
    strings(&resolved(schema, service), schema, &mut found);
    assert!(found.len() >= 3, "{field}: {service}");
    found
}

fn resolved(schema: &Value, value: &Value) -> Value {
    match value["$ref"].as_str() {
        Some(path) => schema
            .pointer(path.trim_start_matches('#'))
            .unwrap()
            .clone(),
        None => value.clone(),
    }
}

/// Collects `enum` and `const` below a schema, following references.
fn strings(value: &Value, schema: &Value, found: &mut Vec<String>) {
    let values = list(&value["enum"]).iter().chain(value.get("const"));
    found.extend(values.filter_map(|one| one.as_str().map(str::to_owned)));
    for inner in ["oneOf", "anyOf", "allOf"]
        .iter()
        .flat_map(|key| list(&value[*key]))
    {
        strings(&resolved(schema, inner), schema, found);
    }
}
