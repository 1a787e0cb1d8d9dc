//! [`Metrics`] of one policy's run, with the definitions used for measurements of real proxies.
//!
//! `recorder` collects data during a run; `windows`, `oscillation` and `settling` analyze it
//! afterwards; this module computes the row of the report. Field names are those of the JSON report
//! and of `[[expect]]`.

mod histogram;
mod oscillation;
pub(crate) mod recorder;
mod settling;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use serde::Serialize;

use crate::num;
use histogram::Histogram;
use oscillation::oscillation;
use recorder::BIN;
use windows::{FIVE_SECONDS, SECOND, Windows};

/// Metrics of one policy's run. Averages, peaks and shares cover the measured part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Highest zone utilization ÷ utilization of all hosts, sliding 1 s means, average.
    pub max_over_mean_1s_avg: f64,
    pub max_over_mean_1s_peak: f64,
    /// Like `max_over_mean_1s_avg`, but the average of trailing 5 s means.
    pub max_over_mean_5s_avg: f64,
    pub max_over_mean_5s_peak: f64,
    /// The zone with the highest average utilization.
    pub hottest_zone: String,
    pub cross_zone_share: f64,
    /// Lowest share of cross-zone requests with which zones can be balanced.
    pub cross_zone_needed: f64,
    /// Share of requests that exceeded the capacity of the zone they were sent to (1 s means).
    pub above_capacity_share: f64,
    /// Longest settling time after a step, seconds; `null` = some step did not settle.
    pub settled_s: Option<f64>,
    pub settling: Vec<StepMetrics>,
    pub oscillates: bool,
    pub oscillation_period_s: Option<f64>,
    /// Median latency of successful requests, milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile of the latency of successful requests, milliseconds.
    pub latency_p99_ms: Option<f64>,
    /// Requests in the whole run.
    pub requests: u64,
    /// Requests that failed in the whole run: at a host, on the way to it, or without a host.
    pub failures: u64,
    pub failure_share: f64,
    /// Share of requests that failed in the measured part.
    pub measured_failure_share: f64,
    pub in_flight: u64,
    /// Longest time, at least 10 s, in which a proxy sent nothing to its own zone, seconds.
    pub lock_out_s: f64,
    /// Number of balancers that were locked out of their own zone.
    pub locked_out_balancers: u64,
    pub zones: Vec<ZoneMetrics>,
}

/// Metrics of one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneMetrics {
    pub zone: String,
    /// Average of the requests per second that arrived at the zone's proxies.
    pub demand_rps: f64,
    /// Requests per second that the zone's hosts can serve at the end of the run.
    pub capacity_rps: f64,
    pub utilization: f64,
    /// Utilization of the zone ÷ utilization of all hosts; 1.0 is a fair load.
    pub load_factor: f64,
    pub utilization_1s_min: f64,
    pub utilization_1s_max: f64,
    pub utilization_5s_min: f64,
    pub utilization_5s_max: f64,
    /// Share of the requests of the zone's proxies that stayed in the zone.
    pub kept_local: f64,
    /// Share of the requests of the zone's proxies that failed.
    pub failure_share: f64,
    /// Failed requests per second at hosts of the zone, or on the way to them.
    pub failures_at_hosts_rps: f64,
}

/// Settling after one step (the start, or a change) of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepMetrics {
    pub at_s: f64,
    /// Settling time, seconds; `null` = the zones did not settle.
    pub settled_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spread {
    average: f64,
    low: f64,
    high: f64,
}

impl Metrics {
    pub(crate) fn measure(windows: &Windows<'_>) -> Self {
        let one = spread(
            windows
                .ends(SECOND)
                .filter_map(|end| windows.max_over_mean(end, SECOND)),
        );
        let ends = windows.ends(FIVE_SECONDS);
        let five = spread(ends.filter_map(|end| windows.max_over_mean(end, FIVE_SECONDS)));
        let zones = zones(windows);
        let (cross, all) = windows.cross_zone(windows.from()..windows.bins());
        let swing = oscillation(windows);
        let settling = settling::settling(windows);
        let latency = latency(windows);
        let millis = |share| latency.quantile(share).map(|nanos| nanos / 1e6);
        let totals = windows.recorder.totals();
        let failed = totals.failed + totals.no_host;
        let weight = u64::from(windows.scenario.requests_per_sample);
        let lock_outs = windows.recorder.lock_outs();
        Self {
            max_over_mean_1s_avg: one.average,
            max_over_mean_1s_peak: one.high,
            max_over_mean_5s_avg: five.average,
            max_over_mean_5s_peak: five.high,
            hottest_zone: hottest(&zones),
            cross_zone_share: num::ratio(cross as f64, all as f64),
            cross_zone_needed: cross_zone_needed(windows),
            above_capacity_share: above_capacity(windows),
            settled_s: worst(settling.iter().map(|one| one.time)),
            settling: settling
                .iter()
                .map(|one| StepMetrics {
                    at_s: one.step,
                    settled_s: one.time,
                })
                .collect(),
            oscillates: swing.is_some(),
            oscillation_period_s: swing.map(|swing| swing.period),
            latency_p50_ms: millis(0.5),
            latency_p99_ms: millis(0.99),
            requests: totals.issued * weight,
            failures: failed * weight,
            failure_share: num::ratio(failed as f64, totals.issued as f64),
            measured_failure_share: measured_failures(windows),
            in_flight: totals.in_flight * weight,
            lock_out_s: num::seconds(lock_outs.iter().copied().max().unwrap_or(0)),
            locked_out_balancers: lock_outs.iter().filter(|&&length| length > 0).count() as u64,
            zones,
        }
    }
}

