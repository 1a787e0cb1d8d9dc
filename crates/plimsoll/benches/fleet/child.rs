//! A measured control plane as a child process, and its resource usage.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

/// Unit of CPU time in /proc (`USER_HZ`), the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Running control plane; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    address: SocketAddr,
}

/// Resource usage of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    /// Peak resident memory in bytes.
    pub(crate) peak_memory: u64,
}

impl Child {
    /// Starts the replica with this number and the configuration in a directory.
    pub(crate) fn start(directory: &Path, replica: usize) -> anyhow::Result<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["control", "--listen", "127.0.0.1:0", "--config"])
            .arg("control.yaml")
            .args(["--replica-id", &format!("replica-{replica}")])
            .current_dir(directory)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the control plane")?;
        let stdout = process.stdout.take();
        let mut child = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
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
