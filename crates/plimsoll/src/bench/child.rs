//! [`Child`]: the control plane that is measured, as a process of its own, and what it uses.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::Plan;
use super::messages::{SERVICE, ZONES};

/// What the kernel counts CPU time in, on every Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Hosts of the service in each zone.
const HOSTS_PER_ZONE: usize = 20;

/// A running control plane; killed when dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    address: SocketAddr,
    /// Its configuration, removed with it.
    _directory: tempfile::TempDir,
}

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    /// Resident bytes now.
    pub(super) memory: u64,
    /// The most there ever were.
    pub(super) peak_memory: u64,
}

impl Child {
    pub(super) fn start(plan: &Plan) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let path = directory.path().join("control.yaml");
        std::fs::write(&path, configuration(plan)).context("cannot write a configuration")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut process = Command::new(program)
            .args(["control", "--listen", "127.0.0.1:0", "--config"])
            .arg(&path)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a control plane")?;
        let stdout = process.stdout.take();
        let mut child = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            _directory: directory,
        };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        child.address = address
            .parse()
            .map_err(|_| anyhow!("the control plane did not start: it said {line:?}"))?;
        Ok(child)
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.process.id());
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let usage = parse_usage(&read("stat")?, &read("status")?);
        usage.context("the control plane has ended")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(plan: &Plan) -> String {
    let mut text = format!(
        "listen: 127.0.0.1:0\nadmin: ''\nload_reporting: {{interval: {}s}}\nservices:\n\
         - cluster: {{name: {SERVICE}}}\n  endpoints:\n",
        plan.interval.as_secs_f64(),
    );
    for (index, zone) in ZONES.iter().enumerate() {
        let hosts = (1..=HOSTS_PER_ZONE).map(|host| format!("'10.0.{index}.{host}:80'"));
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        text.push_str(&format!(
            "  - locality: {{region: r1, zone: {zone}}}\n    lb_endpoints: [{hosts}]\n"
        ));
    }
    text
}

fn parse_usage(stat: &str, status: &str) -> Option<Usage> {
    // The name may hold spaces and parentheses: fields count from the last one, and the first
    // after it is the third.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_whatever_the_name_of_the_program() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 12";
        let status = "Name:\ta) b\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let usage = parse_usage(stat, status).unwrap();
        assert_eq!(usage.cpu, Duration::from_secs(3));
        assert_eq!((usage.memory, usage.peak_memory), (1 << 20, 2 << 20));
        assert!(parse_usage(stat, "Name:\tzombie\n").is_none());
    }
}
