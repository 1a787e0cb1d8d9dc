//! [`Series`]: one policy over time in steps of half a second, for CSV and charts.

use crate::metrics::recorder::BIN;
use crate::metrics::windows::{FIVE_SECONDS, SECOND, Windows};
use crate::num;
use crate::optimum::{mean_utilization, utilization};

/// Number of bins between two points.
const STEP: usize = 2;

/// Time series of one policy; every vector has one value per point.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// Seconds since the start.
    pub(crate) times: Vec<f64>,
    /// By zone, then point: 1 s utilization; NaN while a zone has no usable host.
    pub(crate) utilization: Vec<Vec<f64>>,
    /// By zone, then point: trailing 5 s utilization.
    pub(crate) utilization_5s: Vec<Vec<f64>>,
    /// Lowest and highest 1 s utilization of any zone.
    pub(crate) lowest: Vec<f64>,
    pub(crate) highest: Vec<f64>,
    /// Utilization of all usable hosts together, 1 s.
    pub(crate) mean: Vec<f64>,
    /// Highest zone ÷ mean, trailing 5 s; NaN without traffic.
    pub(crate) max_over_mean: Vec<f64>,
    /// Share of requests sent to another zone, 1 s.
    pub(crate) cross_zone: Vec<f64>,
    /// Least cross-zone share with which zones can be balanced.
    pub(crate) needed: Vec<f64>,
    /// Requests per second that arrive.
    pub(crate) demand: Vec<f64>,
    /// Median latency, milliseconds; NaN without responses.
    pub(crate) p50: Vec<f64>,
    /// 99th percentile of latency, milliseconds; NaN without responses.
    pub(crate) p99: Vec<f64>,
    /// Failed requests per second, 1 s.
    pub(crate) failures: Vec<f64>,
    /// By zone of the proxy, then point: failed requests per second, 1 s.
    pub(crate) failures_by_zone: Vec<Vec<f64>>,
}

impl Series {
    pub(crate) fn measure(windows: &Windows<'_>) -> Self {
        let mut series = Self::empty(windows);
        for end in ends(windows) {
            series.push_common(windows, end);
            for zone in 0..windows.recorder.zones() {
                let of = |length| windows.utilization(zone, end, length).unwrap_or(f64::NAN);
                series.utilization[zone].push(of(SECOND));
                series.utilization_5s[zone].push(of(FIVE_SECONDS));
            }
            series.push_range();
            series.mean.push(windows.mean(end, SECOND));
            let ratio = windows.max_over_mean(end, FIVE_SECONDS);
            series.max_over_mean.push(ratio.unwrap_or(f64::NAN));
            let bins = end.saturating_sub(SECOND)..end;
            let (cross, all) = windows.cross_zone(bins.clone());
            series.cross_zone.push(num::ratio(cross as f64, all as f64));
            series.push_failures(windows, bins);
            let second = (end - 1) / SECOND;
            let latency = &windows.recorder.latencies()[second];
            let millis = |share| {
                latency
                    .quantile(share)
                    .map_or(f64::NAN, |nanos| nanos / 1e6)
            };
            series.p50.push(millis(0.5));
            series.p99.push(millis(0.99));
        }
        series
    }

    /// Computes the series of the optimum: every zone at the mean, or below the target.
    pub(crate) fn optimum(windows: &Windows<'_>) -> Self {
        let mut series = Self::empty(windows);
        for end in ends(windows) {
            series.push_common(windows, end);
            let at = (end as u64 * BIN).saturating_sub(1);
            let mean = mean_utilization(windows.workload, at);
            let by_zone = utilization(windows.scenario, windows.workload, at);
            for (zone, capacity) in windows.capacity(end).iter().enumerate() {
                let value = if *capacity > 0.0 {
                    by_zone[zone]
                } else {
                    f64::NAN
                };
                series.utilization[zone].push(value);
                series.utilization_5s[zone].push(value);
            }
            series.push_range();
            series.mean.push(mean);
            let fullest = by_zone.iter().copied().fold(0.0, f64::max);
            let is_level = windows.scenario.control_plane.objective.is_level();
            series.max_over_mean.push(if is_level {
                1.0
            } else {
                num::ratio(fullest, mean)
            });
            series
                .cross_zone
                .push(*series.needed.last().unwrap_or(&0.0));
            series.failures.push(0.0);
            for zone in &mut series.failures_by_zone {
                zone.push(0.0);
            }
            series.p50.push(f64::NAN);
            series.p99.push(f64::NAN);
        }
        series
    }

