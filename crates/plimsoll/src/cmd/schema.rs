//! `plimsoll schema SUBJECT`: prints the JSON Schema of a file.

use std::io::Write;

use anyhow::Context as _;

use super::{Exit, ignore_broken_pipe};
use crate::schema::Subject;

/// Print the JSON Schema of a configuration file or scenario
///
/// For editors, which complete fields and show their documentation, and for validators in other
/// languages. The schema is generated from the types that read the file, so both reject unknown
/// fields. `plimsoll check` also finds errors that a schema cannot express: ranges, fields that
/// exclude each other, references to undefined names. The schema has field names in snake_case
/// only.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Kind of the file
    subject: Subject,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll schema control > control.schema.json
  plimsoll schema proxy > proxy.schema.json

Editors with yaml-language-server find the schema through a comment in the file's first line:
  # yaml-language-server: $schema=control.schema.json

Exit codes: 0 success, 2 wrong usage.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let mut text = serde_json::to_string_pretty(&args.subject.schema())?;
    text.push('\n');
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ignore_broken_pipe(written).context("cannot write the schema")?;
    Ok(Exit::Ok)
}
