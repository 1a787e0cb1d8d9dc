//! Tests that schemas and parsers agree: they accept every example of the repository, and no copy
//! of one with an unknown field.

mod defaults;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use jsonschema::Validator;
use plimsoll_xds::yaml::Document;

use super::*;
use crate::check::Kind;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const fn kind(subject: Subject) -> Kind {
    match subject {
        Subject::Control => Kind::Control,
        Subject::Proxy => Kind::Proxy,
        Subject::Cluster => Kind::Cluster,
        Subject::Explain => Kind::Explain,
        Subject::Sim => Kind::Sim,
    }
}

fn validator(subject: Subject) -> Validator {
    jsonschema::validator_for(&subject.schema()).unwrap()
}

/// Returns the validation errors of a value.
fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn yaml(text: &str) -> Value {
    Document::parse(text).unwrap().read().unwrap()
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns every file in a directory that one of our parsers reads.
fn examples(directory: &str) -> Vec<(String, Subject, Value)> {
    let mut paths = Vec::new();
    files(&Path::new(ROOT).join(directory), &mut paths);
    paths.sort();
    let mut examples = Vec::new();
    for path in paths {
        let ending = path.extension().unwrap_or_default().to_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let value = match ending.to_str() {
            Some("yaml") => yaml(&text),
            Some("toml") => toml::from_str(&text).unwrap(),
            _ => continue,
        };
        let found = Kind::recognize(&path, &text);
        let subject = Subject::value_variants()
            .iter()
            .copied()
            .find(|subject| Some(kind(*subject)) == found.as_ref().ok().copied());
        if let Some(subject) = subject {
            examples.push((path.display().to_string(), subject, value));
        }
    }
    examples
}

#[test]
fn every_example_is_valid() {
    let mut all = examples("examples");
    all.extend(examples("crates/plimsoll-sim/scenarios"));
    let mut checked = [0; 5];
    for (path, subject, value) in all {
        // Bootstraps for Envoy use fields that our proxy does not support.
        if path.contains("/envoy-") {
            continue;
        }
        let errors = errors(&validator(subject), &value);
        assert!(errors.is_empty(), "{path}: {errors:#?}");
        checked[subject as usize] += 1;
    }
    assert!(
        checked[Subject::Control as usize] > 1 && checked[Subject::Proxy as usize] > 1,
        "{checked:?}"
    );
    assert!(checked[Subject::Explain as usize] > 20 && checked[Subject::Sim as usize] > 5);
}

#[test]
fn configurations_in_manifests_are_valid() {
    let mut checked = 0;
    let mut paths = Vec::new();
    files(&Path::new(ROOT).join("deploy/kubernetes"), &mut paths);
    for path in paths {
        let subject = match path.file_name().and_then(|name| name.to_str()) {
            Some("control.yaml") => Subject::Control,
            Some("proxy.yaml") => Subject::Proxy,
            _ => continue,
        };
        let text = fs::read_to_string(&path).unwrap();
        let errors = errors(&validator(subject), &yaml(&text));
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
        checked += 1;
    }
    assert!(checked > 4, "only {checked} found");
}

/// Returns copies of a value, each with an unknown field in one object, and that object's path.
fn with_unknown_field(value: &Value, at: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    match value {
        Value::Object(object) => {
            let mut changed_here = object.clone();
            changed_here.insert("no_such_field".to_owned(), json!(1));
            all.push((at.to_owned(), changed_here.into()));
            for (key, inner) in object {
                for (path, changed) in with_unknown_field(inner, &format!("{at}.{key}")) {
                    let mut object = object.clone();
                    object.insert(key.clone(), changed);
                    all.push((path, object.into()));
                }
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                for (path, changed) in with_unknown_field(inner, &format!("{at}[{index}]")) {
                    let mut list = list.clone();
                    list[index] = changed;
                    all.push((path, list.into()));
                }
            }
        }
        _ => {}
    }
    all
}

/// Whether the parser of a subject accepts a text.
fn is_accepted(subject: Subject, text: &str) -> bool {
    match subject {
        Subject::Control => {
            let file = plimsoll_control::config::ConfigFile {
                name: "x".to_owned(),
                text: text.to_owned(),
            };
            plimsoll_control::config::ControlConfig::parse(&file, &[]).is_ok()
        }
        Subject::Proxy => plimsoll_proxy::config::ProxyConfig::parse(text).is_ok(),
        other => kind(other).check(Path::new("x"), text).is_ok(),
    }
}

/// JSON is YAML, so every parser but the one for TOML can read a value back.
#[test]
fn schema_and_parser_reject_unknown_fields() {
    let mut tried = 0;
    for (path, subject, value) in examples("examples") {
        let text = value.to_string();
        if subject == Subject::Sim || !is_accepted(subject, &text) {
            continue;
        }
        let validator = validator(subject);
        for (place, value) in with_unknown_field(&value, "") {
            // These fields are maps with arbitrary keys.
            let maps = ["json_format", "metadata", "subset"];
            if maps.iter().any(|field| place.contains(field)) {
                continue;
            }
            let accepted = is_accepted(subject, &value.to_string());
            let valid = validator.is_valid(&value);
            assert_eq!(accepted, valid, "{path}: unknown field at {place:?}");
            tried += 1;
        }
    }
    assert!(tried > 200, "only {tried} places");
}

#[test]
fn values_of_wrong_types_are_rejected() {
    for (subject, text, place) in [
        (
            Subject::Control,
            "demand: {missed_intervals: true}",
            "/demand/missed_intervals",
        ),
        (
            Subject::Control,
            "load_reporting: {interval: 10}",
            "/load_reporting/interval",
        ),
        (
            Subject::Control,
            "load_reporting: {interval: soon}",
            "/load_reporting/interval",
        ),
        (
            Subject::Cluster,
            "{name: a, lb_policy: FASTEST}",
            "/lb_policy",
        ),
        (Subject::Proxy, "node: {id: [1]}", "/node/id"),
    ] {
        let errors = errors(&validator(subject), &yaml(text));
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].starts_with(&format!("{place}: ")), "{errors:?}");
        assert!(!is_accepted(subject, text), "{text}");
    }
    for (subject, text) in [
        (Subject::Control, "demand: {missed_intervals: '3'}"),
        (Subject::Control, "load_reporting: {interval: 0.5s}"),
        (Subject::Cluster, "{name: a, lb_policy: 1}"),
    ] {
        let errors = errors(&validator(subject), &yaml(text));
        assert!(errors.is_empty(), "{text}: {errors:?}");
    }
}

#[test]
fn schemas_have_no_null_and_short_names() {
    for subject in Subject::value_variants() {
        let schema = subject.schema();
        assert!(!schema.to_string().contains("null"), "{subject:?}");
        let names = schema["$defs"].as_object().unwrap().keys();
        let long: Vec<_> = names.filter(|name| name.contains("Yaml")).collect();
        assert!(long.is_empty(), "{subject:?}: {long:?}");
    }
}
