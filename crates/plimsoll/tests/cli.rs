//! The command line from outside: help, version, exit codes, and a reader that leaves early.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output, Stdio};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors");

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
fn help_teaches_by_example_and_names_the_exit_codes() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let output = plimsoll(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let help = text(&output.stdout);
        for part in [
            "Usage: plimsoll",
            "Examples:",
            "plimsoll vectors vectors",
            "Exit codes:",
        ] {
            assert!(help.contains(part), "{args:?} lacks {part:?}:\n{help}");
        }
        assert!(
            !help.contains('\u{1b}'),
            "colour belongs on a terminal only"
        );
    }
}

#[test]
fn every_subcommand_has_help() {
    let output = plimsoll(&["vectors", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for part in [
        "<DIR>",
        "--json",
        "N passed, M failed, K skipped",
        "Exit codes:",
    ] {
        assert!(help.contains(part), "{part:?} is missing:\n{help}");
    }
    assert_eq!(text(&plimsoll(&["help", "vectors"]).stdout), help);
}

#[test]
fn the_version_says_what_was_built() {
    let package = format!("plimsoll {}\n", env!("CARGO_PKG_VERSION"));
    let output = plimsoll(&["-V"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), package);
    let output = plimsoll(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.starts_with(&package), "{said}");
    let value = |name: &str| {
        let mut lines = said.lines().map(str::split_whitespace);
        let line = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
        line.map(|words| words.collect::<Vec<_>>().join(" "))
    };
    assert!(
        value("commit").is_some_and(|commit| !commit.is_empty()),
        "{said}"
    );
    assert!(
        value("target").unwrap().contains(std::env::consts::ARCH),
        "{said}"
    );
    assert!(value("compiler").unwrap().starts_with("rustc 1."), "{said}");
    assert!(
        ["debug", "release"].contains(&&*value("profile").unwrap()),
        "{said}"
    );
}

#[test]
fn wrong_usage_ends_with_2_and_says_why_on_stderr() {
    for (args, hint) in [
        (&[][..], "Usage: plimsoll"),
        (&["vectros"], "vectros"),
        (&["vectors"], "<DIR>"),
        (&["vectors", VECTORS, "extra"], "extra"),
        (&["vectors", VECTORS, "--jsno"], "--jsno"),
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
fn unreadable_input_ends_with_2_and_names_it() {
    let missing = concat!(env!("CARGO_MANIFEST_DIR"), "/no-such-directory");
    let a_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let nothing_to_run = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    for (dir, reason) in [
        (missing, "cannot read"),
        (a_file, "cannot read"),
        (nothing_to_run, "no *.json"),
    ] {
        let output = plimsoll(&["vectors", dir]);
        assert_eq!(output.status.code(), Some(2), "{dir}");
        assert!(output.stdout.is_empty(), "{dir}");
        let message = text(&output.stderr);
        assert!(
            message.starts_with("error: ") && message.contains(reason),
            "{message}"
        );
        assert!(message.contains(dir), "{message}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for args in [
        &["vectors", VECTORS][..],
        &["vectors", VECTORS, "--json"],
        &["--help"],
    ] {
        // The reader is gone before the process starts: every write fails with a broken pipe.
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
