//! Schemas and readers take the same files: every example of the repository, and none with a field
//! that nobody knows.

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

/// What the schema finds wrong with a value.
fn complaints(validator: &Validator, value: &Value) -> Vec<String> {
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn yaml(text: &str) -> Value {
    Document::parse(text).unwrap().read().unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Every file of a folder that is read by us: its text as a value, and what it is.
fn examples(folder: &str) -> Vec<(String, Subject, Value)> {
    let mut paths = Vec::new();
    files(&Path::new(ROOT).join(folder), &mut paths);
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
        let subject = Subject::value_variants().iter();
        let subject = subject.copied().find(|one| Some(kind(*one)) == found);
        if let Some(subject) = subject {
            examples.push((path.display().to_string(), subject, value));
        }
    }
    examples
}

#[test]
fn every_example_is_as_its_schema_says() {
    let mut all = examples("examples");
    all.extend(examples("crates/plimsoll-sim/scenarios"));
    let mut checked = [0; 5];
    for (path, subject, value) in all {
        // The files of stock Envoys have what our proxy lacks.
        if path.contains("/envoy-") {
            continue;
        }
        let complaints = complaints(&validator(subject), &value);
        assert!(complaints.is_empty(), "{path}: {complaints:#?}");
        checked[subject as usize] += 1;
    }
    assert!(
        checked[Subject::Control as usize] > 1 && checked[Subject::Proxy as usize] > 1,
        "{checked:?}: have the examples moved?"
    );
    assert!(checked[Subject::Explain as usize] > 20 && checked[Subject::Sim as usize] > 5);
}

#[test]
fn configurations_of_manifests_are_as_their_schema_says() {
    let mut checked = 0;
    let mut paths = Vec::new();
    files(&Path::new(ROOT).join("deploy/kubernetes"), &mut paths);
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for document in text.split("\n---\n") {
            let manifest = yaml(document);
            let Some(data) = manifest["data"].as_object() else {
                continue;
            };
            for text in data.values().filter_map(Value::as_str) {
                let subject = match Kind::recognize(Path::new("x.yaml"), text) {
                    Some(Kind::Control) => Subject::Control,
                    Some(Kind::Proxy) => Subject::Proxy,
                    other => panic!("{}: {other:?}", path.display()),
                };
                let complaints = complaints(&validator(subject), &yaml(text));
                assert!(complaints.is_empty(), "{complaints:#?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 1, "only {checked}: have the manifests moved?");
}

/// Puts a field that nobody knows into every object, one at a time, and says where.
fn spoilt(value: &Value, at: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    match value {
        Value::Object(object) => {
            let mut spoilt_here = object.clone();
            spoilt_here.insert("no_such_field".to_owned(), json!(1));
            all.push((at.to_owned(), spoilt_here.into()));
            for (key, inner) in object {
                for (path, changed) in spoilt(inner, &format!("{at}.{key}")) {
                    let mut object = object.clone();
                    object.insert(key.clone(), changed);
                    all.push((path, object.into()));
                }
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                for (path, changed) in spoilt(inner, &format!("{at}[{index}]")) {
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

/// Whether the reader of a subject takes a text.
fn is_read(subject: Subject, text: &str) -> bool {
    match subject {
        Subject::Control => {
            let file = plimsoll_control::config::File {
                name: "x".to_owned(),
                text: text.to_owned(),
            };
            plimsoll_control::config::ControlConfig::parse(&file, &[]).is_ok()
        }
        Subject::Proxy => plimsoll_proxy::config::ProxyConfig::parse(text).is_ok(),
        other => kind(other).check(Path::new("x"), text).is_ok(),
    }
}

/// JSON is YAML, so a value can be read back by every reader but that of TOML.
#[test]
fn a_field_that_nobody_knows_is_refused_by_both() {
    let mut tried = 0;
    for (path, subject, value) in examples("examples") {
        let text = value.to_string();
        if subject == Subject::Sim || !is_read(subject, &text) {
            continue;
        }
        let validator = validator(subject);
        for (place, value) in spoilt(&value, "") {
            // Not looked at by either, or a map of any keys.
            let any = ["metadata", "http2_protocol_options", "subset"];
            if any.iter().any(|field| place.contains(field)) {
                continue;
            }
            let read = is_read(subject, &value.to_string());
            let valid = validator.is_valid(&value);
            assert_eq!(read, valid, "{path}: a stray field at {place:?}");
            tried += 1;
        }
    }
    assert!(tried > 200, "only {tried} places");
}

#[test]
fn values_of_wrong_types_are_refused() {
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
            "load_reporting: {interval: 10m}",
            "/load_reporting/interval",
        ),
        (
            Subject::Cluster,
            "{name: a, lb_policy: FASTEST}",
            "/lb_policy",
        ),
        (Subject::Cluster, "{lb_policy: RANDOM}", ""),
        (Subject::Proxy, "node: {id: [1]}", "/node/id"),
    ] {
        let complaints = complaints(&validator(subject), &yaml(text));
        assert_eq!(complaints.len(), 1, "{text}: {complaints:?}");
        assert!(
            complaints[0].starts_with(&format!("{place}: ")),
            "{complaints:?}"
        );
        assert!(!is_read(subject, text), "{text}");
    }
    for (subject, text) in [
        (Subject::Control, "demand: {missed_intervals: '3'}"),
        (Subject::Control, "load_reporting: {interval: 0.5s}"),
        (Subject::Cluster, "{name: a, lb_policy: 1}"),
    ] {
        let complaints = complaints(&validator(subject), &yaml(text));
        assert!(complaints.is_empty(), "{text}: {complaints:?}");
    }
}

#[test]
fn nothing_may_be_null_and_names_are_short() {
    for subject in Subject::value_variants() {
        let schema = subject.schema();
        assert!(!schema.to_string().contains("null"), "{subject:?}");
        let names = schema["$defs"].as_object().unwrap().keys();
        let long: Vec<_> = names.filter(|name| name.contains("Yaml")).collect();
        assert!(long.is_empty(), "{subject:?}: {long:?}");
    }
}
