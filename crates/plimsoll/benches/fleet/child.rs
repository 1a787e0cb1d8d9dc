//! The measured control plane as a child process, and its resource usage.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::messages::{SERVICE, ZONES};
use crate::measure::Plan;
use crate::tls::{self, Dialer};

/// Unit of CPU time in /proc (`USER_HZ`), the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Number of hosts of the service in each zone.
const HOSTS_PER_ZONE: usize = 20;

/// Running control plane; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    address: SocketAddr,
    /// Connects proxies to it; `None` for plain text.
    dialer: Option<Dialer>,
    /// Directory of its configuration.
    _directory: tempfile::TempDir,
}

/// Resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    /// Peak resident memory in bytes.
    pub(crate) peak_memory: u64,
}

impl Child {
    pub(crate) fn start(plan: &Plan) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let path = directory.path().join("control.yaml");
        let dialer = plan
            .tls
            .then(|| Dialer::create(directory.path()))
            .transpose()?;
        std::fs::write(&path, configuration(plan)).context("cannot write the configuration")?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["control", "--listen", "127.0.0.1:0", "--config"])
            .arg(&path)
            .current_dir(directory.path())
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the control plane")?;
        let stdout = process.stdout.take();
        let mut child = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            dialer,
            _directory: directory,
        };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        child.address = address
            .parse()
            .map_err(|_| anyhow!("the control plane did not start: it printed {line:?}"))?;
        Ok(child)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn dialer(&self) -> Option<Dialer> {
        self.dialer.clone()
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.process.id());
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let usage = parse_usage(&read("stat")?, &read("status")?);
        usage.context("the control plane has exited")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(plan: &Plan) -> String {
    let mut text = format!(
        "listen: 127.0.0.1:0\nadmin: ''\n{}load_reporting: {{interval: {}s}}\nservices:\n\
         - cluster: {{name: {SERVICE}}}\n  endpoints:\n",
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

fn parse_usage(stat: &str, status: &str) -> Option<Usage> {
    // The name may contain spaces and parentheses, so fields are counted from the last parenthesis;
    // the first one after it is the third.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = ticks(14)? + ticks(15)?;
    let kilobytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some(Usage {
        cpu: Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND)),
        memory: kilobytes("VmRSS:")? << 10,
        peak_memory: kilobytes("VmHWM:")? << 10,
    })
}
