//! Child process that is killed with its test; its log is printed if the test fails.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Number of log lines to print: those of all processes of a test fit on a screen.
const LOG_LINES: usize = 15;

/// Running process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    /// The process; its standard input and output are pipes.
    pub child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard error in `log` and piped standard input and output.
    ///
    /// # Panics
    /// If the program is not installed.
    pub fn start(mut command: Command, log: &Path) -> Self {
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

    /// Reads the first lines that it prints, which are these prefixes with addresses.
    ///
    /// # Panics
    /// If it prints something else, or exits.
    pub fn addresses<const N: usize>(&mut self, prefixes: [&str; N]) -> [SocketAddr; N] {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        prefixes.map(|prefix| {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let address = line.strip_prefix(prefix);
            address
                .unwrap_or_else(|| panic!("{line:?} does not start with {prefix:?}"))
                .parse()
                .unwrap()
        })
    }

    /// Kills it (SIGKILL) and waits.
    pub fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        print_log_of_failed_test(&self.log);
    }
}

/// Prints the last lines of a log if the test of this thread has failed.
pub fn print_log_of_failed_test(log: &Path) {
    if std::thread::panicking() {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
        eprintln!("--- {}\n{}", log.display(), tail.join("\n"));
    }
}
