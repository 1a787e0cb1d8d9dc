//! [`Recorder`]: counters of a run, in bins of a quarter second.
//!
//! `world` writes it during the run; the rest of `metrics` reads it afterwards. Memory is bounded
//! by the length of the run and the number of zones, not by the number of requests.

use super::histogram::Histogram;
use crate::num;
use crate::scenario::Scenario;

/// Length of one bin in nanoseconds.
pub(crate) const BIN: u64 = 250_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    zones: usize,
    bins: usize,
    /// By bin, then zone of the proxy: requests that arrived, and those that stayed local.
    issued: Vec<u32>,
    local: Vec<u32>,
    /// By bin, then zone of the host: requests sent to the zone.
    served: Vec<u32>,
    /// Failed requests, by bin of the response, then zone of the proxy.
    failed: Vec<u32>,
    /// Requests that failed at hosts of a zone, by bin of the response.
    failed_at: Vec<u32>,
    /// Latency histograms, by second of the response.
    latency: Vec<Histogram>,
    totals: Totals,
    /// Longest time that each balancer was locked out of its own zone.
    lock_out: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) issued: u64,
    pub(crate) succeeded: u64,
    /// Requests refused by a full queue, or sent to a dead host.
    pub(crate) failed: u64,
    /// Requests for which no host was available.
    pub(crate) no_host: u64,
    pub(crate) in_flight: u64,
}

impl Recorder {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let bins = num::slot(scenario.duration, BIN);
        let zones = scenario.zones.len();
        Self {
            zones,
            bins,
            issued: vec![0; bins * zones],
            local: vec![0; bins * zones],
            served: vec![0; bins * zones],
            failed: vec![0; bins * zones],
            failed_at: vec![0; bins * zones],
            latency: vec![Histogram::default(); bins.div_ceil(4)],
            totals: Totals::default(),
            lock_out: vec![0; scenario.balancer_count()],
        }
    }

    /// Records a request that arrived at a proxy.
    pub(crate) fn issued(&mut self, at: u64, zone: usize) {
        self.totals.issued += 1;
        let place = self.bin(at) * self.zones + zone;
        add(&mut self.issued, place);
    }

    pub(crate) fn sent(&mut self, at: u64, from: usize, to: usize) {
        let place = self.bin(at) * self.zones + to;
        add(&mut self.served, place);
        if from == to {
            add(&mut self.local, place);
        }
    }

    /// Records a request of a zone's proxy for which no host was available.
    pub(crate) fn no_host(&mut self, at: u64, from: usize) {
        self.totals.no_host += 1;
        let place = self.bin(at) * self.zones + from;
        add(&mut self.failed, place);
    }

    pub(crate) fn succeeded(&mut self, at: u64, latency: u64) {
        self.totals.succeeded += 1;
        let second = self.bin(at) / 4;
        if let Some(histogram) = self.latency.get_mut(second) {
            histogram.add(latency);
        }
    }

    /// Records a request of zone `from` that failed at a host of zone `to`.
    pub(crate) fn failed(&mut self, at: u64, from: usize, to: usize) {
        self.totals.failed += 1;
        let first = self.bin(at) * self.zones;
        add(&mut self.failed, first + from);
        add(&mut self.failed_at, first + to);
    }

    /// Records how long a balancer has sent nothing to its own zone.
    pub(crate) fn locked_out(&mut self, balancer: usize, length: u64) {
        let longest = &mut self.lock_out[balancer];
        *longest = length.max(*longest);
    }

    pub(crate) fn finish(&mut self, in_flight: usize) {
        self.totals.in_flight = in_flight as u64;
    }

    pub(crate) const fn zones(&self) -> usize {
        self.zones
    }

    pub(crate) const fn bins(&self) -> usize {
        self.bins
    }

    pub(crate) const fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn lock_outs(&self) -> &[u64] {
        &self.lock_out
    }

    /// Returns the requests that arrived in a bin, by zone.
    pub(crate) fn issued_in(&self, bin: usize) -> &[u32] {
        &self.issued[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Returns the requests of a bin that stayed local, by zone.
    pub(crate) fn local_in(&self, bin: usize) -> &[u32] {
        &self.local[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Returns the requests sent to each zone in a bin.
    pub(crate) fn served_in(&self, bin: usize) -> &[u32] {
        &self.served[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Returns the requests that failed in a bin, by zone of the proxy.
    pub(crate) fn failed_in(&self, bin: usize) -> &[u32] {
        &self.failed[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Returns the requests that failed at hosts in a bin, by zone of the host.
    pub(crate) fn failed_at(&self, bin: usize) -> &[u32] {
        &self.failed_at[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Returns latencies by second.
    pub(crate) fn latencies(&self) -> &[Histogram] {
        &self.latency
    }

    /// Returns the bin of a moment; the last bin includes the end of the run.
    fn bin(&self, at: u64) -> usize {
        num::slot(at, BIN).min(self.bins.saturating_sub(1))
    }
}

fn add(counts: &mut [u32], place: usize) {
    if let Some(count) = counts.get_mut(place) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::three_zones;

    fn recorder() -> Recorder {
        Recorder::new(&Scenario::try_new(three_zones()).unwrap())
    }

    #[test]
    fn requests_land_in_their_bin_and_zone() {
        let mut recorder = recorder();
        assert_eq!(recorder.bins(), 160);
        for (at, from, to) in [(0, 0, 0), (BIN - 1, 0, 2), (BIN, 1, 1)] {
            recorder.issued(at, from);
            recorder.sent(at, from, to);
        }
        assert_eq!(recorder.issued_in(0), [2, 0, 0]);
        assert_eq!(recorder.local_in(0), [1, 0, 0]);
        assert_eq!(recorder.served_in(0), [1, 0, 1]);
        assert_eq!(recorder.served_in(1), [0, 1, 0]);
    }

    #[test]
    fn answers_and_failures_are_counted() {
        let mut recorder = recorder();
        recorder.succeeded(5 * BIN, 1_000_000);
        recorder.failed(5 * BIN, 0, 2);
        recorder.no_host(6 * BIN, 1);
        recorder.finish(3);
        let totals = recorder.totals();
        assert_eq!((totals.succeeded, totals.failed, totals.no_host), (1, 1, 1));
        assert_eq!(totals.in_flight, 3);
        assert_eq!(recorder.failed_in(5), [1, 0, 0]);
        assert_eq!(recorder.failed_in(6), [0, 1, 0]);
        assert_eq!(recorder.failed_at(5), [0, 0, 1]);
        assert_eq!(recorder.failed_at(6), [0, 0, 0]);
        assert!(recorder.latencies()[1].quantile(1.0).unwrap() < 2e6);
    }

    #[test]
    fn the_longest_lock_out_of_each_balancer_is_kept() {
        let mut recorder = recorder();
        recorder.locked_out(1, 5);
        recorder.locked_out(1, 3);
        assert_eq!(recorder.lock_outs(), [0, 5, 0]);
    }
}
