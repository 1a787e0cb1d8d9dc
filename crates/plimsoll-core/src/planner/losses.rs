//! [`Losses`]: the part of the requests between zones that fails there and not elsewhere.
//!
//! Where one host of five refuses connections, a fifth of the requests to its zone fails. That is
//! no failing zone ([`super::failing`]) that anybody is woken up for, but a zone into which demand
//! spills a quarter of all requests then fails five in a hundred more. So a plan has these shares,
//! and [`Plan::caution`](super::Plan::caution) weighs them with what demand would move.
//!
//! The network between two zones can fail alone, and most requests to a zone come from itself: in
//! the sum over all proxies hardly any fail. So shares are kept for the sum and for the proxies of
//! each zone. If host counts send nothing over such a [`Link`], its share ends without evidence;
//! each time that it comes back it stays twice as long, like a failing zone.

use std::collections::{BTreeMap, BTreeSet};

use super::failing::{Compared, Failure, keep_first};
use crate::model::locality::Locality;
use crate::time::Instant;

/// Smallest share that counts: with less, no spill fails half a percent of the requests.
const WORTH: f64 = 0.01;
/// Factors by which a share must move to be another one: plans must not follow chance.
const RISE: f64 = 1.25;
const FALL: f64 = 0.5;
/// Most shares that are remembered: names of zones come from the network. Enough for 30 zones that
/// all fail; sums over all proxies, and zones with proxies, go first.
const MAX_LINKS: usize = 1024;

/// The requests from the proxies of one zone to the hosts of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// `None` = the sum over the proxies of all zones.
    pub from: Option<Locality>,
    pub to: Locality,
}

/// The losses of one scope.
#[derive(Debug, Default)]
pub(super) struct Losses {
    shares: BTreeMap<Link, f64>,
    /// Links that have a share, or had one a while ago.
    known: BTreeMap<Link, Failure>,
}

impl Losses {
    /// Evaluates the latest reports of all nodes, which are in the zones `reporters`.
    pub(super) fn evaluate(
        &mut self,
        compared: &[Compared<'_>],
        reporters: &BTreeSet<Locality>,
        now: Instant,
    ) {
        for (link, share) in compared.iter().filter_map(lost) {
            let before = self.shares.get(&link).copied();
            let stays =
                before.is_some_and(|before| (before * FALL..=before * RISE).contains(&share));
            if !stays {
                self.shares.insert(link.clone(), share);
            }
            let known = self.known.get(&link);
            let failure = known.map_or(Failure::new(now), |failure| failure.again(now));
            self.known.insert(link, failure);
        }
        self.known.retain(|_, failure| now < failure.forgotten_at());
        keep_first(&mut self.known, MAX_LINKS, |link, _| {
            (!reporters.contains(&link.to), link.from.is_some())
        });
        let known = &self.known;
        self.shares.retain(|link, _| {
            let failure = known.get(link);
            failure.is_some_and(|failure| now < failure.recovers_at())
        });
    }

    /// When to evaluate next without another report: a share may have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let failures = self.shares.keys().filter_map(|link| self.known.get(link));
        failures.map(|failure| failure.recovers_at()).min()
    }

    /// Returns the shares by link, 0 to 1.
    pub(super) const fn shares(&self) -> &BTreeMap<Link, f64> {
        &self.shares
    }
}

/// Part of the share that fails on a link, below which less fails on the others.
const FAILS_ALIKE: f64 = 0.8;

/// Returns the zones of proxies whose requests to `zone` fail while those of others do not; empty
/// if nothing is known to fail, or if all fail alike.
pub(super) fn fails_only_from<'a>(
    shares: &'a BTreeMap<Link, f64>,
    zone: &Locality,
) -> Vec<&'a Locality> {
    let into_zone = || shares.iter().filter(|(link, _)| link.to == *zone);
    let highest = into_zone().map(|(_, share)| *share).fold(0.0, f64::max);
    let mut of_all = into_zone().filter(|(link, _)| link.from.is_none());
    let of_all = of_all.next().map_or(0.0, |(_, share)| *share);
    if of_all >= highest * FAILS_ALIKE {
        return Vec::new();
    }
    let more = into_zone().filter(|(_, share)| **share > of_all);
    more.filter_map(|(link, _)| link.from.as_ref()).collect()
}

