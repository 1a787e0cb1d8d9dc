//! Pages against the program: they show what it prints, describe every field of its JSON and every
//! path that it serves, and examples are configurations that it reads.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use plimsoll_admin::history::HistoryResponse;
use plimsoll_admin::state::DashboardState;
use plimsoll_admin::what_if::{ExplainQuestion, WhatIf, WhatIfQuestion};
use plimsoll_documents::deployed::files;
use plimsoll_testing::{plimsoll, repository};
use schemars::{Schema, schema_for};
use serde_json::Value;

use super::quoted::blocks;

fn page(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// What `plimsoll explain` prints about a scenario.
fn explain(arguments: &[&str]) -> String {
    let mut command = Command::new(plimsoll());
    command.arg("explain").args(arguments);
    let output = command.current_dir(repository()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "plimsoll explain {arguments:?}: {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Lines of a shown output that the real output lacks; `…` stands for anything.
fn invented<'a>(shown: &'a str, real: &str) -> Vec<&'a str> {
    let is_real = |line: &str| {
        real.lines()
            .any(|other| other.trim_end() == line.trim_end())
    };
    let lines = shown.lines();
    lines
        .filter(|line| line.trim() != "…" && !is_real(line))
        .collect()
}

/// Keys of printed JSON, one member per line.
fn json_keys(json: &str) -> BTreeSet<String> {
    let members = json
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": "));
    members.map(|(key, _)| key.to_owned()).collect()
}

#[test]
fn the_readme_shows_what_explain_prints() {
    let readme = page("README.md");
    let blocks = blocks(&readme, "text");
    let (line, shown) = blocks.first().expect("README.md shows output");
    let real = explain(&["examples/explain/lrs-rate-after.yaml"]);
    let invented = invented(shown, &real);
    assert!(
        invented.is_empty(),
        "README.md:{line}: the program prints something else than {invented:#?}"
    );
}

#[test]
fn every_field_of_the_json_is_documented() {
    let page = page("docs/explain.md");
    let json = explain(&["--json", "examples/explain/lrs-rate-after.yaml"]);
    let keys = json_keys(&json);
    assert!(keys.contains("load_factor"), "no key was found in {json}");
    let missing = keys.iter().filter(|key| {
        let spellings = [format!("`{key}`"), format!("`{key}[]`")];
        !spellings.iter().any(|spelling| page.contains(spelling))
    });
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "docs/explain.md lacks {missing:?}");
}

/// Checks that pages describe every field of JSON Schemas, including those of definitions.
fn check_fields(pages: &[&str], schemas: impl IntoIterator<Item = Value>) {
    fn add_fields(schema: &Value, fields: &mut BTreeSet<String>) {
        let own = schema.get("properties").and_then(Value::as_object);
        fields.extend(own.into_iter().flat_map(|own| own.keys().cloned()));
        let members = schema.as_object().into_iter().flat_map(|all| all.values());
        let items = schema.as_array().into_iter().flatten();
        members
            .chain(items)
            .for_each(|inner| add_fields(inner, fields));
    }

    let text: String = pages.iter().map(|path| page(path)).collect();
    let mut fields = BTreeSet::new();
    for schema in schemas {
        add_fields(&schema, &mut fields);
    }
    assert!(fields.contains("sub_zone"), "{fields:?}");
    // Pages write a list as `field[]`.
    let is_there = |field: &String| {
        let mut spelled = [format!("`{field}`"), format!("`{field}[]`")].into_iter();
        spelled.any(|spelled| text.contains(&spelled))
    };
    let missing: Vec<_> = fields.iter().filter(|field| !is_there(field)).collect();
    assert!(missing.is_empty(), "{pages:?} lack {missing:?}");
}

/// The types of the OpenAPI description, whose pages also describe the dashboard and explanations.
#[test]
fn every_field_of_the_admin_api_is_documented() {
    let pages = ["docs/admin-api.md", "docs/dashboard.md", "docs/explain.md"];
    check_fields(
        &pages,
        [plimsoll_control::admin::openapi()["components"].clone()],
    );
}

#[test]
fn every_field_of_the_dashboard_is_documented() {
    let schemas = [
        schema_for!(DashboardState),
        schema_for!(WhatIfQuestion),
        schema_for!(WhatIf),
        schema_for!(ExplainQuestion),
        schema_for!(HistoryResponse),
    ];
    let pages = ["docs/dashboard.md", "docs/admin-api.md"];
    check_fields(&pages, schemas.map(Schema::to_value));
}

#[test]
fn every_path_of_the_admin_api_is_documented() {
    let page = page("docs/admin-api.md");
    let router = plimsoll_control::admin::router();
    let missing = router.paths().iter().filter(|served| {
        let heading = format!("## `{}`", served.path);
        !page.lines().any(|line| line == heading)
    });
    let missing: Vec<_> = missing.map(|served| served.path).collect();
    assert!(missing.is_empty(), "docs/admin-api.md lacks {missing:?}");
}

#[test]
fn example_configurations_are_read() {
    let mut read = 0;
    for (path, _) in files(&repository().join("examples/control")) {
        if !path.ends_with("/control.yaml") {
            continue;
        }
        let mut sources = plimsoll_serve::Files::default();
        let config = plimsoll_control::source::load(path.as_ref(), &mut sources)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!config.services.is_empty(), "{path} has no services");
        read += 1;
    }
    assert!(read > 0, "no example was found: have they moved?");
}

#[test]
fn example_configurations_of_the_proxy_are_read() {
    let mut read = 0;
    for (path, text) in files(&repository().join("examples/proxy")) {
        if !path.ends_with(".yaml") {
            continue;
        }
        let config = plimsoll_proxy::config::ProxyConfig::parse(&text)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(!config.listeners.is_empty(), "{path} has no listener");
        read += 1;
    }
    assert!(read > 0, "no example was found: have they moved?");
}

#[test]
fn shown_output_is_what_the_program_prints() {
    let shown = "a  b\n  …\n\nc\n";
    assert_eq!(invented(shown, "x\na  b \n\nc\n"), [""; 0]);
    assert_eq!(invented(shown, "a b\n\nc\n"), ["a  b"]);
}

#[test]
fn keys_of_json_are_listed() {
    let json = "{\n  \"a\": [\n    {\n      \"b_c\": \"d: \\\"e\\\": \"\n    },\n    \"f\"\n  ]\n}";
    assert_eq!(json_keys(json), ["a", "b_c"].map(str::to_owned).into());
}
