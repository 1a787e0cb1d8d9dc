//! `plimsoll control` as a child process, with its admin API and configuration file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::http::get_json;
use plimsoll_testing::{Process, plimsoll};
use rustix::process::Signal;
use serde_json::Value;

use super::wait_to_see;

/// Running control plane; killed when dropped.
pub(crate) struct Control {
    pub(crate) xds: SocketAddr,
    pub(crate) admin: SocketAddr,
    process: Process,
    directory: PathBuf,
    replica_id: Option<String>,
}

impl Control {
    /// Starts a control plane on free ports with this configuration.
    pub(crate) fn start(directory: &Path, config: &str) -> Self {
        std::fs::write(directory.join("control.yaml"), config).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        Self::listen(directory, any, None)
    }

    /// Starts one of several replicas.
    pub(crate) fn start_replica(directory: &Path, config: &str, replica_id: &str) -> Self {
        std::fs::write(directory.join("control.yaml"), config).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        Self::listen(directory, any, Some(replica_id.to_owned()))
    }

    fn listen(directory: &Path, xds: SocketAddr, replica_id: Option<String>) -> Self {
        let mut command = Command::new(plimsoll());
        command
            .arg("control")
            .arg("-c")
            .arg(directory.join("control.yaml"));
        command.args(["--admin", "127.0.0.1:0", "--listen", &xds.to_string()]);
        if let Some(replica_id) = &replica_id {
            command.args(["--replica-id", replica_id]);
        }
        let mut process = Process::start(command, &directory.join("control.log"));
        let [xds, admin] = process.addresses(["ADS and LRS on ", "admin API on http://"]);
        Self {
            xds,
            admin,
            process,
            directory: directory.to_owned(),
            replica_id,
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the process without ending it: sockets stay open, and nothing is read from them.
    pub(crate) fn hang(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Restarts it on the same xDS address.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let directory = self.directory.clone();
        let replica_id = self.replica_id.clone();
        *self = Self::listen(&directory, self.xds, replica_id);
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Replaces its configuration file atomically.
    pub(crate) fn edit(&self, config: &str) {
        let next = self.directory.join("control.yaml.next");
        std::fs::write(&next, config).unwrap();
        std::fs::rename(next, self.directory.join("control.yaml")).unwrap();
    }

    /// Returns everything that was logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("control.log")).unwrap_or_default()
    }

    /// Returns a metric by its name and labels; 0 if it does not exist.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = plimsoll_testing::http::get(self.admin, "/metrics").unwrap_or_default();
        let start = format!("plimsoll_control_{name} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&start));
        value
            .and_then(|value| value.parse().ok())
            .unwrap_or_default()
    }

    /// Fetches a path of the admin API; null if it does not respond.
    pub(crate) fn page(&self, path: &str) -> Value {
        get_json(self.admin, &format!("/api/v1/{path}")).unwrap_or_default()
    }

    /// Returns the notices of the dashboard.
    pub(crate) fn notices(&self) -> String {
        let state = get_json(self.admin, "/dashboard/state").unwrap_or_default();
        state["notices"].to_string()
    }

    /// Returns the fractions delivered to the only fleet, in basis points by zone; empty for host
    /// counts.
    pub(crate) fn fleet_fractions(&self) -> BTreeMap<String, u64> {
        by_zone(&self.page("fleets")["fleets"][0]["delivered"])
    }

    /// Returns the fractions delivered to the only fleet for one service.
    pub(crate) fn service_fractions(&self, cluster: &str) -> BTreeMap<String, u64> {
        let page = self.page("clusters");
        let clusters = page["clusters"].as_array().cloned().unwrap_or_default();
        let own = clusters.iter().find(|entry| entry["cluster"] == cluster);
        own.map(|entry| by_zone(&entry["fleets"][0]["delivered"]))
            .unwrap_or_default()
    }

    /// Returns a node of the admin API; null if unknown.
    pub(crate) fn node(&self, id: &str) -> Value {
        self.page(&format!("nodes?id={id}"))["nodes"][0].clone()
    }

    /// Waits until the admin API shows a node as it should be, and returns it.
    pub(crate) fn wait_for_node(
        &self,
        id: &str,
        what: &str,
        is: impl FnMut(&Value) -> bool,
    ) -> Value {
        wait_to_see(&format!("{id} {what}"), || self.node(id), is)
    }

    /// Waits until every service of a node is delivered in this form.
    pub(crate) fn wait_for_delivery(&self, id: &str, form: &str) -> Value {
        let what = format!("is steered by {form}");
        self.wait_for_node(id, &what, |node| node["delivery"][0]["delivery"] == form)
    }

    /// Returns the status of a resource type on the node's discovery stream, by the end of its
    /// name.
    pub(crate) fn type_status(&self, id: &str, type_name: &str) -> Value {
        let node = self.node(id);
        let types = node["discovery"][0]["types"].as_array().cloned();
        let matches = |status: &Value| status["type_url"].as_str().unwrap().ends_with(type_name);
        let mut types = types.unwrap_or_default().into_iter();
        types.find(matches).unwrap_or_default()
    }
}

/// Runs `plimsoll bootstrap` and returns its output. Nodes are named after their zone: the default
/// has the name of the machine.
pub(crate) fn bootstrap(args: &[&str]) -> Value {
    let mut command = Command::new(plimsoll());
    command.arg("bootstrap").args(args);
    let zone = args.iter().skip_while(|arg| **arg != "--zone").nth(1);
    if let Some(zone) = zone.filter(|_| !args.contains(&"--id")) {
        let at = args.iter().position(|arg| *arg == "--fleet");
        let fleet = at.and_then(|at| args.get(at + 1)).unwrap_or(&"gateway");
        command.arg("--id").arg(format!("{fleet}-{zone}"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn by_zone(fractions: &Value) -> BTreeMap<String, u64> {
    let zones = fractions.as_array().cloned().unwrap_or_default();
    let zone = |entry: &Value| {
        let name = entry["locality"]["zone"].as_str().unwrap().to_owned();
        (name, entry["fraction_bp"].as_u64().unwrap())
    };
    zones.iter().map(zone).collect()
}
