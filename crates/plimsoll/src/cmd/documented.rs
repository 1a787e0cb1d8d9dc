//! What documents, help texts and files of `deploy/` say must be what the command line accepts.
//!
//! Only tests. Finding commands lives with the tests of the crate, which also run those of
//! documents; here they are parsed, for which the command line itself is needed.

#[path = "../../tests/documented/commands.rs"]
mod commands;
#[path = "../../tests/documented/deployed.rs"]
mod deployed;

use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::Cli;
use commands::documented;
use deployed::{deployed, files};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Why our command line does not accept the words; help and version are fine.
fn refusal(words: &[String]) -> Option<String> {
    let fine = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    match Cli::try_parse_from(words) {
        Err(error) if !fine.contains(&error.kind()) => {
            Some(format!("{}: {error}", words.join(" ")))
        }
        _ => None,
    }
}

/// The words from the name of our program on, if it is what is run.
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

/// Markdown files of the repository, but for those in build folders.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(ROOT);
    let folders = ["docs", "examples", "vectors"].map(|folder| files(&root.join(folder)));
    let mut all: Vec<_> = folders.into_iter().flatten().collect();
    all.retain(|(path, _)| path.ends_with(".md"));
    for name in ["README.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        all.push((name.to_owned(), text));
    }
    all
}

#[test]
fn commands_of_documents_are_accepted() {
    let mut refused = Vec::new();
    let mut accepted = 0;
    for (path, text) in documents() {
        for command in documented(&text) {
            let Some(words) = ours(&command.words) else {
                continue;
            };
            match refusal(&words) {
                Some(refusal) => refused.push(format!("{path}:{}: {refusal}", command.line)),
                None => accepted += 1,
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(
        accepted > 25,
        "only {accepted} commands were found: have they moved?"
    );
}

#[test]
fn commands_of_deployments_are_accepted() {
    let all = deployed(Path::new(ROOT));
    let refused: Vec<_> = all
        .iter()
        .filter_map(|(path, words)| Some(format!("{path}: {}", refusal(words)?)))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    for (ending, least) in [(".service", 4), ("Dockerfile", 1), (".yaml", 2)] {
        let found = all
            .iter()
            .filter(|(path, _)| path.ends_with(ending))
            .count();
        assert!(
            found >= least,
            "only {found} commands in {ending}: have they moved?"
        );
    }
}

#[test]
fn examples_of_help_texts_are_accepted() {
    let mut refused = Vec::new();
    let mut accepted = 0;
    let mut waiting = vec![Cli::command()];
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().cloned());
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default().replace("\\\n      ", "");
        for line in help
            .lines()
            .filter_map(|line| line.strip_prefix("  plimsoll"))
        {
            // Behind a gap is what it is good for.
            let example = line.split("  ").next().unwrap_or_default();
            for words in commands::commands(&format!("plimsoll{example}")) {
                match ours(&words).and_then(|words| refusal(&words)) {
                    Some(refusal) => refused.push(refusal),
                    None => accepted += 1,
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(
        accepted > 25,
        "only {accepted} examples were found: have they moved?"
    );
}

#[test]
fn what_is_wrong_is_refused() {
    let words = |line: &str| commands::commands(line).remove(0);
    assert!(refusal(&words("plimsoll explain")).is_some());
    assert!(refusal(&words("plimsoll control -c x --lisen 1:2")).is_some());
    assert_eq!(
        refusal(&words("plimsoll control -c x --listen 127.0.0.1:2")),
        None
    );
    assert_eq!(refusal(&words("plimsoll help sim")), None);
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
