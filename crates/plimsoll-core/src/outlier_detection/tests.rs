//! Tests of the detector: single decisions, ejection times, and invariants.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::model::outlier_detection::{
    ConsecutiveErrors, FailurePercentageEjection, OutlierDetectionParts, SuccessRateEjection,
};
use crate::rng::ScriptedRng;

const INTERVAL: u64 = 10;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(host).unwrap()], 80))
}

/// Hosts with totals, and a detector on a clock.
struct Rig {
    detector: OutlierDetector,
    hosts: Vec<HostSample>,
    now: Instant,
    rng: ScriptedRng,
}

impl Rig {
    fn new(hosts: usize, change: impl FnOnce(&mut OutlierDetectionParts)) -> Self {
        let mut parts = OutlierDetectionParts {
            max_ejection_percent: Some(100),
            ..Default::default()
        };
        change(&mut parts);
        let config = Arc::new(OutlierDetection::try_new(parts).unwrap());
        let sample = |host| HostSample {
            address: address(host),
            totals: RequestCounts::default(),
            consecutive_errors: 0,
        };
        let hosts: Vec<_> = (0..hosts).map(sample).collect();
        Self {
            detector: OutlierDetector::new(config, &hosts, Instant::ORIGIN),
            hosts,
            now: Instant::ORIGIN,
            rng: ScriptedRng::default(),
        }
    }

    fn requests(&mut self, host: usize, succeeded: u64, failed: u64) {
        let sample = &mut self.hosts[host];
        sample.totals.issued += succeeded + failed;
        sample.totals.succeeded += succeeded;
        sample.totals.failed += failed;
        sample.consecutive_errors = match succeeded {
            0 => sample.consecutive_errors + u32::try_from(failed).unwrap(),
            _ => u32::try_from(failed).unwrap(),
        };
    }

    /// Advances by one interval; returns the ejected and the returned hosts.
    fn tick(&mut self) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        self.now = self.detector.poll_timeout().unwrap();
        self.detector
            .handle_tick(&self.hosts, &mut self.rng, self.now);
        let signals: Vec<_> = std::iter::from_fn(|| self.detector.poll_signal()).collect();
        let those = |wanted| {
            let signals = signals.iter().filter(move |(_, signal)| *signal == wanted);
            signals.map(|(address, _)| *address).collect()
        };
        (
            those(HealthSignal::OutlierEjected),
            those(HealthSignal::OutlierReturned),
        )
    }
}

fn by_failures(parts: &mut OutlierDetectionParts) {
    parts.failure_percentage_ejection = Some(FailurePercentageEjection {
        threshold: 50,
        minimum_hosts: 1,
        request_volume: 10,
        ..Default::default()
    });
}

#[test]
fn hosts_are_evaluated_from_the_time_they_are_known() {
    let mut rig = Rig::new(0, |parts| {
        parts.consecutive_5xx = Some(ConsecutiveErrors {
            threshold: 3,
            enforcement_percentage: 100,
        });
    });
    let sample = |failed| HostSample {
        address: address(1),
        totals: RequestCounts {
            issued: failed,
            succeeded: 0,
            failed,
        },
        consecutive_errors: u32::try_from(failed).unwrap(),
    };
    let now = rig.now;
    let ejects = |rig: &mut Rig, failed| {
        let detector = &mut rig.detector;
        detector.handle_consecutive_errors(&sample(failed), &mut rig.rng, now);
        detector.poll_signal().is_some()
    };
    assert!(!ejects(&mut rig, 3), "the host is unknown");
    rig.detector.handle_hosts(&[sample(2)]);
    assert!(
        !ejects(&mut rig, 4),
        "two errors were before it became known"
    );
    assert!(ejects(&mut rig, 5));
    rig.detector.handle_hosts(&[sample(5)]);
    assert_eq!(
        rig.detector.ejected().count(),
        1,
        "a known host stays as it is"
    );
    rig.detector.handle_hosts(&[]);
    assert_eq!(rig.detector.ejected().count(), 0);
}

