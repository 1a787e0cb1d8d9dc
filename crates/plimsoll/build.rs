//! Notes what is being built, for `plimsoll --version`.
//!
//! Nothing here is needed to build: without git, or outside a clone, the commit is unknown.
//! Whoever builds from an archive may say it (`PLIMSOLL_COMMIT`). Debug builds do not ask git, or
//! every commit would build the binary and its tests again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    let said = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let profile = said("PROFILE").unwrap_or_else(|| "unknown".to_owned());
    let asked = || (profile == "release").then(commit).flatten();
    let commit = said("PLIMSOLL_COMMIT").or_else(asked);
    let compiler = said("RUSTC").and_then(|rustc| output(&rustc, &["--version"]));
    for (name, value) in [
        ("PLIMSOLL_BUILD_COMMIT", commit),
        ("PLIMSOLL_BUILD_PROFILE", Some(profile.clone())),
        ("PLIMSOLL_BUILD_TARGET", said("TARGET")),
        ("PLIMSOLL_BUILD_COMPILER", compiler),
    ] {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
}

/// The commit that is checked out, with a mark when files differ from it.
fn commit() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    // The log of HEAD grows with every commit and checkout. A file that is not there would run this
    // script each time.
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_some() { "-modified" } else { "" };
    Some(format!("{commit}{mark}"))
}

/// What a program prints; `None` when it prints nothing, fails or is not there.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
