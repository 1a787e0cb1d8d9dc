//! One bash per page, which is fed a statement at a time.
//!
//! Variables, jobs and the working directory last from one statement to the next, as in a terminal.
//! Background jobs are killed at the end.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// Timeout of a statement; generous, because a passing test does not depend on it.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Shell {
    child: Child,
    typed: ChildStdin,
    /// Receives a line when a statement is done.
    done: Receiver<String>,
    outputs: PathBuf,
    statements: usize,
}

impl Shell {
    /// Starts bash in the directory `root`, with `path` as `PATH`. Output goes to files in
    /// `outputs`.
    pub(crate) fn start(root: &Path, path: &str, outputs: &Path) -> Self {
        fs::create_dir_all(outputs).unwrap();
        let log = fs::File::create(outputs.join("bash.log")).unwrap();
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc", "-euo", "pipefail"])
            .current_dir(root)
            .env("PATH", path)
            .env("NO_COLOR", "1")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("bash is installed");
        let (sender, done) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            typed: child.stdin.take().unwrap(),
            child,
            done,
            outputs: outputs.to_owned(),
            statements: 0,
        }
    }

    /// Runs a statement and returns its output. The error has output and error messages; bash has
    /// exited then.
    pub(crate) fn run(&mut self, text: &str) -> Result<String, String> {
        self.statements += 1;
        let file = |end: &str| self.outputs.join(format!("{:03}.{end}", self.statements));
        let [script, out, errors] = ["sh", "out", "err"].map(file);
        fs::write(&script, format!("{text}\n")).unwrap();
        // With /dev/null as input, commands do not read the next statement.
        let typed = format!(
            "source '{}' </dev/null >'{}' 2>'{}'\necho done\n",
            script.display(),
            out.display(),
            errors.display()
        );
        // Fails if bash has exited, which is handled below.
        let _ = self.typed.write_all(typed.as_bytes());
        let end = match self.done.recv_timeout(TIMEOUT) {
            Ok(_) => None,
            Err(RecvTimeoutError::Timeout) => Some("timed out".to_owned()),
            Err(RecvTimeoutError::Disconnected) => Some(self.child.wait().unwrap().to_string()),
        };
        let [out, errors] = [out, errors].map(|file| fs::read(file).unwrap_or_default());
        let [out, errors] = [out, errors].map(|text| String::from_utf8_lossy(&text).into_owned());
        match end {
            None => Ok(out),
            Some(end) => Err(format!("{end}\n{out}{errors}")),
        }
    }

    /// Returns the error output of all statements and background jobs so far.
    pub(crate) fn errors(&self) -> String {
        let mut files: Vec<_> = fs::read_dir(&self.outputs)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "err"))
            .collect();
        files.sort();
        let texts = files
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok());
        texts.collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Bash and its jobs may have exited already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
