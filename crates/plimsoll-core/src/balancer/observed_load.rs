//! [`ObservedLoad`]: the `OBSERVED_LOAD` basis: what this proxy sees of its own requests (decisions
//! D5).
//!
//! A proxy cannot see other zones' demand, and counting where it sent requests itself would chase
//! its own tail. What it can see honestly is how long its requests take: per locality, over windows
//! of latched counters, on a timer. The shortest response time that any of them has shown for long
//! enough stands for no queue at all; what is above it is waiting, and waiting stands for load.
//! These loads drive the convergent controller, inside the preconditions of zone-aware routing.
//! Until enough requests have been seen, host counts decide.
//!
//! There is one baseline for all localities. With one for each, a zone that was never idle while
//! this proxy watched would look idle when it is busy, and two zones would send each other what
//! they should keep. The price: a far zone counts as busier by its distance, so requests leave only
//! when waiting at home takes longer than the way.
//!
//! Response times scatter, and the shortest of many short means is luck: a locality that gets a few
//! probes would soon seem loaded for ever. So means are taken over requests, not over time, and the
//! controller is told how old that makes them.
//!
//! It helps when load shows as waiting: a hot zone whose hosts queue. It cannot help while hosts
//! answer equally fast up to the point where they break, and it is slow and coarse at a few hundred
//! requests per second: ORCA reports or measured demand are better wherever there are any.

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
/// Requests behind the mean response time of a locality: a mean of fewer is mostly chance.
const MEAN_REQUESTS: f64 = 200.0;
/// Requests behind the mean from which its baseline is taken.
const BASELINE_REQUESTS: f64 = 400.0;
/// Requests that must have been seen before a locality is spoken of.
const KNOWN_REQUESTS: f64 = 100.0;
/// A baseline forgets slowly, so that a service that became slower for good is believed in the end.
const BASELINE_GROWTH: f64 = 1.0005;
/// At least a trace of load: 0 would say that nothing was seen.
const TRACE: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct ObservedLoad {
    latched: BTreeMap<Locality, Latched>,
    /// Shortest long mean of any locality so far, nanoseconds; 0 = none yet.
    baseline: f64,
    smoother: Smoother,
    controller: Convergent,
    shares: Option<Vec<f64>>,
    next_tick: Option<Instant>,
}

/// What is known of a locality.
#[derive(Clone, Copy, Debug, Default)]
struct Latched {
    /// Counters at the last tick.
    latency: u64,
    timed: u64,
    /// Requests seen in all, as far as it matters.
    seen: f64,
    /// Mean response time, nanoseconds, and its age in ticks.
    mean: f64,
    age: f64,
    /// Mean over more requests.
    long: f64,
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

    /// The shortest mean counts, and is forgotten slowly.
    fn learn_baseline(&mut self, latched: &[Latched]) {
        let known = latched.iter().filter(|one| one.is_known());
        let Some(least) = known.map(|one| one.long).reduce(f64::min) else {
            return;
        };
        self.baseline = if self.baseline > 0.0 {
            least.min(self.baseline * BASELINE_GROWTH)
        } else {
            least
        };
    }

