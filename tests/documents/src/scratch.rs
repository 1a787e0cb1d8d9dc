//! Scratch directory that looks like the root of the repository, and programs for its `PATH`.
//!
//! Files that pages write end up here. Examples are copied with other ports; the rest is linked.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use plimsoll_testing::{plimsoll, repository, target};

use super::ports::Ports;

pub(crate) struct Scratch {
    directory: PathBuf,
    pub(crate) ports: Ports,
}

impl Scratch {
    /// Creates the directory of a page, with an Envoy if it needs one. It stays until the next run.
    pub(crate) fn new(page: &str, envoy: Option<&Path>) -> Self {
        let name = page.replace('/', "-");
        let directory = target().join("tmp").join("pages").join(name);
        // It does not exist in the first run.
        let _ = fs::remove_dir_all(&directory);
        let scratch = Self {
            directory,
            ports: Ports::find(),
        };
        scratch.link_repository();
        scratch.write_programs();
        if let Some(envoy) = envoy {
            let script = ENVOY_SCRIPT.replace("ENVOY", &envoy.display().to_string());
            scratch.write_program(&scratch.programs().join("envoy"), &script);
        }
        scratch
    }

    /// Replacement of the root of the repository.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub(crate) fn outputs(&self) -> PathBuf {
        self.directory.join("outputs")
    }

    /// Value of `PATH`, with our programs first.
    pub(crate) fn path(&self) -> String {
        let inherited = std::env::var("PATH").unwrap_or_default();
        format!("{}:{inherited}", self.programs().display())
    }

    fn programs(&self) -> PathBuf {
        self.directory.join("programs")
    }

    fn link_repository(&self) {
        let root = self.root();
        fs::create_dir_all(root.join("target/release")).unwrap();
        for entry in fs::read_dir(repository()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name == "examples" {
                self.copy(&entry.path(), &root.join("examples"));
            } else if name != "target" && name != ".git" {
                symlink(entry.path().canonicalize().unwrap(), root.join(name)).unwrap();
            }
        }
    }

    /// Copies a directory of text files with other ports.
    fn copy(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let from = entry.unwrap().path();
            let to = to.join(from.file_name().unwrap());
            if from.is_dir() {
                self.copy(&from, &to);
            } else {
                let text = fs::read_to_string(&from).unwrap();
                fs::write(to, self.ports.rewrite(&text)).unwrap();
            }
        }
    }

    fn write_programs(&self) {
        fs::create_dir_all(self.programs()).unwrap();
        self.write_program(&self.programs().join("plimsoll"), PLIMSOLL_SCRIPT);
        self.write_program(
            &self.root().join("target/release/plimsoll"),
            PLIMSOLL_SCRIPT,
        );
        self.write_program(&self.programs().join("cargo"), CARGO_SCRIPT);
        self.write_program(&self.programs().join("curl"), CURL_SCRIPT);
    }

    fn write_program(&self, file: &Path, script: &str) {
        let program = plimsoll();
        let built = program.parent().unwrap();
        let script = self
            .ports
            .rewrite(script)
            .replace("PLIMSOLL", &program.display().to_string())
            .replace("BUILT", &built.display().to_string())
            .replace("PROGRAMS", &self.programs().display().to_string());
        fs::write(file, script).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Scratch {
    /// Removes the shared memory that killed Envoys leave behind.
    fn drop(&mut self) {
        for id in self.ports.all() {
            let _ = fs::remove_file(format!("/dev/shm/envoy_shared_memory_{id}0"));
        }
    }
}

/// Runs the binary under test. Replaces default ports, and stops `top` with SIGINT once it has
/// printed a page.
const PLIMSOLL_SCRIPT: &str = r#"#!/usr/bin/env bash
set -euo pipefail
case "${1-} $*" in
  "bootstrap "*" --control "*) ;;
  "bootstrap "*) set -- "$@" --control 127.0.0.1:18000 ;;
  "top "*" --once"*) ;;
  "top "*)
    page=$(mktemp -p .)
    'PLIMSOLL' "$@" >"$page" &
    until [[ -s $page ]]; do sleep 0.05; done
    kill -INT $!
    wait $!
    exec cat "$page"
    ;;
esac
exec 'PLIMSOLL' "$@"
"#;

/// Runs Envoy with a base id, so that its shared memory does not clash with other Envoys.
const ENVOY_SCRIPT: &str = r#"#!/usr/bin/env bash
[[ " $* " == *" --base-id "* ]] || set -- "$@" --base-id 10
exec 'ENVOY' "$@"
"#;

/// Replaces cargo by what the tests have built already.
const CARGO_SCRIPT: &str = r#"#!/usr/bin/env bash
set -euo pipefail
words=$*
name=""
case "${words/ -q/}" in
  "build --release -p plimsoll") exec test -x target/release/plimsoll ;;
  "run -p plimsoll-"*" --example "*)
    name=${words#* --example }
    name=${name%% *}
    while (($# > 0)) && [[ $1 != -- ]]; do shift; done
    (($# == 0)) || shift
    ;;
  *) echo "cargo $*: not known to the tests of documents" >&2; exit 97 ;;
esac
if ! [[ -x BUILT/examples/$name ]]; then
  echo "run 'cargo build --workspace --all-features --examples' first" >&2
  exit 97
fi
if [[ $name == axum ]] && (($# == 0)); then
  set -- 127.0.0.1:8080
fi
exec "BUILT/examples/$name" "$@"
"#;

/// Runs curl with an exit code for HTTP errors.
const CURL_SCRIPT: &str = r#"#!/usr/bin/env bash
PATH=${PATH#PROGRAMS:}
PATH=${PATH//PROGRAMS:/}
exec curl --fail-with-body "$@"
"#;
