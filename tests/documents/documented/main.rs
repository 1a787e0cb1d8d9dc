//! Tests of the documentation: the commands it shows run and print the output shown, the files and
//! make targets it names exist, and alerts and dashboards use existing metrics.
//!
//! Pages that need an Envoy are run by the e2e tests. `crates/plimsoll/src/cmd/documented.rs` tests
//! that the command line accepts every command.
#![expect(clippy::unwrap_used, reason = "tests")]

mod book;
mod program;
mod quoted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use plimsoll_documents::commands::{Documented, commands, documented};
use plimsoll_documents::deployed::{deployed, files, manifests};
use plimsoll_documents::listed::{NOT_RUN, PAGES};
use plimsoll_documents::page::statements;
use plimsoll_documents::run;
use plimsoll_testing::repository;
use serde_json::Value;

/// Directories of the repository whose files documents name.
const DIRECTORIES: [&str; 8] = [
    "bench/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "scripts/",
    "tests/",
    "vectors/",
];

/// Returns path and text of every document.
fn documents() -> Vec<(String, String)> {
    let root = repository();
    let mut texts: Vec<_> = ["docs", "examples", "vectors"]
        .map(|one| files(&root.join(one)))
        .concat();
    for name in [
        "README.md",
        "RELEASING.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "fuzz/README.md",
    ] {
        let text = fs::read_to_string(root.join(name)).unwrap();
        texts.push((name.to_owned(), text));
    }
    texts.retain(|(path, _)| path.ends_with(".md"));
    texts
}

/// Returns every command of every document, including inline code.
fn named_commands() -> Vec<(String, Documented)> {
    let mut found = all_commands();
    for (path, text) in documents() {
        for (line, span) in code_spans(&text) {
            let all = commands(span)
                .into_iter()
                .map(|words| (path.clone(), Documented { line, words }));
            found.extend(all);
        }
    }
    found
}

/// Returns inline code with its line.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.map(|span| (index + 1, span)));
        }
    }
    found
}

/// Returns every command in the code blocks of every document.
fn all_commands() -> Vec<(String, Documented)> {
    let all = |(path, text): (String, String)| {
        let all = documented(&text).into_iter();
        all.map(|one| (path.clone(), one)).collect::<Vec<_>>()
    };
    documents().into_iter().flat_map(all).collect()
}

/// Returns the words that name a file of the repository.
fn named_files(words: &[String]) -> impl Iterator<Item = &String> {
    let named = |word: &&String| {
        DIRECTORIES
            .iter()
            .any(|directory| word.starts_with(directory))
    };
    words
        .iter()
        .filter(named)
        .filter(|word| !word.contains(['$', '*']))
}

#[test]
fn files_named_by_commands_exist() {
    let mut named = 0;
    for (path, command) in all_commands() {
        for file in named_files(&command.words) {
            let exists = repository().join(file).exists();
            assert!(exists, "{path}:{}: {file} does not exist", command.line);
            named += 1;
        }
    }
    assert!(named > 15, "only {named} files found");
}

#[test]
fn make_targets_exist() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let mut found = 0;
    for (path, command) in named_commands() {
        let [program, targets @ ..] = command.words.as_slice() else {
            continue;
        };
        if program != "make" {
            continue;
        }
        for target in targets.iter().filter(|word| !word.contains('=')) {
            let exists = makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")));
            assert!(
                exists,
                "{path}:{}: make has no target {target}",
                command.line
            );
            found += 1;
        }
    }
    assert!(found >= 25, "only {found} targets found");
}

/// Returns the directory of a crate, or of a suite.
fn directory_of(package: &str) -> PathBuf {
    let suite = package.strip_prefix("plimsoll-").unwrap_or(package);
    let suite = repository().join("tests").join(suite);
    if suite.is_dir() {
        return suite;
    }
    repository().join("crates").join(package)
}

#[test]
fn cargo_packages_and_examples_exist() {
    for (path, command) in named_commands() {
        let words = &command.words;
        if words.first().is_none_or(|program| program != "cargo") {
            continue;
        }
        let after = |flag: &str| {
            let at = words.iter().position(|word| word == flag)?;
            words.get(at + 1)
        };
        let package = after("-p").map_or("plimsoll", String::as_str);
        let directory = directory_of(package);
        assert!(
            directory.is_dir(),
            "{path}:{}: no package {package}",
            command.line
        );
        for (flag, subdirectory) in [
            ("--example", "examples"),
            ("--test", "tests"),
            ("--bench", "benches"),
        ] {
            if let Some(name) = after(flag) {
                // Suites have their tests at the top. Without a package, a suite has its name.
                let files = [
                    directory.join(subdirectory).join(name),
                    directory.join(name),
                    directory_of(name),
                ];
                let exists = files.iter().any(|file| {
                    file.with_extension("rs").is_file() || file.join("main.rs").is_file()
                });
                assert!(exists, "{path}:{}: no {flag} {name}", command.line);
            }
        }
    }
}

