//! The measured control planes: one process, or replicas that share an etcd.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::messages::{SERVICE, ZONES};
use crate::child::{Child, Usage};
use crate::measure::Plan;
use crate::tls::{self, Dialer};

/// Number of hosts of the service in each zone.
const HOSTS_PER_ZONE: usize = 20;
/// Time in which etcd must accept connections.
const ETCD_START: Duration = Duration::from_secs(20);

/// Running control planes. Dropped in this order: the control planes, their store, the files.
#[derive(Debug)]
pub(crate) struct Replicas {
    children: Vec<Child>,
    _etcd: Option<Etcd>,
    /// Connects proxies; `None` for plain text.
    dialer: Option<Dialer>,
    _directory: tempfile::TempDir,
}

impl Replicas {
    pub(crate) fn start(plan: &Plan) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let dialer = plan
            .tls
            .then(|| Dialer::create(directory.path()))
            .transpose()?;
        let etcd = (plan.replicas > 1)
            .then(|| Etcd::start(directory.path()))
            .transpose()?;
        let text = configuration(plan, etcd.as_ref());
        std::fs::write(directory.path().join("control.yaml"), text)
            .context("cannot write the configuration")?;
        let children = (0..plan.replicas).map(|replica| Child::start(directory.path(), replica));
        Ok(Self {
            children: children.collect::<Result<_, _>>()?,
            _etcd: etcd,
            dialer,
            _directory: directory,
        })
    }

    /// Returns the address for a proxy; proxies are spread evenly.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.children[node % self.children.len()].address()
    }

    pub(crate) fn dialer(&self) -> Option<Dialer> {
        self.dialer.clone()
    }

    /// Returns the CPU time of all control planes, and the memory of the largest.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let mut sum = Usage::default();
        for child in &self.children {
            let usage = child.usage()?;
            sum.cpu += usage.cpu;
            sum.memory = sum.memory.max(usage.memory);
            sum.peak_memory = sum.peak_memory.max(usage.peak_memory);
        }
        Ok(sum)
    }
}

/// One member of etcd; killed when dropped.
#[derive(Debug)]
struct Etcd {
    process: Process,
    address: SocketAddr,
}

impl Etcd {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        // etcd cannot listen on port 0.
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (address, peer) = (free()?, free()?);
        let urls = |address: SocketAddr| format!("http://{address}");
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &urls(address)])
            .args(["--advertise-client-urls", &urls(address)])
            .args(["--listen-peer-urls", &urls(peer)])
            .args(["--initial-advertise-peer-urls", &urls(peer)])
            .args(["--initial-cluster", &format!("default={}", urls(peer))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start etcd (Debian package etcd-server)")?;
        let etcd = Self { process, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(
                begun.elapsed() < ETCD_START,
                "etcd does not accept connections"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(plan: &Plan, etcd: Option<&Etcd>) -> String {
    let store = etcd.map(|etcd| format!("store: {{etcd: {{endpoints: ['{}']}}}}\n", etcd.address));
    let mut text = format!(
        "listen: 127.0.0.1:0\nadmin: ''\n{}{}load_reporting: {{interval: {}s}}\nservices:\n\
         - cluster: {{name: {SERVICE}}}\n  endpoints:\n",
        store.unwrap_or_default(),
        if plan.tls { tls::SETTINGS } else { "" },
        plan.interval.as_secs_f64(),
    );
    for (index, zone) in ZONES.iter().enumerate() {
        let hosts = (1..=HOSTS_PER_ZONE)
            .map(|host| format!("'10.0.{index}.{host}:80'"))
            .collect::<Vec<_>>()
            .join(", ");
        text.push_str(&format!(
            "  - locality: {{region: r1, zone: {zone}}}\n    lb_endpoints: [{hosts}]\n"
        ));
    }
    text
}
