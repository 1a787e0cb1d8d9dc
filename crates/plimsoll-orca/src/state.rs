//! [`Shared`]: what all parts of a layer see: counters of requests, metrics of the process, and the
//! newest report.
//!
//! Requests touch two counters and read one pointer. A thread does the rest, tick by tick; it ends
//! when the last user of the layer is gone. The arithmetic lives in `measure`, files are read in
//! `sample`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use crate::builder::Settings;
use crate::measure::{Counts, Measure};
use crate::metrics::Metrics;
use crate::published::Published;
use crate::sample::{Sample, Sampler};

/// One per layer.
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

/// Apart from the rest, which is read by every request and written ten times a second.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    started: AtomicU64,
    finished: AtomicU64,
    errors: AtomicU64,
}

/// What only a tick needs.
#[derive(Debug)]
struct Meter {
    measure: Measure,
    sampler: Sampler,
}

impl Shared {
    /// Measures at once, and from now on with every tick.
    pub(crate) fn start(settings: Settings) -> Arc<Self> {
        let shared = Arc::new(Self::new(settings, Sampler::new("/")));
        shared.refresh();
        let weak = Arc::downgrade(&shared);
        let tick = shared.settings.tick;
        let thread = thread::Builder::new().name("plimsoll-orca".to_owned());
        if let Err(error) = thread.spawn(move || run(&weak, tick)) {
            // A backend that cannot report still serves.
            tracing::error!(%error, "no thread to measure load with: reports stay as they are");
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

    /// What ended is read before what began, so that there is never less than nothing in flight.
    fn counts(&self) -> Counts {
        let finished = self.counters.finished.load(Ordering::Acquire);
        let requests = self.counters.started.load(Ordering::Relaxed);
        Counts {
            requests,
            errors: self.counters.errors.load(Ordering::Relaxed),
            in_flight: requests.saturating_sub(finished),
        }
    }

    /// Changes what the application says about the process; sent from the next tick on.
    pub(crate) fn with_process<R>(&self, change: impl FnOnce(&mut Metrics) -> R) -> R {
        change(&mut lock(&self.process))
    }

    pub(crate) fn refresh(&self) {
        let mut meter = lock(&self.meter);
        // Under the lock, so that time does not go backwards in the window.
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

    /// Done when [`Self::shutdown`] was called, or nobody can call it any more.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }
}

/// A panic while a lock was held leaves numbers behind, and numbers are always whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        let nowhere = tempfile::tempdir().unwrap();
        Shared::new(settings, Sampler::new(nowhere.path()))
    }

    fn tick(shared: &Shared, millis: u64) {
        let now = Duration::from_millis(millis);
        shared.tick(&mut lock(&shared.meter), now);
    }

    #[test]
    fn requests_are_counted_and_published_by_the_tick() {
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
    fn what_the_process_says_goes_over_what_is_measured() {
        let shared = shared(Settings::default());
        shared
            .with_process(|metrics| metrics.set(Field::Cpu, Some(0.7)))
            .unwrap();
        tick(&shared, 0);
        assert_eq!(shared.published().report().cpu_utilization, 0.7);
    }

    #[test]
    fn the_same_numbers_are_written_once() {
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
    fn the_thread_ends_with_the_last_user() {
        let shared = Arc::new(shared(Settings::default()));
        let weak = Arc::downgrade(&shared);
        let thread = thread::spawn(move || run(&weak, Duration::from_millis(1)));
        drop(shared);
        thread.join().unwrap();
    }
}
