//! Tests that the command line accepts every command in documents, help texts and `deploy/`.
//!
//! The suite `tests/documents` finds these commands, and runs those in documents. They are parsed
//! here because parsing needs the definition of the command line.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use plimsoll_documents::commands::{commands, documented};
use plimsoll_documents::deployed::{deployed, files};

use super::Cli;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the error of the command line for these arguments; `--help` and `--version` count as
/// accepted.
fn rejection(words: &[String]) -> Option<String> {
    let accepted = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    match Cli::try_parse_from(words) {
        Err(error) if !accepted.contains(&error.kind()) => {
            Some(format!("{}: {error}", words.join(" ")))
        }
        _ => None,
    }
}

/// Returns the command line of `plimsoll` if `words` run it, directly or with `cargo run`.
fn ours(words: &[String]) -> Option<Vec<String>> {
    let program = words.first()?;
    if program == "plimsoll" || program.ends_with("/plimsoll") {
        return Some([&["plimsoll".to_owned()], &words[1..]].concat());
    }
    let runs_us = program == "cargo"
        && words.get(1).is_some_and(|word| word == "run")
        && !words.iter().any(|word| word == "--example");
    let separator = words.iter().position(|word| word == "--")?;
    runs_us.then(|| [&["plimsoll".to_owned()], &words[separator + 1..]].concat())
}

/// Returns path and text of every Markdown file outside build directories.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(ROOT);
    let directories = ["docs", "examples", "vectors"].map(|directory| files(&root.join(directory)));
    let mut all: Vec<_> = directories.into_iter().flatten().collect();
    all.retain(|(path, _)| path.ends_with(".md"));
    for name in ["README.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        all.push((name.to_owned(), text));
    }
    all
}

#[test]
fn commands_of_documents_are_accepted() {
    let mut rejected = Vec::new();
    let mut accepted = 0;
    for (path, text) in documents() {
        for command in documented(&text) {
            let Some(words) = ours(&command.words) else {
                continue;
            };
            match rejection(&words) {
                Some(rejection) => rejected.push(format!("{path}:{}: {rejection}", command.line)),
                None => accepted += 1,
            }
        }
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
    assert!(accepted > 25, "only {accepted} commands found");
}

#[test]
fn commands_of_deployments_are_accepted() {
    let all = deployed(Path::new(ROOT));
    let rejected: Vec<_> = all
        .iter()
        .filter_map(|(path, words)| Some(format!("{path}: {}", rejection(words)?)))
        .collect();
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
    for (ending, least) in [(".service", 4), ("Dockerfile", 1), (".yaml", 2)] {
        let found = all
            .iter()
            .filter(|(path, _)| path.ends_with(ending))
            .count();
        assert!(found >= least, "only {found} commands found in {ending}");
    }
}

#[test]
fn examples_of_help_texts_are_accepted() {
    let mut rejected = Vec::new();
    let mut accepted = 0;
    let mut waiting = vec![Cli::command()];
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().cloned());
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default()
            .replace("\\\n      ", "");
        for line in help
            .lines()
            .filter_map(|line| line.strip_prefix("  plimsoll"))
        {
            // Two spaces separate an example command from its description.
            let example = line.split("  ").next().unwrap_or_default();
            for words in commands(&format!("plimsoll{example}")) {
                match ours(&words).and_then(|words| rejection(&words)) {
                    Some(rejection) => rejected.push(rejection),
                    None => accepted += 1,
                }
            }
        }
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
    assert!(accepted > 25, "only {accepted} examples found");
}

#[test]
fn wrong_commands_are_rejected() {
    let words = |line: &str| commands(line).remove(0);
    assert!(rejection(&words("plimsoll explain")).is_some());
    assert!(rejection(&words("plimsoll control -c x --lisen 1:2")).is_some());
    assert_eq!(
        rejection(&words("plimsoll control -c x --listen 127.0.0.1:2")),
        None
    );
    assert_eq!(rejection(&words("plimsoll help sim")), None);
    assert_eq!(
        ours(&words("cargo run -- sim x")),
        Some(words("plimsoll sim x"))
    );
    assert_eq!(ours(&words("cargo test -- sim x")), None);
    assert_eq!(
        ours(&words("target/release/plimsoll -V")),
        Some(words("plimsoll -V"))
    );
}
