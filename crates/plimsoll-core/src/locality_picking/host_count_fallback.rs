//! [`HostCountFallback`]: leaves the choice to host counts while a policy fails more requests than
//! they would (decision 0038).
//!
//! Every policy that follows a measurement can be misled by failures in a way that nobody thought
//! of: hosts that hang keep the last load that they reported, a part of a zone fails, response
//! times are known of one zone only. What they all have in common is visible to the data plane: the
//! requests that fail, by locality, and where host counts would have sent them. So the policy is
//! judged by its result. If more than half a percent of the requests fail for no other reason than
//! the policy, host counts decide, which is what was there before.
//!
//! They decide until the same shares have had nothing to answer for during half a minute. A policy
//! that fails again as soon as it is back in force waits a minute, two minutes and so on, at most
//! 16; that is forgotten once it was in force as long as it was not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failing_localities::FailingLocalities;
use super::load_aware_locality::{LocalityWeights, SmoothedSlot};
use crate::model::locality::Locality;

/// Part of the requests that a policy may fail beyond host counts.
const TOO_MANY: f64 = 0.005;
/// The same while host counts decide.
const STILL_TOO_MANY: f64 = 0.0025;
/// How long host counts decide without evidence, the first time and at most.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(960);
/// Part of the way between a policy's weights and host counts that is covered per second.
const PER_SECOND: f64 = 0.25;

/// One locality: its share of the requests by the policy, and by host counts.
pub(crate) type SlotShares<'a> = (&'a Locality, f64, f64);

#[derive(Debug)]
pub(crate) struct HostCountFallback {
    /// Shares with which the policy failed more requests; empty while it decides.
    failed_with: BTreeMap<Locality, f64>,
    /// Localities that got more requests by these than by host counts, of which some fail.
    blamed: Vec<Locality>,
    /// Without evidence while host counts decide; in force while the policy does.
    elapsed: Duration,
    /// How long host counts decide without evidence.
    patience: Duration,
    /// Part of the way from the policy's weights to host counts.
    part: f64,
}

impl Default for HostCountFallback {
    fn default() -> Self {
        Self {
            failed_with: BTreeMap::new(),
            blamed: Vec::new(),
            elapsed: Duration::MAX,
            patience: FIRST,
            part: 0.0,
        }
    }
}

impl HostCountFallback {
    /// Whether host counts decide.
    pub(crate) fn is_active(&self) -> bool {
        !self.failed_with.is_empty()
    }

    /// Localities to which requests fail that host counts send elsewhere.
    pub(crate) fn blamed(&self) -> &[Locality] {
        &self.blamed
    }

