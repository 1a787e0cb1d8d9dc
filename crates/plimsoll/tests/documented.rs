//! Documents say what is: commands they show exist and, where that is cheap, do what they say;
//! files and targets they name are there; alerts and dashboards use metrics that exist.
//!
//! Whether the command line accepts them is tested in `src/cmd/documented.rs`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "documented/commands.rs"]
mod commands;
#[path = "documented/deployed.rs"]
mod deployed;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use commands::{Documented, documented};
use deployed::{deployed, files, manifests};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Folders whose files documents name.
const FOLDERS: [&str; 7] = [
    "bench/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "scripts/",
    "vectors/",
];

/// Every command of every document, with its file.
fn all_commands() -> Vec<(String, Documented)> {
    let root = Path::new(ROOT);
    let mut texts: Vec<_> = ["docs", "examples"]
        .map(|one| files(&root.join(one)))
        .concat();
    for name in ["README.md", "CONTRIBUTING.md"] {
        texts.push((
            name.to_owned(),
            fs::read_to_string(root.join(name)).unwrap(),
        ));
    }
    texts.retain(|(path, _)| path.ends_with(".md"));
    let commands = |(path, text): (String, String)| {
        let all = documented(&text).into_iter();
        all.map(|one| (path.clone(), one)).collect::<Vec<_>>()
    };
    texts.into_iter().flat_map(commands).collect()
}

fn plimsoll(args: &[String]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args).current_dir(ROOT).output().unwrap()
}

/// Files of the repository among the words.
fn named_files(words: &[String]) -> impl Iterator<Item = &String> {
    let named = |word: &&String| FOLDERS.iter().any(|folder| word.starts_with(folder));
    words
        .iter()
        .filter(named)
        .filter(|word| !word.contains(['$', '*']))
}

#[test]
fn files_that_commands_name_are_there() {
    let mut named = 0;
    for (path, command) in all_commands() {
        for file in named_files(&command.words) {
            let there = Path::new(ROOT).join(file).exists();
            assert!(there, "{path}:{}: {file} does not exist", command.line);
            named += 1;
        }
    }
    assert!(
        named > 15,
        "only {named} files were found: have they moved?"
    );
}

#[test]
fn targets_of_make_are_there() {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let mut asked = 0;
    for (path, command) in all_commands() {
        let [program, targets @ ..] = command.words.as_slice() else {
            continue;
        };
        if program != "make" {
            continue;
        }
        for target in targets.iter().filter(|word| !word.contains('=')) {
            let there = makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")));
            assert!(
                there,
                "{path}:{}: make has no target {target}",
                command.line
            );
            asked += 1;
        }
    }
    assert!(
        asked >= 3,
        "only {asked} targets were found: have they moved?"
    );
}

#[test]
fn packages_and_examples_of_cargo_are_there() {
    for (path, command) in all_commands() {
        let words = &command.words;
        if words.first().is_none_or(|program| program != "cargo") {
            continue;
        }
        let after = |flag: &str| {
            let at = words.iter().position(|word| word == flag)?;
            words.get(at + 1)
        };
        let package = after("-p").map_or("plimsoll", String::as_str);
        let folder = Path::new(ROOT).join("crates").join(package);
        assert!(
            folder.is_dir(),
            "{path}:{}: no package {package}",
            command.line
        );
        for (flag, place) in [
            ("--example", "examples"),
            ("--test", "tests"),
            ("--bench", "benches"),
        ] {
            if let Some(name) = after(flag) {
                let file = folder.join(place).join(name);
                let there = file.with_extension("rs").is_file() || file.join("main.rs").is_file();
                assert!(there, "{path}:{}: no {flag} {name}", command.line);
            }
        }
    }
}

/// What can be run at once, without a network, in a second; long-running commands have their files
/// checked instead.
fn cheap(words: &[String]) -> Option<Vec<String>> {
    let (program, args) = words.split_first()?;
    if program != "plimsoll" {
        return None;
    }
    let writes = ["--html", "--csv"];
    let has_strange_file = args.iter().any(|word| {
        let is_file = [".yaml", ".toml", ".json"]
            .iter()
            .any(|ending| word.ends_with(ending));
        is_file && !Path::new(ROOT).join(word).exists()
    });
    if has_strange_file || args.iter().any(|arg| arg.contains('$')) {
        return None;
    }
    match args.first()?.as_str() {
        "bootstrap" | "check" | "completions" | "explain" | "help" | "vectors" | "--version"
        | "-V" | "--help"
            if !args.iter().any(|arg| writes.contains(&arg.as_str())) =>
        {
            Some(args.to_vec())
        }
        "control" | "proxy" | "sim" => {
            let files: Vec<_> = named_files(args).cloned().collect();
            (!files.is_empty()).then(|| [vec!["check".to_owned()], files].concat())
        }
        _ => None,
    }
}

