//! Headless Chromium, controlled over two pipes.
//!
//! The DevTools protocol sends JSON messages that end with a zero byte. A shell connects our pipes
//! to the file descriptors that the browser uses. Pages are in `page`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::scratch;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The browser reads file descriptor 3 and writes 4.
const SHELL: &str = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// Running browser; killed when dropped.
pub(crate) struct Browser {
    child: Child,
    requests: ChildStdin,
    responses: Receiver<Value>,
    next: u64,
    /// Events received while waiting for a response.
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser with a new profile.
    pub(crate) fn start(name: &str) -> Self {
        let directory = scratch(name);
        let mut child = command(&directory).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (sender, responses) = channel();
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
            responses,
            next: 0,
            events: Vec::new(),
        }
    }

    /// Calls a method of the browser or of a page, and returns its result.
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
            let message = self
                .responses
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|error| {
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

    /// Returns the events of a method so far.
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
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SHELL, "chromium"]);
    command.args([
        "--headless=new",
        "--remote-debugging-pipe",
        // Tests may run as root, and load only their own pages.
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
        directory.join("profile").display()
    ));
    let log = File::create(directory.join("chromium.log")).unwrap();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    command
}
