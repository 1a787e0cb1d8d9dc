//! [`Measure`]: computes the measured part of a report from counters and samples, at every tick.
//!
//! `state` and `sample` supply the inputs; `state` applies the application's own metrics to the
//! result. The caller passes in the time.

use std::time::Duration;

use plimsoll_core::model::orca::OrcaLoadReport;

use crate::builder::Settings;
use crate::sample::{CpuUsage, Sample};
use crate::window::Window;

/// Lower bound of a measured utilization: balancers treat 0, of an idle host, as not reported.
const MIN_UTILIZATION: f64 = 1e-4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: u64,
}

/// Growing totals; their differences over a window are reported.
#[derive(Clone, Copy, Debug)]
struct Totals {
    requests: u64,
    errors: u64,
    /// Sum of the requests in flight at each tick; divided by `ticks` it is their mean.
    in_flight: u64,
    ticks: u64,
    cpu: Option<CpuUsage>,
}

#[derive(Debug)]
pub(crate) struct Measure {
    window: Window<Totals>,
    tick: Duration,
    concurrency_limit: Option<u64>,
    in_flight: u64,
    ticks: u64,
}

impl Measure {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            window: Window::new(settings.window),
            tick: settings.tick,
            concurrency_limit: settings.concurrency_limit,
            in_flight: 0,
            ticks: 0,
        }
    }

    /// Before one tick has passed, rates and CPU are 0: too short a time yields meaningless rates.
    pub(crate) fn tick(&mut self, counts: Counts, sample: Sample, now: Duration) -> OrcaLoadReport {
        self.in_flight += counts.in_flight;
        self.ticks += 1;
        let totals = Totals {
            requests: counts.requests,
            errors: counts.errors,
            in_flight: self.in_flight,
            ticks: self.ticks,
            cpu: sample.cpu,
        };
        let (before, elapsed) = self.window.push(totals, now);
        let mut report = OrcaLoadReport {
            mem_utilization: sample.memory.map_or(0.0, utilization),
            ..Default::default()
        };
        if elapsed >= self.tick {
            report.rps_fractional = rate(totals.requests - before.requests, elapsed);
            report.eps = rate(totals.errors - before.errors, elapsed);
            report.cpu_utilization = cpu(before.cpu, totals.cpu);
        }
        if let Some(limit) = self.concurrency_limit {
            let mean = match totals.ticks - before.ticks {
                0 => float(counts.in_flight),
                ticks => float(totals.in_flight - before.in_flight) / float(ticks),
            };
            report.application_utilization = utilization(mean / float(limit));
        }
        report
    }
}

/// Rate per second, rounded to a thousandth to keep headers short.
fn rate(count: u64, elapsed: Duration) -> f64 {
    let rate = float(count) / elapsed.as_secs_f64();
    (rate * 1_000.0).round() / 1_000.0
}

/// CPU utilization between two samples; 0 (not measured) unless both have the same source.
fn cpu(before: Option<CpuUsage>, after: Option<CpuUsage>) -> f64 {
    let (Some(before), Some(after)) = (before, after) else {
        return 0.0;
    };
    let capacity = after.capacity - before.capacity;
    if before.source != after.source || capacity <= 0.0 {
        return 0.0;
    }
    utilization((after.busy - before.busy) / capacity)
}

/// Rounds to four digits, and never to 0.
fn utilization(value: f64) -> f64 {
    ((value * 10_000.0).round() / 10_000.0).max(MIN_UTILIZATION)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a window are far below 2^53"
)]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn measure(concurrency_limit: Option<u64>) -> Measure {
        Measure::new(&Settings {
            concurrency_limit,
            ..Default::default()
        })
    }

    fn counts(requests: u64, errors: u64, in_flight: u64) -> Counts {
        Counts {
            requests,
            errors,
            in_flight,
        }
    }

    fn cpu_sample(source: u32, busy: f64, capacity: f64) -> Sample {
        let cpu = Some(CpuUsage {
            source,
            busy,
            capacity,
        });
        Sample { cpu, memory: None }
    }

    #[test]
    fn rates_cover_the_window() {
        let mut measure = measure(None);
        let mut tick = |requests, errors, millis| {
            let counts = counts(requests, errors, 0);
            let report = measure.tick(counts, Sample::default(), at(millis));
            (report.rps_fractional, report.eps)
        };
        assert_eq!(tick(1, 1, 0), (0.0, 0.0), "no time has passed");
        assert_eq!(tick(2, 1, 50), (0.0, 0.0), "less than a tick");
        assert_eq!(tick(31, 2, 100), (300.0, 10.0));
        assert_eq!(tick(401, 5, 1_000), (400.0, 4.0));
        assert_eq!(tick(507, 5, 1_060), (500.0, 3.96), "since 50 ms");
        assert_eq!(tick(507, 5, 60_000), (0.0, 0.0), "silence");
    }

    #[test]
    fn application_utilization_is_the_mean_in_flight_over_the_limit() {
        let mut measure = measure(Some(10));
        let mut tick = |in_flight, millis| {
            let report = measure.tick(counts(0, 0, in_flight), Sample::default(), at(millis));
            report.application_utilization
        };
        assert_eq!(tick(4, 0), 0.4, "one sample is its own mean");
        assert_eq!(tick(8, 100), 0.8, "the oldest entry is outside of the mean");
        assert_eq!(tick(2, 200), 0.5);
        assert_eq!(tick(20, 5_000), 2.0, "more than the limit is reported");
        assert_eq!(
            tick(0, 10_000),
            MIN_UTILIZATION,
            "idle is not the same as unknown"
        );
    }

    #[test]
    fn without_a_limit_there_is_no_application_utilization() {
        let report = measure(None).tick(counts(9, 0, 9), Sample::default(), at(0));
        assert_eq!(report, OrcaLoadReport::default());
    }

    #[test]
    fn cpu_utilization_is_busy_time_over_capacity_of_one_source() {
        let mut measure = measure(None);
        let mut tick = |sample, millis| {
            let report = measure.tick(Counts::default(), sample, at(millis));
            report.cpu_utilization
        };
        assert_eq!(tick(cpu_sample(0, 5.0, 10.0), 0), 0.0);
        assert_eq!(tick(cpu_sample(0, 5.5, 11.0), 500), 0.5);
        assert_eq!(tick(cpu_sample(0, 8.0, 12.0), 1_000), 1.5, "burst");
        assert_eq!(tick(cpu_sample(1, 0.0, 13.0), 1_500), 0.0, "another source");
        assert_eq!(tick(Sample::default(), 2_000), 0.0, "unreadable");
        assert_eq!(
            tick(cpu_sample(1, 0.0, 14.0), 2_500),
            MIN_UTILIZATION,
            "idle since 1500"
        );
    }

    #[test]
    fn memory_utilization_is_rounded() {
        let sample = Sample {
            cpu: None,
            memory: Some(0.123_456),
        };
        let report = measure(None).tick(Counts::default(), sample, at(0));
        assert_eq!(report.mem_utilization, 0.1235);
    }
}
