//! [`Overload`]: what the proxy refuses while memory or time runs short, so that it serves what it
//! can and is not killed. A task reads the monitors; workers look at the actions in force.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_core::log_line;
use plimsoll_serve::LogLimit;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::config::{OverloadAction, OverloadConfig, ResourceMonitor};
use crate::log_lines;
use crate::state::State;
use crate::worker::TICK;

/// Log lines about changes in a second; one for each action.
const LOG_BURST: u32 = 5;

#[derive(Debug)]
pub(crate) struct Overload {
    /// Actions in force, as the sum of their numbers.
    active: AtomicU8,
    /// Wakes accept loops when another set of actions is in force.
    changed: Notify,
    origin: Instant,
    workers: Box<[WorkerClock]>,
}

/// Times of a worker's ticks, in nanoseconds since the origin.
#[derive(Debug, Default)]
struct WorkerClock {
    /// Time of the last tick; 0 before the first one.
    ticked: AtomicU64,
    /// Time by which the last tick was late.
    lag: AtomicU64,
}

impl Default for Overload {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Overload {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            active: AtomicU8::new(0),
            changed: Notify::new(),
            origin: Instant::now(),
            workers: (0..workers).map(|_| WorkerClock::default()).collect(),
        }
    }

    pub(crate) fn is_active(&self, action: OverloadAction) -> bool {
        self.active.load(Ordering::Relaxed) & action as u8 != 0
    }

    /// Resolves after the next change of the actions in force. Changes count from this call on.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns the number of actions in force.
    pub(crate) fn active_actions(&self) -> u32 {
        self.active.load(Ordering::Relaxed).count_ones()
    }

    /// Records a tick of a worker.
    pub(crate) fn record_tick(&self, worker: usize, now: Instant) {
        let Some(clock) = self.workers.get(worker) else {
            return;
        };
        let now = self.nanos(now).max(1);
        let before = clock.ticked.swap(now, Ordering::Relaxed);
        clock.lag.store(late(before, now), Ordering::Relaxed);
    }

    /// Returns the time by which the slowest worker is behind: with its last tick, or the next one.
    fn lag(&self, now: Instant) -> Duration {
        let now = self.nanos(now);
        let lags = self.workers.iter().map(|clock| {
            let next = late(clock.ticked.load(Ordering::Relaxed), now);
            next.max(clock.lag.load(Ordering::Relaxed))
        });
        Duration::from_nanos(lags.max().unwrap_or_default())
    }

    fn nanos(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.origin);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Puts the actions into force that these pressures ask for. Logs what changes.
    fn apply(&self, config: &OverloadConfig, pressures: &[f64], log: &Mutex<LogLimit>) {
        let active = actions(config, pressures);
        let before = self.active.swap(active, Ordering::Relaxed);
        if before != active {
            self.changed.notify_waiters();
        }
        for action in OverloadAction::ALL {
            let (was, is) = (before & action as u8 != 0, active & action as u8 != 0);
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if was == is || log.allow(tokio::time::Instant::now()).is_none() {
                continue;
            }
            let action = action.name();
            let pressure = pressures.iter().copied().fold(0.0, f64::max);
            if is {
                log_line!(log_lines::OVERLOAD_BEGUN, action, pressure);
            } else {
                log_line!(log_lines::OVERLOAD_ENDED, action, pressure);
            }
        }
    }
}

/// Returns by how much a tick at `now` is late.
fn late(before: u64, now: u64) -> u64 {
    let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
    if before == 0 {
        return 0;
    }
    now.saturating_sub(before).saturating_sub(tick)
}

/// Returns the actions whose triggers apply, as the sum of their numbers.
fn actions(config: &OverloadConfig, pressures: &[f64]) -> u8 {
    let triggers = config.triggers.iter().filter(|trigger| {
        let pressure = pressures.get(trigger.monitor);
        pressure.is_some_and(|pressure| *pressure >= trigger.threshold)
    });
    triggers.fold(0, |active, trigger| active | trigger.action as u8)
}

/// Reads the monitors and changes the actions in force, forever.
pub(crate) async fn run(state: Arc<State>) {
    let log = Mutex::new(LogLimit::with_burst(LOG_BURST));
    loop {
        let loaded = state.loaded();
        let config = &loaded.config.overload;
        let overload = &state.overload;
        let read = |monitor: &ResourceMonitor| pressure(*monitor, overload);
        let pressures: Vec<f64> = config.monitors.iter().map(read).collect();
        overload.apply(config, &pressures, &log);
        tokio::time::sleep(config.refresh_interval).await;
    }
}

