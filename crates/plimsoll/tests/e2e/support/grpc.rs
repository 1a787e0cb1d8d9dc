//! gRPC servers and clients: `peers/grpc_peer.py` as processes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{ChildStdout, Command};

use super::control::{Control, bootstrap};
use super::peers;
use super::process::Process;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/peers/grpc_peer.py");

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
        let address = control.xds.to_string();
        let mut args = vec![
            "grpc", "--zone", zone, "--region", "r1", "--fleet", "checkout",
        ];
        args.extend(["--control", &address]);
        let file = folder.join(format!("checkout-{zone}.json"));
        std::fs::write(&file, bootstrap(&args).to_string()).unwrap();
        let mut command = python();
        command.args(["call", "xds:///orders", &rate.to_string()]);
        command.env("GRPC_XDS_BOOTSTRAP", &file);
        Self::start(command, &folder.join(format!("checkout-{zone}.log")))
    }

    /// Answers so far by zone; failures under the empty name.
    pub(crate) fn counts(&mut self) -> BTreeMap<String, u64> {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        stdin.write_all(b"counts\n").unwrap();
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

fn python() -> Command {
    let mut command = Command::new(peers().join("venv/bin/python"));
    command.arg(PEER);
    command
}
