//! One proxy that exaggerates its load reports (decision 0032): its effect on the load of any zone
//! stays below a bound, and honest proxies that are far busier than others are not cut.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, ScenarioParts};
use support::{metrics, rig};

/// The bound of one proxy, as a multiple of the median, that these scenarios leave unset.
const K: f64 = 20.0;
/// The median is rounded up to five bits, by at most a sixteenth.
const ROUNDING: f64 = 1.0 + 1.0 / 16.0;
/// Fractions are rounded, and 5 s of traffic are not perfectly even.
const NOISE: f64 = 0.05;

/// Three zones of equal capacity, each with `proxies`, one of which in zone `liar` reports a
/// million times its requests.
fn one_liar(demand: [f64; 3], proxies: u32, liar: usize) -> ScenarioParts {
    let mut parts = rig(demand, 0.5);
    parts.duration = Some(HumanDuration::from_secs(90));
    parts.measure_from = Some(HumanDuration::from_secs(60));
    parts.control_plane.report_interval = Some(HumanDuration::from_secs(5));
    parts.control_plane.tau = Some(HumanDuration::from_secs(5));
    for zone in &mut parts.zone {
        zone.proxies = Some(proxies);
    }
    parts.zone[liar].liar = Some(1e6);
    parts
}

/// Load of the fullest zone relative to its fair load, on average and at the peak.
fn load(parts: &ScenarioParts) -> (f64, f64) {
    let row = metrics(parts, Policy::LrsByReporter);
    (row.max_over_mean_5s_avg, row.max_over_mean_5s_peak)
}

#[test]
fn one_liar_in_n_moves_no_zone_beyond_the_bound() {
    for seed in [1, 2, 3] {
        for (proxies, demand, liar) in [
            (4, [60.0, 20.0, 20.0], 1),
            (16, [60.0, 20.0, 20.0], 0),
            (16, [60.0, 20.0, 20.0], 1),
            (40, [60.0, 20.0, 20.0], 2),
            (40, [45.0, 35.0, 20.0], 2),
            (40, [90.0, 5.0, 5.0], 1),
        ] {
            let mut parts = one_liar(demand, proxies, liar);
            parts.seed = Some(seed);
            let others = f64::from(3 * proxies - 1);
            let bound = 1.0 + 2.0 * K * ROUNDING / others + NOISE;
            let (_, peak) = load(&parts);
            assert!(
                peak <= bound,
                "{demand:?}, {proxies} proxies per zone, liar in {liar}: {peak} above {bound}"
            );
        }
    }
}

#[test]
fn without_the_bound_one_liar_hides_the_demand_of_the_hot_zone() {
    let mut parts = one_liar([60.0, 20.0, 20.0], 40, 1);
    let (bounded, _) = load(&parts);
    parts.control_plane.max_times_median = Some(1_000_000);
    let (unbounded, _) = load(&parts);
    // All other zones seem to have no demand, so the hot zone keeps its requests: 0.6 / (1/3).
    assert!(unbounded > 1.7, "{unbounded}");
    assert!(bounded < 1.4, "{bounded}");
}

#[test]
fn an_honest_heavy_proxy_is_not_cut() {
    // One proxy has twenty times the requests of its neighbors, sixteen times the median.
    let mut heavy: ScenarioParts =
        toml::from_str(include_str!("../scenarios/heavy-client.toml")).unwrap();
    heavy.expect.clear();
    heavy.duration = Some(HumanDuration::from_secs(120));
    // Nine tenths of the traffic arrive in one zone of three: its proxies have 18 times the median.
    let mut skewed = one_liar([90.0, 5.0, 5.0], 4, 0);
    skewed.zone[0].liar = None;
    for parts in [heavy, skewed] {
        let with = |k| {
            let mut parts = parts.clone();
            parts.control_plane.max_times_median = k;
            let row = metrics(&parts, Policy::LrsByReporter);
            (row.max_over_mean_5s_avg, row.cross_zone_share)
        };
        assert_eq!(
            with(None),
            with(Some(1_000_000)),
            "exactly as without a bound"
        );
        assert_ne!(with(Some(4)), with(None), "a smaller one would cut it");
    }
}
