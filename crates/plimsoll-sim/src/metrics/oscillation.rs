//! Does it swing, and how fast: dispersion beyond chance first, then the time between crossings.
//!
//! The criterion is that of the measurements on real proxies: the requests per second of the zone
//! that moves most, relative to the fleet, vary by more than 2.5 times what independent requests
//! would. At high rates chance is so small that this alone would call a ripple of 1 % a swing, so
//! the deviation must also be 4 % of the mean.

use super::windows::{SECOND, Windows};
use crate::num;

/// Variance ÷ that of independent requests.
const DISPERSION: f64 = 2.5;
/// Standard deviation ÷ mean.
const RIPPLE: f64 = 0.04;
/// A crossing counts when the series has been this many deviations on the other side.
const HYSTERESIS: f64 = 0.5;

/// Swing of one zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Oscillation {
    /// The zone that moves most.
    pub(crate) zone: usize,
    /// Median time between two upward crossings of the mean, seconds.
    pub(crate) period: f64,
}

/// The swing of the zone that moves most, if it is one.
pub(crate) fn oscillation(windows: &Windows<'_>) -> Option<Oscillation> {
    let zones = 0..windows.recorder.zones();
    let swings = zones.filter_map(|zone| {
        let series = relative_load(windows, zone);
        let (mean, deviation) = moments(&series);
        let samples = mean_samples(windows, zone);
        let chance = num::ratio(mean, samples.sqrt());
        let swings = deviation > DISPERSION.sqrt() * chance && deviation > RIPPLE * mean;
        swings.then_some((zone, deviation, series))
    });
    let most = swings.max_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    let (zone, deviation, series) = most?;
    let period = period(&series, deviation * HYSTERESIS)?;
    Some(Oscillation { zone, period })
}

/// Utilization of a zone ÷ that of all hosts, so that waves of demand are no swings; 1 s means.
fn relative_load(windows: &Windows<'_>, zone: usize) -> Vec<f64> {
    let ends = windows.ends(SECOND);
    ends.filter_map(|end| {
        let utilization = windows.utilization(zone, end, SECOND)?;
        let mean = windows.mean(end, SECOND);
        (mean > 0.0).then(|| utilization / mean)
    })
    .collect()
}

/// Samples per second of a zone.
fn mean_samples(windows: &Windows<'_>, zone: usize) -> f64 {
    let length = windows.bins() - windows.from();
    let samples = windows.samples(zone, windows.bins(), length) as f64;
    samples * SECOND as f64 / length as f64
}

fn moments(series: &[f64]) -> (f64, f64) {
    if series.is_empty() {
        return (0.0, 0.0);
    }
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let square: f64 = series.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (square / series.len() as f64).sqrt())
}

/// Median time between upward crossings; fewer than three are no cycle.
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
    use crate::scenario::{Scenario, Span};
    use crate::testing::three_zones;
    use crate::workload::Workload;

    /// A run in which zone a gets `share(t)` of 216 requests/s and the others the rest.
    fn measured(share: impl Fn(f64) -> f64) -> Option<Oscillation> {
        let mut parts = three_zones();
        parts.duration = Some(Span::from_secs(120));
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
    fn independent_draws_do_not_swing() {
        assert_eq!(measured(|_| 0.333), None);
        assert_eq!(measured(|_| 0.6), None);
    }

    #[test]
    fn a_relay_swings_with_its_period() {
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
    fn a_single_move_is_no_cycle() {
        assert_eq!(measured(|at| if at < 90.0 { 0.5 } else { 0.2 }), None);
    }
}
