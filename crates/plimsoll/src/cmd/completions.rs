//! `plimsoll completions SHELL`: prints what a shell needs to complete our command line.

use std::io::Write;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use super::{Cli, Exit, unless_closed};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions zsh > ~/.zfunc/_plimsoll      # a folder of your fpath
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish

Exit codes: 0 fine, 2 wrong usage.";

/// Prints.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    // The generator gives up loudly when it cannot write; memory it can always write to.
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "plimsoll", &mut script);
    let written = out.write_all(&script).and_then(|()| out.flush());
    unless_closed(written).context("cannot write the completions")?;
    Ok(Exit::Ok)
}