    /// Judges the shares that are in force, or those that the policy failed with.
    pub(crate) fn tick(
        &mut self,
        failing: &FailingLocalities,
        slots: &[SlotShares<'_>],
        period: Duration,
    ) {
        self.elapsed = self.elapsed.saturating_add(period);
        let step = PER_SECOND * period.as_secs_f64();
        let step = if self.is_active() { step } else { -step };
        self.part = (self.part + step).clamp(0.0, 1.0);
        if !self.is_active() {
            if failing.excess(slots.iter().copied()) > TOO_MANY {
                self.begin(failing, slots);
            }
            return;
        }
        let failed_with = slots.iter().map(|&(locality, _, by_hosts)| {
            let share = self.failed_with.get(locality).copied();
            (locality, share.unwrap_or(by_hosts), by_hosts)
        });
        if failing.excess(failed_with) > STILL_TOO_MANY {
            self.elapsed = Duration::ZERO;
        } else if self.elapsed >= self.patience {
            self.failed_with.clear();
            self.elapsed = Duration::ZERO;
        }
    }

    /// Moves weights to host counts while these decide, and back, over some seconds.
    pub(crate) fn blend(&self, outcome: &mut LocalityWeights, slots: &[SmoothedSlot]) {
        let hosts: f64 = slots.iter().map(|slot| slot.eligible).sum();
        let total: f64 = outcome.weights.iter().sum();
        if self.part <= 0.0 || hosts <= 0.0 || total <= 0.0 {
            return;
        }
        outcome.all_local = false;
        for (weight, slot) in outcome.weights.iter_mut().zip(slots) {
            *weight += self.part * (slot.eligible / hosts - *weight / total) * total;
        }
    }

    fn begin(&mut self, failing: &FailingLocalities, slots: &[SlotShares<'_>]) {
        self.patience = if self.elapsed < self.patience {
            self.patience.saturating_mul(2).min(LONGEST)
        } else {
            FIRST
        };
        self.elapsed = Duration::ZERO;
        let blamed = slots
            .iter()
            .filter(|(at, share, by_hosts)| share > by_hosts && failing.fails_to(at));
        self.blamed = blamed.map(|(at, _, _)| (*at).clone()).collect();
        let shares = slots.iter();
        self.failed_with = shares
            .map(|(at, share, _)| ((*at).clone(), *share))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::failing_localities::{Requests, Sample};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// Requests per second to the localities a, b and c, and the part that fails.
    type Traffic = [(f64, f64); 3];
    const GOOD: Traffic = [(97.0, 0.0), (1.5, 0.0), (1.5, 0.0)];
    const BY_HOSTS: Traffic = [(33.0, 0.0); 3];
    const LOCAL: [f64; 3] = [0.97, 0.015, 0.015];

    #[derive(Default)]
    struct Judged {
        failing: FailingLocalities,
        fallback: HostCountFallback,
    }

    impl Judged {
        /// Passes seconds with the same traffic, until host counts do or do not decide; returns the
        /// seconds.
        fn pass(&mut self, traffic: Traffic, shares: [f64; 3], seconds: u32, until: bool) -> u32 {
            let zones = ["a", "b", "c"].map(Locality::zone_only);
            for second in 0..seconds {
                let sample = |&(ended, part): &(f64, f64)| Sample {
                    own: Requests {
                        ended,
                        failed: ended * part,
                    },
                    ..Sample::default()
                };
                let samples: Vec<_> = zones.iter().zip(traffic.iter().map(sample)).collect();
                self.failing.tick(&samples, SECOND);
                let slots = zones.iter().zip(shares);
                let slots: Vec<_> = slots.map(|(at, share)| (at, share, 1.0 / 3.0)).collect();
                self.fallback.tick(&self.failing, &slots, SECOND);
                if self.fallback.is_active() == until {
                    return second;
                }
            }
            seconds
        }
    }

    #[test]
    fn host_counts_decide_if_the_policy_fails_more_requests() {
        let part = |a, b, c| [(97.0, a), (1.5, b), (1.5, c)];
        let cases: [(&str, Traffic, bool); 5] = [
            ("nothing fails", part(0.0, 0.0, 0.0), false),
            ("the zone that is preferred", part(1.0, 0.0, 0.0), true),
            ("a dead host of five there", part(0.2, 0.0, 0.0), true),
            ("chance", part(0.004, 0.0, 0.0), false),
            ("a zone that is avoided", part(0.0, 1.0, 0.0), false),
        ];
        for (name, traffic, expected) in cases {
            let mut judged = Judged::default();
            judged.pass(GOOD, LOCAL, 60, true);
            let seconds = judged.pass(traffic, LOCAL, 60, true);
            assert_eq!(seconds < 60, expected, "{name}");
            assert!(!expected || seconds <= 3, "{name}: after {seconds} s");
        }
    }

    #[test]
    fn a_service_that_fails_everywhere_alike_is_no_matter() {
        let alike = [(97.0, 0.3), (1.5, 0.3), (1.5, 0.3)];
        assert_eq!(Judged::default().pass(alike, LOCAL, 600, true), 600);
    }

    /// Two requests per second, of which 3 % are probes: nothing is known of other zones by what
    /// happened in ten seconds.
    #[test]
    fn few_probes_are_remembered() {
        let mut judged = Judged::default();
        let few = |part| [(2.0, part), (0.03, 0.0), (0.03, 0.0)];
        assert_eq!(judged.pass(few(0.0), LOCAL, 600, true), 600);
        assert!(judged.pass(few(0.5), LOCAL, 600, true) < 20);
    }

    #[test]
    fn the_policy_is_tried_again_later_each_time_that_it_fails() {
        let mut judged = Judged::default();
        let fails = [(97.0, 0.2), (1.5, 0.0), (1.5, 0.0)];
        judged.pass(GOOD, LOCAL, 60, true);
        let mut waited = Vec::new();
        for _ in 0..7 {
            assert!(judged.pass(fails, LOCAL, 60, true) < 60);
            waited.push(judged.pass(BY_HOSTS, LOCAL, 2000, false));
        }
        // The last failures are remembered for some seconds.
        for (seconds, patience) in waited.iter().zip([30, 60, 120, 240, 480, 960, 960]) {
            assert!((patience..patience + 40).contains(seconds), "{waited:?}");
        }
        assert_eq!(judged.pass(GOOD, LOCAL, 961, true), 961);
        assert!(judged.pass(fails, LOCAL, 60, true) < 60);
        assert!(judged.pass(BY_HOSTS, LOCAL, 2000, false) < 70);
    }

    /// A third of the requests still goes to the zone that fails.
    #[test]
    fn host_counts_decide_as_long_as_the_zone_fails() {
        let mut judged = Judged::default();
        judged.pass([(97.0, 0.2), (1.5, 0.0), (1.5, 0.0)], LOCAL, 60, true);
        let fails = [(33.0, 0.2), (33.0, 0.0), (33.0, 0.0)];
        assert_eq!(judged.pass(fails, LOCAL, 3600, false), 3600);
    }
}