#[test]
fn cheap_commands_do_what_documents_say() {
    let mut run = BTreeSet::new();
    for (path, command) in all_commands() {
        let Some(args) = cheap(&command.words) else {
            continue;
        };
        if !run.insert(args.clone()) {
            continue;
        }
        let output = plimsoll(&args);
        let (said, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&said);
        let line = command.line;
        assert!(
            output.status.success(),
            "{path}:{line}: plimsoll {args:?}: {said}{errors}"
        );
        assert!(
            !said.is_empty(),
            "{path}:{line}: plimsoll {args:?} says nothing"
        );
    }
    assert!(
        run.len() > 12,
        "only {} commands were run: have they moved?",
        run.len()
    );
}

/// Names in the tables of docs/reference/metrics.md.
fn documented_metrics() -> BTreeSet<String> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/reference/metrics.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Words that look like metrics of ours.
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
        let text = fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
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
    let text = fs::read_to_string(Path::new(ROOT).join("deploy/prometheus/plimsoll.rules.yaml"));
    let rules = manifests(&text.unwrap()).remove(0);
    let page = fs::read_to_string(Path::new(ROOT).join("docs/operations.md")).unwrap();
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `Plimsoll"))
        .count();
    let mut alerts = 0;
    for group in rules["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(
                !metrics_of(rule["expr"].as_str().unwrap()).is_empty(),
                "{name}"
            );
            assert!(
                rule["annotations"]["summary"].is_string(),
                "{name} has no summary"
            );
            let row = format!("| `{name}` | {severity} |");
            assert!(page.contains(&row), "docs/operations.md has no row {row}");
            alerts += 1;
        }
    }
    assert_eq!(
        alerts, rows,
        "docs/operations.md has rows for alerts that are gone"
    );
}

#[test]
fn the_grafana_dashboard_is_well_formed() {
    let text = fs::read_to_string(Path::new(ROOT).join("deploy/grafana/plimsoll.json")).unwrap();
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
fn configurations_in_manifests_are_fine() {
    let directory = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for (path, text) in files(&Path::new(ROOT).join("deploy/kubernetes")) {
        for manifest in manifests(&text) {
            assert!(
                manifest["kind"].is_string(),
                "{path}: a document without a kind"
            );
            let Some(data) = manifest["data"].as_object() else {
                continue;
            };
            for (name, content) in data {
                let file = directory.path().join(name);
                fs::write(&file, content.as_str().unwrap()).unwrap();
                let kind = name.strip_suffix(".yaml").unwrap().to_owned();
                let file = file.display().to_string();
                let output = plimsoll(&["check".to_owned(), "--kind".to_owned(), kind, file]);
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{path}: {said}");
                checked += 1;
            }
        }
    }
    assert!(
        checked >= 2,
        "only {checked} configurations were found: have they moved?"
    );
}

#[test]
fn units_check_what_they_run_and_give_up_rights() {
    let mut units = 0;
    for (path, text) in files(&Path::new(ROOT).join("deploy/systemd")) {
        units += 1;
        for line in [
            "DynamicUser=yes",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
        ] {
            assert!(text.lines().any(|one| one == line), "{path} lacks {line}");
        }
        let commands: Vec<_> = deployed(Path::new(ROOT))
            .into_iter()
            .filter(|(file, _)| *file == path)
            .map(|(_, words)| words)
            .collect();
        let checked = commands.iter().find(|words| words[1] == "check").unwrap();
        let run = commands.iter().find(|words| words[1] != "check").unwrap();
        assert!(
            run.contains(checked.last().unwrap()),
            "{path} checks another file than it runs"
        );
        assert!(
            checked.contains(&run[1]),
            "{path} checks another kind than it runs"
        );
    }
    assert_eq!(units, 2);
}

#[test]
fn the_book_lists_every_page() {
    let root = Path::new(ROOT).join("docs");
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
                "docs/SUMMARY.md lacks {name}"
            );
        }
    }
    assert!(
        pages > 20,
        "only {pages} pages were found: have they moved?"
    );
}
