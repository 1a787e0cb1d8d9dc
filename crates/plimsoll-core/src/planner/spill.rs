//! [`Plan::caution`]: failing zones that measured demand would send more requests to than host
//! counts do.
//!
//! Not every zone whose requests fail is a reason to stop: the hot zone that refuses what it cannot
//! serve fails because host counts overload it, and only measured demand relieves it. What counts
//! is whether following the plan sends more requests into the failing zone.

use std::collections::{BTreeMap, BTreeSet};

use super::fractions::ZoneFraction;
use super::losses::{Link, fails_only_from};
use super::plan::Plan;
use super::weights::locality_weights;
use crate::counts::HostSetCounts;
use crate::model::locality::Locality;
use crate::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use crate::units::BASIS_POINTS;

/// Increase, as a share of all requests, that is not worth a change: fractions are rounded.
const TOLERANCE: f64 = 0.005;
/// Share of all requests that may fail because demand steers.
const MAX_LOSS: f64 = 0.005;
/// Share of all requests that are sent to a zone to see whether it answers.
const TRIAL: f64 = 0.02;
/// Highest ramp of a trial, in percent.
const TRIAL_RAMP: u32 = 50;

/// Where the requests to one upstream cluster can go.
#[derive(Clone, Copy, Debug)]
pub struct Spill<'a> {
    /// Zone-aware rules of the cluster as it is steered.
    pub rules: &'a ZoneAware,
    /// Hosts of the cluster.
    pub upstream: &'a HostSetCounts,
    /// Proxies of the fleet.
    pub fleet: &'a HostSetCounts,
    /// Whether proxies check the hosts. Outlier detection is no substitute: by default it ejects a
    /// tenth of the hosts, and it learns nothing from the requests that load reports lack, too.
    pub has_health_checks: bool,
    /// Whether proxies can be sent locality weights, and with them a lower ramp.
    pub has_locality_weights: bool,
}

/// What keeps measured demand from steering a cluster as it would if all of its zones worked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caution {
    /// Zones of which requests are known to fail, and that would get or fail more of them than by
    /// host counts.
    pub failing: BTreeSet<Locality>,
    /// Other zones, to which no request is reported any more, and that would get more.
    pub unseen: BTreeSet<Locality>,
    /// Highest ramp in percent with which to follow the plan, while zones are tried that were
    /// unseen or never seen.
    pub ramp: Option<u32>,
}

impl Caution {
    /// Whether proxies must be sent host counts.
    pub fn withholds(&self) -> bool {
        !self.failing.is_empty() || !self.unseen.is_empty()
    }
}

impl Plan {
    /// Returns what keeps this plan from steering. `in_force` is every set of fractions that
    /// proxies may follow: the assignment of the fleet has the demand of all its clusters.
    pub fn caution(&self, spill: Spill<'_>, in_force: &[&[ZoneFraction]]) -> Caution {
        let mut caution = Caution::default();
        for zones in in_force {
            self.add_spilled_into(spill, zones, &mut caution);
        }
        if spill.has_health_checks {
            // Nobody sends to hosts that fail their checks, so nobody sees requests to them.
            caution.unseen.clear();
        } else if spill.has_locality_weights {
            let ramps = in_force.iter();
            caution.ramp = ramps
                .filter_map(|zones| self.trial_ramp(spill, zones))
                .min();
        }
        caution.unseen = &caution.unseen - &caution.failing;
        caution
    }

    /// Returns the zones of proxies whose requests to `zone` fail while those of others do not;
    /// empty if nothing is known to fail, or if all fail alike.
    pub fn fails_only_from(&self, zone: &Locality) -> Vec<&Locality> {
        fails_only_from(&self.failed_shares, zone)
    }

    fn failed_share(&self, from: Option<&Locality>, to: &Locality) -> f64 {
        let link = Link {
            from: from.cloned(),
            to: to.clone(),
        };
        self.failed_shares.get(&link).copied().unwrap_or_default()
    }

