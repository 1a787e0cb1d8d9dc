//! The house rules as tests (CONTRIBUTING.md, "House numbers"). Each test is one rule and names
//! every place that breaks it, with what to do.
//!
//! The rules are pure functions with tests of their own in `tidy/`; this file only applies them to
//! the repository. What clippy checks is not repeated here.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::LazyLock;

#[path = "tidy/fault.rs"]
mod fault;
#[path = "tidy/manifest_rules.rs"]
mod manifest_rules;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rust_file.rs"]
mod rust_file;
#[path = "tidy/rust_rules.rs"]
mod rust_rules;
#[path = "tidy/text_rules.rs"]
mod text_rules;

use fault::{Fault, assert_none};
use repository::Repository;
use rust_file::RustFile;

/// Test lines per production line that `plimsoll-core` must reach, in percent.
const CORE_TEST_PERCENT: usize = 100;

/// Read and parsed once for all rules.
static REPOSITORY: LazyLock<Repository> = LazyLock::new(Repository::open);
static RUST_FILES: LazyLock<Vec<RustFile>> = LazyLock::new(|| REPOSITORY.rust_files());

fn rust_files_under(folder: &str) -> Vec<&'static RustFile> {
    let files = RUST_FILES.iter();
    files.filter(|file| file.path.starts_with(folder)).collect()
}

fn every_rust_file(rule: impl Fn(&RustFile) -> Vec<Fault>) {
    assert!(!RUST_FILES.is_empty(), "no Rust file was found");
    assert_none(&RUST_FILES.iter().flat_map(rule).collect::<Vec<_>>());
}

/// Applies a rule to the sources of each crate.
fn every_crate(rule: impl Fn(&str, &[&RustFile]) -> Option<Fault>) {
    let mut faults = Vec::new();
    for name in REPOSITORY.crates() {
        let manifest = format!("crates/{name}/Cargo.toml");
        faults.extend(rule(
            &manifest,
            &rust_files_under(&format!("crates/{name}/src/")),
        ));
    }
    assert_none(&faults);
}

#[test]
fn files_are_short() {
    every_rust_file(|file| rust_rules::file_length(file).into_iter().collect());
}

#[test]
fn functions_fit_on_a_screen() {
    every_rust_file(rust_rules::function_length);
}

#[test]
fn most_functions_are_much_shorter() {
    let p95 = rust_rules::p95_function_lines(&rust_files_under("crates/"));
    let limit = rust_rules::P95_FUNCTION_LINES;
    assert!(
        p95 <= limit,
        "95 % of functions have up to {p95} lines, aim at {limit}"
    );
}

#[test]
fn lines_are_100_characters_wide() {
    every_rust_file(rust_rules::line_width);
}

#[test]
fn every_file_opens_with_its_doc() {
    every_rust_file(|file| rust_rules::module_doc(file).into_iter().collect());
}

#[test]
fn items_have_three_type_parameters_at_most() {
    every_rust_file(rust_rules::type_parameters);
}

#[test]
fn notes_for_later_name_an_issue_and_are_few() {
    every_rust_file(rust_rules::notes_without_issue);
    every_crate(rust_rules::too_many_notes);
}

#[test]
fn libraries_expect_little() {
    every_crate(|manifest, files| {
        let library = files.iter().any(|file| file.path.ends_with("src/lib.rs"));
        library
            .then(|| rust_rules::too_many_expects(manifest, files))
            .flatten()
    });
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let mut faults = Vec::new();
    for name in REPOSITORY.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = REPOSITORY.text(&path).expect("a manifest is text");
        faults.extend(manifest_rules::dependency_arrows(&path, &manifest));
    }
    assert_none(&faults);
}

#[test]
fn unsafe_code_is_only_at_the_abi_of_envoy() {
    let mut faults = Vec::new();
    for name in REPOSITORY.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = REPOSITORY.text(&path).expect("a manifest is text");
        faults.extend(manifest_rules::lints(&path, name, &manifest));
    }
    for file in rust_files_under("crates/plimsoll-envoy/src/") {
        faults.extend(manifest_rules::unsafe_module(&file.path, &file.text));
    }
    assert_none(&faults);
}