/// Returns the paths of pages with commands.
fn pages_with_commands() -> BTreeSet<String> {
    let root = format!("{}/", repository().display());
    let all = all_commands().into_iter();
    all.map(|(path, _)| path.strip_prefix(&root).unwrap_or(&path).to_owned())
        .collect()
}

#[test]
fn every_page_with_commands_is_listed() {
    let listed: BTreeSet<_> = PAGES.iter().map(|page| page.path.to_owned()).collect();
    assert_eq!(listed, pages_with_commands());
}

#[test]
fn commands_that_are_not_run_exist_and_have_a_substitute() {
    let root = repository();
    for one in &NOT_RUN {
        let mut pages = PAGES.iter();
        let exists = pages.any(|page| {
            let text = fs::read_to_string(root.join(page.path)).unwrap();
            let all = statements(&text);
            all.iter()
                .any(|statement| statement.text.starts_with(one.command))
        });
        assert!(exists, "no page has {:?}", one.command);
        let (command, reason, instead) = (one.command, one.reason, one.instead);
        assert!(
            root.join(instead).is_file(),
            "{command} is not run because it {reason}; its substitute {instead} does not exist"
        );
    }
}

/// Runs two pages at a time.
#[test]
fn commands_of_pages_print_the_output_shown() {
    let waiting = Mutex::new(
        PAGES
            .iter()
            .filter(|page| !page.envoy)
            .rev()
            .collect::<Vec<_>>(),
    );
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some(page) = waiting.lock().unwrap().pop() else {
                return;
            };
            let outcome = run(page, None, &[]);
            outcomes.lock().unwrap().push(outcome);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let outcomes = outcomes.into_inner().unwrap();
    let failed: Vec<&str> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().err())
        .map(String::as_str)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    let count: usize = outcomes.iter().flatten().sum();
    assert!(count > 30, "only {count} commands were run");
}

/// Commands in other kinds of blocks would be neither run nor parsed.
#[test]
fn commands_are_in_console_or_sh_blocks() {
    let begins = ["$ ", "plimsoll ", "cargo ", "make ", "curl ", "envoy "];
    let mut blocks = 0;
    for (path, text) in documents() {
        let mut language = None;
        for (index, line) in text.lines().enumerate() {
            if let Some(opened) = line.trim_start().strip_prefix("```") {
                language = language.is_none().then(|| opened.trim());
                blocks += 1;
            } else if language.is_some_and(|one| one.is_empty() || one == "text") {
                let command = begins.iter().any(|begin| line.starts_with(begin));
                assert!(!command, "{path}:{}: use a console or sh block", index + 1);
            }
        }
    }
    assert!(blocks > 60, "only {blocks} block delimiters found");
}

/// Returns the names in the tables of docs/reference/metrics.md.
fn documented_metrics() -> BTreeSet<String> {
    let page = fs::read_to_string(repository().join("docs/reference/metrics.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the words that look like our metrics.
fn metrics_of(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("plimsoll_")).collect()
}

#[test]
fn alerts_and_dashboards_use_metrics_that_exist() {
    let known = documented_metrics();
    for (path, least) in [
        ("deploy/prometheus/plimsoll.rules.yaml", 8),
        ("deploy/grafana/plimsoll.json", 15),
    ] {
        let text = fs::read_to_string(repository().join(path)).unwrap();
        let used = metrics_of(&text);
        assert!(used.len() >= least, "{path} uses {used:?} only");
        for metric in used {
            assert!(
                known.contains(metric),
                "{path}: {metric} is not in docs/reference/metrics.md"
            );
        }
    }
}

#[test]
fn every_alert_is_complete_and_documented() {
    let text = fs::read_to_string(repository().join("deploy/prometheus/plimsoll.rules.yaml"));
    let rules = manifests(&text.unwrap()).remove(0);
    let page = fs::read_to_string(repository().join("docs/runbook.md")).unwrap();
    let sections: BTreeMap<&str, &str> = page
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once("\n\n"))
        .collect();
    let mut alerts = BTreeSet::new();
    for group in rules["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            let severity = rule["labels"]["severity"].as_str().unwrap();
            let expression = rule["expr"].as_str().unwrap();
            assert!(!metrics_of(expression).is_empty(), "{name}");
            let annotations = &rule["annotations"];
            assert!(annotations["summary"].is_string(), "{name} has no summary");
            let url = format!("http://localhost:18001/runbook?alert={name}");
            assert_eq!(annotations["runbook_url"], url.as_str(), "{name}");
            let section = sections
                .get(name)
                .unwrap_or_else(|| panic!("docs/runbook.md has no {name}"));
            let sentence = section.split(". ").next().unwrap_or_default();
            let first = sentence.to_lowercase();
            assert!(first.contains(severity), "{name} is a {severity}: {first}");
            alerts.insert(name);
        }
    }
    let drills = [
        "tests/attacks/drills.rs",
        "crates/plimsoll-control/src/admin/tests/alerts.rs",
    ]
    .map(|path| fs::read_to_string(repository().join(path)).unwrap());
    for alert in &alerts {
        let call = format!(".fires(\"{alert}\")");
        assert!(
            drills.iter().any(|text| text.contains(&call)),
            "{alert} has no drill"
        );
    }
    let known: BTreeSet<&str> = sections.into_keys().collect();
    assert_eq!(
        alerts, known,
        "docs/runbook.md has alerts that do not exist"
    );
}

