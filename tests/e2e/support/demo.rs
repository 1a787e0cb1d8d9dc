//! `plimsoll demo` as a child process: its JSON lines, and its actions over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use plimsoll_testing::{plimsoll, wait_for};
use serde_json::Value;

/// Time after which a waiting test fails; generous, because a passing test does not depend on it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Running demo; killed when dropped.
pub(crate) struct Demo {
    child: Child,
    lines: Receiver<Value>,
    address: String,
    last: Value,
}

/// Returns the load of a zone; 0 if unknown.
pub(crate) fn load(line: &Value, zone: usize) -> f64 {
    line["zones"][zone]["load"].as_f64().unwrap_or(0.0)
}

/// Returns the load of every zone.
pub(crate) fn loads(line: &Value) -> [f64; 3] {
    std::array::from_fn(|zone| load(line, zone))
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(plimsoll());
    command.arg("demo").args(args);
    command
}

/// Adds a free port for the dashboard.
fn with_port(args: &[&str]) -> Command {
    let mut command = command(args);
    command.args(["--admin", "127.0.0.1:0"]);
    command
}

impl Demo {
    /// Starts a demo with `--json` and waits for its address.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = with_port(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let first: Value = lines.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(first["type"], "start", "{first}");
        let address = first["dashboard"]
            .as_str()
            .unwrap()
            .trim_start_matches("http://")
            .trim_end_matches('/');
        Self {
            address: address.to_owned(),
            child,
            lines,
            last: Value::Null,
        }
    }

    /// Reads lines until one is as it should be.
    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("timed out waiting until {what}; last line: {}", self.last);
            };
            if line["type"] == "summary" {
                self.last = line;
                if is(&self.last) {
                    return self.last.clone();
                }
            }
        }
    }

    /// Presses a button, and waits until it is in force.
    pub(crate) fn press(&mut self, action: &str) -> Value {
        let answer = self.post(&format!("/dashboard/actions/{action}"));
        assert!(answer["done"].is_string(), "{answer}");
        self.wait(action, |line| line["last_action"] == action)
    }

    /// Asserts that the dashboard shows the state of the last line.
    pub(crate) fn assert_dashboard_agrees(&self) {
        let page = self.get("/dashboard/state");
        assert_eq!(page["title"], "plimsoll demo");
        let hint = page["notices"][0]["text"].as_str().unwrap();
        assert!(hint.starts_with("Watch "), "{hint}");
        let mut actions = page["actions"].as_array().unwrap().iter();
        let undone =
            |one: &Value| one["pressed"] == false && one["name"] == self.last["last_action"];
        assert!(!actions.any(undone), "the last action is not offered again");
        let cluster = &page["clusters"][0];
        let zones = cluster["zones"].as_array().unwrap();
        assert_eq!(zones.len(), 3);
        for (zone, line) in zones.iter().zip(self.last["zones"].as_array().unwrap()) {
            assert_eq!(zone["locality"]["zone"], line["zone"]);
            assert_eq!(zone["healthy_hosts"], line["healthy_backends"]);
            assert!(zone["utilization"].as_f64().unwrap() > 0.1, "{zone}");
            assert!(
                zone["reason"].as_str().is_some_and(|text| !text.is_empty()),
                "{zone}"
            );
        }
        let flows = cluster["flows"].as_array().unwrap();
        let sum: f64 = flows.iter().map(|flow| flow[2].as_f64().unwrap()).sum();
        assert!(sum > 50.0, "{flows:?}");
        assert_eq!(page["nodes"].as_array().unwrap().len(), 6);
    }

    /// Sends SIGINT; the process exits with 0 and closes its port.
    pub(crate) fn interrupt(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        self.wait_for_exit();
        assert!(
            TcpStream::connect(&self.address).is_err(),
            "the port is free"
        );
    }

    /// Reads lines until the process exits.
    pub(crate) fn finish(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            lines.push(line);
        }
        self.wait_for_exit();
        lines
    }

    fn wait_for_exit(&mut self) {
        let status = wait_for("the demo exits", || self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0));
    }

    /// Runs a demo with `--duration` and returns its text output.
    pub(crate) fn text(args: &[&str]) -> String {
        let output = with_port(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns exit code and error message of a demo that fails to start.
    pub(crate) fn failure(args: &[&str]) -> (Option<i32>, String) {
        let output = command(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.request("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str) -> Value {
        self.request("POST", path, "{}")
    }

    /// Triggers an action like a web page of another origin; returns the status line.
    pub(crate) fn post_from_another_origin(&self, action: &str) -> String {
        let headers = "origin: http://evil.example\r\ncontent-type: application/json\r\n";
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST /dashboard/actions/{action} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.lines().next().unwrap_or_default().to_owned()
    }

    /// Sends an HTTP/1.0 request.
    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: demo\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
