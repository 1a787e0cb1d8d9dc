//! Compares the public API of the libraries with `crates/*/public-api.txt`.
//!
//! scripts/api.sh writes the rustdoc JSON files that `rustdoc_json` reads; the step `api` of
//! `make test` runs both, and `make api` accepts changes. The rules are pure functions with tests.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(clippy::print_stdout, reason = "tells what was skipped")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Crates whose types may be named by the API of another crate of ours.
const OURS: [&str; 5] = [
    "plimsoll_client",
    "plimsoll_core",
    "plimsoll_orca",
    "plimsoll_schema",
    "plimsoll_xds",
];

/// Auto traits whose implementations are not recorded: nobody relies on them, and there is one line
/// per type. `Send` and `Sync` are recorded.
const NOT_RECORDED: [&str; 6] = [
    "core::marker::Freeze for ",
    "core::marker::StructuralPartialEq for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

/// Methods of derived traits; the line of the `impl` says enough.
const DERIVED: [&str; 11] = [
    "::assert_receiver_is_total_eq(",
    "::clone(",
    "::clone_from(",
    "::cmp(",
    "::default()",
    "::eq(",
    "::fmt(",
    "::hash<",
    "::ne(",
    "::partial_cmp(",
    "::serialize<",
];

/// Whether a line of the API is written to the snapshot.
fn is_recorded(line: &str) -> bool {
    let derived = line.starts_with("pub fn ") && DERIVED.iter().any(|part| line.contains(part));
    !derived && !NOT_RECORDED.iter().any(|part| line.contains(part))
}

/// Returns the lines that only one of two snapshots has, with `-` and `+`.
fn difference(recorded: &str, found: &str) -> String {
    let [old, new]: [BTreeSet<&str>; 2] = [recorded, found].map(|text| text.lines().collect());
    let mut lines = String::new();
    for line in old.difference(&new) {
        writeln!(lines, "-{line}").unwrap();
    }
    for line in new.difference(&old) {
        writeln!(lines, "+{line}").unwrap();
    }
    lines
}

/// Returns the types of our other crates that the API of `own` names without exporting them.
fn not_exported<'a>(own: &str, api: &'a str) -> BTreeSet<&'a str> {
    let mut exported: BTreeSet<&str> = BTreeSet::new();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for line in api.lines() {
        if let Some(path) = line.strip_prefix("pub use ") {
            exported.insert(last_segment(path));
            continue;
        }
        named.extend(paths(line).filter(|path| is_of_another_crate(own, path)));
    }
    named.retain(|path| !exported.contains(type_name(path)));
    named
}

/// Returns the type of a path, without methods and associated types behind it.
fn type_name(path: &str) -> &str {
    let mut segments = path.split("::");
    let named = segments.find(|segment| segment.starts_with(char::is_uppercase));
    named.unwrap_or(last_segment(path))
}

fn is_of_another_crate(own: &str, path: &str) -> bool {
    let name = path.split("::").next().unwrap_or_default();
    name != own && OURS.contains(&name)
}

fn last_segment(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Returns the paths with at least two segments in a line.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    words
        .map(|word| word.trim_matches(':'))
        .filter(|word| word.contains("::"))
}

/// Needs the files that scripts/api.sh writes.
mod rustdoc_json {
    use std::fs;
    use std::path::PathBuf;

    use plimsoll_testing::repository;

    use super::{difference, is_recorded, not_exported};

    /// Format that the library `public-api` reads.
    const FORMAT: &str = "\"format_version\":57";

    fn variable(name: &str) -> String {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is unset: run make test STEPS=api"))
    }

    /// Returns the public API of a crate; `None` if rustdoc writes another format.
    fn api(name: &str) -> Option<String> {
        let file = PathBuf::from(variable("PLIMSOLL_API_JSON")).join(format!("{name}.json"));
        let json =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if !json.contains(FORMAT) {
            println!("SKIPPED {name}: this rustdoc does not write {FORMAT}");
            return None;
        }
        let api = public_api::Builder::from_rustdoc_json(file)
            .omit_blanket_impls(true)
            .build()
            .unwrap();
        let lines = api.items().map(ToString::to_string);
        Some(
            lines
                .filter(|line| is_recorded(line))
                .fold(String::new(), |text, line| text + &line + "\n"),
        )
    }

    #[test]
    fn libraries_have_the_recorded_api() {
        let mut changes = String::new();
        for name in variable("PLIMSOLL_API_CRATES").split_whitespace() {
            let Some(found) = api(name) else {
                continue;
            };
            let relative = format!("crates/{}/public-api.txt", name.replace('_', "-"));
            let root = repository();
            let file = root.join(&relative);
            if std::env::var_os("PLIMSOLL_API_ACCEPT").is_some() {
                fs::write(&file, &found).unwrap();
                continue;
            }
            let recorded = fs::read_to_string(&file).unwrap_or_default();
            if recorded != found {
                changes += &format!("{relative}\n{}", difference(&recorded, &found));
            }
        }
        assert!(
            changes.is_empty(),
            "the public API changed; accept it with `make api` and write it into CHANGELOG.md\n\
             {changes}"
        );
    }

    /// A user of the client needs no other crate of ours to name what the client takes and returns.
    #[test]
    fn the_client_exports_every_type_that_its_api_names() {
        let own = "plimsoll_client";
        let Some(found) = api(own) else {
            return;
        };
        let missing = not_exported(own, &found);
        assert!(missing.is_empty(), "{own} does not export {missing:#?}");
    }
}

#[test]
fn derived_methods_and_unwind_traits_are_not_recorded() {
    assert!(is_recorded("pub fn a::B::new() -> Self"));
    assert!(is_recorded("impl core::marker::Send for a::B"));
    assert!(is_recorded("impl core::clone::Clone for a::B"));
    assert!(!is_recorded("pub fn a::B::clone(&self) -> a::B"));
    assert!(!is_recorded(
        "impl core::panic::unwind_safe::UnwindSafe for a::B"
    ));
}

#[test]
fn a_difference_shows_both_sides() {
    assert_eq!(difference("a\nb\n", "b\nc\n"), "-a\n+c\n");
    assert_eq!(difference("a\n", "a\n"), "");
}

#[test]
fn types_of_other_crates_must_be_exported() {
    let api = "pub use plimsoll_client::Locality\n\
               pub fn plimsoll_client::a(plimsoll_core::model::Locality) -> plimsoll_client::B\n\
               pub fn plimsoll_core::model::Locality::from(u8) -> Self\n\
               pub fn plimsoll_client::b(&[plimsoll_xds::node::NodeInfo], http::uri::Uri)\n";
    let missing = not_exported("plimsoll_client", api);
    assert_eq!(
        missing.into_iter().collect::<Vec<_>>(),
        ["plimsoll_xds::node::NodeInfo"]
    );
}
