//! [`ObservedLoad`]: the `OBSERVED_LOAD` basis: what this proxy sees of its own requests (decisions
//! D5).
//!
//! A proxy cannot see other zones' demand, and counting where it sent requests itself would chase
//! its own tail. What it can see honestly is how long its requests take: per locality, over a
//! window of latched counters, on a timer. The shortest response time any locality has shown stands
//! for no queue at all; a locality that takes twice as long is taken to be half utilized (one
//! server, one queue). These utilizations drive the convergent controller, inside the preconditions
//! of zone-aware routing. Until a window has been seen, host counts decide.
//!
//! It helps when load shows as waiting: a hot zone whose hosts queue. It cannot help while hosts
//! answer equally fast up to the point where they break, nor tell a far zone from a busy one other
//! than by the baseline of each locality, which is kept apart for that reason.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host_source::HostSource;
use crate::locality_picking::convergent::{ControlledSlot, Convergent};
use crate::locality_picking::load_aware_locality::{SlotLoad, Smoother};
use crate::model::load_aware_locality::{
    LoadAwareLocality, LoadAwareLocalityParts, SpillController,
};
use crate::model::locality::Locality;
use crate::snapshot::{HostList, PriorityTable};
use crate::time::Instant;

/// How often windows are latched (decisions D5).
const PERIOD: Duration = Duration::from_secs(1);
/// A baseline forgets slowly, so that a service that became slower for good is believed in the end.
const BASELINE_GROWTH: f64 = 1.0005;

#[derive(Debug, Default)]
pub(super) struct ObservedLoad {
    latched: BTreeMap<Locality, Latched>,
    smoother: Smoother,
    controller: Convergent,
    shares: Option<Vec<f64>>,
    next_tick: Option<Instant>,
}

/// What was known of a locality at the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct Latched {
    latency: u64,
    timed: u64,
    /// Shortest mean response time of a window so far, nanoseconds.
    baseline: f64,
}

impl ObservedLoad {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Forgets everything, when the basis is another one.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Shares of the slots of priority 0; `None` until a window has been seen.
    pub(super) fn shares(&mut self, table: &PriorityTable, now: Instant) -> Option<&[f64]> {
        if self.next_tick.is_none_or(|tick| tick <= now) {
            self.next_tick = Some(now.saturating_add(PERIOD));
            self.tick(table);
        }
        self.shares.as_deref()
    }

    fn tick(&mut self, table: &PriorityTable) {
        let Some(settings) = settings() else { return };
        let hosts = table.hosts_by_slot(HostSource::HealthyHosts);
        let slots = table.counts.localities.iter().zip(hosts);
        let mut latched = BTreeMap::new();
        let mut loads = Vec::with_capacity(table.counts.localities.len());
        for (counts, hosts) in slots {
            let before = self.latched.get(&counts.locality).copied();
            let (after, utilization) = window(before, hosts);
            latched.insert(counts.locality.clone(), after);
            loads.push(SlotLoad {
                locality: counts.locality.clone(),
                has_hosts: counts.all > 0,
                eligible: u64::from(hosts.len()),
                utilization,
            });
        }
        self.latched = latched;
        let smoothed = self.smoother.smooth(settings.alpha(), &loads);
        if smoothed.iter().all(|slot| slot.cold) {
            return;
        }
        let controlled = loads.iter().zip(smoothed).map(|(load, smoothed)| {
            (
                &load.locality,
                ControlledSlot {
                    smoothed,
                    report_age: PERIOD.as_secs_f64() / 2.0,
                },
            )
        });
        let controlled: Vec<_> = controlled.collect();
        let local = table.counts.has_local_locality;
        self.shares = Some(
            self.controller
                .tick(&settings, &controlled, local, None)
                .weights,
        );
    }
}

/// The controller's settings: its defaults, on our timer.
fn settings() -> Option<LoadAwareLocality> {
    let parts = LoadAwareLocalityParts {
        weight_update_period: Some(PERIOD),
        spill_controller: SpillController::Convergent,
        ..Default::default()
    };
    LoadAwareLocality::try_new(parts).ok()
}

/// Latches the counters of one locality; its utilization if requests ended in the window. A host
/// that came or went makes the sums jump: a window that goes backwards is left out.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
fn window(before: Option<Latched>, hosts: HostList<'_>) -> (Latched, Option<f64>) {
    let sums = hosts.iter().map(|host| host.latency_totals());
    let (latency, timed) = sums.fold((0_u64, 0_u64), |(l, t), (dl, dt)| {
        (l.saturating_add(dl), t.saturating_add(dt))
    });
    let Some(before) = before else {
        return (
            Latched {
                latency,
                timed,
                baseline: 0.0,
            },
            None,
        );
    };
    let elapsed = latency.checked_sub(before.latency);
    let ended = timed.checked_sub(before.timed).filter(|&ended| ended > 0);
    let mean = elapsed
        .zip(ended)
        .map(|(latency, ended)| latency as f64 / ended as f64);
    let Some(mean) = mean.filter(|&mean| mean > 0.0) else {
        return (
            Latched {
                latency,
                timed,
                ..before
            },
            None,
        );
    };
    let grown = before.baseline * BASELINE_GROWTH;
    let baseline = if before.baseline > 0.0 {
        grown.min(mean)
    } else {
        mean
    };
    // At least a trace of load: 0 would say that nothing was seen.
    let utilization = (1.0 - baseline / mean).clamp(0.01, 1.0);
    (
        Latched {
            latency,
            timed,
            baseline,
        },
        Some(utilization),
    )
}
