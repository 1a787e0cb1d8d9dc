//! gRPC servers and clients as processes: `peers/grpc_peer.py` (C-core) and
//! `peers/grpc_js_peer.cjs` (grpc-js, for Node.js).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};

use super::control::{Control, bootstrap};
use super::peers;
use super::process::Process;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/peers/grpc_peer.py");
const JS_PEER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/peers/grpc_js_peer.cjs"
);

/// A program that answers in lines. Killed when dropped.
pub(crate) struct Peer {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// One server per name in `zones`; their ports in the same order.
    pub(crate) fn serve(folder: &Path, zones: &[&str]) -> (Self, Vec<u16>) {
        let mut command = python();
        command.arg("serve").args(zones);
        let mut peer = Self::start(command, &folder.join("servers.log"));
        let ports = serde_json::from_str(&peer.line()).unwrap();
        (peer, ports)
    }

    /// A client in `zone` that calls `xds:///orders`.
    pub(crate) fn call(folder: &Path, control: &Control, zone: &str, rate: u32) -> Self {
        let mut command = python();
        command.args(["call", "xds:///orders", &rate.to_string()]);
        command.env("GRPC_XDS_BOOTSTRAP", bootstrap_file(folder, control, zone));
        Self::start(command, &folder.join(format!("checkout-{zone}.log")))
    }

    /// The same in Node.js.
    pub(crate) fn call_js(folder: &Path, control: &Control, zone: &str, rate: u32) -> Self {
        let mut command = Command::new("node");
        command.args([JS_PEER, "xds:///orders", &rate.to_string()]);
        command.env("NODE_PATH", peers().join("grpc-js/node_modules"));
        command.env("GRPC_XDS_BOOTSTRAP", bootstrap_file(folder, control, zone));
        Self::start(command, &folder.join(format!("checkout-{zone}.log")))
    }

    /// Answers so far by zone; failures under the empty name.
    pub(crate) fn counts(&mut self) -> BTreeMap<String, u64> {
        self.ask("counts")
    }

    /// Other calls per second from now on (grpc-js only).
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.ask(&format!("rate {rate}"));
    }

    fn ask(&mut self, line: &str) -> BTreeMap<String, u64> {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
        serde_json::from_str(&self.line()).unwrap()
    }

    fn start(command: Command, log: &Path) -> Self {
        let mut process = Process::start(command, log);
        let lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a peer answers").unwrap()
    }
}

/// What a client in `zone` needs to find the control plane.
fn bootstrap_file(folder: &Path, control: &Control, zone: &str) -> PathBuf {
    let address = control.xds.to_string();
    let mut args = vec![
        "grpc", "--zone", zone, "--region", "r1", "--fleet", "checkout",
    ];
    args.extend(["--control", &address]);
    let file = folder.join(format!("checkout-{zone}.json"));
    std::fs::write(&file, bootstrap(&args).to_string()).unwrap();
    file
}

fn python() -> Command {
    let mut command = Command::new(peers().join("venv/bin/python"));
    command.arg(PEER);
    command
}
