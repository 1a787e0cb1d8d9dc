//! Child process that is killed with its test; its log is printed if the test fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Number of log lines to print.
const LOG_LINES: usize = 40;

/// Running process; killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard error in `log` and piped standard input and output.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn();
        let child = started.unwrap_or_else(|error| {
            let program = command.get_program().display();
            panic!("{program}: {error}; is it installed? Run `make test` once")
        });
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Kills it (SIGKILL) and waits.
    pub(crate) fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
            eprintln!("--- {}\n{}", self.log.display(), tail.join("\n"));
        }
    }
}
