//! The book: who a page is for, which pages the overview has, anchors of links, and claims about
//! the code that are tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use plimsoll_control::sources::SourceId;
use plimsoll_documents::deployed::files;
use plimsoll_testing::repository;

use super::links;

/// Returns name and text of each page but decisions.
fn pages() -> Vec<(String, String)> {
    let root = repository().join("docs");
    let all = files(&root).into_iter().filter_map(|(path, text)| {
        let name = Path::new(&path).strip_prefix(&root).ok()?.to_str()?;
        let page = name.ends_with(".md") && name != "SUMMARY.md";
        (page && !name.starts_with("decisions/")).then(|| (name.to_owned(), text))
    });
    all.collect()
}

#[test]
fn every_page_says_first_who_needs_it() {
    let mut count = 0;
    for (name, text) in pages() {
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default();
        assert!(
            title.starts_with("# "),
            "docs/{name}: the first line is no title"
        );
        let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let says = first.starts_with("For ");
        assert!(
            says,
            "docs/{name}: the first sentence says who needs it: For …; not {first:?}"
        );
        count += 1;
    }
    assert!(count > 30, "only {count} pages found");
}

#[test]
fn the_overview_lists_every_page() {
    let overview = fs::read_to_string(repository().join("docs/README.md")).unwrap();
    for (name, _) in pages() {
        let generated = name.starts_with("reference/");
        let listed = name == "README.md" || generated || overview.contains(&format!("]({name})"));
        assert!(listed, "docs/README.md does not list {name}");
    }
}

/// Returns the anchor of a heading, as mdbook and forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        // A heading may link: only its text counts.
        let text = heading.trim().replace("](", "\u{0}(");
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\u{0}(") {
            plain += before;
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
        }
        plain += rest;
        let base = anchor(&plain);
        let times = found.entry(base.clone()).or_default();
        all.insert(if *times == 0 {
            base
        } else {
            format!("{base}-{times}")
        });
        *times += 1;
    }
    all
}

#[test]
fn anchors_of_links_exist() {
    let root = repository().join("docs");
    let mut checked = 0;
    for (path, text) in files(&root) {
        if !path.ends_with(".md") {
            continue;
        }
        let directory = Path::new(&path).parent().unwrap();
        for (line, target) in links(&text) {
            let Some((file, fragment)) = target.split_once('#') else {
                continue;
            };
            if target.starts_with("https://") {
                continue;
            }
            let there = if file.is_empty() {
                text.clone()
            } else {
                fs::read_to_string(directory.join(file)).unwrap_or_default()
            };
            let exists = anchors(&there).contains(fragment);
            assert!(exists, "{path}:{line}: {target} has no such heading");
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} links with anchors found");
}

/// What is watched is a table of docs/comparison.md, so that no sentence can be left behind by a
/// new source.
#[test]
fn the_sources_in_the_comparison_are_those_of_the_code() {
    let page = fs::read_to_string(repository().join("docs/comparison.md")).unwrap();
    let table = page
        .split("come from | section of its file |")
        .nth(1)
        .unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let sections: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let sources = SourceId::ALL.map(|source| match source {
        SourceId::Files => "services",
        other => other.label(),
    });
    // A relay passes on what another server has.
    let expected: BTreeSet<&str> = sources.into_iter().chain(["relay"]).collect();
    assert_eq!(sections, expected);
    for (name, text) in pages() {
        for source in SourceId::ALL {
            let denied = format!("does not watch {}", source.name());
            assert!(!text.contains(&denied), "docs/{name} says: {denied}");
        }
    }
}
