//! [`UnseenZones`]: zones to which no proxy reports a request any more.
//!
//! Some failures are in no load report: connections that are refused, if Envoy 1.38 has nothing
//! else to report about the zone; connections that hang, if the request times out or its client
//! leaves before the connection does. The requests vanish, the demand of the proxies that sent them
//! with them, and the zone seems to have all its capacity to spare. A zone that is really idle
//! looks the same, until others spill into it: then their requests are reported.
//!
//! So a zone from which all requests vanish is unseen for half a minute, in which nobody spills
//! into it. Then it is tried: the fractions count again, and if they call for requests to the zone,
//! proxies report them within two intervals, or it is unseen for twice as long. A trial is two
//! requests in a hundred at most ([`Caution::ramp`](super::Caution::ramp)). A zone that was never
//! seen, as after a restart beside a zone that is dead, is tried in the same way. A zone that is
//! unseen is not known to fail: it matters only if demand would send requests there
//! ([`Plan::caution`](super::Plan::caution)).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::failing::keep_first;
use super::outcomes::{Outcome, Outcomes};
use crate::model::locality::Locality;
use crate::time::Instant;

/// How long a zone is unseen at first, and at most if nothing is seen whenever it is tried.
const HOLD: Duration = Duration::from_secs(30);
const MAX_HOLD: Duration = Duration::from_secs(960);
/// Time that proxies may take to follow fractions, beyond the intervals of their reports.
const SETTLE: Duration = Duration::from_secs(5);
/// Requests in the latest reports from which on none to a zone is more than chance: while it is
/// idle, the others spill a good part of their requests into it, or need not.
const SIGNIFICANT: u64 = 100;
/// Most zones that are remembered: their names come from the network. Zones with proxies go first,
/// then those that were unseen, then those with requests.
const MAX_ZONES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct UnseenZones {
    known: BTreeMap<Locality, Sight>,
    unseen: BTreeSet<Locality>,
    tried: BTreeSet<Locality>,
}

#[derive(Clone, Copy, Debug)]
enum Sight {
    Seen,
    /// Requests vanished; nobody spills into it.
    Unseen {
        until: Instant,
        hold: Duration,
    },
    /// The fractions count; `hold` is how long it is unseen if no request is seen.
    Tried {
        until: Instant,
        hold: Duration,
        /// It was unseen before.
        again: bool,
        /// There were requests enough that one of a small trial would be seen. One report with few
        /// requests, as after an update of the cluster, must not make it a large one.
        small: bool,
    },
}

impl UnseenZones {
    /// Evaluates the latest reports of all nodes, which are in the zones `reporters` and report
    /// every `interval`.
    pub(super) fn evaluate(
        &mut self,
        outcomes: Option<&Outcomes>,
        reporters: &BTreeSet<Locality>,
        interval: Duration,
        now: Instant,
    ) {
        let totals = outcomes.map(Outcomes::totals).unwrap_or_default();
        let has_requests = |zone: &Locality| totals.get(zone).is_some_and(|sum| sum.is_seen());
        // Without it, proxies and hosts have no zone in common, or are in zones of other names.
        if !reporters.iter().any(has_requests) {
            *self = Self::default();
            return;
        }
        let requests = totals.values().map(|sum| sum.requests());
        let is_significant = requests.fold(0_u64, u64::saturating_add) >= SIGNIFICANT;
        let trial = interval.saturating_mul(2).saturating_add(SETTLE);
        for zone in reporters.iter().chain(totals.keys().copied()) {
            if !self.known.contains_key(zone) {
                let tried = Sight::Tried {
                    until: now.saturating_add(trial),
                    hold: HOLD,
                    again: false,
                    small: false,
                };
                self.known.insert(zone.clone(), tried);
            }
        }
        keep_first(&mut self.known, MAX_ZONES, |zone, sight| {
            (
                !reporters.contains(zone),
                !sight.was_unseen(),
                !totals.contains_key(zone),
            )
        });
        for (zone, sight) in &mut self.known {
            *sight = if has_requests(zone) {
                Sight::Seen
            } else {
                sight.without_requests(is_significant, trial, now)
            };
        }
        self.unseen = self.zones_that(|sight| matches!(sight, Sight::Unseen { .. }));
        // With few requests, none of those of a small trial might be seen.
        self.tried = self.zones_that(|sight| matches!(sight, Sight::Tried { small: true, .. }));
    }

    fn zones_that(&self, is: impl Fn(&Sight) -> bool) -> BTreeSet<Locality> {
        let zones = self.known.iter().filter(|(_, sight)| is(sight));
        zones.map(|(zone, _)| zone.clone()).collect()
    }

    /// When to evaluate next without another report.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.known.values().filter_map(|sight| match sight {
            Sight::Seen => None,
            Sight::Unseen { until, .. } | Sight::Tried { until, .. } => Some(*until),
        });
        ends.min()
    }

    pub(super) const fn zones(&self) -> &BTreeSet<Locality> {
        &self.unseen
    }

    /// Returns the zones that were unseen, or never seen, and that are tried.
    pub(super) const fn tried(&self) -> &BTreeSet<Locality> {
        &self.tried
    }
}

impl Sight {
    const fn was_unseen(&self) -> bool {
        matches!(self, Self::Unseen { .. } | Self::Tried { again: true, .. })
    }

