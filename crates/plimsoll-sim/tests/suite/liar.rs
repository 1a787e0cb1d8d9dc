//! One proxy that exaggerates its load reports (decision 0032): its effect on the load of any zone
//! stays below a bound, and honest proxies that are far busier than others are not cut.

use crate::support::{metrics, report, rig};
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, ScenarioParts};

/// The bound of one proxy, as a multiple of the median, that these scenarios leave unset.
const K: f64 = 20.0;
/// The median is rounded up to five bits, by at most a sixteenth.
const ROUNDING: f64 = 1.0 + 1.0 / 16.0;
/// Fractions are rounded, and 5 s of traffic are not perfectly even.
const NOISE: f64 = 0.05;

/// No bound: no rate is this many times the median.
const UNBOUNDED: u32 = 1_000_000;

/// One liar among `3 * proxies` in three zones of equal capacity.
#[derive(Clone, Copy, Debug)]
struct Liar {
    demand: [f64; 3],
    /// Proxies of each zone.
    proxies: u32,
    /// The zone of the liar, and how many times its requests it reports.
    zone: usize,
    factor: f64,
}

impl Liar {
    fn scenario(self, seed: u64) -> ScenarioParts {
        let mut parts = rig(self.demand, 0.5);
        parts.seed = Some(seed);
        parts.duration = Some(HumanDuration::from_secs(90));
        parts.measure_from = Some(HumanDuration::from_secs(60));
        parts.control_plane.report_interval = Some(HumanDuration::from_secs(5));
        parts.control_plane.tau = Some(HumanDuration::from_secs(5));
        for zone in &mut parts.zone {
            zone.proxies = Some(self.proxies);
        }
        parts.zone[self.zone].liar = Some(self.factor);
        parts
    }

    /// The load of a zone relative to its fair load that the liar must not exceed.
    fn bound(self) -> f64 {
        let others = f64::from(3 * self.proxies - 1);
        1.0 + 2.0 * K * ROUNDING / others + NOISE
    }
}

/// Load of the fullest zone relative to its fair load, on average and at the peak.
fn load(parts: &ScenarioParts, max_times_median: Option<u32>) -> (f64, f64) {
    let mut parts = parts.clone();
    parts.control_plane.max_times_median = max_times_median;
    let row = metrics(&parts, Policy::LrsByReporter);
    (row.max_over_mean_5s_avg, row.max_over_mean_5s_peak)
}

/// Cases in which a liar breaks the bound if nothing limits it.
const CASES: [(u32, [f64; 3], usize); 6] = [
    // All other zones seem to have no demand: the hot zone keeps its requests.
    (12, [90.0, 5.0, 5.0], 1),
    (24, [60.0, 20.0, 20.0], 1),
    (40, [60.0, 20.0, 20.0], 2),
    (60, [45.0, 35.0, 20.0], 2),
    // The hot zone seems to have all demand: it sends two thirds of its requests to the others.
    (24, [50.0, 45.0, 5.0], 0),
    (40, [50.0, 40.0, 10.0], 0),
];

#[test]
fn one_liar_in_n_moves_no_zone_beyond_the_bound() {
    for (proxies, demand, zone) in CASES {
        for seed in [1, 2, 3] {
            let liar = Liar {
                demand,
                proxies,
                zone,
                factor: 1e6,
            };
            let (bound, parts) = (liar.bound(), liar.scenario(seed));
            let (_, peak) = load(&parts, None);
            assert!(peak <= bound, "{liar:?}, {seed}: {peak} above {bound}");
            let (unbounded, _) = load(&parts, Some(UNBOUNDED));
            assert!(
                unbounded > bound,
                "{liar:?}, {seed}: the case cannot fail, {unbounded}"
            );
        }
    }
}

#[test]
fn a_liar_just_below_the_cap_is_not_cut_and_stays_within_the_bound() {
    // The proxies of the cool zones are the median, so the liar reports 19 times of it.
    let liar = Liar {
        demand: [60.0, 20.0, 20.0],
        proxies: 24,
        zone: 1,
        factor: 19.0,
    };
    let mut parts = liar.scenario(1);
    let lie = load(&parts, None);
    assert_eq!(lie, load(&parts, Some(UNBOUNDED)), "exactly as without it");
    assert!(lie.1 <= liar.bound(), "{lie:?} above {}", liar.bound());
    parts.zone[liar.zone].liar = None;
    let honest = load(&parts, None);
    assert!(lie.0 > honest.0 + 0.05, "{lie:?}, honest {honest:?}");
}

#[test]
fn the_scenario_for_users_passes_with_the_bound_only() {
    let mut parts: ScenarioParts =
        toml::from_str(include_str!("../../scenarios/one-liar.toml")).unwrap();
    let policies = [Policy::ZoneAwareHosts, Policy::LrsByReporter];
    let bounded = report(&parts, &policies);
    assert!(bounded.passed(), "{:?}", bounded.checks);
    parts.control_plane.max_times_median = Some(UNBOUNDED);
    let unbounded = report(&parts, &policies);
    assert!(!unbounded.passed(), "{:?}", unbounded.checks);
}

#[test]
fn an_honest_heavy_proxy_is_not_cut() {
    // One proxy has twenty times the requests of its neighbors, sixteen times the median.
    let mut heavy: ScenarioParts =
        toml::from_str(include_str!("../../scenarios/heavy-client.toml")).unwrap();
    heavy.expect.clear();
    heavy.duration = Some(HumanDuration::from_secs(120));
    // Nine tenths of the traffic arrive in one zone of three: its proxies have 18 times the median.
    let skewed = Liar {
        demand: [90.0, 5.0, 5.0],
        proxies: 4,
        zone: 0,
        factor: 1.0,
    }
    .scenario(1);
    for parts in [heavy, skewed] {
        let with = |k| {
            let mut parts = parts.clone();
            parts.control_plane.max_times_median = k;
            let row = metrics(&parts, Policy::LrsByReporter);
            (row.max_over_mean_5s_avg, row.cross_zone_share)
        };
        assert_eq!(
            with(None),
            with(Some(UNBOUNDED)),
            "exactly as without a bound"
        );
        assert_ne!(with(Some(4)), with(None), "a smaller one would cut it");
    }
}