/// Returns the part of a resource that is used; 0 if that cannot be read, because a proxy that
/// refuses requests without need is worse than one without this protection.
fn pressure(monitor: ResourceMonitor, overload: &Overload) -> f64 {
    let (used, max) = match monitor {
        ResourceMonitor::FixedHeap { max_bytes } => (resident_bytes(), Some(max_bytes)),
        ResourceMonitor::CgroupMemory { max_bytes } => {
            let (used, limit) = cgroup_memory();
            (used, limit.into_iter().chain(max_bytes).min())
        }
        ResourceMonitor::WorkerLag { max } => {
            let lag = overload.lag(Instant::now());
            return lag.as_secs_f64() / max.as_secs_f64();
        }
    };
    match (used, max) {
        (Some(used), Some(max)) if max > 0 => ratio(used, max),
        _ => 0.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pressure needs three digits")]
fn ratio(used: u64, max: u64) -> f64 {
    used as f64 / max as f64
}

/// Returns the resident memory of this process.
fn resident_bytes() -> Option<u64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Reads `VmRSS` of `/proc/self/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Returns the memory of the control group of this process that cannot be reclaimed, and its limit.
fn cgroup_memory() -> (Option<u64>, Option<u64>) {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(path.unwrap_or_default());
    for folder in [own.as_path(), root] {
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        if let Some(current) = read("memory.current") {
            let used = working_set(&current, &read("memory.stat").unwrap_or_default());
            return (used, number(&read("memory.max").unwrap_or_default()));
        }
    }
    let read = |file: &str| std::fs::read_to_string(root.join("memory").join(file)).ok();
    let current = read("memory.usage_in_bytes").unwrap_or_default();
    let used = working_set(&current, &read("memory.stat").unwrap_or_default());
    (
        used,
        number(&read("memory.limit_in_bytes").unwrap_or_default()),
    )
}

/// Returns the memory in use without the page cache of files that were not used lately, such as
/// access logs: the kernel takes that back before it kills anybody.
fn working_set(current: &str, stat: &str) -> Option<u64> {
    let inactive = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        matches!(name, "inactive_file" | "total_inactive_file").then(|| number(value))?
    });
    Some(number(current)?.saturating_sub(inactive.unwrap_or_default()))
}

/// Reads a number; `None` for `max`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OverloadTrigger;

    #[test]
    fn memory_is_read_from_the_kernel() {
        assert_eq!(
            resident("VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\n"),
            Some(1234 << 10)
        );
        assert_eq!(resident("VmSize: 1 kB\n"), None);
        let stat = "anon 5\nactive_file 70\ninactive_file 30\n";
        assert_eq!(working_set("100\n", stat), Some(70));
        assert_eq!(working_set("100\n", ""), Some(100));
        assert_eq!(working_set("max\n", ""), None);
        assert_eq!(number("max\n"), None);
        assert!(resident_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn a_worker_that_does_not_tick_lags() {
        let overload = Overload::new(2);
        let at = |millis: u64| overload.origin + Duration::from_millis(millis);
        assert_eq!(overload.lag(at(60_000)), Duration::ZERO, "not started");
        overload.record_tick(0, at(1000));
        overload.record_tick(1, at(1000));
        assert_eq!(overload.lag(at(1100)), Duration::ZERO);
        // It is seen before the tick, and until the next one.
        overload.record_tick(0, at(1100));
        assert_eq!(overload.lag(at(1400)), Duration::from_millis(300));
        overload.record_tick(1, at(1500));
        overload.record_tick(0, at(1500));
        assert_eq!(overload.lag(at(1550)), Duration::from_millis(400));
        overload.record_tick(0, at(1600));
        overload.record_tick(1, at(1600));
        assert_eq!(overload.lag(at(1650)), Duration::ZERO);
    }

    #[test]
    fn actions_are_in_force_while_a_trigger_applies() {
        let trigger = |action, monitor, threshold| OverloadTrigger {
            action,
            monitor,
            threshold,
        };
        let config = OverloadConfig {
            triggers: vec![
                trigger(OverloadAction::DisableHttpKeepalive, 0, 0.8),
                trigger(OverloadAction::StopAcceptingRequests, 0, 0.9),
                trigger(OverloadAction::StopAcceptingRequests, 1, 1.0),
            ],
            ..OverloadConfig::default()
        };
        let overload = Overload::default();
        let log = Mutex::default();
        for (pressures, keepalive, requests) in [
            ([0.7, 0.9], false, false),
            ([0.8, 0.0], true, false),
            ([0.9, 0.0], true, true),
            ([0.0, 1.0], false, true),
            ([0.0, 0.0], false, false),
        ] {
            overload.apply(&config, &pressures, &log);
            let active = |action| overload.is_active(action);
            assert_eq!(active(OverloadAction::DisableHttpKeepalive), keepalive);
            assert_eq!(active(OverloadAction::StopAcceptingRequests), requests);
            let count = u32::from(keepalive) + u32::from(requests);
            assert_eq!(overload.active_actions(), count);
        }
    }
}
