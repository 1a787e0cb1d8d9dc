//! gRPC servers and clients as child processes: `peers/grpc_peer.py` (C-core) and
//! `peers/grpc_js_peer.cjs` (grpc-js, for Node.js).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};

use plimsoll_testing::Process;
use serde_json::{Value, json};

use super::control::{Control, bootstrap};
use super::open_load::Tally;
use super::peers;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/grpc_peer.py");
const JS_PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/grpc_js_peer.cjs");

/// Peer that is controlled by lines on standard input and output; killed when dropped.
pub(crate) struct Peer {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts one server per name in `zones`; returns the ports in the same order.
    pub(crate) fn serve(directory: &Path, zones: &[&str]) -> (Self, Vec<u16>) {
        Self::serve_logged(&directory.join("servers.log"), zones)
    }

    /// Starts servers that accept calls and never respond; returns their ports.
    pub(crate) fn serve_hanging(directory: &Path, servers: usize) -> (Self, Vec<u16>) {
        Self::serve_logged(&directory.join("hanging.log"), &vec!["hang"; servers])
    }

    /// Starts a server for TLS with the files in `directory`; returns its port.
    pub(crate) fn serve_tls(directory: &Path, zone: &str) -> (Self, u16) {
        let mut command = python();
        command.arg("serve_tls").arg(directory).arg(zone);
        let mut peer = Self::start(command, &directory.join("servers.log"));
        let ports: Vec<u16> = serde_json::from_str(&peer.line()).unwrap();
        (peer, ports[0])
    }

    fn serve_logged(log: &Path, zones: &[&str]) -> (Self, Vec<u16>) {
        let mut command = python();
        command.arg("serve").args(zones);
        let mut peer = Self::start(command, log);
        let ports = serde_json::from_str(&peer.line()).unwrap();
        (peer, ports)
    }

    /// Starts a C-core client in `zone` that calls `xds:///orders`.
    pub(crate) fn call(directory: &Path, control: &Control, zone: &str, rate: u32) -> Self {
        let mut command = python();
        command.args(["call", "xds:///orders", &rate.to_string()]);
        command.env(
            "GRPC_XDS_BOOTSTRAP",
            bootstrap_file(directory, control.xds, zone),
        );
        Self::start(command, &directory.join(format!("checkout-{zone}.log")))
    }

    /// Starts a C-core client like [`Self::call`] whose calls have a deadline in seconds.
    pub(crate) fn call_within(
        directory: &Path,
        control: &Control,
        zone: &str,
        rate: u32,
        deadline: f64,
    ) -> Self {
        let mut command = python();
        command.args(["call", "xds:///orders", &rate.to_string()]);
        command.arg(deadline.to_string());
        command.env(
            "GRPC_XDS_BOOTSTRAP",
            bootstrap_file(directory, control.xds, zone),
        );
        Self::start(command, &directory.join(format!("checkout-{zone}.log")))
    }

    /// Starts a C-core client like [`Self::call_within`] that uses TLS as the control plane says,
    /// with these certificate providers in its bootstrap.
    pub(crate) fn call_tls(
        directory: &Path,
        control: &Control,
        zone: &str,
        rate: u32,
        providers: Value,
    ) -> Self {
        let file = bootstrap_file(directory, control.xds, zone);
        let mut bootstrap: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        bootstrap["certificate_providers"] = providers;
        std::fs::write(&file, bootstrap.to_string()).unwrap();
        let mut command = python();
        command.args(["call_tls", "xds:///orders", &rate.to_string(), "2"]);
        command.env("GRPC_XDS_BOOTSTRAP", file);
        Self::start(command, &directory.join(format!("checkout-{zone}.log")))
    }

