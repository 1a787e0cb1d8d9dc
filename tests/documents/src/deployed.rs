//! Finds commands in the files of `deploy/`: systemd units, Dockerfile, Kubernetes manifests.
//!
//! Used by the tests of `cmd`, which parse them, and by those of `deploy/`.

use std::fs;
use std::path::Path;

use plimsoll_xds::yaml::Document;
use serde_json::Value;

/// File and command line.
pub type Deployed = (String, Vec<String>);

/// Returns every command line under `deploy/` that runs our program.
pub fn deployed(root: &Path) -> Vec<Deployed> {
    let mut found = Vec::new();
    for (path, text) in files(&root.join("deploy")) {
        let commands = match path.rsplit(['.', '/']).next() {
            Some("service") => units(&text),
            Some("Dockerfile") => image(&text).into_iter().collect(),
            Some("yaml") => manifests(&text).iter().flat_map(containers).collect(),
            _ => Vec::new(),
        };
        found.extend(commands.into_iter().map(|words| (path.clone(), words)));
    }
    found
}

/// Returns path and text of all files below a directory, sorted by path.
pub fn files(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be listed") {
        let path = entry.expect("the directory can be listed").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path.display().to_string(), text));
        }
    }
    found.sort();
    found
}

/// Parses all documents of a YAML file.
pub fn manifests(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    let read = |text: &str| Document::parse(text).and_then(|document| document.read());
    let all: Result<Vec<Value>, _> = documents.map(read).collect();
    all.expect("every document is YAML")
}

fn units(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter_map(|line| {
        let (key, command) = line.split_once('=')?;
        key.starts_with("Exec").then_some(command)
    });
    let commands = lines.map(|line| line.split_whitespace().map(str::to_owned).collect());
    commands.filter_map(as_ours).collect()
}

/// Returns `ENTRYPOINT` followed by `CMD`.
fn image(text: &str) -> Option<Vec<String>> {
    let list = |key: &str| -> Option<Vec<String>> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        serde_json::from_str(line).ok()
    };
    let mut words = list("ENTRYPOINT ")?;
    words.extend(list("CMD ")?);
    as_ours(words)
}

/// Returns the arguments of containers that run our image.
fn containers(value: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    match value {
        Value::Object(fields) => {
            let image = fields
                .get("image")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if let (true, Some(Value::Array(args))) = (is_ours(image), fields.get("args")) {
                let args = args
                    .iter()
                    .map(|arg| arg.as_str().expect("arguments are strings"));
                let words = ["plimsoll"].into_iter().chain(args);
                found.push(words.map(str::to_owned).collect());
            }
            found.extend(fields.values().flat_map(containers));
        }
        Value::Array(values) => found.extend(values.iter().flat_map(containers)),
        _ => {}
    }
    found
}

fn is_ours(image: &str) -> bool {
    image
        .split(':')
        .next()
        .and_then(|name| name.rsplit('/').next())
        == Some("plimsoll")
}

/// Returns the command without the path of the program, if it is ours.
fn as_ours(mut words: Vec<String>) -> Option<Vec<String>> {
    let program = words.first_mut()?;
    if !program.ends_with("/plimsoll") {
        return None;
    }
    "plimsoll".clone_into(program);
    Some(words)
}
