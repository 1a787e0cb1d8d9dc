//! Code in pages: Rust code of the guides is part of an example that tests run, and dependencies
//! exist with the versions and features shown.

use std::fs;
use std::process::Command;

use plimsoll_testing::repository;
use serde_json::Value;

use super::{documents, files};

/// Returns the blocks of a language with the number of their first line.
pub(super) fn blocks(page: &str, language: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut block: Option<(usize, String)> = None;
    let mut in_other = false;
    for (index, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut block) {
            (Some(_), Some(_)) => found.extend(block.take()),
            (Some(opened), None) if !in_other && opened == language => {
                block = Some((index + 2, String::new()));
            }
            (Some(_), None) => in_other = !in_other,
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}

/// Whether the lines of a block stand in a file, in order. A line `// …` stands for any lines.
fn is_quoted(block: &str, file: &str) -> bool {
    let mut parts = vec![String::new()];
    for line in block.lines() {
        match parts.last_mut() {
            Some(part) if line.trim() != "// …" => *part += &format!("{line}\n"),
            _ => parts.push(String::new()),
        }
    }
    let mut rest = file;
    parts.iter().all(|part| {
        let found = rest.find(part.trim_end());
        rest = found.map_or("", |at| &rest[at + part.trim_end().len()..]);
        found.is_some()
    })
}

/// Returns the examples that a page names in inline code.
fn examples_of(page: &str) -> Vec<&str> {
    let spans = page.split('`').filter(|span| span.starts_with("crates/"));
    spans.filter(|span| span.contains("/examples/")).collect()
}

#[test]
fn code_of_guides_is_in_an_example_that_the_page_names() {
    let mut count = 0;
    for (path, page) in files(&repository().join("docs/guides")) {
        let examples: Vec<String> = examples_of(&page)
            .iter()
            .map(|example| {
                let text = fs::read_to_string(repository().join(example));
                text.unwrap_or_else(|error| panic!("{path}: {example}: {error}"))
            })
            .collect();
        for (line, block) in blocks(&page, "rust") {
            let quoted = examples.iter().any(|example| is_quoted(&block, example));
            assert!(
                quoted,
                "{path}:{line}: no example of the page has this code"
            );
            count += 1;
        }
    }
    assert!(count >= 8, "only {count} blocks found");
}

/// Returns all packages that the workspace compiles, with their versions and features.
fn packages() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "metadata",
        "--format-version=1",
        "--all-features",
        "--locked",
    ]);
    let output = command.current_dir(repository()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns what is wrong with a dependency that a page shows.
fn wrong(name: &str, shown: &toml::Value, packages: &[Value]) -> Option<String> {
    let version = shown.as_str().or_else(|| shown.get("version")?.as_str());
    let Some(version) = version else {
        return Some("has no version".to_owned());
    };
    let package = packages.iter().find(|package| {
        let found = package["version"].as_str().unwrap_or_default();
        package["name"] == name && format!("{found}.").starts_with(&format!("{version}."))
    });
    let Some(package) = package else {
        return Some(format!("the workspace does not compile version {version}"));
    };
    let features = shown.get("features").and_then(toml::Value::as_array);
    let mut names = features
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_str);
    let missing = names.find(|feature| package["features"].get(feature).is_none())?;
    Some(format!("has no feature {missing}"))
}

#[test]
fn dependencies_of_pages_exist() {
    let packages = packages();
    let mut pages = documents();
    let readmes = files(&repository().join("crates"));
    pages.extend(
        readmes
            .into_iter()
            .filter(|(path, _)| path.ends_with("README.md")),
    );
    let mut count = 0;
    for (path, page) in pages {
        for (line, block) in blocks(&page, "toml") {
            let Ok(table) = block.parse::<toml::Table>() else {
                continue;
            };
            let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
            for (name, shown) in dependencies.into_iter().flatten() {
                let fault = wrong(name, shown, &packages);
                assert_eq!(fault, None, "{path}:{line}: {name}");
                count += 1;
            }
        }
    }
    assert!(count >= 8, "only {count} dependencies found");
}

#[test]
fn quotes_may_leave_out_lines() {
    let file = "a\n    b\nc\nd\n";
    assert!(is_quoted("    b\nc\n", file));
    assert!(is_quoted("a\n// …\nd\n", file));
    assert!(!is_quoted("a\nc\n", file));
    assert!(!is_quoted("d\n// …\na\n", file));
}

#[test]
fn blocks_are_found_by_language() {
    let page = "```console\n$ a\n```\n```rust\nx\ny\n```\n```toml\nz\n```\n";
    assert_eq!(blocks(page, "rust"), [(5, "x\ny\n".to_owned())]);
    assert_eq!(blocks(page, "toml"), [(9, "z\n".to_owned())]);
}

#[test]
fn faults_of_dependencies_are_found() {
    let packages = [serde_json::json!({"name": "a", "version": "1.2.3", "features": {"x": []}})];
    let fault = |text: &str| {
        let table: toml::Table = text.parse().unwrap();
        wrong("a", &table["a"], &packages)
    };
    assert_eq!(fault("a = \"1.2\""), None);
    assert_eq!(fault("a = {version = \"1\", features = [\"x\"]}"), None);
    assert!(fault("a = \"1.20\"").is_some());
    assert!(fault("a = {version = \"1\", features = [\"y\"]}").is_some());
    assert!(fault("a = {path = \"a\"}").is_some());
}
