//! [`Control`]: `plimsoll control` as a process, with its admin API and its file at hand.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::http::get_json;
use super::process::Process;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A control plane. Killed when dropped.
pub(crate) struct Control {
    pub(crate) xds: SocketAddr,
    pub(crate) admin: SocketAddr,
    process: Process,
    folder: PathBuf,
}

impl Control {
    /// Starts on free ports with the text of a configuration.
    pub(crate) fn start(folder: &Path, config: &str) -> Self {
        std::fs::write(folder.join("control.yaml"), config).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        Self::listen(folder, any)
    }

    fn listen(folder: &Path, xds: SocketAddr) -> Self {
        let mut command = Command::new(PLIMSOLL);
        command
            .arg("control")
            .arg("-c")
            .arg(folder.join("control.yaml"));
        command.args(["--admin", "127.0.0.1:0", "--listen", &xds.to_string()]);
        let mut process = Process::start(command, &folder.join("control.log"));
        let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        let mut address = |prefix: &str| -> SocketAddr {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let address = line.strip_prefix(prefix);
            let address = address.unwrap_or_else(|| panic!("{line:?} does not begin {prefix:?}"));
            address.parse().unwrap()
        };
        Self {
            xds: address("ADS and LRS on "),
            admin: address("admin API on http://"),
            process,
            folder: folder.to_owned(),
        }
    }

    /// Kills it without warning.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let folder = self.folder.clone();
        *self = Self::listen(&folder, self.xds);
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Replaces the text of its file at once, as an editor would.
    pub(crate) fn edit(&self, config: &str) {
        let next = self.folder.join("control.yaml.next");
        std::fs::write(&next, config).unwrap();
        std::fs::rename(next, self.folder.join("control.yaml")).unwrap();
    }

    /// A page of the admin API; null while nobody answers.
    pub(crate) fn page(&self, path: &str) -> Value {
        get_json(self.admin, &format!("/api/v1/{path}")).unwrap_or_default()
    }

    /// Fractions on the assignment of the only fleet, in basis points by zone; empty = host counts.
    pub(crate) fn fleet_fractions(&self) -> BTreeMap<String, u64> {
        by_zone(&self.page("fleets")["fleets"][0]["delivered"])
    }

    /// Fractions that the only fleet is given for one service.
    pub(crate) fn service_fractions(&self, cluster: &str) -> BTreeMap<String, u64> {
        let page = self.page("clusters");
        let clusters = page["clusters"].as_array().cloned().unwrap_or_default();
        let own = clusters.iter().find(|entry| entry["cluster"] == cluster);
        own.map(|entry| by_zone(&entry["fleets"][0]["delivered"]))
            .unwrap_or_default()
    }

    /// What is known of a node; null when nothing is.
    pub(crate) fn node(&self, id: &str) -> Value {
        self.page(&format!("nodes?id={id}"))["nodes"][0].clone()
    }

    /// What is known of one resource type on the node's discovery stream, by the end of its name.
    pub(crate) fn type_status(&self, id: &str, type_name: &str) -> Value {
        let node = self.node(id);
        let types = node["discovery"][0]["types"].as_array().cloned();
        let types = types.unwrap_or_default().into_iter();
        let is = |status: &Value| status["type_url"].as_str().unwrap().ends_with(type_name);
        types.into_iter().find(is).unwrap_or_default()
    }
}

/// What `plimsoll bootstrap` prints.
pub(crate) fn bootstrap(args: &[&str]) -> Value {
    let output = Command::new(PLIMSOLL).arg("bootstrap").args(args).output();
    let output = output.unwrap();
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
