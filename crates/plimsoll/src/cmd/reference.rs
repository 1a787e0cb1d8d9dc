//! `plimsoll reference DIR`: writes the pages of docs/reference. For developers of Plimsoll.
//! `crate::reference` generates the pages; a test compares them with the files in the repository.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{Cli, Exit, ignore_broken_pipe};
use crate::reference;

/// Generate the pages of docs/reference from the code
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Existing directory to write to
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll reference docs/reference

Exit codes: 0 success, 2 wrong usage, or a file that cannot be written.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let pages = reference::pages(Cli::command());
    for page in &pages {
        let path = args.directory.join(page.file);
        fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    }
    let count = pages.len();
    let written: io::Result<()> = writeln!(out, "{count} pages");
    ignore_broken_pipe(written).context("cannot write the result")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");

    #[test]
    fn the_pages_in_the_repository_are_current() {
        let pages = reference::pages(Cli::command());
        for page in &pages {
            let found =
                fs::read_to_string(Path::new(DIRECTORY).join(page.file)).unwrap_or_default();
            let different = found.lines().zip(page.text.lines()).find(|(a, b)| a != b);
            assert!(
                found == page.text,
                "docs/reference/{} is not current, first difference {different:?}: refresh it \
                 with `cargo run -- reference docs/reference`",
                page.file
            );
        }
        let mut written: Vec<_> = fs::read_dir(DIRECTORY)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        written.sort();
        let mut known: Vec<_> = pages.iter().map(|page| page.file.to_owned()).collect();
        known.sort();
        assert_eq!(written, known, "a file that the generator does not write");
    }
}
