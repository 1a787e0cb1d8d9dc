//! `plimsoll man DIRECTORY`: manual pages, generated from the command line, for packages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{Cli, Exit};

/// Write manual pages of all commands, for packages
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for `plimsoll.1`, `plimsoll-control.1` and so on; created if it is missing
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let directory = &args.directory;
    let name = || directory.display().to_string();
    fs::create_dir_all(directory).with_context(name)?;
    clap_mangen::generate_to(Cli::command(), directory).with_context(name)?;
    Ok(Exit::Ok)
}
