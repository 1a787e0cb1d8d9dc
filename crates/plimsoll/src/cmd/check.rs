//! `plimsoll check FILE…`: says whether files are fine, and where they are not.
//!
//! Recognizing and checking live in `check`; here is only the page and the exit code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use super::{Exit, unless_closed};
use crate::check::{self, Kind, Verdict};

/// Check configuration files and scenarios without running anything
///
/// Says what kind of file it took each one for and, when it is not fine, the path of the field that
/// is wrong, the reason, line and column. Files are read by the same code as when they are used, so
/// unknown fields are faults; nothing is contacted and nothing listens. The file of a control plane
/// is checked with all that it includes, that of a proxy with the certificates it names.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the files are, instead of what they look like
    #[arg(long)]
    kind: Option<Kind>,
    /// Print JSON: an array with an object per file
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll check control.yaml
  plimsoll check --kind cluster orders.yaml
  plimsoll check --json deploy/*.yaml

A file is recognized by its ending (.toml is a scenario of sim) or by what stands at the top:
`xds_servers` is a bootstrap, `own_locality` or `upstream` a scenario of explain,
`static_resources` a proxy, `services`, `listen`, `include` and other settings a control plane,
`name` a cluster. A bootstrap of an Envoy is taken for the file of a proxy: what plimsoll proxy
lacks is then a fault, though Envoy may take it. `plimsoll schema` prints what a file may say.

Exit codes: 0 all files are fine, 1 one is not, 2 wrong usage, or a file that cannot be read or
recognized.";

/// One file and what was found.
struct Checked<'a> {
    file: &'a Path,
    kind: Kind,
    verdict: Verdict,
}

/// Checks everything, then prints.
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
    unless_closed(written.and_then(|()| out.flush())).context("cannot write the verdict")?;
    let fine = checked.iter().all(|one| one.verdict.is_ok());
    Ok(if fine { Exit::Ok } else { Exit::Failure })
}

fn check_one(file: &Path, kind: Option<Kind>) -> anyhow::Result<Checked<'_>> {
    let text = check::read(file)?;
    let kind = kind.or_else(|| Kind::recognize(file, &text));
    let kind = kind.ok_or_else(|| {
        let file = file.display();
        anyhow!("{file}: cannot tell what this is: say it with --kind")
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
            Ok(summary) if summary.is_empty() => writeln!(out, "{file}: fine ({kind})")?,
            Ok(summary) => writeln!(out, "{file}: fine ({kind}: {summary})")?,
            Err(fault) => writeln!(out, "{file}: not fine ({kind}): {fault}")?,
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
            json["fault"] = json!({
                "file": fault.file,
                "path": fault.path,
                "reason": fault.reason,
                "line": fault.location.map(|location| location.line),
                "column": fault.location.map(|location| location.column),
            });
        }
    }
    json
}
