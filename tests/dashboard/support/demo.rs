//! `plimsoll demo` as a child process.

use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Command};

use plimsoll_testing::{Process, plimsoll};

use super::scratch;

/// Running demo; killed when dropped.
pub(crate) struct Demo {
    pub(crate) address: String,
    _process: Process,
    _out: BufReader<ChildStdout>,
}

impl Demo {
    /// Starts a demo on a free port.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(plimsoll());
        command.args(["demo", "--admin", "127.0.0.1:0"]);
        let mut process = Process::start(command, &scratch("demo").join("demo.log"));
        // Kept open, because the demo continues to print.
        let mut out = BufReader::new(process.child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("dashboard on ").unwrap();
        Self {
            address: address.to_owned(),
            _process: process,
            _out: out,
        }
    }
}
