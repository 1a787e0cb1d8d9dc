//! Settling time: how long after each step of a scenario zones are balanced again, and stay so.

use super::recorder::BIN;
use super::windows::{FIVE_SECONDS, Windows};
use crate::num;

/// Balanced: the 5 s max ÷ mean that CONVERGENT must not exceed once it has settled.
pub(crate) const BALANCED: f64 = 1.12;
/// Steps that follow each other faster than this count as one.
const MIN_STEP_GAP: usize = 2 * FIVE_SECONDS;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settling {
    pub(crate) step: f64,
    /// Settling time, seconds; `None` = did not settle before the next step or the end.
    pub(crate) time: Option<f64>,
}

/// Returns the settling after the start and after each change of the scenario.
pub(crate) fn settling(windows: &Windows<'_>) -> Vec<Settling> {
    let steps = windows.scenario.steps();
    let bins: Vec<usize> = steps.iter().map(|&step| num::slot(step, BIN)).collect();
    let mut settlings = Vec::new();
    for (index, &begin) in bins.iter().enumerate() {
        let end = bins.get(index + 1).copied().unwrap_or(windows.bins());
        if end - begin < MIN_STEP_GAP {
            continue;
        }
        settlings.push(Settling {
            step: num::seconds(steps[index]),
            time: settling_time(windows, begin, end),
        });
    }
    settlings
}

/// Returns the time until the last unbalanced window; windows do not extend beyond the step.
fn settling_time(windows: &Windows<'_>, begin: usize, end: usize) -> Option<f64> {
    let uneven = |bin: &usize| {
        let length = FIVE_SECONDS.min(bin - begin);
        windows
            .max_over_mean(*bin, length)
            .is_some_and(|ratio| ratio > BALANCED)
    };
    // The first second after a step is too short to tell.
    let last = (begin + 4..=end).rev().find(uneven);
    match last {
        None => Some(0.0),
        // Unbalanced in the last five seconds: it has not settled.
        Some(last) if last + FIVE_SECONDS > end => None,
        Some(last) => Some(num::seconds((last - begin) as u64 * BIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::Recorder;
    use crate::scenario::{Scenario, ScenarioParts};
    use crate::testing::three_zones;
    use crate::workload::Workload;

    /// Measures a run of 40 s with a step at 20 s, in which zone a gets twice its share while
    /// `uneven`.
    fn measured(uneven: impl Fn(u64) -> bool) -> Vec<Settling> {
        let mut parts = three_zones();
        let given: ScenarioParts =
            toml::from_str("[[event]]\nat = \"20s\"\ndemand = { factor = 1.1 }\n").unwrap();
        parts.event = given.event;
        let scenario = Scenario::try_new(parts).unwrap();
        let workload = Workload::new(&scenario);
        let mut recorder = Recorder::new(&scenario);
        for second in 0..40_u64 {
            for request in 0..240 {
                let at = second * num::SECOND + request * num::SECOND / 240;
                let zone = match request % 6 {
                    0 | 1 => 0,
                    2 if uneven(second) => 0,
                    3 | 2 => 1,
                    _ => 2,
                };
                recorder.sent(at, 0, zone);
            }
        }
        settling(&Windows::new(&scenario, &workload, &recorder))
    }

    #[test]
    fn balanced_from_the_start_settles_at_once() {
        let settlings = measured(|_| false);
        assert_eq!(settlings.len(), 2);
        assert_eq!(
            settlings[1],
            Settling {
                step: 20.0,
                time: Some(0.0)
            }
        );
    }

    #[test]
    fn settling_ends_at_the_last_unbalanced_moment() {
        let settlings = measured(|second| (20..24).contains(&second) || second == 27);
        let time = settlings[1].time.unwrap();
        assert!((7.0..=13.0).contains(&time), "{settlings:?}");
        assert_eq!(
            settlings[0].time,
            Some(0.0),
            "windows do not extend beyond their step"
        );
    }

    #[test]
    fn unbalanced_at_the_end_has_not_settled() {
        let settlings = measured(|second| second > 10);
        assert_eq!((settlings[0].time, settlings[1].time), (None, None));
    }
}
