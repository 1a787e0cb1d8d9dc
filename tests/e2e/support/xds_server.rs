//! `peers/xds-server` as a child process: an independent management server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::Process;
use serde_json::{Value, json};

use super::backends::Backends;
use super::peers;

/// Running server for one node; killed when dropped.
pub(crate) struct XdsServer {
    address: SocketAddr,
    node: &'static str,
    file: PathBuf,
    process: Process,
}

impl XdsServer {
    /// Starts a server on a free port.
    pub(crate) fn start(directory: &Path, node: &'static str, services: &Value) -> Self {
        let file = directory.join("services.json");
        // The server needs a port number; use one that was free a moment ago.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        Self {
            process: listen(address, node, &file, services),
            address,
            node,
            file,
        }
    }

    /// Address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it on the same address with other services.
    pub(crate) fn restart(&mut self, services: &Value) {
        self.kill();
        self.process = listen(self.address, self.node, &self.file, services);
    }
}

/// Returns the server's file: services with their hosts in these zones.
pub(crate) fn services(version: u32, backends: &Backends, all: &[(&str, &[&str])]) -> Value {
    let services = all.iter().map(|(name, zones)| {
        let zones = backends
            .addresses()
            .iter()
            .filter(|(zone, _)| zones.contains(&zone.as_str()))
            .map(|(zone, hosts)| (zone.clone(), json!(hosts)));
        json!({ "name": name, "zones": zones.collect::<serde_json::Map<_, _>>() })
    });
    json!({ "version": version.to_string(), "services": services.collect::<Vec<_>>() })
}

fn listen(address: SocketAddr, node: &str, file: &Path, services: &Value) -> Process {
    std::fs::write(file, services.to_string()).unwrap();
    let mut command = Command::new(peers().join("peer-xds-server"));
    command.arg(address.port().to_string()).arg(node).arg(file);
    Process::start(command, &file.with_extension("log"))
}
