//! `plimsoll reference DIR`: writes the pages of docs/reference.
//!
//! For whoever works on Plimsoll: a test compares the pages with what this would write. The pages
//! are made in `crate::reference`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{Cli, Exit, unless_closed};
use crate::reference;

/// Write the pages of docs/reference, which are made of the code
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The folder, which must exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll reference docs/reference

Exit codes: 0 fine, 2 wrong usage, or a file that cannot be written.";

/// Writes.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let pages = reference::pages(Cli::command());
    for page in &pages {
        let path = args.folder.join(page.file);
        fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    }
    let count = pages.len();
    let written: io::Result<()> = writeln!(out, "{count} pages");
    unless_closed(written).context("cannot write the result")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");

    #[test]
    fn the_pages_are_what_the_code_says() {
        let pages = reference::pages(Cli::command());
        for page in &pages {
            let found = fs::read_to_string(Path::new(FOLDER).join(page.file)).unwrap_or_default();
            let different = found.lines().zip(page.text.lines()).find(|(a, b)| a != b);
            assert!(
                found == page.text,
                "docs/reference/{} is not what the code says, first at {different:?}: refresh it \
                 with `cargo run -- reference docs/reference`",
                page.file
            );
        }
        let mut written: Vec<_> = fs::read_dir(FOLDER)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        written.sort();
        let mut known: Vec<_> = pages.iter().map(|page| page.file.to_owned()).collect();
        known.sort();
        assert_eq!(written, known, "a page that nothing writes");
    }
}
