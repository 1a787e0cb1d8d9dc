//! `plimsoll check FILE…`: validates files and prints one line for each. `crate::check` recognizes
//! and validates; this module formats the result.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Exit, ignore_broken_pipe};
use crate::check::{Kind, Verdict};

/// Validate configuration files and scenarios without running anything
///
/// Prints one line per file: the kind of file, and either a summary or the first error with the
/// path of the field, the reason, line and column. Files are read by the code that uses them at run
/// time, so unknown fields are errors. Nothing is contacted and no port is opened. A control
/// plane's file is checked with the files it includes, a proxy's with the certificates it names.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Files to validate, of any kind
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Kind of all files given, instead of recognizing it from their content
    #[arg(long)]
    kind: Option<Kind>,
    /// Print a JSON array with one object per file
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll check control.yaml
  plimsoll check --kind cluster orders.yaml
  plimsoll check --json deploy/*.yaml

The kind is recognized from the extension (.toml is a scenario of sim) or from the top-level keys:
`xds_servers` means a gRPC bootstrap, `own_locality` or `upstream` a scenario of explain,
`static_resources` a proxy, `services`, `listen`, `include` and similar keys a control plane,
`name` a cluster. A bootstrap written for Envoy is checked as the file of a proxy: fields that
plimsoll proxy does not support are errors, even if Envoy accepts them. `plimsoll schema` prints
the fields of a file.

Exit codes: 0 all files are valid, 1 at least one is not, 2 wrong usage, or a file that cannot be
read or recognized.";

struct Checked<'a> {
    file: &'a Path,
    kind: Kind,
    verdict: Verdict,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let checked: anyhow::Result<Vec<Checked<'_>>> = args
        .files
        .iter()
        .map(|file| check_one(file, args.kind))
        .collect();
    let checked = checked?;
    let written = if args.json {
        write_json(&checked, out)
    } else {
        write_text(&checked, out)
    };
    ignore_broken_pipe(written.and_then(|()| out.flush())).context("cannot write the result")?;
    let valid = checked.iter().all(|one| one.verdict.is_ok());
    Ok(if valid { Exit::Ok } else { Exit::Failure })
}

fn check_one(file: &Path, kind: Option<Kind>) -> anyhow::Result<Checked<'_>> {
    let text = plimsoll_serve::read_file(file).with_context(|| file.display().to_string())?;
    let kind = kind
        .or_else(|| Kind::recognize(file, &text))
        .with_context(|| {
            let file = file.display();
            format!("{file}: kind of file not recognized; name it with --kind")
        })?;
    let verdict = kind.check(file, &text);
    Ok(Checked {
        file,
        kind,
        verdict,
    })
}

fn write_text(checked: &[Checked<'_>], out: &mut impl Write) -> io::Result<()> {
    for one in checked {
        let (file, kind) = (one.file.display(), one.kind.title());
        match &one.verdict {
            Ok(summary) if summary.is_empty() => writeln!(out, "{file}: ok ({kind})")?,
            Ok(summary) => writeln!(out, "{file}: ok ({kind}: {summary})")?,
            Err(error) => writeln!(out, "{file}: invalid ({kind}): {error}")?,
        }
    }
    Ok(())
}

fn write_json(checked: &[Checked<'_>], out: &mut impl Write) -> io::Result<()> {
    let all: Vec<Value> = checked.iter().map(as_json).collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn as_json(one: &Checked<'_>) -> Value {
    let mut json = json!({
        "file": one.file.display().to_string(),
        "kind": one.kind,
        "fine": one.verdict.is_ok(),
    });
    match &one.verdict {
        Ok(summary) => json["summary"] = json!(summary),
        Err(fault) => {
            let (error, location) = (&fault.error, fault.error.location());
            json["fault"] = json!({
                "file": Some(&fault.file).filter(|file| !file.is_empty()),
                "path": error.path(),
                "reason": error.reason(),
                "line": location.map(|location| location.line),
                "column": location.map(|location| location.column),
            });
        }
    }
    json
}
