//! OBSERVED_LOAD through the public API, with requests as input, the balancer's own timers, and
//! picks as output (decision 0016).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::StateName;
use plimsoll_core::host::{ActiveRequest, Host, RequestOutcome};
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, LocalityPolicy, LocalitySampling,
};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, ForceLocalZone, LocalityBasis, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::picker::{PickArgs, PickError, PickResult, Picker};
use plimsoll_core::publish::{Publisher, Reader, channel};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

/// A proxy of zone a with virtual time.
struct Setup {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
    now: Instant,
}

fn settings(change: impl FnOnce(&mut ZoneAwareParts)) -> Arc<ClusterConfig> {
    let mut parts = ZoneAwareParts {
        locality_basis: LocalityBasis::ObservedLoad,
        min_cluster_size: Some(1),
        ..Default::default()
    };
    change(&mut parts);
    let config = ClusterConfigParts {
        name: "orders".into(),
        healthy_panic_threshold: Some(0.0),
        locality_policy: LocalityPolicy::ZoneAware(ZoneAware::try_new(parts).expect("valid")),
        ..Default::default()
    };
    Arc::new(ClusterConfig::try_new(config).expect("valid"))
}

fn address(zone: &str, number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, zone.as_bytes()[0], number], 80))
}

/// Returns hosts per zone and priority, with the same weight within a zone.
fn assignment(zones: &[(&str, u8, u32)], priority: u32) -> ClusterLoadAssignment {
    let entry = |&(zone, hosts, weight): &(&str, u8, u32)| LocalityParts {
        locality: Locality::zone_only(zone),
        priority,
        lb_endpoints: (0..hosts)
            .map(|number| LbEndpoint {
                load_balancing_weight: Some(weight),
                ..LbEndpoint::new(address(zone, number))
            })
            .collect(),
        ..Default::default()
    };
    let parts = AssignmentParts {
        endpoints: zones.iter().map(entry).collect(),
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).expect("valid")
}

const THREE: [(&str, u8, u32); 3] = [("a", 2, 1), ("b", 2, 1), ("c", 2, 1)];

impl Setup {
    /// Creates three zones of two hosts, and a fleet with the same zones.
    fn new(config: Arc<ClusterConfig>) -> Self {
        let mut setup = Self::without_fleet(config);
        setup
            .balancer
            .handle_fleet_assignment(assignment(&THREE, 0), setup.now);
        setup.assign(&THREE);
        setup
    }

    fn without_fleet(config: Arc<ClusterConfig>) -> Self {
        let now = Instant::from_secs(1000);
        let balancer = Balancer::new(config, Locality::zone_only("a"), now);
        let (publisher, reader) = channel(balancer.initial_snapshot(now));
        Self {
            balancer,
            publisher,
            reader,
            now,
        }
    }

    fn assign(&mut self, zones: &[(&str, u8, u32)]) {
        self.balancer
            .handle_assignment(assignment(zones, 0), self.now);
        self.publish();
    }

    fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
    }

    fn snapshot(&mut self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.reader.latest())
    }

    fn hosts(&mut self, zone: &str) -> Vec<Arc<Host>> {
        let snapshot = self.snapshot();
        let hosts = snapshot.hosts();
        hosts
            .filter(|host| host.locality().zone() == zone)
            .cloned()
            .collect()
    }

    /// Every host of each zone answers 200 requests per second, each after the given milliseconds.
    fn serve(&mut self, zones: &[(&str, u64)], seconds: u64) {
        for _ in 0..seconds {
            for &(zone, millis) in zones {
                for host in self.hosts(zone) {
                    for _ in 0..200 {
                        host.begin_request().finish_with_latency(
                            RequestOutcome::Success,
                            Duration::from_millis(millis),
                        );
                    }
                }
            }
            self.pass(Duration::from_secs(1));
        }
    }

    /// Advances time, firing every timer when it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while let Some(deadline) = self.balancer.poll_timeout().filter(|&at| at <= end) {
            self.now = deadline.max(self.now);
            self.balancer.handle_timeout(self.now);
            self.publish();
        }
        self.now = end;
    }

    fn set_health(&mut self, zone: &str, passed: bool) {
        for host in self.hosts(zone) {
            let signal = if passed {
                HealthSignal::ActiveCheckPassed
            } else {
                HealthSignal::ActiveCheckFailed
            };
            self.balancer
                .handle_health(host.address(), signal, self.now);
        }
        self.publish();
    }

    /// Returns the shares of 10,000 picks per zone; failed picks under "".
    fn shares(&self) -> BTreeMap<String, f64> {
        let mut picker = Picker::new(self.reader.clone(), Xoshiro256::from_seed(3));
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..10_000 {
            let zone = match picker.pick(PickArgs::default()) {
                PickResult::Complete(pick) => pick.host.locality().zone().to_owned(),
                _ => String::new(),
            };
            *counts.entry(zone).or_default() += 1;
        }
        let share = |(zone, picks): (String, u32)| (zone, f64::from(picks) / 10_000.0);
        counts.into_iter().map(share).collect()
    }

    fn share(&self, zone: &str) -> f64 {
        self.shares().get(zone).copied().unwrap_or(0.0)
    }
}

/// Returns a setup that has moved half of its traffic out of its own zone.
fn spilled(config: Arc<ClusterConfig>) -> Setup {
    let mut setup = Setup::new(config);
    setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 40);
    assert!(setup.share("a") < 0.6, "{:?}", setup.shares());
    setup
}

#[test]
fn traffic_leaves_a_zone_that_queues_and_returns() {
    let mut setup = Setup::new(settings(|_| ()));
    assert_eq!(setup.share("a"), 1.0, "host counts at first");
    setup.serve(&[("a", 10), ("b", 10), ("c", 10)], 5);
    assert!(
        setup.share("a") > 0.95,
        "equally fast: {:?}",
        setup.shares()
    );
    setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 40);
    // No more than without locality routing.
    let kept = setup.share("a");
    assert!((0.32..0.45).contains(&kept), "{:?}", setup.shares());
    let explanation = setup.snapshot().explain();
    assert_eq!(explanation.state, StateName::LocalityResidual);
    assert!(
        explanation.reason.contains("response times"),
        "{}",
        explanation.reason
    );
    assert!(explanation.zones.is_empty(), "other proxies are unknown");
    setup.serve(&[("a", 10), ("b", 14), ("c", 14)], 60);
    assert!(setup.share("a") > 0.95, "local again: {:?}", setup.shares());
}

/// By host counts zone a keeps half of its requests: two thirds of the proxies are there, and a
/// third of the hosts. Its own response times alone say nothing about the others.
#[test]
fn host_counts_decide_until_all_localities_have_answered() {
    let mut setup = Setup::without_fleet(settings(|_| ()));
    let fleet = [("a", 4, 1), ("b", 1, 1), ("c", 1, 1)];
    let fleet = assignment(&fleet, 0);
    setup.balancer.handle_fleet_assignment(fleet, setup.now);
    setup.assign(&THREE);
    for answering in [&[("a", 10)][..], &[("a", 10), ("b", 10)]] {
        setup.serve(answering, 60);
        let kept = setup.share("a");
        assert!((0.48..0.51).contains(&kept), "{answering:?}: {kept}");
        assert!(setup.share("c") > 0.2, "{:?}", setup.shares());
        let reason = setup.snapshot().explain().reason;
        assert!(reason.contains("until this proxy knows"), "{reason}");
    }
    setup.serve(&[("a", 10), ("b", 10), ("c", 10)], 600);
    assert!(setup.share("a") > 0.9, "{:?}", setup.shares());
}

