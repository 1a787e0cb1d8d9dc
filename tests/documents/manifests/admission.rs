//! The admission policy of annotations refuses what the control plane refuses, and nothing else.
//!
//! Nothing here evaluates CEL: the API server does, and refuses a policy that it cannot compile
//! (`make test-kubernetes`). What is compared is what the expressions say: lists of words, patterns
//! of numbers, and the list of all names.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_control::config::{ConfigFile, ControlConfig};
use plimsoll_control::kubernetes::Translator;
use plimsoll_core::time::Instant;
use plimsoll_kubernetes::Batch;
use plimsoll_kubernetes::inventory::Inventory;
use plimsoll_kubernetes::objects::{Resource as _, Service};
use plimsoll_kubernetes::reflector::Change;
use plimsoll_testing::repository;
use plimsoll_xds::yaml::Document;
use regex::Regex;
use serde_json::{Value, json};

/// What an expression says about the annotation that it names.
enum Check {
    Words(Vec<String>),
    Pattern(Regex),
}

fn quoted(text: &str) -> Vec<String> {
    let parts = text.split('\'').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// Returns the checks by annotation, and the names of all annotations.
fn checks() -> (BTreeMap<String, Check>, Vec<String>) {
    let path = repository().join("deploy/kubernetes/admission/policy.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let policy = text.split("\n---\n").next().unwrap();
    let policy = Document::parse(policy).unwrap().json();
    let mut checks = BTreeMap::new();
    let mut names = Vec::new();
    for validation in policy["spec"]["validations"].as_array().unwrap() {
        let expression = validation["expression"].as_str().unwrap();
        let strings = quoted(expression);
        if expression.contains("set.all(") {
            names = strings[1..].to_vec();
            continue;
        }
        let name = strings[0].clone();
        assert_eq!(name, strings[1], "{expression}");
        let message = validation["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
        let rest = strings[2..].to_vec();
        let check = if expression.contains(".matches(") {
            Check::Pattern(Regex::new(&rest[0]).unwrap())
        } else {
            Check::Words(rest)
        };
        checks.insert(name, check);
    }
    (checks, names)
}

/// Whether the control plane uses all annotations of a Service.
fn is_used(annotations: &Value) -> bool {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: "kubernetes: {api_server: 'http://127.0.0.1:1'}".to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let mut inventory = Inventory::default();
    let service = json!({
        "metadata": {"namespace": "shop", "name": "orders", "annotations": annotations},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    });
    let service = Service::from_json(serde_json::from_value(service).unwrap());
    inventory.handle_service(Change::Applied(Arc::new(service)), Instant::ORIGIN);
    let mut batch = Batch::default();
    while let Some((key, found)) = inventory.poll_changed() {
        batch.services.insert(key, found);
    }
    let mut translator = Translator::new(config.sources.kubernetes.unwrap());
    translator.handle_batch(batch).1.is_empty()
}

#[test]
fn annotations_are_admitted_if_the_control_plane_uses_them() {
    let (checks, names) = checks();
    assert_eq!(checks.len(), 6);
    let cases: Value = serde_json::from_str(include_str!("annotations.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let annotations = &case["annotations"];
        let admits = |(name, value): (&String, &Value)| {
            let value = value.as_str().unwrap();
            let is_known = !name.starts_with("plimsoll.dev/") || names.contains(name);
            let fits = checks.get(name).is_none_or(|check| match check {
                Check::Words(words) => words.iter().any(|word| word == value),
                Check::Pattern(pattern) => pattern.is_match(value),
            });
            is_known && fits
        };
        let is_admitted = annotations.as_object().unwrap().iter().all(admits);
        assert_eq!(is_admitted, case["valid"], "admission: {annotations}");
        assert_eq!(is_used(annotations), case["valid"], "use: {annotations}");
    }
}
