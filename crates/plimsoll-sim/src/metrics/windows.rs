//! [`Windows`]: sums over any range of bins by prefix sums, and derived values: utilization per
//! zone, max ÷ mean, cross-zone traffic.
//!
//! As in the measurements on real proxies, "1 s" is a sliding mean over one second and "5 s" a
//! trailing mean over five. Utilization is the rate sent to a zone ÷ the capacity of its usable
//! hosts.

use super::recorder::{BIN, Recorder};
use crate::num;
use crate::scenario::Scenario;
use crate::workload::Workload;

/// Number of bins in one second.
pub(crate) const SECOND: usize = 4;
pub(crate) const FIVE_SECONDS: usize = 20;

/// Prefix sums of a run by bin.
#[derive(Debug)]
pub(crate) struct Windows<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) workload: &'a Workload,
    pub(crate) recorder: &'a Recorder,
    /// Samples sent to each zone before a bin.
    served: Vec<u64>,
}

impl<'a> Windows<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        workload: &'a Workload,
        recorder: &'a Recorder,
    ) -> Self {
        let zones = recorder.zones();
        let mut served = vec![0_u64; zones];
        served.reserve(recorder.bins() * zones);
        for bin in 0..recorder.bins() {
            for zone in 0..zones {
                let before = served[bin * zones + zone];
                served.push(before + u64::from(recorder.served_in(bin)[zone]));
            }
        }
        Self {
            scenario,
            workload,
            recorder,
            served,
        }
    }

    /// Returns the first measured bin.
    pub(crate) fn from(&self) -> usize {
        num::slot(self.scenario.measure_from + BIN - 1, BIN).min(self.bins().saturating_sub(1))
    }

    pub(crate) const fn bins(&self) -> usize {
        self.recorder.bins()
    }

    /// Returns the ends of all windows of this length within the measured part.
    pub(crate) fn ends(&self, length: usize) -> std::ops::RangeInclusive<usize> {
        self.from() + length.min(self.bins() - self.from())..=self.bins()
    }

    /// Returns the samples sent to a zone in the window that ends before bin `end`.
    pub(crate) fn samples(&self, zone: usize, end: usize, length: usize) -> u64 {
        let zones = self.recorder.zones();
        let begin = end.saturating_sub(length);
        self.served[end * zones + zone] - self.served[begin * zones + zone]
    }

    /// Returns the requests per second sent to a zone.
    pub(crate) fn rate(&self, zone: usize, end: usize, length: usize) -> f64 {
        let length = length.min(end).max(1);
        let requests =
            self.samples(zone, end, length) as f64 * f64::from(self.scenario.requests_per_sample);
        requests / num::seconds(length as u64 * BIN)
    }

    /// Returns the capacity of each zone at the end of a window.
    pub(crate) fn capacity(&self, end: usize) -> &[f64] {
        self.workload.capacity(moment(end))
    }

    /// Returns the utilization of a zone; `None` while it has no usable host.
    pub(crate) fn utilization(&self, zone: usize, end: usize, length: usize) -> Option<f64> {
        let capacity = self.capacity(end)[zone];
        (capacity > 0.0).then(|| self.rate(zone, end, length) / capacity)
    }

    /// Returns the utilization of all usable hosts together.
    pub(crate) fn mean(&self, end: usize, length: usize) -> f64 {
        let capacity = self.capacity(end);
        let usable = || (0..self.recorder.zones()).filter(|&zone| capacity[zone] > 0.0);
        let rate: f64 = usable().map(|zone| self.rate(zone, end, length)).sum();
        num::ratio(rate, usable().map(|zone| capacity[zone]).sum())
    }

    /// Returns the highest utilization of a zone ÷ that of all hosts; `None` without traffic.
    pub(crate) fn max_over_mean(&self, end: usize, length: usize) -> Option<f64> {
        let mean = self.mean(end, length);
        let zones = 0..self.recorder.zones();
        let max = zones
            .filter_map(|zone| self.utilization(zone, end, length))
            .fold(0.0, f64::max);
        (mean > 0.0).then(|| max / mean)
    }

    /// Returns the samples sent to other zones, and all samples, in a range of bins.
    pub(crate) fn cross_zone(&self, bins: std::ops::Range<usize>) -> (u64, u64) {
        let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let (mut local, mut all) = (0, 0);
        for bin in bins {
            local += sum(self.recorder.local_in(bin));
            all += sum(self.recorder.served_in(bin));
        }
        (all - local, all)
    }

    /// Returns the least cross-zone traffic with which the objective is kept in a bin, and all
    /// demand, requests/s.
    pub(crate) fn needed(&self, bin: usize) -> (f64, f64) {
        let at = bin as u64 * BIN;
        let (rates, capacity) = (self.workload.rates(at), self.workload.capacity(at));
        needed(rates, capacity, self.scenario.target())
    }
}