    fn empty(windows: &Windows<'_>) -> Self {
        let zones = windows.recorder.zones();
        Self {
            utilization: vec![Vec::new(); zones],
            utilization_5s: vec![Vec::new(); zones],
            failures_by_zone: vec![Vec::new(); zones],
            ..Self::default()
        }
    }

    /// Appends the range of the zones at the last point.
    fn push_range(&mut self) {
        let last = || {
            self.utilization
                .iter()
                .filter_map(|values| values.last())
                .copied()
        };
        let (low, high) = (
            last().fold(f64::NAN, f64::min),
            last().fold(f64::NAN, f64::max),
        );
        self.lowest.push(low);
        self.highest.push(high);
    }

    fn push_failures(&mut self, windows: &Windows<'_>, bins: std::ops::Range<usize>) {
        let weight = f64::from(windows.scenario.requests_per_sample);
        let seconds = num::seconds(bins.len() as u64 * BIN);
        let mut all = 0.0;
        for (zone, values) in self.failures_by_zone.iter_mut().enumerate() {
            let bins = bins.clone();
            let failed: u32 = bins.map(|bin| windows.recorder.failed_in(bin)[zone]).sum();
            let rate = f64::from(failed) * weight / seconds;
            values.push(rate);
            all += rate;
        }
        self.failures.push(all);
    }

    /// Appends time and demand, which are the same for every policy.
    fn push_common(&mut self, windows: &Windows<'_>, end: usize) {
        self.times.push(num::seconds(end as u64 * BIN));
        let (needed, demand) = windows.needed(end - 1);
        self.needed.push(num::ratio(needed, demand));
        self.demand.push(demand);
    }
}

fn ends(windows: &Windows<'_>) -> impl Iterator<Item = usize> {
    (STEP..=windows.bins()).step_by(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::Recorder;
    use crate::scenario::Scenario;
    use crate::testing::three_zones;
    use crate::workload::Workload;

    #[test]
    fn every_line_has_one_value_per_point() {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let workload = Workload::new(&scenario);
        let mut recorder = Recorder::new(&scenario);
        for request in 0..4_000_u64 {
            let at = request * num::SECOND / 100;
            recorder.issued(at, 0);
            recorder.sent(at, 0, num::slot(request % 2, 1));
            if request % 10 > 0 {
                recorder.succeeded(at, 3_000_000);
            } else {
                recorder.failed(at, 0, 0);
            }
        }
        let windows = Windows::new(&scenario, &workload, &recorder);
        for series in [Series::measure(&windows), Series::optimum(&windows)] {
            let lines = [
                &series.lowest,
                &series.highest,
                &series.mean,
                &series.max_over_mean,
                &series.cross_zone,
                &series.needed,
                &series.demand,
                &series.p50,
                &series.p99,
                &series.failures,
            ];
            let utilization = series.utilization.iter().chain(&series.utilization_5s);
            let zones = utilization.chain(&series.failures_by_zone);
            for line in lines.into_iter().chain(zones) {
                assert_eq!(line.len(), series.times.len());
            }
            assert_eq!(series.times.len(), 80);
        }
        let series = Series::measure(&windows);
        assert!((series.cross_zone[40] - 0.5).abs() < 0.02);
        assert!((series.failures[40] - 10.0).abs() < 1.1);
        assert!((series.needed[40] - 0.267).abs() < 0.001);
    }
}
