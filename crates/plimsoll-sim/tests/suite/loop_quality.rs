//! Requirements of the convergent controller (decision 0027) in closed loop: every skew and load,
//! any number of proxies, both kinds of report, fast and slow meters, cold starts and steps.
//!
//! `make test` runs one seed of each kind. The whole matrix, which `docs/simulator.md`
//! summarizes, is printed by
//! `cargo test --release -p plimsoll-sim --test suite -- loop_quality --ignored --nocapture`.

use std::fmt;

use crate::support::{SKEWS, events, metrics, rig};
use plimsoll_sim::metrics::Metrics;
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, ScenarioParts};

/// Share of requests that always leaves, to probe the other zones.
const PROBE: f64 = 0.03;
/// Time of the step, and time after it until everything must have settled, in seconds.
const STEP: u64 = 60;
const SETTLED: u64 = 30;

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
struct Case {
    policy: Policy,
    demand: [f64; 3],
    mean: f64,
    proxies: u32,
    mode: &'static str,
    /// Window over which hosts measure their rate, seconds.
    meter: u64,
    /// A step from an even start to the skew, or the skew at full load from the start.
    start: Start,
    /// Seconds measured after everything must have settled.
    measured: u64,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Cold,
    Step,
}

const CASE: Case = Case {
    policy: Policy::Convergent,
    demand: SKEWS[0],
    mean: 0.6,
    proxies: 1,
    mode: "in_band",
    meter: 1,
    start: Start::Cold,
    measured: 90,
    seed: 1,
};

impl Case {
    fn parts(&self) -> ScenarioParts {
        let even = [1.0, 1.0, 1.0];
        let stepped = self.start == Start::Step;
        let mut parts = rig(if stepped { even } else { self.demand }, self.mean);
        let settled = SETTLED + if stepped { STEP } else { 0 };
        if stepped {
            let [a, b, c] = self.demand;
            parts.event = events(&format!(
                "[[event]]\nat = \"{STEP}s\"\nshares = {{ a = {a}, b = {b}, c = {c} }}\n"
            ));
        }
        parts.seed = Some(self.seed);
        // Windows extend five seconds back.
        parts.measure_from = Some(HumanDuration::from_secs(settled));
        parts.duration = Some(HumanDuration::from_secs(settled + self.measured));
        parts.reports.noise = 0.05;
        parts.reports.mode = Some(self.mode.into());
        parts.reports.meter_window = Some(HumanDuration::from_secs(self.meter));
        for zone in &mut parts.zone {
            zone.proxies = Some(self.proxies);
            // A hundred proxies share more than twelve hosts; otherwise each would see a request
            // only every few seconds.
            zone.hosts[0].count = if self.proxies >= 100 { 40 } else { 4 };
        }
        parts
    }

    /// Returns the violated requirements.
    fn faults(&self, row: &Metrics) -> Vec<String> {
        let mut faults = Vec::new();
        let mut bar = |holds: bool, what: String| {
            if !holds {
                faults.push(what);
            }
        };
        let (average, peak) = (row.max_over_mean_5s_avg, row.max_over_mean_5s_peak);
        bar(average <= 1.06, format!("average {average:.3}"));
        bar(peak <= 1.12, format!("peak {peak:.3}"));
        let allowed = row.cross_zone_needed + PROBE + 0.02;
        let cross = row.cross_zone_share;
        bar(cross <= allowed, format!("cross-zone {cross:.3}"));
        let limit = SETTLED as f64;
        let settled = row
            .settling
            .iter()
            .all(|step| step.settled_s.is_some_and(|took| took <= limit));
        bar(settled, format!("settling {:?}", row.settling));
        let period = row.oscillation_period_s;
        bar(!row.oscillates, format!("oscillates, period {period:?}"));
        let locked = row.lock_out_s;
        bar(locked == 0.0, format!("locked out for {locked} s"));
        faults
    }

    #[track_caller]
    fn assert(&self) {
        let faults = self.faults(&metrics(&self.parts(), self.policy));
        assert!(faults.is_empty(), "{self}: {faults:?}");
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.demand;
        let start = format!("{:?}", self.start).to_lowercase();
        write!(
            f,
            "| {} | {a}/{b}/{c} | {} | {} | {} | {} s | {start} |",
            self.policy.name(),
            self.mean,
            self.proxies,
            self.mode,
            self.meter,
        )
    }
}

