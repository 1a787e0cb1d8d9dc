//! [`FailingZones`]: upstream zones whose requests fail, and so have no spare capacity.
//!
//! Measured demand sends the excess of a hot zone to zones with hosts to spare. A zone whose hosts
//! refuse, hang or answer with errors looks idle, and every spilled request would fail there. While
//! one does, a plan says so ([`Plan::failing`](super::Plan::failing)), and proxies are sent host
//! counts: no zone then fails more requests, or carries more, than before demand steered it
//! (decision 0038).
//!
//! A zone fails if many more of its requests fail than of those to another zone, by more than
//! chance, in the sum over all proxies or over those of one zone: the link between two zones can
//! fail alone. Nobody may send requests to a failing zone, so it recovers after a while
//! without evidence. The while doubles when it fails again soon after.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::losses::Link;
use super::outcomes::{Outcome, Outcomes};
use super::unanswered::Durations;
use crate::model::locality::Locality;
use crate::time::Instant;

/// Failed share, beyond that of another zone, from which a zone fails.
const FAILS_FROM: f64 = 0.2;
/// The same for a zone that fails already.
const RECOVERS_BELOW: f64 = 0.1;
/// The failed share of `n` requests without a failure is below `3 / n` with 95 % confidence.
const RULE_OF_THREE: u64 = 3;
/// Standard deviations by which failures must exceed chance.
const CONFIDENCE: f64 = 1.5;
/// Requests of one zone to another from which they are compared with other requests of that zone.
const COMPARABLE: u64 = 20;
/// How long a zone counts as failing after its requests last did.
const HOLD: Duration = Duration::from_secs(30);
/// Longest such time: requests to a zone that fails whenever it is tried.
const MAX_HOLD: Duration = Duration::from_secs(960);
/// Most zones that are remembered: their names come from the network. Zones with proxies go first.
const MAX_ZONES: usize = 256;
/// Shortest time between two evaluations.
const INTERVAL: Duration = Duration::from_secs(1);

/// The failing zones of one scope.
#[derive(Debug, Default)]
pub(super) struct FailingZones {
    failing: BTreeSet<Locality>,
    /// Zones that fail, or did a while ago.
    known: BTreeMap<Locality, Failure>,
    evaluated_at: Option<Instant>,
    /// A report came too early for an evaluation.
    postponed: bool,
}

/// What an evaluation changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) failed: Vec<Locality>,
    pub(super) recovered: Vec<Locality>,
}

/// When requests failed, and how long that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    /// When its requests last failed.
    last: Instant,
    hold: Duration,
}

impl Failure {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            last: now,
            hold: HOLD,
        }
    }

    pub(super) fn recovers_at(self) -> Instant {
        self.last.saturating_add(self.hold)
    }

    /// When the zone counts as one that never failed: it was in use as long as it was out of use.
    pub(super) fn forgotten_at(self) -> Instant {
        self.recovers_at().saturating_add(self.hold)
    }

    pub(super) fn again(self, now: Instant) -> Self {
        let is_relapse = now >= self.recovers_at();
        let hold = if is_relapse {
            self.hold.saturating_mul(2).min(MAX_HOLD)
        } else {
            self.hold
        };
        Self { last: now, hold }
    }
}

impl FailingZones {
    /// Whether to evaluate now; if not, [`Self::deadline`] says when.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .evaluated_at
            .is_none_or(|at| at.saturating_add(INTERVAL) <= now);
        self.postponed = !is_due;
        is_due
    }

    /// Evaluates the latest reports of all nodes, which are in the zones `reporters`. Returns the
    /// zones that began to fail and those that recovered.
    pub(super) fn evaluate(
        &mut self,
        compared: &[Compared<'_>],
        reporters: &BTreeSet<Locality>,
        now: Instant,
    ) -> Changed {
        self.evaluated_at = Some(now);
        for zone in self.failed(compared) {
            let known = self.known.get(&zone);
            let failure = known.map_or(Failure::new(now), |failure| failure.again(now));
            self.known.insert(zone, failure);
        }
        self.known.retain(|_, failure| now < failure.forgotten_at());
        keep_first(&mut self.known, MAX_ZONES, |zone, failure| {
            (!reporters.contains(zone), Reverse(failure.last))
        });
        let failing = self.known.iter();
        let failing: BTreeSet<Locality> = failing
            .filter(|(_, failure)| now < failure.recovers_at())
            .map(|(zone, _)| zone.clone())
            .collect();
        let before = std::mem::replace(&mut self.failing, failing);
        Changed {
            failed: self.failing.difference(&before).cloned().collect(),
            recovered: before.difference(&self.failing).cloned().collect(),
        }
    }

    /// Returns the zones whose requests fail in the latest reports.
    fn failed(&self, compared: &[Compared<'_>]) -> BTreeSet<Locality> {
        let failed = compared.iter().filter(|link| self.is_failure(link));
        failed.map(|link| link.to.clone()).collect()
    }

    /// Whether more requests fail than the share that fails elsewhere.
    #[expect(clippy::cast_precision_loss, reason = "a comparison of shares")]
    fn is_failure(&self, link: &Compared<'_>) -> bool {
        let limit = if self.failing.contains(link.to) {
            RECOVERS_BELOW
        } else {
            FAILS_FROM
        };
        let failed = link.outcome.failed as f64;
        let all = link.outcome.requests() as f64;
        failed > 0.0 && failed - CONFIDENCE * failed.sqrt() >= (link.elsewhere + limit) * all
    }

    /// When to evaluate next without another report: a zone may have recovered. Never before an
    /// evaluation is allowed, or the planner's timer would be due again and again until then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let failing = self.failing.iter();
        let recovered = failing
            .filter_map(|zone| Some(self.known.get(zone)?.recovers_at()))
            .min()
            .map(|at| self.evaluated_from(at));
        let evaluated = self.evaluated_at.filter(|_| self.postponed);
        let again = evaluated.map(|at| at.saturating_add(INTERVAL));
        [recovered, again].into_iter().flatten().min()
    }

    /// Returns `at`, or when the next evaluation is allowed if that is later.
    pub(super) fn evaluated_from(&self, at: Instant) -> Instant {
        let allowed = self.evaluated_at.map(|last| last.saturating_add(INTERVAL));
        allowed.map_or(at, |allowed| at.max(allowed))
    }

    pub(super) const fn zones(&self) -> &BTreeSet<Locality> {
        &self.failing
    }
}