#[test]
fn a_host_far_below_the_mean_is_ejected() {
    let mut rig = Rig::new(6, |parts| {
        parts.success_rate_ejection = Some(SuccessRateEjection::default());
    });
    (0..5).for_each(|host| rig.requests(host, 100, 0));
    rig.requests(5, 50, 50);
    // Mean 91.67, stdev 18.63: the threshold is 56.26.
    assert_eq!(rig.tick().0, [address(5)]);
    assert_eq!(rig.detector.ejected().collect::<Vec<_>>(), [address(5)]);
    assert_eq!(
        rig.detector.stats().ejections_enforced_success_rate.get(),
        1
    );
}

#[test]
fn hosts_with_few_requests_are_ignored() {
    let mut rig = Rig::new(6, |parts| {
        parts.success_rate_ejection = Some(SuccessRateEjection::default());
    });
    (0..4).for_each(|host| rig.requests(host, 100, 0));
    rig.requests(4, 99, 0);
    rig.requests(5, 0, 99);
    assert!(rig.tick().0.is_empty(), "four hosts are not enough");
    (0..5).for_each(|host| rig.requests(host, 100, 0));
    rig.requests(5, 0, 99);
    assert!(rig.tick().0.is_empty(), "one request short");
}

#[test]
fn failures_at_the_threshold_eject() {
    let mut rig = Rig::new(3, by_failures);
    rig.requests(0, 5, 5);
    rig.requests(1, 6, 4);
    rig.requests(2, 0, 9);
    assert_eq!(rig.tick().0, [address(0)]);
    assert!(rig.tick().0.is_empty(), "each interval is counted once");
}

#[test]
fn max_ejection_percent_is_enforced_unless_one_host_may_always_be_ejected() {
    for (percent, always, expected) in [(20, false, 1), (39, false, 1), (40, false, 2)]
        .into_iter()
        .chain([(19, false, 0), (19, true, 1), (0, true, 1), (0, false, 0)])
    {
        let mut rig = Rig::new(5, |parts| {
            by_failures(parts);
            parts.max_ejection_percent = Some(percent);
            parts.always_eject_one_host = always;
        });
        (0..5).for_each(|host| rig.requests(host, 0, 10));
        assert_eq!(rig.tick().0.len(), expected, "{percent} % {always}");
        let overflow = rig.detector.stats().ejections_overflow.get();
        assert_eq!(overflow, 5 - expected as u64);
    }
}

#[test]
fn the_draw_decides_whether_an_outlier_is_ejected() {
    let mut rig = Rig::new(3, |parts| {
        by_failures(parts);
        if let Some(settings) = &mut parts.failure_percentage_ejection {
            settings.enforcement_percentage = 30;
        }
    });
    rig.rng = ScriptedRng::new([30, 129, 99]);
    (0..3).for_each(|host| rig.requests(host, 0, 10));
    assert_eq!(rig.tick().0, [address(1)], "29 is below 30");
    assert_eq!(rig.rng.used(), 3);
    let stats = rig.detector.stats();
    assert_eq!(stats.ejections_detected_failure_percentage.get(), 3);
    assert_eq!(stats.ejections_enforced_total.get(), 1);
}

#[test]
fn ejection_times_grow_with_every_ejection_and_shrink_again() {
    let mut rig = Rig::new(2, |parts| {
        by_failures(parts);
        parts.base_ejection_time = Some(Duration::from_secs(INTERVAL));
        parts.max_ejection_time = Some(Duration::from_secs(2 * INTERVAL));
    });
    let term = |rig: &mut Rig| {
        rig.requests(0, 0, 10);
        assert_eq!(rig.tick().0, [address(0)]);
        let mut ticks = 1;
        while rig.tick().1.is_empty() {
            ticks += 1;
        }
        ticks
    };
    assert_eq!([term(&mut rig), term(&mut rig), term(&mut rig)], [1, 2, 2]);
    rig.tick();
    rig.tick();
    assert_eq!(term(&mut rig), 1, "forgiven");
}

