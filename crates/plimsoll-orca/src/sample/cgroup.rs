//! Cgroup limits, version 1 and 2: the lowest limit of the process's own group and its parents.
//!
//! Expects cgroups at `/sys/fs/cgroup`. In a container without its own cgroup namespace, the path
//! in `/proc/self/cgroup` does not exist below the mount; then the mount itself is the group.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CpuLimit {
    pub(super) cores: f64,
    pub(super) usage: Usage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// `cpu.stat` of version 2.
    Stat(PathBuf),
    /// `cpuacct.usage` of version 1.
    Acct(PathBuf),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemoryLimit {
    bytes: f64,
    current: PathBuf,
    stat: PathBuf,
    /// Key in `stat` of the file pages that are reclaimed first.
    inactive: &'static str,
}

/// Returns the lowest CPU limit of the cgroups, if it is below the capacity of the machine.
pub(super) fn cpu_limit(root: &Path, host_cores: usize) -> Option<CpuLimit> {
    if is_v2(root) {
        let levels = levels(root, "", &[""]).into_iter();
        return lowest_cpu(levels.filter_map(|group| cpu_v2(&group)), host_cores);
    }
    let cpu = levels(root, "cpu", &["cpu", "cpu,cpuacct"]);
    let acct = levels(root, "cpuacct", &["cpuacct", "cpu,cpuacct"]);
    lowest_cpu(cpu_v1(cpu, &acct), host_cores)
}

pub(super) fn memory_limit(root: &Path, host_bytes: Option<f64>) -> Option<MemoryLimit> {
    let limits: Vec<MemoryLimit> = if is_v2(root) {
        let levels = levels(root, "", &[""]).into_iter();
        levels.filter_map(|group| memory_v2(&group)).collect()
    } else {
        let levels = levels(root, "memory", &["memory"]).into_iter();
        levels.filter_map(|group| memory_v1(&group)).collect()
    };
    let binds = |limit: &MemoryLimit| host_bytes.is_none_or(|host| limit.bytes < host);
    let limits = limits.into_iter().filter(binds);
    limits.min_by(|a, b| a.bytes.total_cmp(&b.bytes))
}

impl CpuLimit {
    pub(super) fn usage_seconds(&self) -> Option<f64> {
        match &self.usage {
            Usage::Stat(path) => Some(stat(path, "usage_usec")? / 1e6),
            Usage::Acct(path) => Some(number(path)? / 1e9),
        }
    }
}

impl MemoryLimit {
    /// Share of the limit in use, without inactive file pages.
    pub(super) fn utilization(&self) -> Option<f64> {
        let inactive = stat(&self.stat, self.inactive).unwrap_or(0.0);
        let used = (number(&self.current)? - inactive).max(0.0);
        Some(used / self.bytes)
    }
}

fn is_v2(root: &Path) -> bool {
    root.join("sys/fs/cgroup/cgroup.controllers").exists()
}

/// The process's group and its parents, innermost first; `controller` is empty in version 2.
fn levels(root: &Path, controller: &str, mounts: &[&str]) -> Vec<PathBuf> {
    let base = root.join("sys/fs/cgroup");
    let mut candidates = mounts.iter().map(|mount| base.join(mount));
    let Some(mount) = candidates.find(|mount| mount.is_dir()) else {
        return Vec::new();
    };
    let path = own_path(root, controller).unwrap_or_default();
    let own = path.trim_matches('/');
    let group = mount.join(own);
    if own.split('/').any(|part| part == "..") || !group.is_dir() {
        return vec![mount];
    }
    let above = group.ancestors().take_while(|dir| dir.starts_with(&mount));
    above.map(Path::to_path_buf).collect()
}

/// Path of the process's group from `/proc/self/cgroup`: `number:controllers:path`.
fn own_path(root: &Path, controller: &str) -> Option<String> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let found = controllers.split(',').any(|name| name == controller);
        found.then(|| path.to_owned())
    })
}

fn cpu_v2(group: &Path) -> Option<CpuLimit> {
    let max = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = max.trim().split_once(' ')?;
    let cores = quotient(quota.parse().ok()?, period.parse().ok()?)?;
    let usage = Usage::Stat(group.join("cpu.stat"));
    Some(CpuLimit { cores, usage })
}

/// CPU time is accounted in the `cpuacct` group at the same depth below the mount.
fn cpu_v1(cpu: Vec<PathBuf>, acct: &[PathBuf]) -> impl Iterator<Item = CpuLimit> {
    let outermost_first = cpu.into_iter().rev().zip(acct.iter().rev());
    outermost_first.filter_map(|(group, acct)| {
        let quota = number(&group.join("cpu.cfs_quota_us"))?;
        let period = number(&group.join("cpu.cfs_period_us"))?;
        let cores = quotient(quota, period)?;
        let usage = Usage::Acct(acct.join("cpuacct.usage"));
        Some(CpuLimit { cores, usage })
    })
}

fn lowest_cpu(limits: impl Iterator<Item = CpuLimit>, host_cores: usize) -> Option<CpuLimit> {
    #[expect(clippy::cast_precision_loss, reason = "machines have fewer cores")]
    let host = if host_cores == 0 {
        f64::INFINITY
    } else {
        host_cores as f64
    };
    let binding = limits.filter(|limit| limit.cores < host);
    binding.min_by(|a, b| a.cores.total_cmp(&b.cores))
}

fn memory_v2(group: &Path) -> Option<MemoryLimit> {
    Some(MemoryLimit {
        bytes: positive(number(&group.join("memory.max"))?)?,
        current: group.join("memory.current"),
        stat: group.join("memory.stat"),
        inactive: "inactive_file",
    })
}

fn memory_v1(group: &Path) -> Option<MemoryLimit> {
    Some(MemoryLimit {
        bytes: positive(number(&group.join("memory.limit_in_bytes"))?)?,
        current: group.join("memory.usage_in_bytes"),
        stat: group.join("memory.stat"),
        inactive: "total_inactive_file",
    })
}

/// A quota of -1 means unlimited.
fn quotient(quota: f64, period: f64) -> Option<f64> {
    Some(positive(quota)? / positive(period)?)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// Parses a file that contains one number; `None` for `max`.
fn number(path: &Path) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn stat(path: &Path, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}
