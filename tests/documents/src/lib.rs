//! Runs the statements of a page in order, as a reader would type them.
//!
//! A statement must succeed and print the output that the page shows. Servers without `&` are
//! started in the background, as if in another terminal. Used by the tests of documents, and by the
//! e2e tests for pages that need an Envoy.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod commands;
pub mod deployed;
pub mod listed;
pub mod page;
mod ports;
mod scratch;
mod shell;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use listed::{Page, Ready, SERVERS, Server, not_run};
use page::{Statement, differs, statements};
use plimsoll_testing::repository;
use ports::{Ports, unknown_port};
use scratch::Scratch;
use shell::Shell;

/// Time after which a waiting test fails; generous, because a passing test does not depend on it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Further check of the output of a statement, for claims in the text of the page.
pub struct Check {
    /// Start of the statement.
    pub command: &'static str,
    /// Returns what is wrong with the output.
    pub fault: fn(&str) -> Option<String>,
}

/// State of a running page.
struct Run<'a> {
    page: &'a Page,
    scratch: &'a Scratch,
    shell: Shell,
    checks: &'a [Check],
    /// Number of statements run.
    count: usize,
}

/// Runs all statements of a page that are not listed as not run. `checks` are in the order of the
/// page. Returns the number of statements, or location and reason of the first failure.
pub fn run(page: &Page, envoy: Option<&Path>, checks: &[Check]) -> Result<usize, String> {
    let text = fs::read_to_string(repository().join(page.path))
        .map_err(|error| format!("{}: {error}", page.path))?;
    let scratch = Scratch::new(page.path, envoy);
    let shell = Shell::start(&scratch.root(), &scratch.path(), &scratch.outputs());
    let mut run = Run {
        page,
        scratch: &scratch,
        shell,
        checks,
        count: 0,
    };
    for text in page.given {
        run.statement(&Statement {
            line: 0,
            text: (*text).to_owned(),
            shown: Vec::new(),
        })?;
    }
    for statement in statements(&text) {
        if not_run(&statement.text).is_none() {
            run.statement(&statement)?;
            run.count += 1;
        }
    }
    if let Some(check) = run.checks.first() {
        return Err(format!("{}: no longer has {}", page.path, check.command));
    }
    compare_pictures(&scratch.root()).map_err(|fault| format!("{}: {fault}", page.path))?;
    Ok(run.count)
}

/// Compares the pictures that a page generates with those in docs/pictures, byte by byte.
fn compare_pictures(drawn: &Path) -> Result<(), String> {
    let pictures = repository().join("docs/pictures");
    for entry in fs::read_dir(drawn).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|end| end != "svg") {
            continue;
        }
        let name = file.file_name().unwrap();
        let [new, old] = [&file, &pictures.join(name)].map(|one| fs::read(one).unwrap_or_default());
        if new != old {
            return Err(format!(
                "docs/pictures/{} differs from the generated one",
                name.display()
            ));
        }
    }
    Ok(())
}

impl Run<'_> {
    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        let text = &statement.text;
        let failure = |reason: String| {
            let place = format!("{}:{}", self.page.path, statement.line);
            format!("{place}: {text}\n{reason}")
        };
        if let Some(port) = unknown_port(text) {
            return Err(failure(format!("{port} is not in KNOWN ports")));
        }
        let server = server(text).map_err(failure)?;
        let typed = self.scratch.ports.rewrite(text);
        let typed = if server.is_some() && !text.replace("&&", "").contains('&') {
            format!("{{ {typed}\n}} &")
        } else {
            typed
        };
        let check = self.checks.split_first();
        let check = check.filter(|(check, _)| text.starts_with(check.command));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let output = self.shell.run(&typed).map_err(failure)?;
            let fault = fault(statement, check.map(|(check, _)| check), &output);
            let Some(fault) = fault else {
                break;
            };
            // Only queries can be repeated.
            if !text.starts_with("curl") || Instant::now() > deadline {
                return Err(failure(format!("{fault}\nIt printed:\n{output}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        if let Some((_, rest)) = check {
            self.checks = rest;
        }
        let ready = server.is_none_or(|server| is_ready(server, &self.scratch.ports));
        ready
            .then_some(())
            .ok_or_else(|| failure(format!("the server is not ready\n{}", self.shell.errors())))
    }
}

/// Returns what is wrong with the output of a statement.
fn fault(statement: &Statement, check: Option<&Check>, output: &str) -> Option<String> {
    let shown = &statement.shown;
    let differs = (!shown.is_empty())
        .then(|| differs(shown, output))
        .flatten();
    differs.or_else(|| check.and_then(|check| (check.fault)(output)))
}

/// Returns the server that a statement starts; a server that is not listed is an error.
fn server(text: &str) -> Result<Option<&'static Server>, String> {
    let known = SERVERS.iter().find(|one| text.contains(one.command));
    let serves = commands::commands(&text.replace('\n', "; "))
        .iter()
        .any(|words| serves(words));
    match known {
        None if serves => Err("this server is not in SERVERS".to_owned()),
        known => Ok(known.filter(|_| serves)),
    }
}

fn serves(words: &[String]) -> bool {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["plimsoll", "control" | "proxy" | "demo", rest @ ..] => !rest.contains(&"--check"),
        ["cargo", "run", rest @ ..] => ["plimsoll-orca", "own_proxy", "axum_reqwest"]
            .iter()
            .any(|server| rest.contains(server)),
        ["envoy", ..] => true,
        _ => false,
    }
}

fn is_ready(server: &Server, ports: &Ports) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    let accepts = |port: u16| TcpStream::connect(("127.0.0.1", ports.of(port))).is_ok();
    loop {
        let ready = match server.ready {
            Ready::Ports(all) => all.iter().all(|port| accepts(*port)),
            Ready::Node => has_node(ports.of(18001)),
        };
        if ready || Instant::now() > deadline {
            return ready;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the control plane with this admin port knows a node.
fn has_node(port: u16) -> bool {
    use std::io::{Read as _, Write as _};
    let get = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /api/v1/nodes HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response).map(|_| response)
    };
    get().is_ok_and(|response| response.contains("acked_version"))
}
