//! [`Sampler`]: CPU and memory utilization, from `/proc` and cgroups of Linux.
//!
//! If the cgroup of the process, or one above it, has a limit below the capacity of the machine,
//! utilization is relative to that limit, because work stalls there first. Otherwise it is that of
//! the machine, including other processes, because they compete. On other systems nothing is
//! measured, and the application may set values itself.

use std::path::PathBuf;
use std::time::Duration;

mod cgroup;
mod host;

use cgroup::{CpuLimit, MemoryLimit};

/// How long limits are cached: they may change while a process runs, but rarely do.
const LIMITS_TTL: Duration = Duration::from_secs(5);

/// Utilization at one tick; `None` where nothing can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) cpu: Option<CpuUsage>,
    pub(crate) memory: Option<f64>,
}

/// CPU time used and available since some origin; only differences are meaningful.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuUsage {
    /// Changes when the totals restart: totals of different sources cannot be compared.
    pub(crate) source: u32,
    pub(crate) busy: f64,
    pub(crate) capacity: f64,
}

/// Reads files below `root`, which is `/` except in tests.
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

    pub(crate) fn cpu(&mut self, now: Duration) -> Option<CpuUsage> {
        self.read_limits(now);
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        let limit = self.limits.as_ref().and_then(|limits| limits.cpu.as_ref());
        let (busy, capacity) = match limit {
            Some(limit) => {
                // Capacity is accumulated, because the limit may change.
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

    /// Returns the share of memory in use, without reclaimable file pages.
    pub(crate) fn memory(&mut self, now: Duration) -> Option<f64> {
        self.read_limits(now);
        let limits = self.limits.as_ref();
        match limits.and_then(|limits| limits.memory.as_ref()) {
            Some(limit) => limit.utilization(),
            None => host::memory_utilization(&self.root),
        }
    }

    fn read_limits(&mut self, now: Duration) {
        let fresh = |limits: &Limits| now.saturating_sub(limits.read) < LIMITS_TTL;
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
