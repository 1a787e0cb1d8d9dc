//! Stage 1 of load_aware_locality: the mean of the load reports of a slot's hosts, and how old they
//! are. Called by `load_aware` on every tick.

use crate::model::load_aware_locality::{LoadAwareLocality, SpillController};
use crate::snapshot::HostList;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotAverage {
    pub(super) eligible: u64,
    pub(super) utilization: Option<f64>,
    /// Mean age of the averaged load reports, in seconds; of the newest if all have expired.
    pub(super) age: f64,
    /// Age of the newest load report, expired or not, in seconds; 0 if there never was one.
    pub(super) newest_age: f64,
}

/// Number of hosts that must effectively contribute to a mean: one host's report is mostly noise.
const MIN_EFFECTIVE_HOSTS: f64 = 3.0;
const MAX_WINDOW_DOUBLINGS: i32 = 5;

/// A host is silent when its report is older than this and than so many times the mean age of the
/// younger half of the reports. If hosts report independently of each other, one in twenty reports
/// is that old by chance; with a smaller factor a mean of few requests would lose more of them.
const SILENT_SECONDS: f64 = 15.0;
const SILENT_AGES: f64 = 10.0;

/// Stage 1: averages valid load reports. CONVERGENT weighs them by freshness, because with few
/// requests a report may be older than the smoothing time. If one or two hosts would decide, the
/// window is widened; the controller learns the resulting age. It is not widened to hosts that
/// fell silent while others report: their last numbers do not answer to a correction.
pub(super) fn average_reports(
    hosts: HostList<'_>,
    settings: &LoadAwareLocality,
    now: Instant,
) -> SlotAverage {
    let reports = valid_reports(hosts, settings, now);
    let sums = match settings.spill_controller() {
        SpillController::Headroom => WeightedSums::of(&reports, |_| 1.0),
        SpillController::Convergent => {
            recent_sums(reports, settings.smoothing_time_constant().as_secs_f64())
        }
    };
    let newest_age = newest_report_age(hosts, now);
    let valid = sums.weights > 0.0;
    SlotAverage {
        eligible: u64::from(hosts.len()),
        utilization: valid.then(|| sums.utilization / sums.weights),
        age: if valid {
            sums.ages / sums.weights
        } else {
            newest_age
        },
        newest_age,
    }
}

/// Stage 1, for slots whose requests fail: a utilization below the mean of the other slots is that
/// of hosts that do no work, and attracts requests. Under CONVERGENT it is no measurement, as if
/// reports had stopped; HEADROOM weighs localities without reports higher than any other, so there
/// the slot counts as average, and is not preferred if it is the local one. Returns the slots that
/// were changed.
pub(super) fn discount(
    averages: &mut [SlotAverage],
    fails: &[bool],
    controller: SpillController,
) -> Vec<bool> {
    let (mut hosts, mut load) = (0.0, 0.0);
    for (average, _) in averages.iter().zip(fails).filter(|(_, fails)| !**fails) {
        if let Some(utilization) = average.utilization {
            #[expect(clippy::cast_precision_loss, reason = "host counts")]
            let eligible = average.eligible as f64;
            hosts += eligible;
            load += eligible * utilization;
        }
    }
    let mean = load / hosts;
    let discount = |(average, fails): (&mut SlotAverage, &bool)| {
        // Nothing to compare with: the mean is not a number.
        let is_low = match (average.utilization, controller) {
            (Some(utilization), _) => utilization < mean,
            (None, SpillController::Headroom) => mean > 0.0,
            (None, SpillController::Convergent) => false,
        };
        if *fails && is_low {
            average.utilization = match controller {
                SpillController::Headroom => Some(mean),
                SpillController::Convergent => None,
            };
        }
        *fails && is_low
    };
    averages.iter_mut().zip(fails).map(discount).collect()
}

/// A load report that has not expired.
#[derive(Clone, Copy, Debug)]
struct Report {
    utilization: f64,
    /// Seconds since the report arrived.
    age: f64,
}

