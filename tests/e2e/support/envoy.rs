//! Unmodified Envoy with the bootstrap that `plimsoll bootstrap envoy` prints.
//!
//! A static listener is added that routes everything to `orders`. Load reports may take a separate
//! connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::http::{get, get_json};
use plimsoll_testing::{Process, envoy};
use serde_json::{Value, json};

use super::control::bootstrap;
use super::wait_for;

/// Default release of the tests.
pub(crate) const CURRENT: &str = "1.40.0";

/// Properties of an Envoy.
#[derive(Clone, Debug)]
pub(crate) struct EnvoySpec {
    pub(crate) zone: String,
    pub(crate) version: &'static str,
    pub(crate) delta: bool,
    pub(crate) control: SocketAddr,
    /// Address for load reports, if not the control plane's.
    pub(crate) reports_to: Option<SocketAddr>,
}

/// Running Envoy; killed when dropped.
pub(crate) struct Envoy {
    pub(crate) zone: String,
    /// Address for requests of clients.
    pub(crate) listener: SocketAddr,
    pub(crate) admin: SocketAddr,
    process: Process,
}

impl Envoy {
    /// Starts an Envoy whose files are written to `directory`.
    pub(crate) fn start(directory: &Path, spec: &EnvoySpec) -> Self {
        Self::start_with(directory, &spec.zone, spec.version, &spec.bootstrap())
    }

    /// Starts an Envoy with another bootstrap, which has a listener `ingress`.
    pub(crate) fn start_with(
        directory: &Path,
        zone: &str,
        version: &str,
        bootstrap: &Value,
    ) -> Self {
        let id = format!("gateway-{zone}");
        let file = |end: &str| directory.join(format!("{id}.{end}"));
        std::fs::write(file("json"), bootstrap.to_string()).unwrap();
        let admin_file = file("admin").display().to_string();
        let arguments = ["--admin-address-path", &admin_file];
        let mut process = Self::spawn(&file("json"), &file("log"), version, &arguments);
        let admin = wait_for("Envoy's admin interface is bound", || {
            assert!(process.is_alive(), "Envoy {version} exited");
            let text = std::fs::read_to_string(file("admin")).ok()?;
            text.trim().parse().ok()
        });
        Self {
            listener: wait_for("Envoy's listener is bound", || listener(admin)),
            zone: zone.to_owned(),
            admin,
            process,
        }
    }

    /// Starts an Envoy with a bootstrap file, and does not wait for anything.
    pub(crate) fn spawn(file: &Path, log: &Path, version: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(envoy(version));
        command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_directory());
        command.arg("-c").arg(file).args(arguments);
        command.args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "warning",
        ]);
        Process::start(command, log)
    }

    /// Returns the sums of the endpoint weights of a cluster, by zone.
    pub(crate) fn weights(&self, cluster: &str) -> BTreeMap<String, u64> {
        let page = get_json(self.admin, "/clusters?format=json").unwrap_or_default();
        let clusters = page["cluster_statuses"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = clusters.iter().find(|entry| entry["name"] == cluster);
        let hosts = own.and_then(|entry| entry["host_statuses"].as_array());
        let mut weights = BTreeMap::new();
        for host in hosts.into_iter().flatten() {
            let zone = host["locality"]["zone"].as_str().unwrap_or_default();
            *weights.entry(zone.to_owned()).or_default() += host["weight"].as_u64().unwrap();
        }
        weights
    }

    /// Returns `connect_timeout` of a dynamic cluster; empty if it does not exist.
    pub(crate) fn connect_timeout(&self, cluster: &str) -> String {
        let path = "/config_dump?resource=dynamic_active_clusters";
        let page = get_json(self.admin, path).unwrap_or_default();
        let clusters = page["configs"].as_array().cloned().unwrap_or_default();
        let own = clusters
            .iter()
            .find(|entry| entry["cluster"]["name"] == cluster);
        let timeout = own.and_then(|entry| entry["cluster"]["connect_timeout"].as_str());
        timeout.unwrap_or_default().to_owned()
    }

    /// Returns a counter or gauge.
    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let text = get(self.admin, &format!("/stats?filter=^{name}$"))?;
        text.trim().rsplit(' ').next()?.parse().ok()
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }
}

impl EnvoySpec {
    fn bootstrap(&self) -> Value {
        let control = self.control.to_string();
        let mut args = vec!["envoy", "--zone", &self.zone, "--region", "r1"];
        args.extend(["--control", &control, "--admin-port", "0"]);
        if self.delta {
            args.push("--delta");
        }
        let mut bootstrap = bootstrap(&args);
        bootstrap["static_resources"]["listeners"] = json!([ingress()]);
        if let Some(address) = self.reports_to {
            let clusters = &mut bootstrap["static_resources"]["clusters"];
            let mut reports = clusters[0].clone();
            reports["name"] = json!("reports");
            reports["load_assignment"]["cluster_name"] = json!("reports");
            let pointer = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
            reports.pointer_mut(pointer).unwrap()["socket_address"]["port_value"] =
                json!(address.port());
            // Without keep-alive pings, a paused connection is silent instead of broken.
            let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
            reports["typed_extension_protocol_options"][options]["explicit_http_config"] =
                json!({ "http2_protocol_options": {} });
            clusters.as_array_mut().unwrap().push(reports);
            let config = &mut bootstrap["cluster_manager"]["load_stats_config"];
            config["grpc_services"][0]["envoy_grpc"]["cluster_name"] = json!("reports");
        }
        bootstrap
    }
}

/// Returns a listener on a free port that routes everything to `orders`, which may be added later.
pub(crate) fn ingress() -> Value {
    let filters = "type.googleapis.com/envoy.extensions.filters";
    json!({
        "name": "ingress",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
        "filter_chains": [{ "filters": [{
            "name": "http",
            "typed_config": {
                "@type": format!(
                    "{filters}.network.http_connection_manager.v3.HttpConnectionManager"
                ),
                "stat_prefix": "ingress",
                "http_filters": [{
                    "name": "router",
                    "typed_config": { "@type": format!("{filters}.http.router.v3.Router") },
                }],
                "route_config": {
                    "validate_clusters": false,
                    "virtual_hosts": [{
                        "name": "any",
                        "domains": ["*"],
                        "routes": [{
                            "match": { "prefix": "/" },
                            "route": { "cluster": "orders" },
                        }],
                    }],
                },
            },
        }] }],
    })
}

/// Returns the directory of the library that Cargo built with the tests.
fn module_directory() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().to_owned()
}

/// Returns the bound address of the static listener.
fn listener(admin: SocketAddr) -> Option<SocketAddr> {
    let page = get_json(admin, "/listeners?format=json")?;
    let listeners = page["listener_statuses"].as_array()?;
    let own = listeners.iter().find(|entry| entry["name"] == "ingress")?;
    let address = &own["local_address"]["socket_address"];
    let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}
