//! `peers/management_server.py` as a child process: an independent xDS server (grpcio, xds-protos).

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};

use plimsoll_testing::Process;
use serde_json::{Value, json};

use super::backends::Backends;
use super::peers;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/management_server.py");

/// Running management server; killed when dropped.
pub(crate) struct ManagementServer {
    pub(crate) port: u16,
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    directory: PathBuf,
}

impl ManagementServer {
    /// Starts a server with these resources on a free port.
    pub(crate) fn start(directory: &Path, resources: &Value) -> Self {
        Self::listen(directory, resources, 0)
    }

    fn listen(directory: &Path, resources: &Value, port: u16) -> Self {
        let mut command = Command::new(peers().join("venv/bin/python"));
        command
            .arg(PROGRAM)
            .arg(write(directory, "first", resources));
        command.arg(port.to_string());
        let mut process = Process::start(command, &directory.join("management_server.log"));
        let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        let port = lines.next().expect("the server prints its port").unwrap();
        Self {
            port: port.parse().unwrap(),
            process,
            lines,
            directory: directory.to_owned(),
        }
    }

    /// Address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Replaces the resources of all streams.
    pub(crate) fn replace(&mut self, resources: &Value) {
        let file = write(&self.directory, "next", resources);
        assert_eq!(self.command(&file), "ok");
    }

    /// Returns type and message of all NACKs so far.
    pub(crate) fn nacks(&mut self) -> Vec<(String, String)> {
        serde_json::from_str(&self.command("nacks")).unwrap()
    }

    /// Returns all `ClusterStats` reported so far, in protobuf's JSON.
    pub(crate) fn reports(&mut self) -> Vec<Value> {
        serde_json::from_str(&self.command("reports")).unwrap()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it on the same port with these resources.
    pub(crate) fn restart(&mut self, resources: &Value) {
        self.kill();
        *self = Self::listen(&self.directory.clone(), resources, self.port);
    }

    fn command(&mut self, line: &str) -> String {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
        self.lines.next().unwrap().unwrap()
    }
}

fn write(directory: &Path, name: &str, resources: &Value) -> String {
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, resources.to_string()).unwrap();
    path.display().to_string()
}

/// Returns a cluster whose assignment has another name, as in many control planes, and one that is
/// not listed in `services`.
pub(crate) fn relayed(backends: &Backends, connect_timeout: &str) -> Value {
    let localities = backends.addresses().iter().map(|(zone, addresses)| {
        let endpoint = |address: &SocketAddr| {
            let address = json!({ "address": "127.0.0.1", "port_value": address.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        };
        json!({
            "locality": { "region": "r1", "zone": zone },
            "lb_endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        })
    });
    let localities: Vec<_> = localities.collect();
    let mut resources = Vec::new();
    for name in ["orders", "others"] {
        let assignment = format!("outbound|80||{name}");
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": name,
            "type": "EDS",
            "connect_timeout": connect_timeout,
            "eds_cluster_config": {
                "service_name": assignment,
                "eds_config": { "ads": {}, "resource_api_version": "V3" },
            },
        }));
        resources.push(json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": assignment,
            "endpoints": localities,
        }));
    }
    Value::Array(resources)
}