fn valid_reports(hosts: HostList<'_>, settings: &LoadAwareLocality, now: Instant) -> Vec<Report> {
    let expiration = settings.weight_expiration_period();
    let report = |(utilization, at)| {
        let age = now.saturating_duration_since(at);
        let is_valid = expiration.is_none_or(|expiration| age <= expiration);
        is_valid.then_some(Report {
            utilization,
            age: age.as_secs_f64(),
        })
    };
    let reports = hosts.iter().filter_map(|host| host.utilization());
    reports.filter_map(report).collect()
}

fn newest_report_age(hosts: HostList<'_>, now: Instant) -> f64 {
    let reports = hosts.iter().filter_map(|host| host.utilization());
    let newest = reports.map(|(_, at)| at).max();
    newest.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64())
}

/// Weighs reports by freshness, without those of hosts that fell silent.
fn recent_sums(mut reports: Vec<Report>, tau: f64) -> WeightedSums {
    let limit = silence_age(&mut reports);
    reports.retain(|report| report.age <= limit);
    let mut sums = WeightedSums::default();
    for doublings in 0..=MAX_WINDOW_DOUBLINGS {
        let tau = tau * 2.0_f64.powi(doublings);
        sums = WeightedSums::of(&reports, |age| (-age / tau).exp().max(1e-9));
        if sums.has_enough_hosts() {
            break;
        }
    }
    sums
}

/// Returns the age from which on a host counts as silent. Reorders the reports.
#[expect(clippy::cast_precision_loss, reason = "host counts")]
fn silence_age(reports: &mut [Report]) -> f64 {
    let half = (reports.len() / 2).max(1);
    if half < reports.len() {
        reports.select_nth_unstable_by(half, |one, other| one.age.total_cmp(&other.age));
    }
    let younger = reports.iter().take(half);
    let ages: f64 = younger.map(|report| report.age).sum();
    SILENT_SECONDS.max(SILENT_AGES * ages / half as f64)
}

#[derive(Clone, Copy, Debug, Default)]
struct WeightedSums {
    reports: f64,
    weights: f64,
    squares: f64,
    utilization: f64,
    ages: f64,
}

impl WeightedSums {
    fn of(reports: &[Report], weight: impl Fn(f64) -> f64) -> Self {
        let mut sums = Self::default();
        for report in reports {
            let weight = weight(report.age);
            sums.reports += 1.0;
            sums.weights += weight;
            sums.squares += weight * weight;
            sums.utilization += weight * report.utilization;
            sums.ages += weight * report.age;
        }
        sums
    }

