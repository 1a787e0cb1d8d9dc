//! [`Shell`]: one bash for one page, fed a statement at a time.
//!
//! Variables, jobs and the folder last from one statement to the next, as for somebody who types.
//! Everything that was started in the background ends with it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a statement may take. It bounds a test that fails, and decides nothing in one that
/// passes.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Shell {
    child: Child,
    typed: ChildStdin,
    /// A line whenever a statement is done.
    done: Receiver<String>,
    outputs: PathBuf,
    statements: usize,
}

impl Shell {
    /// In the folder `root`, with `path` for `PATH`. What is printed goes to files in `outputs`.
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
        let said = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
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

    /// Runs a statement and returns what it printed; else how it complained. After a failure the
    /// shell is gone.
    pub(crate) fn run(&mut self, text: &str) -> Result<String, String> {
        self.statements += 1;
        let file = |end: &str| self.outputs.join(format!("{:03}.{end}", self.statements));
        let [script, out, errors] = ["sh", "out", "err"].map(file);
        fs::write(&script, format!("{text}\n")).unwrap();
        // A source of its own keeps commands from reading what is typed next.
        let typed = format!(
            "source '{}' </dev/null >'{}' 2>'{}'\necho done\n",
            script.display(),
            out.display(),
            errors.display()
        );
        // Fails when the shell is gone, which is noticed below.
        let _ = self.typed.write_all(typed.as_bytes());
        let end = match self.done.recv_timeout(PATIENCE) {
            Ok(_) => None,
            Err(RecvTimeoutError::Timeout) => Some("it does not end".to_owned()),
            Err(RecvTimeoutError::Disconnected) => Some(self.child.wait().unwrap().to_string()),
        };
        let [out, errors] = [out, errors].map(|file| fs::read(file).unwrap_or_default());
        let [out, errors] = [out, errors].map(|text| String::from_utf8_lossy(&text).into_owned());
        match end {
            None => Ok(out),
            Some(end) => Err(format!("{end}\n{out}{errors}")),
        }
    }

    /// What background jobs and the shell itself complained about so far.
    pub(crate) fn complaints(&self) -> String {
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
        // It may be gone already, and its jobs too.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
