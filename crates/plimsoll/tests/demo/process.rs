//! [`Demo`]: `plimsoll demo` as a process, its lines, and its buttons over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a condition may take to come true. It bounds a test that fails, and decides nothing in
/// one that passes.
const PATIENCE: Duration = Duration::from_secs(120);

/// One at a time: each is a small fleet, and two of them on a busy machine would only wait for each
/// other.
static ONE: Mutex<()> = Mutex::new(());

/// A running demo. Killed when dropped.
pub(crate) struct Demo {
    child: Child,
    lines: Receiver<Value>,
    address: String,
    last: Value,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the demo before; whether its test failed is its own business.
fn turn() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Load of a zone against its line; 0 without one.
pub(crate) fn load(line: &Value, zone: usize) -> f64 {
    line["zones"][zone]["load"].as_f64().unwrap_or(0.0)
}

/// The same of all zones.
pub(crate) fn loads(line: &Value) -> [f64; 3] {
    std::array::from_fn(|zone| load(line, zone))
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("demo").args(args);
    command
}

/// With a port of its own.
fn with_port(args: &[&str]) -> Command {
    let mut command = command(args);
    command.args(["--admin", "127.0.0.1:0"]);
    command
}

impl Demo {
    /// Starts one with JSON lines, and waits for its address.
    pub(crate) fn start(args: &[&str]) -> Self {
        let turn = turn();
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
        let first: Value = lines.recv_timeout(PATIENCE).unwrap();
        assert_eq!(first["type"], "start", "{first}");
        let address = first["dashboard"].as_str().unwrap();
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        Self {
            address: address.to_owned(),
            child,
            lines,
            last: Value::Null,
            _turn: turn,
        }
    }

    /// Reads lines until one is as it should be.
    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("waited in vain: {what}; last was {}", self.last);
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

    /// The page shows what the lines say: buttons pressed, zones, traffic and reasons.
    pub(crate) fn page_agrees(&self) {
        let page = self.get("/dashboard/state");
        assert_eq!(page["title"], "plimsoll demo");
        let look = page["notices"][0]["text"].as_str().unwrap();
        assert!(look.starts_with("Look at "), "{look}");
        let mut actions = page["actions"].as_array().unwrap().iter();
        let undone =
            |one: &Value| one["pressed"] == false && one["name"] == self.last["last_action"];
        assert!(!actions.any(undone), "what is done is not offered again");
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

    /// Ctrl-C: it ends with 0, and nobody listens any more.
    pub(crate) fn interrupt(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        self.ended();
        assert!(
            TcpStream::connect(&self.address).is_err(),
            "the port is free"
        );
    }

    /// Reads to the end.
    pub(crate) fn finish(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            lines.push(line);
        }
        self.ended();
        lines
    }

    fn ended(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return assert_eq!(status.code(), Some(0));
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What one that ends by itself prints for people.
    pub(crate) fn text(args: &[&str]) -> String {
        let _turn = turn();
        let output = with_port(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and complaint of one that does not start.
    pub(crate) fn refused(args: &[&str]) -> (Option<i32>, String) {
        let _turn = turn();
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

    /// The status line that a page of the web gets which presses a button.
    pub(crate) fn pressed_from_the_web(&self, button: &str) -> String {
        let headers = "origin: http://evil.example\r\ncontent-type: application/json\r\n";
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST /dashboard/actions/{button} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    /// One request of HTTP/1.0.
    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: demo\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
