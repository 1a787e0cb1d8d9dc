//! `plimsoll demo` as a child process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Running demo; killed when dropped.
pub(crate) struct Demo {
    pub(crate) address: String,
    child: Child,
    /// Kept open, because the demo continues to print.
    _out: BufReader<ChildStdout>,
}

impl Demo {
    /// Starts a demo on a free port.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["demo", "--admin", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("dashboard on ").unwrap();
        Self {
            address: address.to_owned(),
            child,
            _out: out,
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
