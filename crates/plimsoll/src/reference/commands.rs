//! Page about commands: usage, arguments and exit codes, from the definition of the command line.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

pub(super) fn page(mut root: Command) -> String {
    root.build();
    let mut text = String::new();
    let commands = root.get_subcommands();
    for command in commands.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        section(command, "plimsoll", &mut text);
    }
    text
}

fn section(command: &Command, parent: &str, text: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let about = command
        .get_long_about()
        .or_else(|| command.get_about())
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut paragraphs = about.split("\n\n");
    let first = paragraphs.next().unwrap_or_default().trim_end_matches('.');
    let _ = writeln!(text, "\n## {name}\n\n{first}.");
    for paragraph in paragraphs {
        let _ = writeln!(text, "\n{}", paragraph.replace('\n', " "));
    }
    let usage = command.clone().render_usage();
    let _ = writeln!(text, "\n```text\n{usage}\n```");
    arguments(command, text);
    let help = command.get_after_help().map(ToString::to_string);
    let codes = help
        .as_deref()
        .and_then(|help| help.split("Exit codes: ").nth(1));
    if let Some(codes) = codes {
        let _ = writeln!(text, "\nExit codes: {}", codes.replace('\n', " "));
    }
    for inner in command
        .get_subcommands()
        .filter(|one| one.get_name() != "help")
    {
        section(inner, &name, text);
    }
}

fn arguments(command: &Command, text: &mut String) {
    let shown = |one: &&Arg| !one.is_hide_set() && !is_built_in(one);
    let all: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if all.is_empty() {
        return;
    }
    text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    for argument in all {
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let mut help = help
            .map(ToString::to_string)
            .unwrap_or_default()
            .replace('\n', " ");
        let values = argument.get_possible_values();
        let listed = values.iter().filter(|value| !value.is_hide_set());
        let names: Vec<_> = listed
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !names.is_empty() && argument.get_action().takes_values() {
            let _ = write!(help, ": {}", names.join(", "));
        }
        let flag = !argument.get_action().takes_values();
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .filter(|value| !flag && !value.is_empty())
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        let default = if argument.is_required_set() {
            "required".to_owned()
        } else {
            defaults.join(" ")
        };
        let spelling = spelling(argument);
        let help = help.replace('|', "\\|");
        let _ = writeln!(text, "| `{spelling}` | {default} | {help} |");
    }
}

fn is_built_in(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

/// Returns the argument as typed: `-c, --config FILE`, or only `FILE`.
fn spelling(argument: &Arg) -> String {
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = argument.get_long() {
        names.push(format!("--{long}"));
    }
    let value = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    match (names.is_empty(), argument.get_action().takes_values()) {
        (true, _) => value,
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    }
}
