//! CPU and memory of the whole machine, from `/proc/stat` and `/proc/meminfo`.
//!
//! Used if no cgroup limits the process, and to decide whether a limit is below the capacity.

use std::fs;
use std::path::Path;

/// Busy and total CPU time of all cores, in kernel ticks.
pub(super) fn cpu_times(root: &Path) -> Option<(f64, f64)> {
    let stat = fs::read_to_string(root.join("proc/stat")).ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut times = [0.0; 8];
    let mut fields = line.split_ascii_whitespace();
    for time in &mut times {
        // Old kernels have fewer fields; the guest times after these are included in user time.
        let Some(field) = fields.next() else { break };
        *time = field.parse().ok()?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = times;
    let busy = user + nice + system + irq + softirq + steal;
    Some((busy, busy + idle + iowait))
}

/// Number of cores; 0 if it is unknown.
pub(super) fn cores(root: &Path) -> usize {
    let stat = fs::read_to_string(root.join("proc/stat")).unwrap_or_default();
    let core = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    stat.lines().filter(core).count()
}

/// Share of memory that is not available.
pub(super) fn memory_utilization(root: &Path) -> Option<f64> {
    let [total, available] = memory(root, ["MemTotal:", "MemAvailable:"])?;
    (total > 0.0).then(|| 1.0 - available / total)
}

/// Total memory in bytes.
pub(super) fn memory_total(root: &Path) -> Option<f64> {
    let [total] = memory(root, ["MemTotal:"])?;
    Some(total)
}

/// Reads entries of `/proc/meminfo`, in bytes.
fn memory<const N: usize>(root: &Path, names: [&str; N]) -> Option<[f64; N]> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let mut values = [0.0; N];
    for (value, name) in values.iter_mut().zip(names) {
        let rest = info.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        *value = kilobytes * 1024.0;
    }
    Some(values)
}
