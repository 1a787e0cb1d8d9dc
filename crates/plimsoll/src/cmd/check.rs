//! `plimsoll check FILE…`: validates files and prints a line for each, or for each of its faults.
//! `crate::check` recognizes and validates; this module formats the result.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use plimsoll_control::config::FileError;
use plimsoll_xds::yaml::ConfigError;
use serde_json::{Value, json};

use super::{Exit, ignore_broken_pipe};
use crate::check::{Kind, Loss, Valid, Verdict, zone_loss};

/// Validate configuration files and scenarios without running anything
///
/// Prints a line per valid file, with its kind and a summary, and a line per fault: file, line and
/// column, path of the field and reason. Files are read by the code that uses them at run time, so
/// unknown fields are errors, and so is everything that `plimsoll control` or `plimsoll proxy`
/// would refuse at its start. Nothing is contacted and no port is opened. A control plane's file is
/// checked with the files it includes and the certificates it names, a proxy's with its
/// certificates. Certificates of a control plane that end within 14 days are a warning.
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
    /// Scenarios only: also say how full the other zones would be without this one
    #[arg(long, value_name = "ZONE")]
    lose_zone: Option<String>,
    /// With --lose-zone: the utilization above which the loss counts as a fault
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = 0.9,
        requires = "lose_zone"
    )]
    max_utilization: f64,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll check control.yaml
  plimsoll check --kind cluster orders.yaml
  plimsoll check --json examples/*/*.yaml
  plimsoll check --lose-zone b crates/plimsoll-sim/scenarios/bgp-skew.toml

The kind is recognized from the extension (.toml is a scenario of sim) or from the top-level keys:
`xds_servers` means a gRPC bootstrap, `own_locality` or `upstream` a scenario of explain,
`static_resources` a proxy, `services`, `listen`, `include` and similar keys a control plane,
`name` a cluster. The output of `plimsoll bootstrap envoy` is checked as such; other bootstraps of
Envoys are checked as the file of a proxy: fields that plimsoll proxy does not support are errors,
even if Envoy accepts them. `plimsoll schema` prints the fields of a file. Of a scenario of sim only
the first fault is shown.

Exit codes: 0 all files are valid, 1 at least one is not, 2 wrong usage, or a file that cannot be
read or recognized; the other files are checked all the same.";

struct Checked<'a> {
    file: &'a Path,
    /// `None` if the file cannot be read or recognized.
    kind: Option<Kind>,
    verdict: Verdict,
    /// What `--lose-zone` finds in a valid scenario.
    loss: Option<Loss>,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let files = args.files.iter();
    let checked: Vec<Checked<'_>> = files
        .map(|file| check_one(file, args))
        .collect::<Result<_, _>>()?;
    let written = if args.json {
        write_json(&checked, out)
    } else {
        write_text(&checked, out)
    };
    ignore_broken_pipe(written.and_then(|()| out.flush())).context("cannot write the result")?;
    let unusable: Vec<String> = checked
        .iter()
        .filter(|one| one.kind.is_none())
        .map(|one| one.file.display().to_string())
        .collect();
    if !unusable.is_empty() {
        bail!("cannot check {}", unusable.join(", "));
    }
    let is_fine = |one: &Checked<'_>| {
        one.verdict.is_ok() && !one.loss.as_ref().is_some_and(|loss| loss.exceeds)
    };
    let valid = checked.iter().all(is_fine);
    Ok(if valid { Exit::Ok } else { Exit::Failure })
}

fn check_one<'a>(file: &'a Path, args: &Args) -> anyhow::Result<Checked<'a>> {
    let unusable = |error: ConfigError| Checked {
        file,
        kind: None,
        verdict: Err(vec![error.into()]),
        loss: None,
    };
    let text = match plimsoll_serve::read_file(file) {
        Ok(text) => text,
        Err(error) => return Ok(unusable(error.into())),
    };
    let kind = match args.kind.map_or_else(|| Kind::recognize(file, &text), Ok) {
        Ok(kind) => kind,
        Err(error) => return Ok(unusable(error)),
    };
    let verdict = kind.check(file, &text);
    let loss = match &args.lose_zone {
        Some(zone) if verdict.is_ok() => {
            let limit = args.max_utilization;
            let loss = zone_loss(kind, file, &text, zone, limit);
            Some(loss.map_err(anyhow::Error::msg)?)
        }
        _ => None,
    };
    Ok(Checked {
        file,
        kind: Some(kind),
        verdict,
        loss,
    })
}

fn write_text(checked: &[Checked<'_>], out: &mut impl Write) -> io::Result<()> {
    for one in checked {
        let file = one.file.display();
        let kind = one.kind.map_or("", Kind::title);
        match &one.verdict {
            Ok(Valid { summary, warnings }) => {
                for warning in warnings {
                    writeln!(out, "{file}: warning: {warning}")?;
                }
                if summary.is_empty() {
                    writeln!(out, "{file}: ok ({kind})")?;
                } else {
                    writeln!(out, "{file}: ok ({kind}: {summary})")?;
                }
            }
            Err(faults) => {
                for fault in faults {
                    writeln!(out, "{}", line(one, fault))?;
                }
            }
        }
        if let Some(loss) = &one.loss {
            writeln!(out, "{file}: {}", loss.text)?;
        }
    }
    Ok(())
}

/// Formats a fault as compilers do, so that editors find the place: `file:line:column: …`.
fn line(one: &Checked<'_>, fault: &FileError) -> String {
    let file = file_of(one, fault);
    let place = match fault.error.location() {
        Some(place) => format!("{file}:{place}"),
        None => file,
    };
    let reason = fault.error.reason();
    match fault.error.path() {
        "" => format!("{place}: {reason}"),
        path => format!("{place}: {path}: {reason}"),
    }
}

fn file_of(one: &Checked<'_>, fault: &FileError) -> String {
    match fault.file.as_str() {
        "" => one.file.display().to_string(),
        file => file.to_owned(),
    }
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
    if let Some(loss) = &one.loss {
        json["without_zone"] = json!({ "text": loss.text, "exceeds": loss.exceeds });
    }
    match &one.verdict {
        Ok(Valid { summary, warnings }) => {
            json["summary"] = json!(summary);
            json["warnings"] = json!(warnings);
        }
        Err(faults) => {
            let fault = |fault: &FileError| {
                let (error, location) = (&fault.error, fault.error.location());
                json!({
                    "file": file_of(one, fault),
                    "path": error.path(),
                    "reason": error.reason(),
                    "line": location.map(|location| location.line),
                    "column": location.map(|location| location.column),
                })
            };
            json["faults"] = faults.iter().map(fault).collect();
        }
    }
    json
}