/// Requests to one zone, and what fails elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared<'a> {
    /// Zone of the proxies; `None` for the sum over all of them.
    pub(super) from: Option<&'a Locality>,
    pub(super) to: &'a Locality,
    /// Requests without an answer count as failed if they should have one.
    pub(super) outcome: Outcome,
    /// Share that fails in the best other zone, at the upper end of what its requests allow.
    pub(super) elsewhere: f64,
}

impl Compared<'_> {
    pub(super) fn link(&self) -> Link {
        Link {
            from: self.from.cloned(),
            to: self.to.clone(),
        }
    }
}

/// Compares the requests to each zone with those to the others, in the sum over all proxies and
/// over those of each zone. Without an elsewhere nothing is known: demand may well be what brings
/// requests out of the zone.
pub(super) fn compared(outcomes: &Outcomes) -> Vec<Compared<'_>> {
    let totals = outcomes.totals();
    let durations = Durations::of(&totals);
    let mut all = Vec::new();
    let mut add = |from, to, outcome: Outcome, elsewhere: Option<f64>| {
        let outcome = outcome.with_unanswered(durations.elsewhere(to));
        all.extend(elsewhere.map(|elsewhere| Compared {
            from,
            to,
            outcome,
            elsewhere,
        }));
    };
    for (&to, &outcome) in &totals {
        add(None, to, outcome, least_failed(&totals, to, 1));
    }
    for (from, sums) in outcomes.by_source() {
        let own: Sums<'_> = sums.iter().map(|(to, sum)| (to, *sum)).collect();
        for (&to, &outcome) in &own {
            // Requests of the same proxies fail for the same reasons; only the zone differs.
            let least = least_failed(&own, to, COMPARABLE).or_else(|| least_failed(&totals, to, 1));
            add(Some(from), to, outcome, least);
        }
    }
    all
}

/// Removes entries beyond the first `most` in the order of `rank`: names come from the network, and
/// those that matter least go.
pub(super) fn keep_first<K: Ord + Clone, V, R: Ord>(
    entries: &mut BTreeMap<K, V>,
    most: usize,
    rank: impl Fn(&K, &V) -> R,
) {
    if entries.len() <= most {
        return;
    }
    let mut ranked: Vec<_> = entries
        .iter()
        .map(|(key, value)| (rank(key, value), key))
        .collect();
    ranked.sort();
    let beyond: Vec<K> = ranked.drain(most..).map(|(_, key)| key.clone()).collect();
    for key in beyond {
        entries.remove(&key);
    }
}

type Sums<'a> = BTreeMap<&'a Locality, Outcome>;

/// Returns the lowest share of failed requests among the zones other than `zone` with at least
/// `requests`, each at the upper end of what its requests allow; `None` if there is none.
fn least_failed(sums: &Sums<'_>, zone: &Locality, requests: u64) -> Option<f64> {
    let others = sums.iter().filter(|(other, _)| **other != zone);
    others
        .filter(|(_, sum)| sum.requests() >= requests)
        .map(|(_, sum)| sum.failed_at_most())
        .reduce(f64::min)
}

impl Outcome {
    /// Returns the share of requests that fail, at the lower end of what chance allows.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
    pub(super) fn failed_at_least(self) -> f64 {
        let failed = self.failed as f64;
        (failed - CONFIDENCE * failed.sqrt()) / self.requests().max(1) as f64
    }

    /// Returns the share of requests that fail, at the upper end of what is known: whatever has no
    /// answer yet may fail.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
    fn failed_at_most(self) -> f64 {
        let with_doubt = |count: u64| count.saturating_add(RULE_OF_THREE) as f64;
        let failed = self.failed.saturating_add(self.unanswered());
        with_doubt(failed) / with_doubt(self.requests())
    }
}

#[cfg(test)]
mod tests;
