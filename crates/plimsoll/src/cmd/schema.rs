//! `plimsoll schema SUBJECT`: prints the JSON Schema of a file that people write.
//!
//! Schemas are made in `crate::schema`; here they are printed.

use std::io::Write;

use anyhow::Context as _;

use super::{Exit, unless_closed};
use crate::schema::Subject;

/// Print the JSON Schema of a configuration file or scenario
///
/// For editors, which complete fields and show what they mean, and for checks in other languages.
/// It is made of the types that read the file, so that a field that one of them does not know is
/// refused by both. What it cannot say (ranges, fields that exclude each other, names that must
/// exist) `plimsoll check` says. It knows fields in snake_case only.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What the file is
    subject: Subject,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll schema control > control.schema.json
  plimsoll schema proxy > proxy.schema.json

Editors with yaml-language-server take it from a first line in the file:
  # yaml-language-server: $schema=control.schema.json

Exit codes: 0 fine, 2 wrong usage.";

/// Prints.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let mut text = serde_json::to_string_pretty(&args.subject.schema())?;
    text.push('\n');
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    unless_closed(written).context("cannot write the schema")?;
    Ok(Exit::Ok)
}
