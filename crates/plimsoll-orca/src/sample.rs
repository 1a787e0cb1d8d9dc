//! [`Sampler`]: how busy CPU and memory are, from the files of a Linux system.
//!
//! If the cgroup of the process, or one above it, has a limit that is below what the machine has,
//! the share of that limit is meant, because work stalls there first. Otherwise it is the share of
//! the machine, with its other processes, because they compete. Elsewhere than on Linux there is
//! no answer, and the application may give one. Which limit binds is found in `cgroup`; the
//! machine is read in `host`. Called by `state` with every tick.

use std::path::PathBuf;
use std::time::Duration;

mod cgroup;
mod host;

use cgroup::{CpuLimit, MemoryLimit};

/// How long a limit is believed. They can change while a process runs, but seldom do.
const LIMITS_FOR: Duration = Duration::from_secs(5);

/// What one tick sees. `None` = there is no way to know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) cpu: Option<CpuUsage>,
    pub(crate) memory: Option<f64>,
}

/// CPU time used and available since some origin; only differences mean something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuUsage {
    /// Changes when totals begin again: those of different sources have nothing to do with each
    /// other.
    pub(crate) source: u32,
    pub(crate) busy: f64,
    pub(crate) capacity: f64,
}

/// Reads below a root, which is `/` except in tests.
#[derive(Debug)]
pub(crate) struct Sampler {
    root: PathBuf,
    limits: Option<Limits>,
    source: u32,
    capacity: f64,
    last: Duration,
}

#[derive(Debug)]
struct Limits {
    read: Duration,
    cpu: Option<CpuLimit>,
    memory: Option<MemoryLimit>,
}

impl Sampler {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            limits: None,
            source: 0,
            capacity: 0.0,
            last: Duration::ZERO,
        }
    }

    /// CPU time until `now`.
    pub(crate) fn cpu(&mut self, now: Duration) -> Option<CpuUsage> {
        self.read_limits(now);
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        let limit = self.limits.as_ref().and_then(|limits| limits.cpu.as_ref());
        let (busy, capacity) = match limit {
            Some(limit) => {
                // Time by time, because the number of cores may change.
                self.capacity += elapsed * limit.cores;
                (limit.usage_seconds()?, self.capacity)
            }
            None => host::cpu_times(&self.root)?,
        };
        Some(CpuUsage {
            source: self.source,
            busy,
            capacity,
        })
    }

    /// Share of memory in use at `now`, without what can be dropped at once.
    pub(crate) fn memory(&mut self, now: Duration) -> Option<f64> {
        self.read_limits(now);
        let limits = self.limits.as_ref();
        match limits.and_then(|limits| limits.memory.as_ref()) {
            Some(limit) => limit.utilization(),
            None => host::memory_utilization(&self.root),
        }
    }

    fn read_limits(&mut self, now: Duration) {
        let fresh = |limits: &Limits| now.saturating_sub(limits.read) < LIMITS_FOR;
        if self.limits.as_ref().is_some_and(fresh) {
            return;
        }
        let limits = Limits {
            read: now,
            cpu: cgroup::cpu_limit(&self.root, host::cores(&self.root)),
            memory: cgroup::memory_limit(&self.root, host::memory_total(&self.root)),
        };
        let usage = |limits: &Limits| limits.cpu.as_ref().map(|limit| limit.usage.clone());
        if let Some(before) = &self.limits
            && usage(before) != usage(&limits)
        {
            self.source = self.source.wrapping_add(1);
        }
        self.limits = Some(limits);
    }
}

#[cfg(test)]
mod tests;
