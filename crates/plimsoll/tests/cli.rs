//! Tests of the command line: help, version, exit codes and broken pipes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output, Stdio};

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/explain/force-local-zone.yaml"
);

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_has_examples_and_exit_codes() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let output = plimsoll(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let help = text(&output.stdout);
        for part in [
            "Usage: plimsoll",
            "Examples:",
            "plimsoll explain scenario.yaml",
            "Exit codes:",
        ] {
            assert!(
                help.contains(part),
                "{args:?}: {part:?} is missing:\n{help}"
            );
        }
        assert!(!help.contains('\u{1b}'), "color is for terminals only");
    }
}

#[test]
fn every_subcommand_has_help() {
    let output = plimsoll(&["explain", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for part in [
        "<SCENARIO>",
        "--json",
        "Fields of a scenario:",
        "Exit codes:",
    ] {
        assert!(help.contains(part), "{part:?} is missing:\n{help}");
    }
    assert_eq!(text(&plimsoll(&["help", "explain"]).stdout), help);
}

#[test]
fn the_long_version_has_commit_target_and_compiler() {
    let package = format!("plimsoll {}\n", env!("CARGO_PKG_VERSION"));
    let output = plimsoll(&["-V"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), package);
    let output = plimsoll(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let version = text(&output.stdout);
    assert!(version.starts_with(&package), "{version}");
    let value = |name: &str| {
        let mut lines = version.lines().map(str::split_whitespace);
        let line = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
        line.map(|words| words.collect::<Vec<_>>().join(" "))
    };
    assert!(
        value("commit").is_some_and(|commit| !commit.is_empty()),
        "{version}"
    );
    assert!(
        value("target").unwrap().contains(std::env::consts::ARCH),
        "{version}"
    );
    assert!(
        value("compiler").unwrap().starts_with("rustc 1."),
        "{version}"
    );
    assert!(
        ["debug", "release"].contains(&&*value("profile").unwrap()),
        "{version}"
    );
}

#[test]
fn wrong_usage_exits_with_2_and_prints_to_stderr() {
    for (args, hint) in [
        (&[][..], "Usage: plimsoll"),
        (&["explian"], "explian"),
        (&["explain"], "<SCENARIO>"),
        (&["schema", "control", "extra"], "extra"),
        (&["explain", SCENARIO, "--jsno"], "--jsno"),
    ] {
        let output = plimsoll(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(
            text(&output.stderr).contains(hint),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn unreadable_input_exits_with_2_and_names_the_file() {
    let missing = concat!(env!("CARGO_MANIFEST_DIR"), "/no-such-directory");
    let a_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (path, reason) in [(missing, "No such file"), (a_file, "expected")] {
        let output = plimsoll(&["explain", path]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(output.stdout.is_empty(), "{path}");
        let message = text(&output.stderr);
        assert!(
            message.starts_with("error: ") && message.contains(reason),
            "{message}"
        );
        assert!(message.contains(path), "{message}");
    }
}

#[test]
fn a_broken_pipe_is_not_an_error() {
    for args in [
        &["explain", SCENARIO][..],
        &["explain", SCENARIO, "--json"],
        &["--help"],
    ] {
        // The read end is closed before the process starts, so every write fails.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let child = command
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
}
