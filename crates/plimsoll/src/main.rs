//! The one binary: reads files, wires the parts, prints.
//!
//! Here lives only the way in and out of the process. Subcommands live in `cmd`, one file each;
//! every decision lives in plimsoll-core.

mod bench;
mod check;
mod cmd;
mod dashboard;
mod demo;
mod fetch;
mod logging;
mod proxy_dashboard;
mod reference;
mod render;
mod scenario;
mod schema;
mod vectors;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::cmd::{Cli, Exit};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version arrive here too; a closed pipe is nobody's fault.
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
        .unwrap_or_else(complain)
        .into()
}

fn complain(error: anyhow::Error) -> Exit {
    let _ = writeln!(io::stderr(), "error: {error:#}");
    Exit::Usage
}