#[test]
fn consecutive_errors_eject_at_once_and_are_counted_once() {
    let mut rig = Rig::new(2, |parts| {
        parts.consecutive_5xx = Some(ConsecutiveErrors::default());
        parts.base_ejection_time = Some(Duration::from_secs(INTERVAL));
    });
    rig.requests(0, 0, 4);
    let Rig {
        detector,
        hosts,
        rng,
        now,
    } = &mut rig;
    detector.handle_consecutive_errors(&hosts[0], rng, *now);
    assert_eq!(detector.poll_signal(), None);
    rig.requests(0, 0, 1);
    let Rig {
        detector,
        hosts,
        rng,
        now,
    } = &mut rig;
    detector.handle_consecutive_errors(&hosts[0], rng, *now);
    let ejected = Some((address(0), HealthSignal::OutlierEjected));
    assert_eq!(detector.poll_signal(), ejected);
    assert_eq!(rig.tick(), (vec![], vec![address(0)]));
    assert_eq!(rig.tick(), (vec![], vec![]), "no request, no ejection");
    rig.requests(0, 0, 5);
    assert_eq!(rig.tick().0, [address(0)], "the tick sees them too");
    rig.requests(0, 0, 50);
    assert_eq!(rig.tick(), (vec![], vec![address(0)]));
    assert_eq!(
        rig.tick(),
        (vec![], vec![]),
        "errors while ejected do not count"
    );
}

#[test]
fn another_host_at_the_same_address_starts_over() {
    let mut rig = Rig::new(2, by_failures);
    rig.requests(0, 0, 10);
    assert_eq!(rig.tick().0, [address(0)]);
    rig.hosts[0].totals = RequestCounts::default();
    assert_eq!(rig.tick(), (vec![], vec![]));
    assert_eq!(rig.detector.ejected().count(), 0);
    rig.hosts.pop();
    rig.tick();
    assert_eq!(rig.detector.hosts.len(), 1, "removed hosts are forgotten");
}

#[test]
fn when_disabled_all_hosts_return_and_no_timer_is_armed() {
    let mut rig = Rig::new(2, by_failures);
    rig.requests(0, 0, 10);
    rig.tick();
    let off = OutlierDetection::try_new(OutlierDetectionParts::default()).unwrap();
    let on = Arc::clone(&rig.detector.config);
    rig.detector.handle_config(Arc::new(off), rig.now);
    let returned = Some((address(0), HealthSignal::OutlierReturned));
    assert_eq!(rig.detector.poll_signal(), returned);
    assert_eq!(rig.detector.poll_timeout(), None);
    let later = rig.now.saturating_add(Duration::from_secs(100));
    rig.detector.handle_config(on, later);
    let due = later.saturating_add(Duration::from_secs(INTERVAL));
    assert_eq!(rig.detector.poll_timeout(), Some(due));
}

/// Settings with every algorithm on.
fn everything(parts: &mut OutlierDetectionParts) {
    by_failures(parts);
    parts.success_rate_ejection = Some(SuccessRateEjection {
        request_volume: 20,
        stdev_factor: 500,
        ..Default::default()
    });
    parts.consecutive_5xx = Some(ConsecutiveErrors {
        threshold: 8,
        enforcement_percentage: 50,
    });
}

proptest! {
    #[test]
    fn ejections_stay_within_the_limit_and_end(
        ticks in vec(vec((0..30_u64, 0..30_u64), 12), 1..20),
        percent in 0..=100_u32,
        always in any::<bool>(),
        draws in vec(any::<u64>(), 100),
    ) {
        let mut rig = Rig::new(12, |parts| {
            everything(parts);
            parts.max_ejection_percent = Some(percent);
            parts.always_eject_one_host = always;
        });
        rig.rng = ScriptedRng::new(draws);
        let most = (12 * percent as usize / 100).max(usize::from(always));
        for requests in &ticks {
            for (host, &(succeeded, failed)) in requests.iter().enumerate() {
                rig.requests(host, succeeded, failed);
            }
            let (ejected, _) = rig.tick();
            prop_assert!(rig.detector.ejected().count() <= most);
            for (host, counts) in requests.iter().enumerate() {
                let out = ejected.contains(&address(host));
                prop_assert!(!out || counts.1 > 0, "no failure, no ejection");
            }
        }
        // No host fails any more: within the maximum ejection time all are back.
        let mut left = 300 / INTERVAL + 1;
        while rig.detector.ejected().count() > 0 {
            prop_assert!(left > 0, "some host never returns");
            prop_assert!(rig.tick().0.is_empty(), "no traffic, no ejection");
            left -= 1;
        }
    }
}
