//! [`Browser`]: a headless Chromium, spoken to over two pipes.
//!
//! The DevTools protocol needs no more than JSON with a zero byte after each message; a shell puts
//! our pipes where the browser looks for them. Pages live in `page`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::scratch;

/// A browser that does not answer for so long is lost.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Descriptors 3 and 4 are where it reads and writes.
const SHELL: &str = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// A browser. Killed when dropped.
pub(crate) struct Browser {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Value>,
    next: u64,
    /// Events that came while an answer was waited for.
    events: Vec<Value>,
}

impl Browser {
    /// Starts one with a profile of its own.
    pub(crate) fn start(name: &str) -> Self {
        let folder = scratch(name);
        let mut child = command(&folder).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while reader.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        Self {
            child,
            requests,
            answers,
            next: 0,
            events: Vec::new(),
        }
    }

    /// Calls a method, of the browser or of one of its pages; its result.
    pub(crate) fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut request = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            request["sessionId"] = json!(session);
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap_or_else(|error| {
            panic!("{method}: {error}; is chromium installed? Run `make test` once")
        });
        loop {
            let message = self.answers.recv_timeout(TIMEOUT).unwrap_or_else(|error| {
                panic!("{method}: {error}; is chromium installed? Run `make test` once")
            });
            if message["id"] == id {
                let error = &message["error"];
                assert!(error.is_null(), "{method}: {error}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Events so far, of this method.
    pub(crate) fn events(&self, method: &str) -> impl Iterator<Item = &Value> {
        let own = self
            .events
            .iter()
            .filter(move |event| event["method"] == method);
        own.map(|event| &event["params"])
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SHELL, "chromium"]);
    command.args([
        "--headless=new",
        "--remote-debugging-pipe",
        // Tests may run as root, and load only pages of their own.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--force-color-profile=srgb",
        "--hide-scrollbars",
        "--lang=en-US",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.join("profile").display()
    ));
    let log = File::create(folder.join("chromium.log")).unwrap();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    command
}