#[test]
fn every_skew_and_load() {
    for demand in SKEWS {
        for mean in [0.4, 0.6, 0.8] {
            for start in [Start::Cold, Start::Step] {
                let case = Case {
                    demand,
                    mean,
                    start,
                    ..CASE
                };
                case.assert();
            }
        }
    }
}

#[test]
fn no_oscillation_in_ten_minutes() {
    for demand in SKEWS {
        let case = Case {
            demand,
            mean: 0.8,
            measured: 600,
            ..CASE
        };
        case.assert();
    }
}

#[test]
fn any_number_of_proxies_kind_of_report_and_meter() {
    for (proxies, measured) in [(1, 90), (4, 90), (10, 90), (100, 30)] {
        for mode in ["in_band", "out_of_band"] {
            for meter in [1, 10] {
                let case = Case {
                    proxies,
                    mode,
                    meter,
                    measured,
                    ..CASE
                };
                case.assert();
            }
        }
    }
}

#[test]
fn cold_starts_at_high_load() {
    for seed in 1..=8 {
        for proxies in [1, 10] {
            let case = Case {
                mean: 0.8,
                proxies,
                seed,
                measured: 30,
                ..CASE
            };
            case.assert();
        }
    }
}

#[test]
fn feed_forward_meets_all_requirements() {
    for demand in SKEWS {
        for start in [Start::Cold, Start::Step] {
            let case = Case {
                policy: Policy::Hybrid,
                demand,
                start,
                ..CASE
            };
            case.assert();
        }
    }
}

/// The whole matrix, ten minutes each. `SEEDS=8` prints the worst of eight seeds, `ONLY="| 10 |"`
/// the rows that contain the text.
#[test]
#[ignore = "takes minutes even in release builds"]
fn the_whole_matrix() {
    let seeds: u64 = std::env::var("SEEDS").map_or(1, |text| text.parse().unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut failed = 0;
    for case in matrix() {
        if !case.to_string().contains(&only) {
            continue;
        }
        let (mut worst, mut faults) = (Worst::default(), Vec::new());
        for seed in 1..=seeds {
            let case = Case { seed, ..case };
            let row = metrics(&case.parts(), case.policy);
            faults.extend(case.faults(&row));
            worst.add(&row);
        }
        failed += usize::from(!faults.is_empty());
        let verdict = if faults.is_empty() {
            "ok".into()
        } else {
            faults.join("; ")
        };
        println!("{case} {worst} {verdict} |");
    }
    assert_eq!(failed, 0, "cells of the matrix fail");
}

fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    for policy in [Policy::Convergent, Policy::Hybrid] {
        for demand in SKEWS {
            for mean in [0.4, 0.6, 0.8] {
                for start in [Start::Cold, Start::Step] {
                    let case = Case {
                        policy,
                        demand,
                        mean,
                        start,
                        measured: 600,
                        ..CASE
                    };
                    cases.extend(fleets(case));
                }
            }
        }
    }
    cases
}

/// Returns a case with every number of proxies, kind of report and meter.
fn fleets(case: Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for proxies in [1, 4, 10, 100] {
        for mode in ["in_band", "out_of_band"] {
            for meter in [1, 10] {
                cases.push(Case {
                    proxies,
                    mode,
                    meter,
                    ..case
                });
            }
        }
    }
    cases
}

/// The worst results over seeds.
#[derive(Default)]
struct Worst {
    average: f64,
    peak: f64,
    cross: f64,
    needed: f64,
    settled: Option<f64>,
}

impl Worst {
    fn add(&mut self, row: &Metrics) {
        self.average = self.average.max(row.max_over_mean_5s_avg);
        self.peak = self.peak.max(row.max_over_mean_5s_peak);
        self.cross = self.cross.max(row.cross_zone_share);
        self.needed = row.cross_zone_needed;
        let last = row
            .settling
            .last()
            .and_then(|step| step.settled_s)
            .unwrap_or(f64::INFINITY);
        self.settled = Some(self.settled.map_or(last, |worst| worst.max(last)));
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            average,
            peak,
            cross,
            needed,
            settled,
        } = self;
        let settled = settled.unwrap_or(f64::NAN);
        write!(
            f,
            "{average:.3} / {peak:.3} | {cross:.3} ({needed:.3}) | {settled:.0} s |"
        )
    }
}
