//! [`FailingLocalities`]: localities whose requests fail, as a data plane with
//! `load_aware_locality` or `OBSERVED_LOAD` sees them (decision 0038).
//!
//! Hosts that answer errors at once have little to do: their utilization is low, and a policy that
//! follows it sends them more. So while the requests to a locality fail more than those to another
//! one, its utilization is no measurement if it is low; a high one may be the reason of the errors,
//! and still counts. The planner judges the reports of a fleet much alike.
//!
//! Two signals say that requests fail, either is enough: what became of this data plane's own
//! requests, and the errors per second (`eps`) that hosts report beside their requests per second
//! (`rps_fractional`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::locality::Locality;

/// Time constant with which requests are forgotten. A locality that recovered is used again after
/// about twice this time.
const MEMORY: Duration = Duration::from_secs(10);
/// Requests to a locality that are not forgotten before there are newer ones: where few requests
/// go, those of the last seconds say next to nothing.
const FEW: f64 = 30.0;

/// How long a locality counts as full after its last report of that: a policy that relieves it at
/// once sees it idle before its failures are forgotten.
const STILL_FULL: Duration = Duration::from_secs(5);

/// Failed share, beyond that of another zone, from which a zone fails.
const FAILS_FROM: f64 = 0.2;
/// The same for a zone that fails already.
const RECOVERS_BELOW: f64 = 0.1;
/// The failed share of `n` requests without a failure is below `3 / n` with 95 % confidence.
const RULE_OF_THREE: f64 = 3.0;
/// Standard deviations by which failures must exceed chance.
const CONFIDENCE: f64 = 1.5;

/// Requests, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    pub(crate) ended: f64,
    pub(crate) failed: f64,
}

impl Requests {
    const fn times(self, factor: f64) -> Self {
        Self {
            ended: factor * self.ended,
            failed: factor * self.failed,
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            ended: self.ended + other.ended,
            failed: self.failed + other.failed,
        }
    }
}

/// What is known of one locality at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// This data plane's requests that ended since the tick before.
    pub(crate) own: Requests,
    /// Requests and errors per second that its hosts report.
    pub(crate) reported: Requests,
    /// Its hosts report that they are full.
    pub(crate) is_full: bool,
}

#[derive(Debug, Default)]
pub(crate) struct FailingLocalities {
    known: BTreeMap<Locality, Known>,
    failing: BTreeSet<Locality>,
}

/// What is remembered of one locality.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    own: Requests,
    reported: Requests,
    /// Own requests, of which the last few are not forgotten before there are newer ones.
    lately: Requests,
    /// For how long it still counts as full.
    full: Duration,
}

impl Known {
    fn next(self, sample: Sample, period: Duration) -> Self {
        let kept = (-period.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        let few = (FEW / self.lately.ended.max(FEW)).max(kept);
        // Rates mean more the longer they last; hosts average them over seconds, too.
        let seconds = MEMORY.as_secs_f64();
        Self {
            own: self.own.times(kept).plus(sample.own),
            reported: sample.reported.times(seconds),
            lately: self.lately.times(few).plus(sample.own),
            full: if sample.is_full {
                STILL_FULL
            } else {
                self.full.saturating_sub(period)
            },
        }
    }

    /// Returns the failed share at the lower end of what chance allows, by the signal that knows of
    /// more failures. A locality that fails because it is full is relieved by every policy that
    /// follows its reports.
    fn fails_at_least(&self) -> f64 {
        if !self.full.is_zero() {
            return 0.0;
        }
        let share = |requests: Requests| {
            let certain = requests.failed - CONFIDENCE * requests.failed.sqrt();
            certain.max(0.0) / requests.ended.max(1.0)
        };
        share(self.own).max(share(self.reported))
    }

    /// Returns the own requests; those that hosts report, if there are none.
    const fn lately(&self) -> Requests {
        if self.lately.ended >= 1.0 {
            return self.lately;
        }
        self.reported
    }
}

impl FailingLocalities {
    /// Takes the samples of all localities of a priority, `period` after the last ones.
    pub(crate) fn tick(&mut self, samples: &[(&Locality, Sample)], period: Duration) {
        let next = |&(locality, sample): &(&Locality, Sample)| {
            let before = self.known.get(locality).copied().unwrap_or_default();
            (locality.clone(), before.next(sample, period))
        };
        self.known = samples.iter().map(next).collect();
        let known = || samples.iter().map(|(at, _)| self.known[*at]);
        let own: Vec<Requests> = known().map(|known| known.own).collect();
        let reported: Vec<Requests> = known().map(|known| known.reported).collect();
        let localities = samples.iter().enumerate();
        let failing = localities.filter(|&(index, &(locality, _))| {
            let fails_already = self.failing.contains(locality);
            fails(&own, index, fails_already) || fails(&reported, index, fails_already)
        });
        self.failing = failing.map(|(_, (at, _))| (*at).clone()).collect();
    }

    /// Whether requests to a locality fail, beyond chance.
    pub(crate) fn fails_to(&self, locality: &Locality) -> bool {
        let known = self.known.get(locality);
        known.is_some_and(|known| known.fails_at_least() > 0.0)
    }

