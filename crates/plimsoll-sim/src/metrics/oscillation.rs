//! Detection of oscillation and its period: dispersion beyond chance, then the time between
//! crossings.
//!
//! The criterion is that of the measurements on real proxies: the requests per second of the zone
//! that moves most, relative to the fleet, vary by more than 2.5 times what independent requests
//! would. At high rates chance variation is so small that a ripple of 1 % would qualify, so the
//! standard deviation must also be at least 4 % of the mean.

use std::ops::Range;

use super::recorder::BIN;
use super::windows::{SECOND, Windows};
use crate::num;

/// Minimum variance relative to that of independent requests.
const MIN_DISPERSION: f64 = 2.5;
/// Minimum standard deviation relative to the mean.
const MIN_DEVIATION: f64 = 0.04;
/// A crossing counts if the series has been this many deviations on the other side.
const HYSTERESIS: f64 = 0.5;

/// Bins after a step that may still be settling: 20 s.
const SETTLING: usize = 80;
/// Bins that an interval needs to show a cycle: 10 s.
const MIN_INTERVAL: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Oscillation {
    pub(crate) zone: usize,
    /// Median time between two upward crossings of the mean, seconds.
    pub(crate) period: f64,
}

/// Returns the largest oscillation of any zone between two steps of the scenario, if any.
pub(crate) fn oscillation(windows: &Windows<'_>) -> Option<Oscillation> {
    let mut most: Option<(f64, Oscillation)> = None;
    for bins in steady_intervals(windows) {
        for zone in 0..windows.recorder.zones() {
            let series = relative_load(windows, zone, bins.clone());
            let (mean, deviation) = moments(&series);
            let chance = num::ratio(mean, mean_samples(windows, zone, &bins).sqrt());
            let swings =
                deviation > MIN_DISPERSION.sqrt() * chance && deviation > MIN_DEVIATION * mean;
            if !swings || most.is_some_and(|(other, _)| other >= deviation) {
                continue;
            }
            if let Some(period) = period(&series, deviation * HYSTERESIS) {
                most = Some((deviation, Oscillation { zone, period }));
            }
        }
    }
    most.map(|(_, swing)| swing)
}

/// Returns the measured intervals between steps of the scenario, without the settling time after
/// each: an intended change is not an oscillation. Intervals that are too short are left out.
fn steady_intervals(windows: &Windows<'_>) -> Vec<Range<usize>> {
    let steps = windows.scenario.steps();
    let mut cuts: Vec<usize> = steps.iter().map(|&step| num::slot(step, BIN)).collect();
    cuts.push(windows.bins());
    let intervals = cuts.windows(2).map(|pair| {
        let (begin, end) = (pair[0], pair[1]);
        let calm = begin + SETTLING.min((end - begin) / 2);
        calm.max(windows.from())..end
    });
    intervals
        .filter(|bins| bins.len() >= MIN_INTERVAL)
        .collect()
}

/// Returns the utilization of a zone relative to all hosts, so that changes of total demand do not
/// count; 1 s means.
fn relative_load(windows: &Windows<'_>, zone: usize, bins: Range<usize>) -> Vec<f64> {
    let ends = bins.start + SECOND..=bins.end;
    ends.filter_map(|end| {
        let utilization = windows.utilization(zone, end, SECOND)?;
        let mean = windows.mean(end, SECOND);
        (mean > 0.0).then(|| utilization / mean)
    })
    .collect()
}

fn mean_samples(windows: &Windows<'_>, zone: usize, bins: &Range<usize>) -> f64 {
    let samples = windows.samples(zone, bins.end, bins.len()) as f64;
    samples * SECOND as f64 / bins.len() as f64
}

fn moments(series: &[f64]) -> (f64, f64) {
    if series.is_empty() {
        return (0.0, 0.0);
    }
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let square: f64 = series.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (square / series.len() as f64).sqrt())
}

/// Returns the median time between upward crossings; fewer than three do not make a cycle.
fn period(series: &[f64], hysteresis: f64) -> Option<f64> {
    let (mean, _) = moments(series);
    let mut below = false;
    let mut crossings = Vec::new();
    for (bin, value) in series.iter().enumerate() {
        if *value < mean - hysteresis {
            below = true;
        } else if *value > mean + hysteresis && below {
            below = false;
            crossings.push(bin);
        }
    }
    let mut gaps: Vec<usize> = crossings.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if gaps.len() < 2 {
        return None;
    }
    gaps.sort_unstable();
    Some(gaps[gaps.len() / 2] as f64 / SECOND as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::{self, Purpose};
    use crate::metrics::recorder::Recorder;
    use crate::scenario::{HumanDuration, Scenario, ScenarioParts};
    use crate::testing::three_zones;
    use crate::workload::Workload;

    /// Measures a run in which zone a gets `share(t)` of 216 requests/s and the others the rest.
    fn measured(share: impl Fn(f64) -> f64) -> Option<Oscillation> {
        measured_with("", share)
    }

    fn measured_with(events: &str, share: impl Fn(f64) -> f64) -> Option<Oscillation> {
        let mut parts = three_zones();
        parts.event = toml::from_str::<ScenarioParts>(events).unwrap().event;
        parts.duration = Some(HumanDuration::from_secs(120));
        let scenario = Scenario::try_new(parts).unwrap();
        let workload = Workload::new(&scenario);
        let mut recorder = Recorder::new(&scenario);
        let mut rng = draws::stream(3, Purpose::Service, 0);
        for request in 0..216 * 120_u64 {
            let at = request * num::SECOND / 216;
            let draw = draws::uniform(&mut rng);
            let share = share(num::seconds(at));
            let zone = if draw < share {
                0
            } else if draw < (1.0 + share) / 2.0 {
                1
            } else {
                2
            };
            recorder.sent(at, 0, zone);
        }
        oscillation(&Windows::new(&scenario, &workload, &recorder))
    }

    #[test]
    fn independent_draws_do_not_oscillate() {
        assert_eq!(measured(|_| 0.333), None);
        assert_eq!(measured(|_| 0.6), None);
    }

    #[test]
    fn a_square_wave_oscillates_with_its_period() {
        for period in [2.5, 5.0, 17.0] {
            let found = measured(|at| if at % period < period / 2.0 { 0.5 } else { 0.2 }).unwrap();
            assert_eq!(found.zone, 0);
            assert!(
                (found.period - period).abs() <= 0.5,
                "{found:?}, not {period} s"
            );
        }
    }

    #[test]
    fn a_step_is_not_an_oscillation_but_its_aftermath_may_be() {
        let events = "[[event]]\nat = \"80s\"\ndemand = { factor = 1.0 }\n";
        let moved = |at: f64| (60.0..100.0).contains(&at) && at % 5.0 < 2.5;
        let share = |at: f64| if moved(at) { 0.5 } else { 0.3 };
        assert!(measured_with("", share).is_some());
        assert_eq!(
            measured_with(events, |at| if at < 80.0 { 0.3 } else { share(at) }),
            None
        );
        let after = |at: f64| {
            if at > 100.0 && at % 5.0 < 2.5 {
                0.5
            } else {
                0.3
            }
        };
        assert!(measured_with(events, after).is_some());
    }

    #[test]
    fn a_single_change_is_not_a_cycle() {
        assert_eq!(measured(|at| if at < 90.0 { 0.5 } else { 0.2 }), None);
    }
}
