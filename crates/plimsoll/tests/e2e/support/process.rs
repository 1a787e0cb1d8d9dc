//! [`Process`]: a child that does not outlive its test, and whose log is shown when the test fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that are worth showing.
const SHOWN: usize = 40;

/// A running program. Killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its standard error in `log`; its standard output stays with us.
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

    /// Ends it without a chance to say goodbye, like `kill -9`.
    pub(crate) fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
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
            let tail = &lines[lines.len().saturating_sub(SHOWN)..];
            eprintln!("--- {}\n{}", self.log.display(), tail.join("\n"));
        }
    }
}