    fn has_enough_hosts(&self) -> bool {
        let hosts = self.weights * self.weights / self.squares.max(f64::MIN_POSITIVE);
        hosts >= MIN_EFFECTIVE_HOSTS.min(0.75 * self.reports)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::balancer::Balancer;
    use crate::host_source::HostSource;
    use crate::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
    use crate::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
    use crate::model::load_aware_locality::LoadAwareLocalityParts;
    use crate::model::locality::Locality;
    use crate::model::orca::OrcaLoadReport;

    fn reports(ages: &[f64]) -> Vec<Report> {
        let report = |&age: &f64| Report {
            utilization: age / 1000.0,
            age,
        };
        ages.iter().map(report).collect()
    }

    #[test]
    fn low_reports_of_slots_that_fail_do_not_count() {
        let after = |utilization: [Option<f64>; 3], controller| {
            let average = |utilization| SlotAverage {
                eligible: 4,
                utilization,
                ..SlotAverage::default()
            };
            let mut averages = utilization.map(average);
            let changed = discount(&mut averages, &[false, true, false], controller);
            assert!(!changed[0] && !changed[2]);
            (averages[1].utilization, changed[1])
        };
        let [headroom, convergent] = [SpillController::Headroom, SpillController::Convergent];
        let low = [Some(0.5), Some(0.01), Some(0.7)];
        assert_eq!(after(low, convergent), (None, true));
        assert_eq!(after(low, headroom), (Some(0.6), true));
        let high = [Some(0.5), Some(0.9), Some(0.7)];
        assert_eq!(after(high, convergent), (Some(0.9), false), "overloaded");
        assert_eq!(after(high, headroom), (Some(0.9), false));
        let never = [Some(0.5), None, Some(0.7)];
        assert_eq!(after(never, convergent), (None, false));
        assert_eq!(after(never, headroom), (Some(0.6), true));
        let alone = [None, Some(0.1), None];
        assert_eq!(after(alone, convergent), (Some(0.1), false));
        assert_eq!(after(alone, headroom), (Some(0.1), false));
    }

    /// Reports of two hosts, a second apart, that nothing follows.
    #[test]
    fn the_age_of_reports_only_grows_across_their_expiration() {
        for controller in [SpillController::Headroom, SpillController::Convergent] {
            let parts = LoadAwareLocalityParts {
                spill_controller: controller,
                weight_expiration_period: Some(Duration::from_secs(10)),
                ..Default::default()
            };
            let settings = LoadAwareLocality::try_new(parts).unwrap();
            let config = Arc::new(
                ClusterConfig::try_new(ClusterConfigParts {
                    name: "orders".into(),
                    locality_policy: LocalityPolicy::LoadAwareLocality(settings.clone()),
                    ..Default::default()
                })
                .unwrap(),
            );
            let zone = Locality::zone_only("a");
            let addresses = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
            let assignment =
                AssignmentParts::new("orders", [LocalityParts::new(zone.clone(), addresses)]);
            let assignment = ClusterLoadAssignment::try_new(assignment).unwrap();
            let mut balancer = Balancer::new(Arc::clone(&config), zone, Instant::ORIGIN);
            balancer.handle_assignment(assignment, Instant::ORIGIN);
            let snapshot = std::iter::from_fn(|| balancer.poll_snapshot())
                .last()
                .unwrap();
            let report = OrcaLoadReport {
                application_utilization: 0.5,
                ..Default::default()
            };
            for (host, second) in snapshot.hosts().zip(1..) {
                host.observe_orca(&report, &config, Instant::from_secs(second));
            }
            let hosts = snapshot.priorities[0].table.list(HostSource::AllHosts);
            let at = |second| average_reports(hosts, &settings, Instant::from_secs(second));
            // The older one has expired after 11 s; from then on the mean is that of the newer one.
            for second in 12..60 {
                let (before, after) = (at(second), at(second + 1));
                assert!(after.age > before.age, "{controller:?} after {second} s");
                assert!(after.newest_age > before.newest_age);
            }
            assert!(at(12).utilization.is_some() && at(13).utilization.is_none());
            let newest = (2..60).map(|second| at(second).newest_age);
            assert!(
                newest.is_sorted_by(|one, next| one < next),
                "{controller:?}"
            );
        }
    }

    #[test]
    fn hosts_that_fell_silent_leave_the_mean() {
        let limit = |ages: &[f64]| silence_age(&mut reports(ages));
        assert_eq!(limit(&[]), 15.0);
        assert_eq!(limit(&[100.0]), 1000.0, "there is no other");
        // Two of four, in any order; few requests make all reports old.
        assert_eq!(limit(&[60.0, 0.5, 90.0, 1.5]), 15.0);
        assert_eq!(limit(&[60.0, 20.0, 90.0, 10.0]), 150.0);
        let sums = recent_sums(reports(&[90.0, 1.0, 60.0, 1.0]), 5.0);
        assert_eq!(sums.reports, 2.0);
        assert!((sums.utilization / sums.weights - 0.001).abs() < 1e-12);
        let sums = recent_sums(reports(&[90.0, 40.0, 60.0, 30.0]), 5.0);
        assert_eq!(
            sums.reports, 4.0,
            "all are old: none is silent beside others"
        );
    }

    #[test]
    fn one_in_twenty_reports_of_few_requests_is_left_out() {
        use crate::rng::{Rng, Xoshiro256};
        let mut rng = Xoshiro256::from_seed(7);
        let (mut all, mut kept) = (0.0, 0.0);
        for _ in 0..2_000 {
            #[expect(clippy::cast_precision_loss, reason = "a draw")]
            let mut age = || -30.0 * ((rng.next_u64() as f64 + 1.0) / u64::MAX as f64).ln();
            let ages: Vec<f64> = (0..12).map(|_| age()).collect();
            all += 12.0;
            kept += recent_sums(reports(&ages), 5.0).reports;
        }
        assert!((0.90..0.99).contains(&(kept / all)), "{}", kept / all);
    }
}