/// Returns the share if it counts: at the lower end of what chance allows, beyond the share that
/// fails in the best of the other zones. A service that fails everywhere alike fails wherever its
/// requests go.
fn lost(compared: &Compared<'_>) -> Option<(Link, f64)> {
    let share = compared.outcome.failed_at_least() - compared.elsewhere;
    (share >= WORTH).then(|| (compared.link(), share))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::planner::failing::compared;
    use crate::planner::outcomes::{FleetOutcomes, Outcome};

    /// Upstream zone, requests that arrived, requests that failed.
    type Reported = (&'static str, u64, u64);

    fn sums(reports: impl Iterator<Item = (&'static str, Reported)>) -> FleetOutcomes {
        let cluster: Arc<str> = "orders".into();
        let mut sums = FleetOutcomes::default();
        for (from, (to, arrived, failed)) in reports {
            let outcome = Outcome {
                arrived,
                ended: arrived,
                failed,
                in_progress: 0,
            };
            let report = [(Locality::zone_only(to), outcome)];
            sums.replace(&cluster, &Locality::zone_only(from), &[], &report);
        }
        sums
    }

    fn evaluate_sums(losses: &mut Losses, sums: &FleetOutcomes, second: u64) {
        let reporters = [Locality::zone_only("a")].into();
        let compared = compared(sums.get(&None).unwrap());
        losses.evaluate(&compared, &reporters, Instant::from_secs(second));
    }

    /// Returns the shares of the sums over all proxies.
    fn evaluate(losses: &mut Losses, reports: &[Reported], second: u64) -> Vec<(String, u32)> {
        evaluate_sums(losses, &sums(reports.iter().map(|one| ("a", *one))), second);
        let percent = |share: f64| (0..=100).find(|&at| share <= f64::from(at) / 100.0);
        let shares = losses
            .shares()
            .iter()
            .filter(|(link, _)| link.from.is_none());
        shares
            .map(|(link, share)| {
                (
                    link.to.zone().to_owned(),
                    percent(*share).unwrap_or(u32::MAX),
                )
            })
            .collect()
    }

    fn only(zone: &str, percent: u32) -> Vec<(String, u32)> {
        vec![(zone.to_owned(), percent)]
    }

    #[test]
    fn a_share_counts_beyond_chance_and_beyond_what_fails_elsewhere() {
        type Case<'a> = (&'a str, &'a [Reported], Vec<(String, u32)>);
        let cases: [Case<'_>; 6] = [
            ("nothing fails", &[("a", 900, 0), ("b", 900, 0)], vec![]),
            (
                "one host of five",
                &[("a", 9000, 0), ("b", 9000, 1800)],
                only("b", 20),
            ),
            (
                "all of it",
                &[("a", 9000, 0), ("b", 9000, 9000)],
                only("b", 99),
            ),
            (
                "the service, everywhere",
                &[("a", 9000, 900), ("b", 9000, 930), ("c", 9000, 870)],
                vec![],
            ),
            ("chance", &[("a", 90, 0), ("b", 90, 3)], vec![]),
            ("nothing to compare with", &[("b", 90, 45)], vec![]),
        ];
        for (name, reports, expected) in cases {
            assert_eq!(
                evaluate(&mut Losses::default(), reports, 0),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_share_stays_until_it_is_another_one_or_has_ended_for_a_while() {
        let mut losses = Losses::default();
        let mut at = |failed, second| {
            let shares = evaluate(&mut losses, &[("a", 9000, 0), ("b", 9000, failed)], second);
            (shares, losses.deadline())
        };
        let (first, deadline) = at(1800, 0);
        assert_eq!(
            (first, deadline),
            (only("b", 20), Some(Instant::from_secs(30)))
        );
        assert_eq!(at(2000, 10).0, only("b", 20), "chance");
        assert_eq!(at(4500, 20).0, only("b", 49), "half of its hosts");
        assert_eq!(at(900, 30).0, only("b", 10));
        assert_eq!(at(0, 59).0, only("b", 10));
        assert_eq!(at(0, 60), (vec![], None));
    }

    /// Proxies of zone a lose a fifth of their requests to zone b, which answers its own.
    #[test]
    fn a_link_that_fails_alone_has_a_share_that_is_not_diluted() {
        let mut losses = Losses::default();
        let mut at = |failed, second| {
            let reports = [
                ("a", ("a", 9000, 0)),
                ("a", ("b", 1000, failed)),
                ("b", ("b", 9000, 0)),
            ];
            evaluate_sums(&mut losses, &sums(reports.into_iter()), second);
            let from = |from: Option<&str>| {
                let link = Link {
                    from: from.map(Locality::zone_only),
                    to: Locality::zone_only("b"),
                };
                losses.shares().get(&link).copied().unwrap_or_default()
            };
            [from(Some("a")), from(Some("b")), from(None)]
        };
        let [of_a, of_b, of_all] = at(190, 0);
        assert!((0.15..0.19).contains(&of_a), "{of_a}");
        assert!(of_b < f64::EPSILON && of_all < 0.02, "{of_b} {of_all}");
        // Host counts send nothing over the link, until demand does again: it fails for longer.
        assert!(at(0, 29)[0] > 0.15);
        assert!(at(0, 30)[0] < f64::EPSILON);
        assert!(at(190, 40)[0] > 0.15);
        assert!(at(0, 99)[0] > 0.15);
        assert!(at(0, 100)[0] < f64::EPSILON);
    }

    #[test]
    fn names_from_the_network_are_bounded_and_zones_with_proxies_stay() {
        let mut report: Vec<_> = (0..2000)
            .map(|index| (Locality::zone_only(&format!("a{index}")), 100))
            .collect();
        report.push((Locality::zone_only("z"), 0));
        report.push((Locality::zone_only("b"), 100));
        let outcome = |failed| Outcome {
            arrived: 100,
            ended: 100,
            failed,
            in_progress: 0,
        };
        let report: Vec<_> = report
            .into_iter()
            .map(|(to, failed)| (to, outcome(failed)))
            .collect();
        let mut sums = FleetOutcomes::default();
        sums.replace(&"orders".into(), &Locality::zone_only("a"), &[], &report);
        let mut losses = Losses::default();
        let compared = compared(sums.get(&None).unwrap());
        let reporters = ["a", "b"].map(Locality::zone_only).into();
        losses.evaluate(&compared, &reporters, Instant::ORIGIN);
        assert_eq!(losses.shares().len(), MAX_LINKS);
        let at_b = losses.shares().keys().filter(|link| link.to.zone() == "b");
        assert_eq!(at_b.count(), 2);
    }
}
