//! Command `plimsoll-conformance DIR`, a wrapper of this crate's `command`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use plimsoll_conformance::command::{self, Args};

#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    match command::run(&Cli::parse().args, &mut io::stdout().lock()) {
        Ok(passed) => ExitCode::from(u8::from(!passed)),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}
