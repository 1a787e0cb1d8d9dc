//! How many requests to a zone have no answer although they should: its hosts hang.
//!
//! Hosts that hang cause no errors if clients give up before the proxy does: what was issued only
//! never ends, and where a part of a zone hangs, the rest of it goes on answering. But streams and
//! long polls do not end either, and after a restart all of them begin at once. So what a zone does
//! not answer is compared with how long requests last in the zones that do answer. `failing` judges
//! the result.

use std::collections::BTreeMap;

use super::outcomes::Outcome;
use crate::model::locality::Locality;

/// Standard deviations by which unanswered requests must exceed chance.
const SIGNIFICANT: f64 = 4.0;
/// Answers of a zone from which the duration of its requests is known.
const KNOWN_DURATION: u64 = 10;

/// Mean durations of the requests to each zone, in report intervals.
pub(super) struct Durations<'a>(BTreeMap<&'a Locality, f64>);

impl<'a> Durations<'a> {
    pub(super) fn of(totals: &BTreeMap<&'a Locality, Outcome>) -> Self {
        let durations = totals
            .iter()
            .filter_map(|(&zone, sum)| Some((zone, sum.duration()?)));
        Self(durations.collect())
    }

    /// Returns the shortest of the other zones; infinite if none of them answers. A zone that hangs
    /// says nothing about itself, and one with many requests in flight little about others.
    pub(super) fn elsewhere(&self, zone: &Locality) -> f64 {
        let others = self.0.iter().filter(|(other, _)| **other != zone);
        others
            .map(|(_, duration)| *duration)
            .fold(f64::INFINITY, f64::min)
    }
}

impl Outcome {
    /// Returns how many intervals a request lasts on average, at most: in each interval one in as
    /// many of those in flight ends. With arrivals instead of ends, requests that have all just
    /// begun after a restart would look short.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
    fn duration(self) -> Option<f64> {
        let is_known = self.ended >= KNOWN_DURATION;
        // Chance may hide one, and none in flight does not mean that requests take no time.
        let in_flight = self.in_progress.saturating_add(1);
        is_known.then(|| in_flight as f64 / self.ended as f64)
    }

    /// Counts requests without an answer as failed if neither chance nor their duration elsewhere
    /// explains them.
    ///
    /// Of requests that last `duration` intervals, at most that share of the arrived ones has not
    /// ended yet. In flight are `arrived * duration`, when an interval begins and when it ends,
    /// each with the standard deviation of a Poisson process. So nothing is concluded about
    /// requests that last longer than an interval: their timeouts show as errors. A reporter
    /// without requests in flight may know only what it issued.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts"
    )]
    pub(super) fn with_unanswered(mut self, duration: f64) -> Self {
        if duration < 1.0 && (self.in_progress > 0 || self.ended == 0) {
            let arrived = self.arrived as f64;
            let chance = SIGNIFICANT * (2.0 * (1.0 + arrived * duration)).sqrt();
            let explained = arrived * duration + chance;
            let unanswered = self.unanswered() as f64 - explained;
            self.failed = self.failed.saturating_add(unanswered.max(0.0) as u64);
        }
        self
    }

    /// Returns how many more requests arrived than ended.
    pub(super) const fn unanswered(self) -> u64 {
        self.arrived.saturating_sub(self.ended)
    }
}