#[test]
fn the_grafana_dashboard_is_well_formed() {
    let text = fs::read_to_string(repository().join("deploy/grafana/plimsoll.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut ids = BTreeSet::new();
    let mut panels = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "two panels with one id: {panel}"
        );
        let place = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        assert!(
            place("x") + place("w") <= 24,
            "wider than the page: {panel}"
        );
        if panel["type"] == "row" {
            continue;
        }
        panels += 1;
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "no unit: {panel}"
        );
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            assert!(!metrics_of(expression).is_empty(), "{expression}");
            let opened = expression.matches(['(', '{']).count();
            assert_eq!(
                opened,
                expression.matches([')', '}']).count(),
                "{expression}"
            );
        }
    }
    assert!(panels > 10, "only {panels} panels");
}

#[test]
fn systemd_units_validate_their_configuration_and_drop_privileges() {
    let mut units = 0;
    let units_of_services = files(&repository().join("deploy/systemd"))
        .into_iter()
        .filter(|(path, _)| path.ends_with(".service"));
    for (path, text) in units_of_services {
        units += 1;
        for line in [
            "DynamicUser=yes",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "TasksMax=1024",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{path}: {line} is missing"
            );
        }
        assert!(
            text.lines().any(|one| one.starts_with("MemoryMax=")),
            "{path}: one service must not take the memory of the machine"
        );
        let commands: Vec<_> = deployed(repository())
            .into_iter()
            .filter(|(file, _)| *file == path)
            .map(|(_, words)| words)
            .collect();
        let checked = commands.iter().find(|words| words[1] == "check").unwrap();
        let run = commands.iter().find(|words| words[1] != "check").unwrap();
        assert!(
            run.contains(checked.last().unwrap()),
            "{path} validates another file than it runs"
        );
        assert!(
            checked.contains(&run[1]),
            "{path} validates another kind than it runs"
        );
    }
    assert_eq!(units, 2);
}

#[test]
fn the_book_lists_every_page() {
    let root = repository().join("docs");
    let summary = fs::read_to_string(root.join("SUMMARY.md")).unwrap();
    let mut pages = 0;
    for (path, _) in files(&root) {
        let name = Path::new(&path)
            .strip_prefix(&root)
            .unwrap()
            .display()
            .to_string();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            pages += 1;
            assert!(
                summary.contains(&format!("]({name})")),
                "docs/SUMMARY.md does not list {name}"
            );
        }
    }
    assert!(pages > 20, "only {pages} pages found");
}

/// Returns links and pictures of a page with their lines, without those in code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let prose: String = line.split('`').step_by(2).collect();
            let targets = prose
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| (index + 1, target.to_owned())));
        }
    }
    found
}

/// The book has the pages and pictures of docs/, but no other file of the repository: a link to
/// those would be broken in the book. Write such a file name as code instead.
#[test]
fn links_of_the_book_stay_in_the_book() {
    let root = repository().join("docs");
    let summary = fs::read_to_string(root.join("SUMMARY.md")).unwrap();
    let mut checked = 0;
    for (path, text) in files(&root) {
        if !path.ends_with(".md") {
            continue;
        }
        let directory = Path::new(&path).parent().unwrap();
        for (line, target) in links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.starts_with("https://") {
                continue;
            }
            checked += 1;
            let place = directory.join(file).canonicalize().unwrap_or_default();
            let inside = place.strip_prefix(root.canonicalize().unwrap());
            let listed = inside.is_ok_and(|inside| {
                let page = inside
                    .extension()
                    .is_some_and(|extension| extension == "md");
                place.is_file() && (!page || summary.contains(&format!("]({})", inside.display())))
            });
            assert!(listed, "{path}:{line}: the book has no {target}");
        }
    }
    assert!(checked > 100, "only {checked} links found");
}

/// Paths in the trees of ARCHITECTURE.md: below a line `crates/…`, names of files and folders that
/// are indented by four columns per level.
fn paths_of_trees(text: &str) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    let mut paths = Vec::new();
    for line in text.lines() {
        if line.starts_with("crates/") {
            folders = vec![line.trim().to_owned()];
        }
        let entry = ["├── ", "└── "]
            .iter()
            .find_map(|mark| line.split_once(mark));
        let Some((indent, entry)) = entry else {
            continue;
        };
        let depth = indent.chars().count() / 4;
        folders.truncate(depth + 1);
        let names = entry.split("  ").next().unwrap_or_default();
        for name in names.split(' ').filter(|name| !name.is_empty()) {
            let path = format!("{}{name}", folders[depth]);
            if name.ends_with('/') {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths
}

#[test]
fn files_in_the_trees_of_the_architecture_are_there() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let paths = paths_of_trees(&text);
    assert!(
        paths.len() > 60,
        "only {} paths were found: have they moved?",
        paths.len()
    );
    for path in paths {
        let there = repository().join(&path).exists();
        assert!(there, "ARCHITECTURE.md: {path} does not exist");
    }
}
