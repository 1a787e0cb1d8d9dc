//! [`XdsServer`]: `peers/xds-server`, a management server that others wrote.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::backends::Backends;
use super::peers;
use super::process::Process;

/// Serves clusters to one node. Killed when dropped.
pub(crate) struct XdsServer {
    address: SocketAddr,
    node: &'static str,
    file: PathBuf,
    process: Process,
}

impl XdsServer {
    /// Starts on a free port.
    pub(crate) fn start(folder: &Path, node: &'static str, services: &Value) -> Self {
        let file = folder.join("services.json");
        // It takes a port and no listener: one that was free just now.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it without a goodbye.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was, with other services.
    pub(crate) fn restart(&mut self, services: &Value) {
        self.kill();
        self.process = listen(self.address, self.node, &self.file, services);
    }
}

/// What it serves: services with their hosts in these zones.
pub(crate) fn services(version: u32, backends: &Backends, all: &[(&str, &[&str])]) -> Value {
    let services = all.iter().map(|(name, zones)| {
        let hosts = backends.addresses().iter();
        let hosts = hosts.filter(|(zone, _)| zones.contains(&zone.as_str()));
        let zones = hosts.map(|(zone, hosts)| (zone.clone(), json!(hosts)));
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
