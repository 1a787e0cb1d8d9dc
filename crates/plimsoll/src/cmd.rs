//! The command line: what it accepts, what it teaches, and what its exit codes mean.
//!
//! One variant of [`Command`] and one file per subcommand. A subcommand writes to the writer it is
//! handed and returns an [`Exit`]; an error it returns means wrong usage or unreadable input.

mod bench;
mod bootstrap;
mod check;
mod completions;
mod control;
mod demo;
#[cfg(test)]
mod documented;
mod explain;
mod proxy;
mod reference;
mod schema;
mod sim;
mod top;
mod vectors;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Bench(bench::Args),
    Bootstrap(bootstrap::Args),
    Check(check::Args),
    Completions(completions::Args),
    Control(control::Args),
    Demo(demo::Args),
    Explain(explain::Args),
    Proxy(proxy::Args),
    Reference(reference::Args),
    Schema(schema::Args),
    Sim(sim::Args),
    Top(top::Args),
    Vectors(vectors::Args),
}

/// What was built; `-V` says the version alone.
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
  plimsoll demo                       see it on this machine, with a dashboard
  plimsoll control -c control.yaml    steer Envoys and gRPC clients by measured demand
  plimsoll bootstrap envoy --zone a   what an Envoy needs to find the control plane
  plimsoll bench control              how it does with 5,000 proxies on this machine
  plimsoll explain scenario.yaml      what a proxy would do there, and why
  plimsoll proxy -c proxy.yaml        a sidecar or gateway with the same engine
  plimsoll sim scenario.toml          how policies do over time, side by side
  plimsoll check control.yaml         is this file fine, and if not, where
  plimsoll schema control             what such a file may say, for editors
  plimsoll top localhost:18001        zones and their load, in the terminal
  plimsoll vectors vectors            check this build against the recorded cases
  plimsoll vectors vectors --json     the same, for programs
  plimsoll help vectors               what a case looks like and what is compared

Exit codes:
  0  fine
  1  the command ran and found a failure
  2  wrong usage or unreadable input";

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Fine.
    Ok,
    /// The command ran and found a failure.
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

/// Runs the subcommand that was asked for.
pub(crate) fn run(cli: Cli, out: &mut impl Write) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Bench(args) => bench::run(args, out),
        Command::Bootstrap(args) => bootstrap::run(args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Control(args) => control::run(args, out),
        Command::Demo(args) => demo::run(args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Proxy(args) => proxy::run(args, out),
        Command::Reference(args) => reference::run(&args, out),
        Command::Schema(args) => schema::run(&args, out),
        Command::Sim(args) => sim::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Vectors(args) => vectors::run(&args, out),
    }
}

/// Forgives a reader that left: with `plimsoll … | head` the rest of the output is not wanted.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Done when the process is told to end, by SIGTERM or Ctrl-C.
async fn stop_signal() {
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate => {}
    }
    tracing::info!("shutting down");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn only_a_closed_pipe_is_forgiven() {
        assert!(unless_closed(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(unless_closed(Ok(())).is_ok());
    }
}