    /// Adds the failing and unseen zones that would get more requests than by host counts, if
    /// proxies followed `in_force`, which need not be the fractions of this plan. Also adds the
    /// zones into which these would move requests of which more than half a percent of all would
    /// fail, although few of each zone do.
    fn add_spilled_into(&self, spill: Spill<'_>, in_force: &[ZoneFraction], caution: &mut Caution) {
        let nothing_fails = self.failing.is_empty() && self.failed_shares.is_empty();
        if (nothing_fails && self.unseen.is_empty()) || in_force.is_empty() || !self.has_data() {
            return;
        }
        let increases = self.increases(spill, in_force);
        let into = by_zone(&increases);
        let attracts = |zone: &&Locality| into.get(zone).is_some_and(|&by| by > TOLERANCE);
        caution
            .failing
            .extend(self.failing.iter().filter(attracts).cloned());
        caution
            .unseen
            .extend(self.unseen.iter().filter(attracts).cloned());
        let loss = |((from, to), by): (&(Locality, Locality), &f64)| {
            (to.clone(), by * self.share_of_moved(from, to, *by))
        };
        let losses: Vec<_> = increases.iter().map(loss).collect();
        if losses.iter().map(|(_, loss)| loss).sum::<f64>() > MAX_LOSS {
            let more = losses.into_iter().filter(|(_, loss)| *loss > 0.0);
            caution.failing.extend(more.map(|(zone, _)| zone));
        }
    }

    /// Returns the share of failures among requests that move into a link or, if `by` is negative,
    /// out of it. Little is known of a link with few requests: it may fail like the others, but
    /// nothing is gained by leaving it if only others fail.
    fn share_of_moved(&self, from: &Locality, to: &Locality, by: f64) -> f64 {
        let own = self.failed_share(Some(from), to);
        let of_all = self.failed_share(None, to);
        if by > 0.0 {
            own.max(of_all)
        } else if own > 0.0 || !self.fails_only_from(to).is_empty() {
            own
        } else {
            of_all
        }
    }

    /// Returns the ramp in percent with which to follow this plan while zones are tried
    /// ([`Plan::tried`]), if `in_force` would send them more than two requests in a hundred
    /// more than host counts do: one request that is reported is enough to know that a zone
    /// answers, and all of them may fail. The ramp starts from host counts and moves requests
    /// ([`ramped_weights`](super::weights::ramped_weights)). `None` if nothing is tried.
    fn trial_ramp(&self, spill: Spill<'_>, in_force: &[ZoneFraction]) -> Option<u32> {
        if self.tried.is_empty() || in_force.is_empty() || !self.has_data() {
            return None;
        }
        let increase = |zones: &[ZoneFraction]| -> f64 {
            let increases = self.increases(spill, zones);
            let into = by_zone(&increases);
            let tried = self.tried.iter();
            tried.filter_map(|zone| into.get(zone)).sum()
        };
        if increase(in_force) <= TRIAL {
            return None;
        }
        let whole = increase(&self.zones);
        let fits = |ramp: &u32| f64::from(*ramp) / 100.0 * whole <= TRIAL;
        (1..=TRIAL_RAMP).rev().find(fits).or(Some(1))
    }

    /// Returns how many more requests each zone would send to each than by host counts, as a share
    /// of all requests, if proxies followed `in_force`.
    fn increases(&self, spill: Spill<'_>, in_force: &[ZoneFraction]) -> Flows {
        let flows = |basis, zones: &[ZoneFraction]| {
            let rules = spill
                .rules
                .clone()
                .with_locality_basis(basis, FractionSource::EdsField);
            flows(&rules, spill, zones, &self.zones)
        };
        let mut increases = flows(LocalityBasis::LrsReportedRate, in_force);
        for (link, rate) in flows(LocalityBasis::HealthyHostsNum, &[]) {
            *increases.entry(link).or_default() -= rate;
        }
        let all: f64 = self.zones.iter().map(|zone| zone.rate_per_second).sum();
        increases
            .values_mut()
            .for_each(|rate| *rate /= all.max(f64::MIN_POSITIVE));
        increases
    }
}

/// Requests from zone to zone.
type Flows = BTreeMap<(Locality, Locality), f64>;

fn by_zone(flows: &Flows) -> BTreeMap<&Locality, f64> {
    let mut sums: BTreeMap<&Locality, f64> = BTreeMap::new();
    for ((_, to), rate) in flows {
        *sums.entry(to).or_default() += rate;
    }
    sums
}