#[test]
fn crates_are_ready_to_be_published() {
    let mut faults = Vec::new();
    for name in REPOSITORY.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = REPOSITORY.text(&path).expect("a manifest is text");
        let readme = REPOSITORY.text(&format!("crates/{name}/README.md"));
        let found = manifest_rules::publishing(&path, &manifest, readme.as_deref());
        faults.extend(found);
        let license = REPOSITORY.text(&format!("crates/{name}/LICENSE"));
        assert_eq!(license, REPOSITORY.text("LICENSE"), "LICENSE of {name}");
    }
    assert_none(&faults);
}

#[test]
fn the_core_has_at_least_as_many_lines_of_tests_as_of_code() {
    let files = rust_files_under("crates/plimsoll-core/");
    let counted = files.iter().filter(|file| !file.path.contains("/benches/"));
    let (code, tests) = counted.fold((0, 0), |(code, tests), file| {
        let (production, test) = file.code_lines();
        (code + production, tests + test)
    });
    println!("plimsoll-core: {code} lines of code, {tests} lines of tests");
    assert!(
        tests * 100 >= code * CORE_TEST_PERCENT,
        "plimsoll-core has {code} lines of code and {tests} of tests: write the missing {}",
        code * CORE_TEST_PERCENT / 100 - tests
    );
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let texts = REPOSITORY
        .paths("")
        .filter_map(|path| Some((path, REPOSITORY.text(path)?)));
    let faults = texts.flat_map(|(path, text)| text_rules::machine_paths(path, &text));
    assert_none(&faults.collect::<Vec<_>>());
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for path in REPOSITORY.paths(".md") {
        let text = REPOSITORY.text(path).unwrap_or_default();
        faults.extend(text_rules::broken_links(path, &text, |target| {
            REPOSITORY.linked(target)
        }));
    }
    assert_none(&faults);
}

#[test]
fn changelog_entries_start_with_a_crate() {
    let path = "CHANGELOG.md";
    let text = REPOSITORY.text(path).expect("there is a changelog");
    let crates = manifest_rules::known_crates().map(str::to_owned).collect();
    assert_none(&text_rules::changelog_entries(path, &text, &crates));
}

#[test]
fn arguments_and_steps_have_names() {
    every_rust_file(rust_rules::named_steps);
}

#[test]
fn public_items_are_documented() {
    let libraries = rust_files_under("crates/").into_iter();
    let sources = libraries.filter(|file| file.path.contains("/src/"));
    assert_none(
        &sources
            .flat_map(rust_rules::missing_docs)
            .collect::<Vec<_>>(),
    );
}

#[test]
fn comments_strings_and_names_use_the_words_of_the_field() {
    let own = "crates/plimsoll/tests/tidy/prose.rs";
    let files = RUST_FILES.iter().filter(|file| file.path != own);
    assert_none(&files.flat_map(prose::phrases).collect::<Vec<_>>());
}

#[test]
fn docs_say_more_than_the_name() {
    every_rust_file(prose::short_docs);
}

#[test]
fn documents_use_the_words_of_the_field() {
    let documents = REPOSITORY
        .paths(".md")
        .filter_map(|path| Some((path, REPOSITORY.text(path)?)));
    let faults = documents.flat_map(|(path, text)| prose::phrases_of_document(path, &text));
    assert_none(&faults.collect::<Vec<_>>());
}

/// What `plimsoll explain` prints about a scenario.
fn explain(arguments: &[&str]) -> String {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll
        .arg("explain")
        .args(arguments)
        .current_dir(REPOSITORY.root());
    let output = plimsoll
        .output()
        .expect("the binary was built for this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "plimsoll explain {arguments:?}: {errors}"
    );
    String::from_utf8(output.stdout).expect("a page is text")
}

#[test]
fn the_readme_shows_what_explain_prints() {
    let path = "README.md";
    let readme = REPOSITORY.text(path).expect("there is a README");
    let shown = markdown::fenced(&readme, "text");
    assert!(!shown.is_empty(), "{path} shows no output");
    let real = explain(&["examples/explain/lrs-rate-after.yaml"]);
    assert_none(&text_rules::invented_output(path, &shown, &real));
}

