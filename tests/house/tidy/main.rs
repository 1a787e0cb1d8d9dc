//! The house rules as tests (CONTRIBUTING.md, "House numbers"). Each test is one rule and names
//! every place that breaks it, with what to do.
//!
//! The rules are pure functions with tests of their own in `tidy/`; this file only applies them to
//! the repository. What clippy checks is not repeated here.

use std::sync::LazyLock;

mod fault;
mod manifest_rules;
mod markdown;
mod prose;
mod repository;
mod rust_file;
mod rust_rules;
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
fn tests_of_silent_signals_exist() {
    let path = "docs/operations.md";
    let text = REPOSITORY.text(path).expect("a page is text");
    let files = RUST_FILES.iter().map(|file| file.text.as_str());
    let sources: Vec<&str> = files.collect();
    assert_none(&text_rules::tests_in_tables(path, &text, &sources));
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
fn suites_are_not_published_and_share_no_crate_of_ours() {
    let mut faults = Vec::new();
    for path in REPOSITORY.suites() {
        let manifest = REPOSITORY.text(path).expect("a manifest is text");
        faults.extend(manifest_rules::suite(path, &manifest));
        faults.extend(manifest_rules::lints(path, path, &manifest));
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
    let own = "tests/house/tidy/prose.rs";
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