/// Returns the longest of `times`, or `None` if one of them is `None`.
pub(crate) fn worst(times: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut times = times;
    times.try_fold(0.0, |worst, time| Some(f64::max(worst, time?)))
}

/// Returns the least cross-zone share with which zones can be balanced, over the measured part.
pub(crate) fn cross_zone_needed(windows: &Windows<'_>) -> f64 {
    let bins = windows.from()..windows.bins();
    let (needed, demand) = bins
        .map(|bin| windows.needed(bin))
        .fold((0.0, 0.0), |(a, b), (needed, demand)| {
            (a + needed, b + demand)
        });
    num::ratio(needed, demand)
}

fn above_capacity(windows: &Windows<'_>) -> f64 {
    let (mut above, mut all) = (0.0, 0.0);
    for end in windows.ends(SECOND) {
        let capacity = windows.capacity(end);
        for (zone, capacity) in capacity.iter().enumerate() {
            let rate = windows.rate(zone, end, SECOND);
            above += (rate - capacity).max(0.0);
            all += rate;
        }
    }
    num::ratio(above, all)
}

fn measured_failures(windows: &Windows<'_>) -> f64 {
    let sum = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>();
    let (mut failed, mut all) = (0.0, 0.0);
    for bin in windows.from()..windows.bins() {
        failed += sum(windows.recorder.failed_in(bin));
        all += sum(windows.recorder.issued_in(bin));
    }
    num::ratio(failed, all)
}

fn latency(windows: &Windows<'_>) -> Histogram {
    let mut sum = Histogram::default();
    for second in &windows.recorder.latencies()[windows.from().div_ceil(SECOND)..] {
        sum.merge(second);
    }
    sum
}

fn zones(windows: &Windows<'_>) -> Vec<ZoneMetrics> {
    let from = windows.from();
    let length = windows.bins() - from;
    let mean = windows.mean(windows.bins(), length);
    let settings = windows.scenario.zones.iter().enumerate();
    settings
        .map(|(zone, settings)| {
            let over = |length: usize| {
                let ends = windows.ends(length);
                spread(ends.filter_map(|end| windows.utilization(zone, end, length)))
            };
            let (one, five) = (over(SECOND), over(FIVE_SECONDS));
            let utilization = windows
                .utilization(zone, windows.bins(), length)
                .unwrap_or(0.0);
            let (mut issued, mut local, mut failed, mut failed_at) = (0, 0, 0, 0);
            for bin in from..windows.bins() {
                issued += u64::from(windows.recorder.issued_in(bin)[zone]);
                local += u64::from(windows.recorder.local_in(bin)[zone]);
                failed += u64::from(windows.recorder.failed_in(bin)[zone]);
                failed_at += u64::from(windows.recorder.failed_at(bin)[zone]);
            }
            let sample = f64::from(windows.scenario.requests_per_sample);
            let per_second = |count: u64| {
                let seconds = num::seconds(length as u64 * BIN);
                count as f64 * sample / seconds
            };
            ZoneMetrics {
                zone: settings.name.clone(),
                demand_rps: per_second(issued),
                capacity_rps: windows.capacity(windows.bins())[zone],
                utilization,
                load_factor: num::ratio(utilization, mean),
                utilization_1s_min: one.low,
                utilization_1s_max: one.high,
                utilization_5s_min: five.low,
                utilization_5s_max: five.high,
                kept_local: num::ratio(local as f64, issued as f64),
                failure_share: num::ratio(failed as f64, issued as f64),
                failures_at_hosts_rps: per_second(failed_at),
            }
        })
        .collect()
}

pub(crate) fn hottest(zones: &[ZoneMetrics]) -> String {
    let hottest = zones.iter().max_by(|a, b| {
        let order = a.utilization.total_cmp(&b.utilization);
        // Among equals the first zone wins, not the last.
        order.then_with(|| b.zone.cmp(&a.zone))
    });
    hottest.map(|zone| zone.zone.clone()).unwrap_or_default()
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let (mut count, mut sum) = (0_u32, 0.0);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        count += 1;
        sum += value;
        (low, high) = (low.min(value), high.max(value));
    }
    if count == 0 {
        return Spread::default();
    }
    Spread {
        average: sum / f64::from(count),
        low,
        high,
    }
}