#[test]
fn every_field_of_the_json_is_documented() {
    let path = "docs/explain.md";
    let page = REPOSITORY.text(path).expect("there is a reference");
    let json = explain(&["--json", "examples/explain/lrs-rate-after.yaml"]);
    let keys = text_rules::json_keys(&json);
    assert!(keys.contains("load_factor"), "no key was found in {json}");
    let missing = keys.iter().filter(|key| {
        let spellings = [format!("`{key}`"), format!("`{key}[]`")];
        !spellings.iter().any(|spelling| page.contains(spelling))
    });
    let faults = missing.map(|key| {
        let advice = format!("`{key}` is printed but not described: add a row");
        Fault::new(path, 1, "JSON field", advice)
    });
    assert_none(&faults.collect::<Vec<_>>());
}

/// Checks that a page describes every field of JSON Schemas, including those of definitions.
fn check_fields(path: &str, schemas: impl IntoIterator<Item = schemars::Schema>) {
    use serde_json::Value;

    fn add_fields(schema: &Value, fields: &mut BTreeSet<String>) {
        let own = schema.get("properties").and_then(Value::as_object);
        fields.extend(own.into_iter().flat_map(|own| own.keys().cloned()));
        let members = schema.as_object().into_iter().flat_map(|all| all.values());
        let items = schema.as_array().into_iter().flatten();
        members
            .chain(items)
            .for_each(|inner| add_fields(inner, fields));
    }

    let page = REPOSITORY.text(path).expect("there is a reference");
    let mut fields = BTreeSet::new();
    for schema in schemas {
        add_fields(schema.as_value(), &mut fields);
    }
    assert!(fields.contains("sub_zone"), "{fields:?}");
    let missing = fields
        .iter()
        .filter(|field| !page.contains(&format!("`{field}`")));
    let faults = missing.map(|field| {
        let advice = format!("`{field}` is not described: add a row");
        Fault::new(path, 1, "JSON field", advice)
    });
    assert_none(&faults.collect::<Vec<_>>());
}

#[test]
fn every_field_of_the_admin_api_is_documented() {
    let schemas = plimsoll_control::admin::schemas();
    check_fields("docs/admin-api.md", schemas.map(|(_, schema)| schema));
}

#[test]
fn every_field_of_the_dashboard_is_documented() {
    use plimsoll_admin::history::HistoryResponse;
    use plimsoll_admin::state::DashboardState;
    use plimsoll_admin::what_if::{ExplainQuestion, WhatIfAnswer, WhatIfQuestion};
    use schemars::schema_for;

    let schemas = [
        schema_for!(DashboardState),
        schema_for!(WhatIfQuestion),
        schema_for!(WhatIfAnswer),
        schema_for!(ExplainQuestion),
        schema_for!(HistoryResponse),
    ];
    check_fields("docs/dashboard.md", schemas);
}

#[test]
fn every_path_of_the_admin_api_is_documented() {
    let path = "docs/admin-api.md";
    let page = REPOSITORY.text(path).expect("there is a reference");
    let router = plimsoll_control::admin::router();
    let missing = router.paths().iter().filter(|served| {
        let heading = format!("## `{}`", served.path);
        !page.lines().any(|line| line == heading)
    });
    let faults = missing.map(|served| {
        let advice = format!("{} is served but has no section: add it", served.path);
        Fault::new(path, 1, "path", advice)
    });
    assert_none(&faults.collect::<Vec<_>>());
}

#[test]
fn example_configurations_are_read() {
    let mains = REPOSITORY
        .paths(".yaml")
        .filter(|path| path.starts_with("examples/control/") && path.ends_with("/control.yaml"));
    let mut read = 0;
    for path in mains {
        let mut files = plimsoll_serve::Files::default();
        let config = plimsoll_control::source::load(&REPOSITORY.root().join(path), &mut files)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!config.services.is_empty(), "{path} has no services");
        read += 1;
    }
    assert!(read > 0, "no example was found: have they moved?");
}

#[test]
fn example_configurations_of_the_proxy_are_read() {
    let files = REPOSITORY
        .paths(".yaml")
        .filter(|path| path.starts_with("examples/proxy/"));
    let mut read = 0;
    for path in files {
        let text = REPOSITORY.text(path).unwrap_or_default();
        let config = plimsoll_proxy::config::ProxyConfig::parse(&text)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(!config.listeners.is_empty(), "{path} has no listener");
        read += 1;
    }
    assert!(read > 0, "no example was found: have they moved?");
}
