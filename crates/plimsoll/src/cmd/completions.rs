//! `plimsoll completions SHELL`: prints a completion script.

use std::io::Write;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use super::{Cli, Exit, ignore_broken_pipe};

/// Print a completion script for a shell
///
/// Write it to the directory from which your shell loads completions, then start a new shell.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Shell to print the script for
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions zsh > ~/.zfunc/_plimsoll      # a directory in your fpath
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish

Exit codes: 0 success, 2 wrong usage.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    // `generate` panics if a write fails; writing to memory cannot.
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "plimsoll", &mut script);
    let written = out.write_all(&script).and_then(|()| out.flush());
    ignore_broken_pipe(written).context("cannot write the completion script")?;
    Ok(Exit::Ok)
}