#[test]
fn a_zone_that_loses_its_last_healthy_host_gets_nothing_at_once() {
    for zone in ["a", "b"] {
        let mut setup = spilled(settings(|_| ()));
        let before = setup.shares();
        setup.set_health(zone, false);
        let after = setup.shares();
        assert_eq!(after.get(""), None, "{zone}: {after:?}");
        assert_eq!(after.get(zone), None, "{zone}: {after:?}");
        setup.set_health(zone, true);
        let back = setup.shares();
        let same = |zone: &str| (back[zone] - before[zone]).abs() < 1e-3;
        assert!(["a", "b", "c"].into_iter().all(same), "{before:?} {back:?}");
    }
}

#[test]
fn shares_follow_localities_not_their_positions() {
    let mut setup = Setup::new(settings(|_| ()));
    setup.serve(&[("a", 60), ("b", 12), ("c", 48)], 40);
    let before = setup.shares();
    assert!(before["b"] > 2.0 * before["c"], "{before:?}");
    // Zone b is removed, and one that sorts after c is added: c takes the position of b.
    setup.assign(&[("a", 2, 1), ("c", 2, 1), ("d", 2, 1)]);
    let after = setup.shares();
    let ratio = |shares: &BTreeMap<String, f64>| shares["c"] / shares["a"];
    assert!((ratio(&after) - ratio(&before)).abs() < 0.02, "{after:?}");
    assert!(
        after["d"] > 0.25,
        "a new zone starts by its capacity: {after:?}"
    );
    assert_eq!(after.get(""), None);
}

#[test]
fn force_local_zone_is_honored() {
    let force = |min_size| {
        settings(|parts| {
            parts.force_local_zone = Some(ForceLocalZone {
                min_size: Some(min_size),
            });
        })
    };
    let mut setup = Setup::new(force(2));
    setup.serve(&[("a", 600), ("b", 12), ("c", 12)], 30);
    assert_eq!(setup.share("a"), 1.0, "two healthy hosts are enough");
    let one = setup.hosts("a").remove(0).address();
    let failed = HealthSignal::ActiveCheckFailed;
    setup.balancer.handle_health(one, failed, setup.now);
    setup.publish();
    setup.serve(&[("a", 600), ("b", 12), ("c", 12)], 40);
    assert!(setup.share("a") < 0.4, "one is not: {:?}", setup.shares());
}

#[test]
fn the_dead_band_bounds_local_load_above_the_mean() {
    let kept = |band| {
        let mut setup = Setup::new(settings(|parts| parts.dead_band_bp = Some(band)));
        setup.serve(&[("a", 15), ("b", 12), ("c", 12)], 60);
        setup.share("a")
    };
    // The load of a is 1.32, the mean 1.11: 19 % above it.
    assert!(kept(0) < 0.6, "{}", kept(0));
    assert!(kept(900) < 0.6, "{}", kept(900));
    assert!(kept(2100) > 0.95, "{}", kept(2100));
}

#[test]
fn capacity_can_be_measured_by_weight() {
    let kept = |basis| {
        let mut setup = Setup::new(settings(|parts| parts.upstream_locality_basis = basis));
        setup.assign(&[("a", 2, 4), ("b", 2, 1), ("c", 2, 1)]);
        setup.serve(&[("a", 600), ("b", 12), ("c", 12)], 60);
        let upstream = setup.snapshot().explain().localities[0].upstream_bp;
        (setup.share("a"), upstream)
    };
    let (by_count, upstream) = kept(CapacityBasis::HealthyHostsNum);
    assert!((0.32..0.40).contains(&by_count), "{by_count}");
    assert_eq!(upstream, 3333);
    let (by_weight, upstream) = kept(CapacityBasis::HealthyHostsWeight);
    assert!((0.65..0.72).contains(&by_weight), "{by_weight}");
    assert_eq!(upstream, 6666);
}