    fn without_requests(self, is_significant: bool, trial: Duration, now: Instant) -> Self {
        let unseen = |hold| Self::Unseen {
            until: now.saturating_add(hold),
            hold,
        };
        match self {
            Self::Seen if is_significant => unseen(HOLD),
            Self::Unseen { until, hold } if until <= now => Self::Tried {
                until: now.saturating_add(trial),
                hold: hold.saturating_mul(2).min(MAX_HOLD),
                again: true,
                small: true,
            },
            Self::Tried {
                until,
                hold,
                again,
                small,
            } => match small || is_significant {
                true if until <= now => unseen(hold),
                // Nothing is known of a service with few requests: it is tried for longer.
                false if until <= now => Self::Tried {
                    until: now.saturating_add(trial),
                    hold,
                    again,
                    small: false,
                },
                small => Self::Tried {
                    until,
                    hold,
                    again,
                    small,
                },
            },
            sight => sight,
        }
    }
}

impl Outcome {
    fn is_seen(self) -> bool {
        self.requests() > 0 || self.in_progress > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::planner::outcomes::FleetOutcomes;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Returns the unseen zones after reports of requests to upstream zones, from proxies in zones
    /// a, b and c.
    fn evaluate(unseen: &mut UnseenZones, requests: &[(&str, u64)], second: u64) -> String {
        let cluster: Arc<str> = "orders".into();
        let mut sums = FleetOutcomes::default();
        for &(to, arrived) in requests {
            let outcome = Outcome {
                arrived,
                ended: arrived,
                ..Outcome::default()
            };
            let report = [(Locality::zone_only(to), outcome)];
            sums.replace(&cluster, &Locality::zone_only("a"), &[], &report);
        }
        let reporters = ["a", "b", "c"].map(Locality::zone_only).into();
        let now = Instant::from_secs(second);
        unseen.evaluate(sums.get(&Some(cluster)), &reporters, INTERVAL, now);
        let names: Vec<&str> = unseen.zones().iter().map(Locality::zone).collect();
        names.join(",")
    }

    const ALL: [(&str, u64); 3] = [("a", 80), ("b", 70), ("c", 50)];
    const WITHOUT_B: [(&str, u64); 2] = [("a", 80), ("c", 50)];

    #[test]
    fn a_zone_whose_requests_vanish_is_tried_less_and_less_often() {
        let mut unseen = UnseenZones::default();
        assert_eq!(evaluate(&mut unseen, &ALL, 0), "");
        assert_eq!(unseen.deadline(), None);
        let (mut second, mut spans) = (10, Vec::new());
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, second), "b");
        for _ in 0..7 {
            let mut span = |expected: &str| {
                let from = second;
                while evaluate(&mut unseen, &WITHOUT_B, second) == expected {
                    second += 1;
                }
                second - from
            };
            spans.push((span("b"), span("")));
        }
        let held = spans.iter().map(|(held, _)| *held);
        assert_eq!(held.collect::<Vec<_>>(), [30, 60, 120, 240, 480, 960, 960]);
        assert!(spans.iter().all(|(_, tried)| *tried == 25), "{spans:?}");
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, second + 960), "");
        assert_eq!(unseen.tried(), &[Locality::zone_only("b")].into());
        second += 960;
        // A request is enough: it is seen, and vanishes as if for the first time.
        assert_eq!(evaluate(&mut unseen, &ALL, second), "");
        assert!(unseen.tried().is_empty());
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, second + 1), "b");
        assert_eq!(unseen.deadline(), Some(Instant::from_secs(second + 31)));
    }

    /// After an update of its cluster an Envoy reports next to nothing.
    #[test]
    fn a_trial_stays_small_and_ends_whatever_single_reports_say() {
        let mut unseen = UnseenZones::default();
        evaluate(&mut unseen, &ALL, 0);
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, 10), "b");
        let b = [Locality::zone_only("b")].into();
        for second in 40..65 {
            let few = [("a", 60), ("c", 39)];
            assert_eq!(evaluate(&mut unseen, &few, second), "");
            assert_eq!(unseen.tried(), &b, "after {second} s");
        }
        assert_eq!(evaluate(&mut unseen, &[("a", 9)], 65), "b");
    }

    #[test]
    fn a_zone_that_was_never_seen_is_tried_first() {
        let mut unseen = UnseenZones::default();
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, 0), "");
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, 24), "");
        let b = [Locality::zone_only("b")].into();
        assert_eq!(
            unseen.tried(),
            &b,
            "it may be dead since before the restart"
        );
        assert_eq!(evaluate(&mut unseen, &WITHOUT_B, 25), "b");
        let mut unseen = UnseenZones::default();
        evaluate(&mut unseen, &[("a", 60), ("c", 39)], 0);
        assert!(unseen.tried().is_empty(), "few requests");
    }

    #[test]
    fn nothing_is_concluded_from_few_requests_or_without_a_common_zone() {
        let mut unseen = UnseenZones::default();
        evaluate(&mut unseen, &ALL, 0);
        for second in 1..300 {
            assert_eq!(evaluate(&mut unseen, &[("a", 60), ("c", 39)], second), "");
        }
        let mut unseen = UnseenZones::default();
        for second in 1..300 {
            assert_eq!(evaluate(&mut unseen, &[("elsewhere", 900)], second), "");
        }
        assert_eq!(unseen.deadline(), None);
    }

    #[test]
    fn names_from_the_network_are_bounded() {
        let mut unseen = UnseenZones::default();
        let names: Vec<String> = (0..2000).map(|index| format!("z{index}")).collect();
        let named = names.iter().map(|name| (name.as_str(), 10));
        let report: Vec<_> = named.chain([("a", 10)]).collect();
        evaluate(&mut unseen, &report[..1000], 0);
        evaluate(&mut unseen, &report[1000..], 10);
        assert_eq!(unseen.known.len(), MAX_ZONES);
        let is_known = |name| unseen.known.contains_key(&Locality::zone_only(name));
        assert!(
            ["a", "b", "c"].into_iter().all(is_known),
            "zones with proxies"
        );
        assert!(is_known("z1000") && !is_known("z0"), "the latest reports");
    }
}
