//! Command line: subcommands, help texts and exit codes.
//!
//! One variant of [`Command`] and one file per subcommand. A subcommand writes to the writer it is
//! given and returns an [`Exit`]; returning an error means wrong usage or unreadable input.

mod audit;
mod bootstrap;
mod certs;
mod check;
mod completions;
mod control;
mod demo;
#[cfg(test)]
mod documented;
mod explain;
mod man;
mod proxy;
mod report;
mod schema;
mod sim;
mod top;
mod zone;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use plimsoll_core::log_line;
use plimsoll_serve::{AdminToken, CancellationToken};
use tokio::signal::unix::{SignalKind, signal};

use crate::log_lines;

/// Keeps every zone of a service evenly loaded while keeping traffic local.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, long_version = LONG_VERSION, about)]
#[command(after_help = AFTER_HELP)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Audit(audit::Args),
    Bootstrap(bootstrap::Args),
    Certs(certs::Args),
    Check(check::Args),
    Completions(completions::Args),
    Control(control::Args),
    Demo(demo::Args),
    Explain(explain::Args),
    Man(man::Args),
    Proxy(proxy::Args),
    Report(report::Args),
    Schema(schema::Args),
    Sim(sim::Args),
    Top(top::Args),
    Zone(zone::Args),
    #[cfg(feature = "vectors")]
    #[command(hide = true)]
    Vectors(plimsoll_conformance::command::Args),
}

/// Text of `--version`; `-V` prints only the version number.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit   ",
    env!("PLIMSOLL_BUILD_COMMIT"),
    "\nprofile  ",
    env!("PLIMSOLL_BUILD_PROFILE"),
    "\ntarget   ",
    env!("PLIMSOLL_BUILD_TARGET"),
    "\ncompiler ",
    env!("PLIMSOLL_BUILD_COMPILER"),
);

const AFTER_HELP: &str = "\
Examples:
  plimsoll demo                       run everything on this machine, with a dashboard
  plimsoll control -c control.yaml    run the control plane for Envoys and gRPC clients
  plimsoll bootstrap envoy --region eu --zone eu-1
                                      print an Envoy bootstrap for that control plane
  plimsoll explain scenario.yaml      show where a proxy would send requests, and why
  plimsoll proxy -c proxy.yaml        run a sidecar or gateway
  plimsoll sim scenario.toml          compare policies in a simulation
  plimsoll check control.yaml         validate a file without running it
  plimsoll schema control             print the JSON Schema of a file, for editors
  plimsoll audit                      show what was changed and refused, and by whom
  plimsoll top localhost:18001        watch zones and their load in the terminal
  plimsoll zone drain zone-b --for 30m --reason power
                                      take a zone out of use, if the others have room
  plimsoll report localhost:18001     which zones may be lost, as a page to send to others

Exit codes:
  0  success
  1  the command ran and reports a failure
  2  wrong usage or unreadable input";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    /// The command ran and reports a failure, for example a file that is not valid.
    Failure,
    /// Wrong usage or unreadable input.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Failure => Self::from(1),
            Exit::Usage => Self::from(2),
        }
    }
}

pub(crate) fn run(cli: Cli, out: &mut impl Write) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Audit(args) => audit::run(&args, out),
        Command::Bootstrap(args) => bootstrap::run(args, out),
        Command::Certs(args) => certs::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Control(args) => control::run(args, out),
        Command::Demo(args) => demo::run(args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Man(args) => man::run(&args),
        Command::Proxy(args) => proxy::run(args, out),
        Command::Report(args) => report::run(&args, out),
        Command::Schema(args) => schema::run(&args, out),
        Command::Sim(args) => sim::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Zone(args) => zone::run(&args, out),
        #[cfg(feature = "vectors")]
        Command::Vectors(args) => plimsoll_conformance::command::run(&args, out)
            .map(|passed| if passed { Exit::Ok } else { Exit::Failure }),
    }
}

/// Reads the token of `--admin-token-file`.
fn read_token(path: &Path) -> anyhow::Result<AdminToken> {
    AdminToken::read(path).with_context(|| path.display().to_string())
}

/// Ignores a broken pipe: `plimsoll … | head` must not fail.
fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Reads a file, or standard input for `-`.
fn read(path: &Path) -> anyhow::Result<String> {
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        plimsoll_serve::read_file(path)
    };
    text.with_context(|| input_name(path))
}

fn input_name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.display().to_string()
}

/// Cancels `stopping` on SIGTERM or Ctrl-C.
fn stop_on_signal(stopping: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle signals")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        log_line!(log_lines::SHUTTING_DOWN);
        stopping.cancel();
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn only_a_broken_pipe_is_ignored() {
        assert!(ignore_broken_pipe(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(ignore_broken_pipe(Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(ignore_broken_pipe(Ok(())).is_ok());
    }
}
