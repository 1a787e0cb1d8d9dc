//! [`ManagementServer`]: `peers/management_server.py`, made with others' gRPC and messages.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};

use serde_json::Value;

use super::peers;
use super::process::Process;

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/peers/management_server.py"
);

/// A management server. Killed when dropped.
pub(crate) struct ManagementServer {
    pub(crate) port: u16,
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
}

impl ManagementServer {
    /// Starts with these resources on a free port.
    pub(crate) fn start(folder: &Path, resources: &Value) -> Self {
        Self::listen(folder, resources, 0)
    }

    fn listen(folder: &Path, resources: &Value, port: u16) -> Self {
        let mut command = Command::new(peers().join("venv/bin/python"));
        command.arg(PROGRAM).arg(write(folder, "first", resources));
        command.arg(port.to_string());
        let mut process = Process::start(command, &folder.join("management_server.log"));
        let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        let port = lines.next().expect("it says its port").unwrap();
        Self {
            port: port.parse().unwrap(),
            process,
            lines,
            folder: folder.to_owned(),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Serves these resources instead.
    pub(crate) fn replace(&mut self, resources: &Value) {
        let file = write(&self.folder, "next", resources);
        assert_eq!(self.ask(&file), "ok");
    }

    /// What clients refused so far: the type and why.
    pub(crate) fn refusals(&mut self) -> Vec<(String, String)> {
        serde_json::from_str(&self.ask("refusals")).unwrap()
    }

    /// All `ClusterStats` that were reported so far, in protobuf's JSON.
    pub(crate) fn reports(&mut self) -> Vec<Value> {
        serde_json::from_str(&self.ask("reports")).unwrap()
    }

    /// Ends it without a goodbye.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was.
    pub(crate) fn restart(&mut self, resources: &Value) {
        self.kill();
        *self = Self::listen(&self.folder.clone(), resources, self.port);
    }

    fn ask(&mut self, line: &str) -> String {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
        self.lines.next().unwrap().unwrap()
    }
}

fn write(folder: &Path, name: &str, resources: &Value) -> String {
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, resources.to_string()).unwrap();
    path.display().to_string()
}