/// Returns the time in the last bin of a window whose capacity is used for the window.
fn moment(end: usize) -> u64 {
    (end as u64 * BIN).saturating_sub(1)
}

/// Returns the least cross-zone traffic at which no zone is above the target or, if that is more,
/// all are equally loaded: Σ max(0, demand − capacity · bound), and the whole demand.
pub(crate) fn needed(rates: &[f64], capacity: &[f64], target: f64) -> (f64, f64) {
    let total: f64 = rates.iter().sum();
    let bound = num::ratio(total, capacity.iter().sum()).max(target);
    let surplus = rates
        .iter()
        .zip(capacity)
        .map(|(rate, capacity)| rate - capacity * bound);
    (surplus.map(|surplus| surplus.max(0.0)).sum(), total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::three_zones;

    #[test]
    fn the_least_cross_zone_traffic_matches_the_measurements() {
        for (demand, expected) in [
            ([60.0, 20.0, 20.0], 0.267),
            ([50.0, 25.0, 25.0], 0.167),
            ([45.0, 35.0, 20.0], 0.133),
        ] {
            let (needed, total) = needed(&demand, &[120.0; 3], 0.0);
            assert!((needed / total - expected).abs() < 0.001, "{needed}");
        }
        assert_eq!(needed(&[0.0, 0.0], &[1.0, 1.0], 0.0), (0.0, 0.0));
        assert_eq!(
            needed(&[10.0, 10.0], &[0.0, 1.0], 0.0),
            (10.0, 20.0),
            "a dead zone sends everything"
        );
    }

    #[test]
    fn windows_are_means_over_their_bins() {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let workload = Workload::new(&scenario);
        let mut recorder = Recorder::new(&scenario);
        // 120, 60 and 60 requests/s for the whole run, a third of the first zone's from other
        // zones.
        for request in 0..120 * 40_u64 {
            let at = request * num::SECOND / 120;
            recorder.sent(at, usize::from(request % 3 == 0), 0);
            recorder.sent(at, 2, 1 + num::slot(request % 2, 1));
        }
        let windows = Windows::new(&scenario, &workload, &recorder);
        assert_eq!(windows.from(), 80);
        assert_eq!(windows.ends(SECOND), 84..=160);
        let utilization = windows.utilization(0, 100, SECOND).unwrap();
        assert!((utilization - 1.0).abs() < 0.01, "{utilization}");
        let ratio = windows.max_over_mean(100, FIVE_SECONDS).unwrap();
        assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
        let (cross, all) = windows.cross_zone(0..160);
        assert_eq!((cross, all), (1_600 + 2_400, 9_600));
    }

    #[test]
    fn without_traffic_there_is_no_ratio() {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let workload = Workload::new(&scenario);
        let recorder = Recorder::new(&scenario);
        let windows = Windows::new(&scenario, &workload, &recorder);
        assert_eq!(windows.max_over_mean(160, SECOND), None);
        assert_eq!(windows.utilization(0, 160, SECOND), Some(0.0));
    }
}