#[test]
fn a_local_zone_is_needed_but_no_fleet() {
    let mut setup = Setup::without_fleet(settings(|_| ()));
    setup.assign(&THREE);
    assert_eq!(setup.share("a"), 1.0);
    setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 40);
    assert!(setup.share("a") < 0.6, "{:?}", setup.shares());
    setup.assign(&[("b", 2, 1), ("c", 2, 1)]);
    let explanation = setup.snapshot().explain();
    assert_eq!(explanation.reason_code, Some(Reason::NoLocalCluster));
    assert_eq!(setup.balancer.poll_timeout(), None, "nothing to observe");
    assert!((setup.share("b") - 0.5).abs() < 0.01, "all hosts equally");
}

#[test]
fn the_update_period_is_configurable() {
    for millis in [100, 1_000, 60_000] {
        let period = Duration::from_millis(millis);
        let setup = Setup::new(settings(|parts| parts.observed_load_period = Some(period)));
        let due = setup.now.saturating_add(period);
        assert_eq!(setup.balancer.poll_timeout(), Some(due));
    }
}

#[test]
fn lower_priorities_are_observed_with_all_priorities() {
    for all_priorities in [false, true] {
        let mut setup = Setup::new(settings(|parts| parts.all_priorities = all_priorities));
        let moved = assignment(&THREE, 1);
        setup.balancer.handle_assignment(moved, setup.now);
        setup.publish();
        setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 40);
        let explanation = setup.snapshot().explain();
        let state = explanation.priorities[1].state;
        if all_priorities {
            assert_eq!(state, StateName::LocalityResidual);
            assert!(
                (0.32..0.5).contains(&setup.share("a")),
                "{:?}",
                setup.shares()
            );
        } else {
            assert_eq!(state, StateName::NoLocalityRouting);
            assert!((setup.share("a") - 1.0 / 3.0).abs() < 0.01, "flat");
        }
    }
}

#[test]
fn a_priority_without_zone_routing_has_no_timer() {
    let mut setup = Setup::new(settings(|parts| parts.all_priorities = true));
    let moved = assignment(&THREE, 1);
    setup.balancer.handle_assignment(moved, setup.now);
    assert!(setup.balancer.poll_timeout().is_some());
    setup.balancer.handle_config(settings(|_| ()), setup.now);
    setup.pass(Duration::from_secs(10));
    let due = setup.balancer.poll_timeout();
    assert!(due.is_none_or(|due| due > setup.now), "{due:?}");
}

#[test]
fn timers_stop_when_the_basis_changes() {
    let mut setup = Setup::new(settings(|_| ()));
    assert!(setup.balancer.poll_timeout().is_some());
    let by_count = settings(|parts| parts.locality_basis = LocalityBasis::HealthyHostsNum);
    setup.balancer.handle_config(by_count, setup.now);
    assert_eq!(setup.balancer.poll_timeout(), None);
    setup.balancer.handle_config(settings(|_| ()), setup.now);
    assert!(setup.balancer.poll_timeout().is_some());
}

/// Starts requests on every host of a zone that are not answered.
fn open(setup: &mut Setup, zone: &str, requests: usize) -> Vec<ActiveRequest> {
    let hosts = setup.hosts(zone);
    let opened = hosts
        .iter()
        .flat_map(|host| (0..requests).map(|_| host.begin_request()));
    opened.collect()
}

#[test]
fn streams_and_tunnels_are_timed_by_their_headers() {
    let mut setup = Setup::new(settings(|_| ()));
    let mut streams = Vec::new();
    for _ in 0..60 {
        let mut opened = open(&mut setup, "a", 20);
        for stream in &mut opened {
            stream.response_started(RequestOutcome::Success, Duration::from_millis(10));
        }
        streams.extend(opened);
        setup.serve(&[("a", 10), ("b", 10), ("c", 10)], 1);
    }
    assert!(setup.share("a") > 0.95, "while open: {:?}", setup.shares());
    drop(streams);
    setup.serve(&[("a", 10), ("b", 10), ("c", 10)], 2);
    assert!(
        setup.share("a") > 0.95,
        "after the end: {:?}",
        setup.shares()
    );
}

