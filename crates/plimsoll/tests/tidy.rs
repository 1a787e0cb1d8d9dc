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
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/manifest_rules.rs"]
mod manifest_rules;
#[path = "tidy/markdown.rs"]
mod markdown;
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
fn events_stand_in_the_table() {
    let path = "docs/observability.md";
    let table = REPOSITORY.text(path).expect("there is a table of events");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for file in rust_files_under("crates/plimsoll-core/src/") {
        let code = &file.views.code;
        for enumeration in text_rules::enums_named(code, "Event") {
            let variants = text_rules::enum_variants(code, enumeration);
            names.extend(variants.into_iter().map(str::to_owned));
        }
    }
    assert!(!names.is_empty(), "no event was found: have they moved?");
    assert_none(&text_rules::table_of_names(path, &table, &names));
}

/// The generated page is compared with tables of the code; here, the tables with the counters.
#[test]
fn every_counter_of_the_core_is_described() {
    let page = "docs/reference/metrics.md";
    let text = REPOSITORY.text(page).expect("there is a page of metrics");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for file in rust_files_under("crates/plimsoll-core/src/stats.rs") {
        names.extend(text_rules::counter_names(&file.views.code));
    }
    assert!(!names.is_empty(), "no counter was found: have they moved?");
    for name in names {
        let full = format!("{}_total`", name.trim_end_matches("_total"));
        assert!(text.contains(&full), "{page} does not have {name}");
    }
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

#[test]
fn every_field_of_the_admin_api_is_documented() {
    let path = "docs/admin-api.md";
    let page = REPOSITORY.text(path).expect("there is a reference");
    let folder = "crates/plimsoll-control/src/admin/";
    let mut faults = Vec::new();
    let mut found = 0;
    for file in REPOSITORY
        .paths(".rs")
        .filter(|file| file.starts_with(folder))
    {
        if file.ends_with("tests.rs") {
            continue;
        }
        let text = REPOSITORY.text(file).unwrap_or_default();
        for key in text_rules::written_keys(&text) {
            found += 1;
            if !page.contains(&format!("`{key}`")) {
                let advice = format!("`{key}` of {file} is not described: add a row");
                faults.push(Fault::new(path, 1, "JSON field", advice));
            }
        }
    }
    assert!(found > 50, "only {found} keys were found: have they moved?");
    assert_none(&faults);
}

#[test]
fn every_field_of_the_dashboard_is_documented() {
    let path = "docs/dashboard.md";
    let page = REPOSITORY.text(path).expect("there is a reference");
    let mut faults = Vec::new();
    let mut found = 0;
    for file in ["state.rs", "what_if.rs"] {
        let file = format!("crates/plimsoll-admin/src/{file}");
        let text = REPOSITORY.text(&file).expect("there is a document");
        let fields = text
            .lines()
            .filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "));
        for (field, _) in fields.filter(|(field, _)| !field.contains('(')) {
            found += 1;
            if !page.contains(&format!("`{field}`")) {
                let advice = format!("`{field}` of {file} is not described: add a row");
                faults.push(Fault::new(path, 1, "field of the document", advice));
            }
        }
    }
    assert!(
        found > 60,
        "only {found} fields were found: have they moved?"
    );
    assert_none(&faults);
}

/// Paths in the source of a router.
fn served_paths(file: &str) -> Vec<String> {
    let routes = REPOSITORY.text(file).expect("there are routes");
    let found = routes.split(".route(\"").skip(1);
    let found = found.filter_map(|rest| rest.split('"').next());
    let served: Vec<String> = found.map(str::to_owned).collect();
    assert!(
        served.len() > 5,
        "only {served:?} were found: have they moved?"
    );
    served
}

#[test]
fn every_path_of_the_admin_api_is_documented() {
    let path = "docs/admin-api.md";
    let page = REPOSITORY.text(path).expect("there is a reference");
    let served = served_paths("crates/plimsoll-control/src/admin/routes.rs");
    let missing = served.iter().filter(|served| {
        let heading = format!("## `{served}`");
        !page.lines().any(|line| line == heading)
    });
    let faults = missing.map(|served| {
        let advice = format!("{served} is served but has no section: add it");
        Fault::new(path, 1, "path", advice)
    });
    assert_none(&faults.collect::<Vec<_>>());
}

#[test]
fn every_path_is_in_the_table_of_its_router() {
    let control = plimsoll_control::admin::PATHS.map(|path| path.path);
    let proxy = plimsoll_proxy::ADMIN_PATHS.map(|path| path.path);
    for (file, table) in [
        ("crates/plimsoll-control/src/admin/routes.rs", &control[..]),
        ("crates/plimsoll-proxy/src/admin.rs", &proxy[..]),
    ] {
        // The dashboard has `/` for itself.
        let mut served = served_paths(file);
        served.retain(|path| path != "/");
        served.sort();
        let mut table: Vec<_> = table.iter().map(|path| (*path).to_owned()).collect();
        table.sort();
        assert_eq!(served, table, "{file}: PATHS is not what is served");
    }
}

#[test]
fn example_configurations_are_read() {
    let mains = REPOSITORY
        .paths(".yaml")
        .filter(|path| path.starts_with("examples/control/") && path.ends_with("/control.yaml"));
    let mut read = 0;
    for path in mains {
        let source = plimsoll_control::source::FileSource::new(REPOSITORY.root().join(path));
        let (config, _) = source.load().unwrap_or_else(|error| panic!("{error}"));
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
        let config = plimsoll_proxy::config::ProxyConfig::parse(&text);
        let config = config.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(!config.listeners.is_empty(), "{path} has no listener");
        read += 1;
    }
    assert!(read > 0, "no example was found: have they moved?");
}