    fn tick(&mut self, table: &PriorityTable) {
        let Some(settings) = settings() else { return };
        let localities = &table.counts.localities;
        let hosts: Vec<_> = table.hosts_by_slot(HostSource::HealthyHosts).collect();
        let mut latched = Vec::with_capacity(localities.len());
        for (counts, &hosts) in localities.iter().zip(&hosts) {
            let known = self.latched.remove(&counts.locality);
            latched.push(match known {
                Some(known) => known.after_tick(totals(hosts)),
                None => Latched::new(totals(hosts)),
            });
        }
        self.learn_baseline(&latched);
        let slots = localities.iter().zip(&hosts).zip(&latched);
        let loads = slots.map(|((counts, hosts), latched)| SlotLoad {
            locality: counts.locality.clone(),
            has_hosts: counts.all > 0,
            eligible: u64::from(hosts.len()),
            utilization: latched.load(self.baseline),
        });
        let loads: Vec<SlotLoad> = loads.collect();
        let ages: Vec<f64> = latched.iter().map(|one| one.age).collect();
        let keys = localities.iter().map(|counts| counts.locality.clone());
        self.latched = keys.zip(latched).collect();
        let smoothed = self.smoother.smooth(settings.alpha(), &loads);
        if smoothed.iter().all(|slot| slot.cold) {
            return;
        }
        let slots = loads.iter().zip(smoothed).zip(&ages);
        let controlled = slots.map(|((load, smoothed), age)| {
            (
                &load.locality,
                ControlledSlot {
                    smoothed,
                    report_age: PERIOD.as_secs_f64() * (0.5 + age),
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

/// Sums of response times and of requests behind them.
fn totals(hosts: HostList<'_>) -> (u64, u64) {
    let sums = hosts.iter().map(|host| host.latency_totals());
    sums.fold((0, 0), |(l, t), (dl, dt)| {
        (l.saturating_add(dl), t.saturating_add(dt))
    })
}

impl Latched {
    fn new((latency, timed): (u64, u64)) -> Self {
        Self {
            latency,
            timed,
            ..Default::default()
        }
    }

    /// One tick on, with the present counters. A host that came or went makes the sums jump: a
    /// window that goes backwards is left out.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window")]
    fn after_tick(self, (latency, timed): (u64, u64)) -> Self {
        let mut next = Self {
            latency,
            timed,
            ..self
        };
        let elapsed = latency.checked_sub(self.latency).filter(|&sum| sum > 0);
        let ended = timed.checked_sub(self.timed).filter(|&ended| ended > 0);
        let (Some(elapsed), Some(ended)) = (elapsed, ended) else {
            next.age += 1.0;
            return next;
        };
        let ended = ended as f64;
        let window = elapsed as f64 / ended;
        next.seen = (self.seen + ended).min(BASELINE_REQUESTS);
        let part = |requests: f64| ended / (ended + requests.min(self.seen));
        let alpha = part(MEAN_REQUESTS);
        next.mean += alpha * (window - self.mean);
        next.age = (1.0 - alpha) * (self.age + 1.0);
        next.long += part(BASELINE_REQUESTS) * (window - self.long);
        next
    }

    /// Whether enough has been seen to speak of it.
    fn is_known(&self) -> bool {
        self.seen >= KNOWN_REQUESTS
    }

    /// Load now. Waiting grows faster than load: its root grows about as fast, so that the
    /// controller neither overshoots nor crawls.
    fn load(&self, baseline: f64) -> Option<f64> {
        let waiting = 1.0 - baseline / self.mean.max(1.0);
        self.is_known()
            .then(|| waiting.max(0.0).sqrt().clamp(TRACE, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A locality after windows of (requests, mean response time in milliseconds).
    fn latched(windows: &[(u64, u64)]) -> Latched {
        let (mut latency, mut timed) = (0, 0);
        let mut latched = Latched::new((0, 0));
        for &(requests, millis) in windows {
            timed += requests;
            latency += requests * millis * 1_000_000;
            latched = latched.after_tick((latency, timed));
        }
        latched
    }

    #[test]
    fn waiting_is_load_and_a_few_requests_say_nothing() {
        let baseline = 100e6;
        assert_eq!(latched(&[(99, 400)]).load(baseline), None);
        let idle = latched(&[(500, 100); 5]).load(baseline).unwrap();
        let busy = latched(&[(500, 130); 5]).load(baseline).unwrap();
        let full = latched(&[(500, 1_000); 5]).load(baseline).unwrap();
        assert_eq!(idle, TRACE);
        assert!(idle < busy && busy < full && full <= 1.0);
    }

    #[test]
    fn one_lucky_window_of_few_requests_moves_neither_mean_nor_baseline_far() {
        let mut windows = vec![(100, 100); 10];
        windows.push((2, 10));
        let latched = latched(&windows);
        assert!((latched.mean - 100e6).abs() < 1e6, "{latched:?}");
        let mut observed = ObservedLoad::default();
        observed.learn_baseline(&[latched]);
        assert!(observed.baseline > 99e6, "{}", observed.baseline);
    }

    #[test]
    fn a_mean_of_few_requests_is_old_and_a_window_that_goes_backwards_is_left_out() {
        let often = latched(&[(1_000, 100); 20]);
        let rarely = latched(&[(2, 100); 200]);
        assert!(often.age < 1.0 && rarely.age > 30.0, "{often:?} {rarely:?}");
        let after = often.after_tick((5, 5));
        assert_eq!((after.mean, after.timed), (often.mean, 5));
    }

    #[test]
    fn the_baseline_is_the_shortest_of_all_and_is_forgotten_slowly() {
        let mut observed = ObservedLoad::default();
        observed.learn_baseline(&[latched(&[(500, 300)]), latched(&[(500, 100)])]);
        assert_eq!(observed.baseline, 100e6);
        observed.learn_baseline(&[latched(&[(500, 300)])]);
        assert!((100e6..101e6).contains(&observed.baseline));
    }
}