    /// Starts a C-core client with the output of `plimsoll bootstrap grpc` with these arguments.
    pub(crate) fn call_with(directory: &Path, name: &str, arguments: &[&str], rate: u32) -> Self {
        let file = directory.join(format!("{name}.json"));
        let mut bootstrap = bootstrap(arguments);
        // Tests do not wait a minute until certificates are read again.
        let credentials = "/xds_servers/0/channel_creds/0/config/refresh_interval";
        if let Some(interval) = bootstrap.pointer_mut(credentials) {
            *interval = json!("1s");
        }
        std::fs::write(&file, bootstrap.to_string()).unwrap();
        let mut command = python();
        command.args(["call", "xds:///orders", &rate.to_string()]);
        command.env("GRPC_XDS_BOOTSTRAP", file);
        Self::start(command, &directory.join(format!("{name}.log")))
    }

    /// Starts a grpc-js client in `zone` that calls `xds:///orders`.
    pub(crate) fn call_js(directory: &Path, control: &Control, zone: &str, rate: u32) -> Self {
        Self::start_js(directory, control.xds, zone, &[&rate.to_string()])
    }

    /// Starts a grpc-js client like [`Self::load`].
    pub(crate) fn load_js(directory: &Path, control: SocketAddr, zone: &str) -> Self {
        Self::start_js(directory, control, zone, &["0", "load"])
    }

    fn start_js(directory: &Path, control: SocketAddr, zone: &str, args: &[&str]) -> Self {
        let mut command = Command::new("node");
        command.args([JS_PEER, "xds:///orders"]).args(args);
        command.env("NODE_PATH", peers().join("grpc-js/node_modules"));
        let file = bootstrap_file(directory, control, zone);
        command.env("GRPC_XDS_BOOTSTRAP", file);
        Self::start(command, &directory.join(format!("checkout-{zone}.log")))
    }

    /// Starts a C-core client in `zone` that calls `xds:///orders` and does not wait for responses.
    pub(crate) fn load(directory: &Path, control: SocketAddr, zone: &str) -> Self {
        let file = bootstrap_file(directory, control, zone);
        let mut command = python();
        command.args(["load", "xds:///orders", "0"]);
        command.env("GRPC_XDS_BOOTSTRAP", file);
        Self::start(command, &directory.join(format!("checkout-{zone}.log")))
    }

    /// Begins the next window of calls; [`Self::window`] returns the last one.
    pub(crate) fn end_window(&mut self) {
        self.send("next");
    }

    /// Returns the window that was ended, when all its calls have ended.
    pub(crate) fn window(&mut self) -> Tally {
        let counts: BTreeMap<String, u64> = self.receive();
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        Tally {
            sent: count("sent"),
            succeeded: count("succeeded"),
            failed: count("failed"),
        }
    }

    /// Returns the responses so far by zone; failures have the empty name.
    pub(crate) fn counts(&mut self) -> BTreeMap<String, u64> {
        self.command("counts")
    }

    /// Changes the calls per second (grpc-js, [`Self::load`] and [`Self::load_js`]).
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.command(&format!("rate {rate}"));
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    fn command(&mut self, line: &str) -> BTreeMap<String, u64> {
        self.send(line);
        self.receive()
    }

    fn send(&mut self, line: &str) {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn receive(&mut self) -> BTreeMap<String, u64> {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn start(command: Command, log: &Path) -> Self {
        let mut process = Process::start(command, log);
        let lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the peer responds").unwrap()
    }
}

/// Writes the bootstrap of a client in `zone`.
fn bootstrap_file(directory: &Path, control: SocketAddr, zone: &str) -> PathBuf {
    let address = control.to_string();
    let mut args = vec![
        "grpc", "--zone", zone, "--region", "r1", "--fleet", "checkout",
    ];
    args.extend(["--control", &address]);
    let file = directory.join(format!("checkout-{zone}.json"));
    std::fs::write(&file, bootstrap(&args).to_string()).unwrap();
    file
}

fn python() -> Command {
    let mut command = Command::new(peers().join("venv/bin/python"));
    command.arg(PEER);
    command
}
