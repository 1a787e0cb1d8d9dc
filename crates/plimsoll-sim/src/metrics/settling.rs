//! How long after each step it takes until the zones are even again, and stay so.

use super::recorder::BIN;
use super::windows::{FIVE_SECONDS, Windows};
use crate::num;

/// Even: the 5 s max ÷ mean that CONVERGENT must not exceed once it has settled.
pub(crate) const EVEN: f64 = 1.12;
/// Steps that follow each other faster than this are one.
const SHORTEST: usize = 2 * FIVE_SECONDS;

/// Settling after one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settling {
    /// When the step was, seconds.
    pub(crate) step: f64,
    /// How long it took, seconds; `None` = it did not settle before the next step or the end.
    pub(crate) took: Option<f64>,
}

/// Settling after the start and after each change of the scenario.
pub(crate) fn settling(windows: &Windows<'_>) -> Vec<Settling> {
    let steps = windows.scenario.steps();
    let bins: Vec<usize> = steps.iter().map(|&step| num::slot(step, BIN)).collect();
    let mut settlings = Vec::new();
    for (index, &begin) in bins.iter().enumerate() {
        let end = bins.get(index + 1).copied().unwrap_or(windows.bins());
        if end - begin < SHORTEST {
            continue;
        }
        settlings.push(Settling {
            step: num::seconds(steps[index]),
            took: took(windows, begin, end),
        });
    }
    settlings
}

/// The time until the last uneven window of a stretch; windows look back no further than the step.
fn took(windows: &Windows<'_>, begin: usize, end: usize) -> Option<f64> {
    let uneven = |bin: &usize| {
        let length = FIVE_SECONDS.min(bin - begin);
        windows
            .max_over_mean(*bin, length)
            .is_some_and(|ratio| ratio > EVEN)
    };
    // The first second after a step is too short to tell.
    let last = (begin + 4..=end).rev().find(uneven);
    match last {
        None => Some(0.0),
        // Uneven in the last five seconds: nobody can say that it has settled.
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

    /// A run of 40 s with a step at 20 s, in which zone a gets twice its share while `uneven`.
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
    fn even_from_the_start_takes_no_time() {
        let settlings = measured(|_| false);
        assert_eq!(settlings.len(), 2);
        assert_eq!(
            settlings[1],
            Settling {
                step: 20.0,
                took: Some(0.0)
            }
        );
    }

    #[test]
    fn the_last_uneven_moment_counts() {
        let settlings = measured(|second| (20..24).contains(&second) || second == 27);
        let took = settlings[1].took.unwrap();
        assert!((7.0..=13.0).contains(&took), "{settlings:?}");
        assert_eq!(
            settlings[0].took,
            Some(0.0),
            "steps do not look into each other"
        );
    }

    #[test]
    fn uneven_at_the_end_has_not_settled() {
        let settlings = measured(|second| second > 10);
        assert_eq!((settlings[0].took, settlings[1].took), (None, None));
    }
}