#[test]
fn hanging_requests_move_traffic_before_they_end() {
    let mut setup = Setup::new(settings(|_| ()));
    setup.serve(&[("a", 10), ("b", 10), ("c", 10)], 20);
    let mut hung = Vec::new();
    for _ in 0..10 {
        hung.extend(open(&mut setup, "a", 200));
        setup.serve(&[("b", 10), ("c", 10)], 1);
    }
    assert!(setup.share("a") < 0.5, "{:?}", setup.shares());
}

#[test]
fn errors_do_not_count_as_fast_responses() {
    let mut setup = spilled(settings(|_| ()));
    let before = setup.share("a");
    for _ in 0..20 {
        for mut refused in open(&mut setup, "a", 200) {
            refused.response_started(RequestOutcome::Error, Duration::from_micros(50));
            refused.finish(RequestOutcome::Error);
        }
        setup.serve(&[("b", 12), ("c", 12)], 1);
    }
    assert!(setup.share("a") < before + 0.1, "{:?}", setup.shares());
}

/// Every host of a zone answers this many requests per second with an error, at once.
fn refuse(setup: &mut Setup, zone: &str, requests: usize) {
    for mut refused in open(setup, zone, requests) {
        refused.response_started(RequestOutcome::Error, Duration::from_micros(50));
        refused.finish(RequestOutcome::Error);
    }
}

#[test]
fn a_zone_whose_requests_fail_gets_no_more_than_by_host_counts() {
    let mut setup = spilled(settings(|_| ()));
    assert!(setup.share("b") > 0.2, "{:?}", setup.shares());
    for second in 0..30 {
        refuse(&mut setup, "b", 200);
        setup.serve(&[("a", 60), ("c", 12)], 1);
        // A few seconds of answers are still remembered.
        let is_late = second >= 4;
        assert!(!is_late || setup.share("a") == 1.0, "after {second} s");
    }
    let reason = setup.snapshot().explain().reason;
    let expected = "host counts decide instead of response times: requests to b fail";
    assert_eq!(reason, expected);
    // Nobody sends there, so nothing fails any more: it is tried, and answers.
    setup.serve(&[("a", 60), ("c", 12)], 60);
    setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 40);
    assert!(setup.share("a") < 0.6, "{:?}", setup.shares());
}

#[test]
fn a_zone_that_never_answered_is_not_probed_while_it_fails() {
    let mut setup = Setup::new(settings(|_| ()));
    for _ in 0..40 {
        refuse(&mut setup, "b", 1);
        setup.serve(&[("a", 12), ("c", 12)], 1);
    }
    assert_eq!(setup.share("b"), 0.0, "{:?}", setup.shares());
}

/// The hot zone refuses what it cannot serve: host counts would send it all of that again.
#[test]
fn a_zone_that_fails_because_it_is_full_is_relieved() {
    let mut setup = Setup::new(settings(|_| ()));
    for _ in 0..60 {
        refuse(&mut setup, "a", 100);
        setup.serve(&[("a", 60), ("b", 12), ("c", 12)], 1);
    }
    assert!(setup.share("a") < 0.6, "{:?}", setup.shares());
}

#[test]
fn a_request_for_degraded_hosts_finds_those_of_another_locality() {
    let mut setup = Setup::new(settings(|_| ()));
    let degraded = HealthSignal::ActiveCheckDegraded;
    let failed = HealthSignal::ActiveCheckFailed;
    for (zone, signal) in [("a", failed), ("b", degraded), ("c", failed)] {
        for host in setup.hosts(zone) {
            setup
                .balancer
                .handle_health(host.address(), signal, setup.now);
        }
    }
    setup.publish();
    let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(1));
    for _ in 0..100 {
        let result = picker.pick(PickArgs::default());
        assert!(
            !matches!(result, PickResult::Fail(PickError::NoHost)),
            "b is degraded, not unhealthy"
        );
    }
}

#[test]
fn low_discrepancy_sampling_is_the_default() {
    let config = settings(|_| ());
    assert_eq!(config.locality_sampling(), LocalitySampling::LowDiscrepancy);
}
