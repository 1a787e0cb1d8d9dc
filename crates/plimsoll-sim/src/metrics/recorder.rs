//! [`Recorder`]: what a run leaves behind, in quarter seconds.
//!
//! Written by `world` while it runs, read by the rest of `metrics` when it is over. Memory is bound
//! by the length of the run and the number of zones, not by the number of requests.

use super::histogram::Histogram;
use crate::num;
use crate::scenario::Scenario;

/// Length of one bin.
pub(crate) const BIN: u64 = 250_000_000;

/// Counts of samples over time.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    zones: usize,
    bins: usize,
    /// By bin, then zone of the proxy: requests that arrived, and those that stayed local.
    issued: Vec<u32>,
    local: Vec<u32>,
    /// By bin, then zone of the host: requests sent there.
    served: Vec<u32>,
    /// By bin of the answer.
    failed: Vec<u32>,
    /// By second of the answer.
    latency: Vec<Histogram>,
    totals: Totals,
    /// Longest time each balancer sent nothing to its own zone, once that was no chance.
    lock_out: Vec<u64>,
}

/// What became of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) issued: u64,
    pub(crate) succeeded: u64,
    /// Refused by a full queue, or sent to a dead host.
    pub(crate) failed: u64,
    /// There was no host to send them to.
    pub(crate) unpicked: u64,
    /// Under way when the run ended.
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
            failed: vec![0; bins],
            latency: vec![Histogram::default(); bins.div_ceil(4)],
            totals: Totals::default(),
            lock_out: vec![0; scenario.balancer_count()],
        }
    }

    /// A request arrived at a proxy.
    pub(crate) fn issued(&mut self, at: u64, zone: usize) {
        self.totals.issued += 1;
        let place = self.bin(at) * self.zones + zone;
        add(&mut self.issued, place);
    }

    /// A request was sent to a host.
    pub(crate) fn sent(&mut self, at: u64, from: usize, to: usize) {
        let place = self.bin(at) * self.zones + to;
        add(&mut self.served, place);
        if from == to {
            add(&mut self.local, place);
        }
    }

    /// There was no host for a request.
    pub(crate) fn unpicked(&mut self, at: u64) {
        self.totals.unpicked += 1;
        let bin = self.bin(at);
        add(&mut self.failed, bin);
    }

    /// An answer arrived at its proxy.
    pub(crate) fn answered(&mut self, at: u64, latency: u64, success: bool) {
        let bin = self.bin(at);
        if success {
            self.totals.succeeded += 1;
            if let Some(histogram) = self.latency.get_mut(bin / 4) {
                histogram.add(latency);
            }
        } else {
            self.totals.failed += 1;
            add(&mut self.failed, bin);
        }
    }

    /// A balancer has sent nothing to its own zone for so long.
    pub(crate) fn locked_out(&mut self, balancer: usize, length: u64) {
        let longest = &mut self.lock_out[balancer];
        *longest = length.max(*longest);
    }

    /// The run is over with so many requests under way.
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

    /// Requests that arrived in a bin, by zone.
    pub(crate) fn issued_in(&self, bin: usize) -> &[u32] {
        &self.issued[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Those of them that stayed local.
    pub(crate) fn local_in(&self, bin: usize) -> &[u32] {
        &self.local[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Requests sent to each zone in a bin.
    pub(crate) fn served_in(&self, bin: usize) -> &[u32] {
        &self.served[bin * self.zones..(bin + 1) * self.zones]
    }

    /// Failures of a bin.
    pub(crate) fn failed_in(&self, bin: usize) -> u32 {
        self.failed[bin]
    }

    /// Latencies by second.
    pub(crate) fn latencies(&self) -> &[Histogram] {
        &self.latency
    }

    /// The last bin also takes what happens at the very end.
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
        recorder.answered(5 * BIN, 1_000_000, true);
        recorder.answered(5 * BIN, 9_000_000, false);
        recorder.unpicked(6 * BIN);
        recorder.finish(3);
        let totals = recorder.totals();
        assert_eq!(
            (totals.succeeded, totals.failed, totals.unpicked),
            (1, 1, 1)
        );
        assert_eq!(totals.in_flight, 3);
        assert_eq!((recorder.failed_in(5), recorder.failed_in(6)), (1, 1));
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
