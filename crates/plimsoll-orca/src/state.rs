//! [`Shared`]: state shared by all clones of a layer: request counters, metrics of the process, and
//! the newest report.
//!
//! A request increments two counters and reads one pointer. A thread does the rest at every tick;
//! it ends when the last user of the layer is dropped. `measure` computes, `sample` reads the
//! system.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use plimsoll_core::log_line;
use tokio::sync::watch;

use crate::builder::Settings;
use crate::log_lines;
use crate::measure::{Counts, Measure};
use crate::metrics::Metrics;
use crate::published::Published;
use crate::sample::{Sample, Sampler};

#[derive(Debug)]
pub(crate) struct Shared {
    counters: Counters,
    published: ArcSwap<Published>,
    settings: Settings,
    origin: Instant,
    process: Mutex<Metrics>,
    meter: Mutex<Meter>,
    stop: watch::Sender<bool>,
}

/// Counters on their own cache lines: requests write them, and only read the rest of [`Shared`].
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    started: AtomicU64,
    finished: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug)]
struct Meter {
    measure: Measure,
    sampler: Sampler,
}

impl Shared {
    /// Writes the first report and spawns the sampling thread.
    pub(crate) fn start(settings: Settings) -> Arc<Self> {
        let shared = Arc::new(Self::new(settings, Sampler::new("/")));
        shared.refresh();
        let weak = Arc::downgrade(&shared);
        let tick = shared.settings.tick;
        let thread = thread::Builder::new().name("plimsoll-orca".to_owned());
        if let Err(error) = thread.spawn(move || run(&weak, tick)) {
            // The service works without the thread; load reports keep their first values.
            log_line!(log_lines::MEASURING_FAILED, %error);
        }
        shared
    }

    fn new(settings: Settings, sampler: Sampler) -> Self {
        let measure = Measure::new(&settings);
        Self {
            counters: Counters::default(),
            published: ArcSwap::default(),
            settings,
            origin: Instant::now(),
            process: Mutex::default(),
            meter: Mutex::new(Meter { measure, sampler }),
            stop: watch::Sender::new(false),
        }
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn published(&self) -> Guard<Arc<Published>> {
        self.published.load()
    }

    pub(crate) fn begin_request(&self) {
        self.counters.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_request(&self, failed: bool) {
        if failed {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        self.counters.finished.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.counts().in_flight
    }

    pub(crate) fn errors(&self) -> u64 {
        self.counts().errors
    }

    /// Reads `finished` before `started`, so that the difference is never negative.
    fn counts(&self) -> Counts {
        let finished = self.counters.finished.load(Ordering::Acquire);
        let requests = self.counters.started.load(Ordering::Relaxed);
        Counts {
            requests,
            errors: self.counters.errors.load(Ordering::Relaxed),
            in_flight: requests.saturating_sub(finished),
        }
    }

    /// Changes the metrics that the application sets; sent from the next tick on.
    pub(crate) fn with_process<R>(&self, change: impl FnOnce(&mut Metrics) -> R) -> R {
        change(&mut lock(&self.process))
    }

    pub(crate) fn refresh(&self) {
        let mut meter = lock(&self.meter);
        // Read the clock under the lock, so that the window never sees time go backward.
        let now = self.origin.elapsed();
        self.tick(&mut meter, now);
    }

    fn tick(&self, meter: &mut Meter, now: Duration) {
        let Settings { cpu, memory, .. } = self.settings;
        let sample = Sample {
            cpu: cpu.then(|| meter.sampler.cpu(now)).flatten(),
            memory: memory.then(|| meter.sampler.memory(now)).flatten(),
        };
        let mut report = meter.measure.tick(self.counts(), sample, now);
        lock(&self.process).apply(&mut report);
        if *self.published.load().report() != report {
            self.published.store(Arc::new(Published::new(report)));
        }
    }

    pub(crate) fn shutdown(&self) {
        self.stop.send_replace(true);
    }

    /// Resolves when [`Self::shutdown`] is called, or the layer is dropped.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }
}

/// Locks a mutex, ignoring poison: a panic cannot leave plain numbers in an invalid state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(shared: &Weak<Shared>, tick: Duration) {
    loop {
        thread::sleep(tick);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.refresh();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Field;

    fn shared(settings: Settings) -> Shared {
        let empty = tempfile::tempdir().unwrap();
        Shared::new(settings, Sampler::new(empty.path()))
    }

    fn tick(shared: &Shared, millis: u64) {
        let now = Duration::from_millis(millis);
        shared.tick(&mut lock(&shared.meter), now);
    }

    #[test]
    fn counted_requests_are_published_by_the_next_tick() {
        let shared = shared(Settings {
            concurrency_limit: Some(4),
            ..Default::default()
        });
        tick(&shared, 0);
        for failed in [true, false, false] {
            shared.begin_request();
            shared.end_request(failed);
        }
        shared.begin_request();
        assert_eq!(shared.in_flight(), 1);
        assert_eq!(shared.published().report().rps_fractional, 0.0);
        tick(&shared, 1_000);
        let published = shared.published();
        let report = published.report();
        assert_eq!((report.rps_fractional, report.eps), (4.0, 1.0));
        assert_eq!(report.application_utilization, 0.25);
    }

    #[test]
    fn set_metrics_override_measured_ones() {
        let shared = shared(Settings::default());
        shared
            .with_process(|metrics| metrics.set(Field::Cpu, Some(0.7)))
            .unwrap();
        tick(&shared, 0);
        assert_eq!(shared.published().report().cpu_utilization, 0.7);
    }

    #[test]
    fn an_unchanged_report_is_not_rewritten() {
        let shared = shared(Settings::default());
        tick(&shared, 0);
        let before = Arc::as_ptr(&shared.published());
        tick(&shared, 100);
        assert_eq!(Arc::as_ptr(&shared.published()), before);
        shared.begin_request();
        tick(&shared, 200);
        assert_ne!(Arc::as_ptr(&shared.published()), before);
    }

    #[test]
    fn the_thread_ends_with_the_last_clone() {
        let shared = Arc::new(shared(Settings::default()));
        let weak = Arc::downgrade(&shared);
        let thread = thread::spawn(move || run(&weak, Duration::from_millis(1)));
        drop(shared);
        thread.join().unwrap();
    }
}