    /// Returns the part of this data plane's requests that fails because `shares` are not those of
    /// host counts, at the lower end of what chance allows. Entries are a locality, its share, and
    /// its share by host counts.
    pub(crate) fn excess<'a>(
        &self,
        shares: impl Iterator<Item = (&'a Locality, f64, f64)> + Clone,
    ) -> f64 {
        let known = |locality| self.known.get(locality).copied().unwrap_or_default();
        let gains = shares
            .clone()
            .filter(|(_, share, by_hosts)| share > by_hosts);
        let failed =
            gains.map(|(at, share, by_hosts)| (share - by_hosts) * known(at).fails_at_least());
        let failed: f64 = failed.sum();
        // What the same requests would fail where host counts send them: localities that few
        // requests reach are judged together.
        let (mut moved, mut fails, mut ended) = (0.0, 0.0, 0.0);
        for (at, share, by_hosts) in shares.filter(|(_, share, by_hosts)| share < by_hosts) {
            let requests = known(at).lately();
            moved += by_hosts - share;
            fails += (by_hosts - share) * requests.failed / requests.ended.max(1.0);
            ended += requests.ended;
        }
        failed - fails - moved * RULE_OF_THREE / (ended + RULE_OF_THREE)
    }

    pub(crate) const fn localities(&self) -> &BTreeSet<Locality> {
        &self.failing
    }
}

fn fails(localities: &[Requests], index: usize, fails_already: bool) -> bool {
    let least = localities
        .iter()
        .enumerate()
        .filter(|&(other, sum)| other != index && sum.ended >= 1.0)
        .map(|(_, sum)| at_most(sum.failed, sum.ended))
        .reduce(f64::min);
    let Requests { ended, failed } = localities[index];
    least.is_some_and(|least| is_worse(failed, ended, least, fails_already))
}

/// Whether more of the `requests` to a zone fail than the share `least` of another zone.
fn is_worse(failed: f64, requests: f64, least: f64, fails_already: bool) -> bool {
    let limit = if fails_already {
        RECOVERS_BELOW
    } else {
        FAILS_FROM
    };
    failed > 0.0 && failed - CONFIDENCE * failed.sqrt() >= (least + limit) * requests
}

/// Returns the share of requests that fail, at the upper end of what their number allows.
const fn at_most(failed: f64, requests: f64) -> f64 {
    (failed + RULE_OF_THREE) / (requests + RULE_OF_THREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that ended and failed per second, own and reported.
    type Rates = [(f64, f64); 2];

    fn names(failing: &FailingLocalities) -> String {
        let zones = failing.localities().iter().map(Locality::zone);
        zones.collect::<Vec<_>>().join(",")
    }

    fn tick(failing: &mut FailingLocalities, rates: &[Rates]) {
        let zones = ["a", "b", "c"].map(Locality::zone_only);
        let requests = |(ended, failed)| Requests { ended, failed };
        let sample = |rates: &Rates| Sample {
            own: requests(rates[0]),
            reported: requests(rates[1]),
            is_full: false,
        };
        let samples: Vec<_> = zones.iter().zip(rates.iter().map(sample)).collect();
        failing.tick(&samples, Duration::from_secs(1));
    }

    #[test]
    fn either_signal_is_enough_and_services_that_fail_alike_are_no_matter() {
        const NONE: (f64, f64) = (0.0, 0.0);
        const GOOD: Rates = [(20.0, 0.0), NONE];
        let cases: [(&str, [Rates; 3], &str); 8] = [
            ("good", [GOOD, GOOD, GOOD], ""),
            ("own requests", [GOOD, [(5.0, 5.0), NONE], GOOD], "b"),
            ("half of them", [GOOD, [(20.0, 10.0), NONE], GOOD], "b"),
            ("a few errors", [GOOD, [(20.0, 2.0), NONE], GOOD], ""),
            (
                "reported, no own requests there",
                [
                    [(20.0, 0.0), (20.0, 0.0)],
                    [NONE, (20.0, 20.0)],
                    [NONE, (20.0, 0.5)],
                ],
                "b",
            ),
            ("two", [GOOD, [(9.0, 9.0), NONE], [(9.0, 9.0), NONE]], "b,c"),
            ("all alike", [[(9.0, 8.0), NONE]; 3], ""),
            (
                "nobody else",
                [[(9.0, 8.0), NONE], [NONE; 2], [NONE; 2]],
                "",
            ),
        ];
        for (name, rates, expected) in cases {
            let mut failing = FailingLocalities::default();
            (0..10).for_each(|_| tick(&mut failing, &rates));
            assert_eq!(names(&failing), expected, "{name}");
        }
    }

    #[test]
    fn one_failure_is_chance_and_recovery_takes_half_a_minute() {
        const NONE: (f64, f64) = (0.0, 0.0);
        let mut failing = FailingLocalities::default();
        tick(&mut failing, &[[(50.0, 0.0), NONE], [(1.0, 1.0), NONE]]);
        assert_eq!(names(&failing), "");
        for _ in 0..60 {
            tick(&mut failing, &[[(50.0, 0.0), NONE], [(5.0, 5.0), NONE]]);
        }
        let mut seconds = 0;
        while names(&failing) == "b" {
            tick(&mut failing, &[[(50.0, 0.0), NONE], [(5.0, 0.0), NONE]]);
            seconds += 1;
        }
        assert!((15..30).contains(&seconds), "{seconds}");
        for _ in 0..60 {
            tick(&mut failing, &[[(50.0, 0.0), NONE], [(5.0, 0.0), NONE]]);
            assert_eq!(names(&failing), "");
        }
    }
}