/// Returns the requests per second between zones, if proxies assume the demand of `zones` (empty =
/// host counts) and `demand` arrives.
#[expect(clippy::cast_precision_loss, reason = "basis points")]
fn flows(
    rules: &ZoneAware,
    spill: Spill<'_>,
    zones: &[ZoneFraction],
    demand: &[ZoneFraction],
) -> Flows {
    let mut flows = Flows::new();
    for receiver in locality_weights(rules, spill.upstream, Some(spill.fleet), zones) {
        let here = demand
            .iter()
            .find(|zone| zone.locality == receiver.receiver);
        let rate = here.map_or(0.0, |zone| zone.rate_per_second);
        for (to, weight) in receiver.weights {
            let share = f64::from(weight.unwrap_or(0)) / BASIS_POINTS as f64;
            let link = (receiver.receiver.clone(), to);
            *flows.entry(link).or_default() += rate * share;
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
    use crate::planner::fractions::{ReportedZone, fractions};
    use crate::planner::{PlanScope, UpdateCause};
    use crate::time::Instant;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn counts(hosts: [u8; 3]) -> HostSetCounts {
        let localities = NAMES
            .iter()
            .zip(hosts)
            .zip(0..)
            .map(|((name, hosts), net)| {
                let address = |host| SocketAddr::from(([10, 0, net, host], 80));
                LocalityParts::new(Locality::zone_only(name), (0..hosts).map(address))
            });
        let parts = AssignmentParts::new("orders", localities);
        let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
        HostSetCounts::of_assignment(&assignment, 0, None)
    }

    /// Returns a plan for this demand of zones a, b and c.
    fn plan(demand: [f64; 3]) -> Plan {
        let reported = |rate_per_second| ReportedZone {
            rate_per_second,
            reporters: 1,
        };
        let rates = NAMES.iter().zip(demand);
        let zones = rates.map(|(name, rate)| (Locality::zone_only(name), reported(rate)));
        Plan {
            scope: PlanScope {
                fleet: "edge".into(),
                upstream_cluster: None,
            },
            generation: 1,
            cause: UpdateCause::Heartbeat,
            warming_up: false,
            observed_at: Instant::ORIGIN,
            zones: fractions(&zones.collect(), None).unwrap(),
            failing: BTreeSet::new(),
            unseen: BTreeSet::new(),
            tried: BTreeSet::new(),
            failed_shares: BTreeMap::new(),
        }
    }

    fn zones(names: &[&str]) -> BTreeSet<Locality> {
        names.iter().map(|zone| Locality::zone_only(zone)).collect()
    }

    fn link(from: Option<&str>, to: &str) -> Link {
        Link {
            from: from.map(Locality::zone_only),
            to: Locality::zone_only(to),
        }
    }

    fn names(zones: &BTreeSet<Locality>) -> String {
        let names: Vec<&str> = zones.iter().map(Locality::zone).collect();
        names.join(",")
    }

    /// Calls `judge` for a cluster with these hosts and a fleet with these proxies.
    fn with_hosts<T>(hosts: [u8; 3], proxies: [u8; 3], judge: impl Fn(Spill<'_>) -> T) -> T {
        judge(Spill {
            rules: &ZoneAware::default().with_min_cluster_size(1),
            upstream: &counts(hosts),
            fleet: &counts(proxies),
            has_health_checks: false,
            has_locality_weights: true,
        })
    }

    fn spilled_into(
        failing: &[&str],
        demand: [f64; 3],
        hosts: [u8; 3],
        proxies: [u8; 3],
    ) -> String {
        let plan = Plan {
            failing: zones(failing),
            ..plan(demand)
        };
        let found = with_hosts(hosts, proxies, |spill| plan.caution(spill, &[&plan.zones]));
        names(&found.failing)
    }

    #[test]
    fn only_zones_that_get_more_than_by_host_counts_are_spilled_into() {
        let even = [4, 4, 4];
        for (failing, demand, expected) in [
            // Overloaded by host counts: measured demand relieves it.
            (&["a"][..], [60.0, 20.0, 20.0], ""),
            // Dead, and seems to have capacity to spare.
            (&["b"], [60.0, 20.0, 20.0], "b"),
            (&["b", "c"], [60.0, 20.0, 20.0], "b,c"),
            (&["a", "b"], [60.0, 20.0, 20.0], "b"),
            // Dead, and its own demand fills it: 35 % of the demand, 33.3 % of the hosts.
            (&["b"], [40.0, 35.0, 25.0], ""),
            (&["c"], [40.0, 35.0, 25.0], "c"),
            (&["a"], [33.0, 33.0, 34.0], ""),
            (&[], [60.0, 20.0, 20.0], ""),
            (&["b"], [0.0, 0.0, 10.0], "b"),
        ] {
            let found = spilled_into(failing, demand, even, [1, 1, 1]);
            assert_eq!(found, expected, "{failing:?} {demand:?}");
        }
    }

    #[test]
    fn host_counts_may_send_a_zone_less_than_its_share() {
        // By host counts zone a keeps half: it has two thirds of the proxies, a third of the hosts.
        let found = spilled_into(&["a"], [33.0, 33.0, 34.0], [4, 4, 4], [4, 1, 1]);
        assert_eq!(found, "a");
        let found = spilled_into(&["a"], [33.0, 33.0, 34.0], [4, 4, 4], [1, 1, 1]);
        assert_eq!(found, "");
    }

    #[test]
    fn a_locality_without_hosts_gets_nothing() {
        assert_eq!(
            spilled_into(&["b"], [50.0, 1.0, 50.0], [4, 0, 4], [1; 3]),
            ""
        );
    }

    /// The fleet's assignment has the demand of all its clusters, of which this one is a part.
    #[test]
    fn what_proxies_are_sent_decides_and_not_the_demand_for_the_cluster() {
        let orders = Plan {
            failing: zones(&["b"]),
            ..plan([33.0, 33.0, 34.0])
        };
        let fleet = plan([833.0, 133.0, 134.0]);
        let found = |in_force: &Plan| {
            with_hosts([4; 3], [1; 3], |spill| {
                orders.caution(spill, &[&in_force.zones])
            })
        };
        assert_eq!(names(&found(&orders).failing), "");
        assert_eq!(names(&found(&fleet).failing), "b");
        let host_counts = with_hosts([4; 3], [1; 3], |spill| orders.caution(spill, &[]));
        assert_eq!(host_counts, Caution::default());
    }

    #[test]
    fn zones_that_fail_a_little_count_by_what_demand_would_move_into_them() {
        let even = [4, 4, 4];
        let hot = [60.0, 20.0, 20.0];
        for (shares, demand, expected) in [
            // 13 % of all requests move into b, where one host of five is dead: 2.7 % more fail.
            (&[("b", 0.2)][..], hot, "b"),
            (&[("b", 0.02)], hot, ""),
            (&[("b", 0.03), ("c", 0.03)], hot, "b,c"),
            // Requests leave a zone that refuses as many.
            (&[("a", 0.1), ("b", 0.1)], hot, ""),
            (&[("a", 0.1), ("b", 0.3)], hot, "b"),
            (&[("b", 0.2)], [36.0, 34.0, 30.0], ""),
        ] {
            let share = |(zone, share): &(&str, f64)| (link(None, zone), *share);
            let plan = Plan {
                failed_shares: shares.iter().map(share).collect(),
                ..plan(demand)
            };
            let found = with_hosts(even, [1; 3], |spill| plan.caution(spill, &[&plan.zones]));
            assert_eq!(names(&found.failing), expected, "{shares:?} {demand:?}");
            assert!(found.unseen.is_empty());
        }
    }

    /// Where one link fails alone, the sum over all proxies hides it.
    #[test]
    fn a_link_counts_by_what_demand_would_move_over_it() {
        let of_a = (Some("a"), "b", 0.19);
        let of_all = (None, "b", 0.03);
        for (shares, demand, expected, only_from) in [
            // 13 % of all requests move from a to b: 2.5 % more fail.
            (&[of_a, of_all][..], [60.0, 20.0, 20.0], "b", "a"),
            (&[of_all], [60.0, 20.0, 20.0], "", ""),
            // Only c has requests to spare.
            (&[of_a, of_all], [20.0, 20.0, 60.0], "", "a"),
            (&[of_a, (None, "b", 0.18)], [60.0, 20.0, 20.0], "b", ""),
            // What b keeps fails less than what a sends.
            (&[(Some("c"), "b", 0.19)], [60.0, 20.0, 20.0], "", "c"),
        ] {
            let share = |(from, to, share): &(Option<&str>, &str, f64)| (link(*from, to), *share);
            let plan = Plan {
                failed_shares: shares.iter().map(share).collect(),
                ..plan(demand)
            };
            let found = with_hosts([4; 3], [1; 3], |spill| plan.caution(spill, &[&plan.zones]));
            assert_eq!(names(&found.failing), expected, "{shares:?} {demand:?}");
            let zone_b = Locality::zone_only("b");
            let from: Vec<&str> = plan
                .fails_only_from(&zone_b)
                .iter()
                .map(|it| it.zone())
                .collect();
            assert_eq!(from.join(","), only_from, "{shares:?}");
        }
    }

    #[test]
    fn health_checks_explain_an_unseen_zone_and_outlier_detection_does_not() {
        let plan = Plan {
            unseen: zones(&["b"]),
            tried: zones(&["c"]),
            ..plan([60.0, 20.0, 20.0])
        };
        for (has_health_checks, has_locality_weights, expected) in [
            (false, true, ("b", true)),
            (false, false, ("b", false)),
            (true, true, ("", false)),
        ] {
            let caution = with_hosts([4; 3], [1; 3], |spill| {
                let spill = Spill {
                    has_health_checks,
                    has_locality_weights,
                    ..spill
                };
                plan.caution(spill, &[&plan.zones])
            });
            let found = (names(&caution.unseen), caution.ramp.is_some());
            assert_eq!((found.0.as_str(), found.1), expected);
            assert_eq!(caution.withholds(), !expected.0.is_empty());
        }
    }

    #[test]
    fn an_unseen_zone_is_told_apart_from_a_failing_one() {
        let plan = Plan {
            unseen: zones(&["b"]),
            failing: zones(&["c"]),
            ..plan([60.0, 20.0, 20.0])
        };
        let found = with_hosts([4; 3], [1; 3], |spill| plan.caution(spill, &[&plan.zones]));
        assert_eq!(
            (names(&found.failing), names(&found.unseen)),
            ("c".into(), "b".into())
        );
    }

    #[test]
    fn a_trial_sends_two_requests_in_a_hundred_more_into_the_zone() {
        for (demand, tried, is_tried) in [
            ([65.0, 0.0, 35.0], &["b"][..], true),
            ([40.0, 30.0, 30.0], &["b"], true),
            ([50.0, 0.0, 50.0], &["b"], true),
            ([60.0, 20.0, 20.0], &["b", "c"], true),
            ([36.0, 33.0, 31.0], &["b"], false),
            ([60.0, 20.0, 20.0], &["a"], false),
            ([60.0, 20.0, 20.0], &[], false),
        ] {
            let plan = Plan {
                tried: zones(tried),
                ..plan(demand)
            };
            let (ramp, increase) = with_hosts([4; 3], [1; 3], |spill| {
                let ramp = plan.trial_ramp(spill, &plan.zones);
                let increases = plan.increases(spill, &plan.zones);
                let into = by_zone(&increases);
                let tried = plan.tried.iter().filter_map(|zone| into.get(zone));
                let part = f64::from(ramp.unwrap_or(100)) / 100.0;
                (ramp, part * tried.sum::<f64>())
            });
            assert_eq!(ramp.is_some(), is_tried, "{demand:?} {tried:?}");
            if is_tried {
                assert!((0.01..=TRIAL).contains(&increase), "{demand:?}: {increase}");
            }
        }
    }

    /// What is in force need not be the demand for this cluster.
    #[test]
    fn a_trial_follows_the_demand_for_the_cluster() {
        let orders = Plan {
            tried: zones(&["b"]),
            ..plan([33.0, 33.0, 34.0])
        };
        let fleet = plan([833.0, 133.0, 134.0]);
        let ramp = with_hosts([4; 3], [1; 3], |spill| {
            orders.trial_ramp(spill, &fleet.zones)
        });
        assert_eq!(ramp, Some(50));
    }
}
