//! The `plimsoll` binary: reads files, connects the crates, prints results.
//!
//! This file parses the command line and maps the result to an exit code. Each subcommand has a
//! file in `cmd`; every routing decision is made in plimsoll-core.

mod certificates;
mod check;
mod cmd;
mod dashboard;
mod log_lines;
mod logging;
mod memory;
mod own_zone;
mod proxy_dashboard;
#[cfg(test)]
mod reference;
mod render;
mod scenario;
mod schema;
mod service_manager;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::cmd::{Cli, Exit};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` arrive here as errors too. Ignore a closed pipe.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            }
            .into();
        }
    };
    cmd::run(cli, &mut io::stdout().lock())
        .unwrap_or_else(report_error)
        .into()
}

fn report_error(error: anyhow::Error) -> Exit {
    let _ = writeln!(io::stderr(), "error: {error:#}");
    Exit::Usage
}
