//! [`Checker`]: what the answers to active health checks mean for a host, and when to ask again.
//!
//! A machine without IO, as Envoy has it: thresholds, edges and intervals. Asking is `probe`'s
//! business, the tasks are `health_checks`'.

use std::time::Duration;

use plimsoll_core::model::health::HealthSignal;
use plimsoll_xds::upstream::HealthCheck;

/// What a host answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As expected.
    Passed,
    /// As expected, with the marker of a degraded host (`x-envoy-degraded`).
    Degraded,
    /// Something else: the host itself says that it is not well.
    Failed,
    /// Nothing, or what may be an accident: counts towards the threshold.
    Unanswered,
}

/// One check of one host.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    state: Option<HealthSignal>,
    /// Answers in a row that speak against the state.
    streak: u32,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What the host is now, if that changed.
    pub(crate) signal: Option<HealthSignal>,
    /// When to ask again.
    pub(crate) pause: Duration,
}

impl Checker {
    /// When to ask first.
    pub(crate) fn first_pause(settings: &HealthCheck, draw: u64) -> Duration {
        part(settings.initial_jitter, draw)
    }

    /// Takes an answer. `traffic`: the cluster has had a connection for requests. `draw` spreads
    /// the next check.
    pub(crate) fn handle(
        &mut self,
        answer: Answer,
        settings: &HealthCheck,
        (traffic, draw): (bool, u64),
    ) -> Verdict {
        let good = matches!(answer, Answer::Passed | Answer::Degraded);
        let said = match answer {
            Answer::Passed => HealthSignal::ActiveCheckPassed,
            Answer::Degraded => HealthSignal::ActiveCheckDegraded,
            Answer::Failed | Answer::Unanswered => HealthSignal::ActiveCheckFailed,
        };
        let was_good = self.state != Some(HealthSignal::ActiveCheckFailed);
        let (signal, pending) = match self.state {
            // The first answer decides.
            None => (Some(said), false),
            Some(state) if state == said => (None, false),
            // Good is good, degraded or not: no threshold between the two.
            Some(_) if good == was_good => (Some(said), false),
            Some(_) => {
                self.streak += 1;
                let threshold = match good {
                    true => settings.healthy_threshold,
                    false => settings.unhealthy_threshold,
                };
                let enough = answer == Answer::Failed || self.streak >= threshold;
                (enough.then_some(said), !enough)
            }
        };
        if !pending {
            self.streak = 0;
        }
        self.state = signal.or(self.state);
        let interval = interval(settings, (good, pending, traffic));
        Verdict {
            signal,
            pause: with_jitter(interval, settings, draw),
        }
    }
}

/// Time to the next check after an answer that was `good` or not, and that leaves a change
/// `pending` or not.
const fn interval(
    settings: &HealthCheck,
    (good, pending, traffic): (bool, bool, bool),
) -> Duration {
    match (traffic, good, pending) {
        (false, true, _) => settings.no_traffic_healthy_interval,
        (false, false, _) => settings.no_traffic_interval,
        (true, true, true) => settings.healthy_edge_interval,
        (true, true, false) => settings.interval,
        (true, false, true) => settings.unhealthy_edge_interval,
        (true, false, false) => settings.unhealthy_interval,
    }
}

fn with_jitter(interval: Duration, settings: &HealthCheck, draw: u64) -> Duration {
    let percent = interval.saturating_mul(settings.interval_jitter_percent) / 100;
    interval
        .saturating_add(part(settings.interval_jitter, draw))
        .saturating_add(part(percent, draw.rotate_left(32)))
}

/// A random part of `whole`.
fn part(whole: Duration, draw: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(draw.checked_rem(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::upstream::{HealthCheckKind, HealthCheckParts};

    use super::*;

    fn settings() -> HealthCheck {
        let seconds = |count| Some(Duration::from_secs(count));
        HealthCheck::try_new(HealthCheckParts {
            timeout: seconds(1),
            interval: seconds(10),
            initial_jitter: seconds(4),
            interval_jitter: None,
            interval_jitter_percent: 0,
            unhealthy_threshold: Some(3),
            healthy_threshold: Some(2),
            alt_port: None,
            reuse_connection: None,
            no_traffic_interval: seconds(60),
            no_traffic_healthy_interval: seconds(61),
            unhealthy_interval: seconds(11),
            unhealthy_edge_interval: seconds(12),
            healthy_edge_interval: seconds(13),
            kind: HealthCheckKind::Tcp {
                send: None,
                receive: Vec::new(),
            },
        })
        .unwrap()
    }

    fn letter(signal: Option<HealthSignal>) -> char {
        match signal {
            None => '.',
            Some(HealthSignal::ActiveCheckPassed) => 'P',
            Some(HealthSignal::ActiveCheckDegraded) => 'D',
            _ => 'F',
        }
    }

    /// Answers and verdicts as letters: p d f u, and P D F for signals.
    fn verdicts(answers: &str) -> (String, Vec<u64>) {
        let mut checker = Checker::default();
        let settings = settings();
        let taken = answers.chars().map(|letter| {
            let answer = match letter {
                'p' => Answer::Passed,
                'd' => Answer::Degraded,
                'f' => Answer::Failed,
                _ => Answer::Unanswered,
            };
            checker.handle(answer, &settings, (true, 0))
        });
        let taken: Vec<Verdict> = taken.collect();
        let signals = taken.iter().map(|verdict| letter(verdict.signal)).collect();
        (
            signals,
            taken
                .iter()
                .map(|verdict| verdict.pause.as_secs())
                .collect(),
        )
    }

    #[test]
    fn thresholds_hold_except_for_the_first_answer_and_a_plain_no() {
        let cases = [
            ("pp", "P."),
            ("upp", "F.P"),
            ("puuu", "P..F"),
            ("puupuuu", "P.....F"),
            ("pf", "PF"),
            ("fpfpp", "F...P"),
            ("pdp", "PDP"),
            ("udd", "F.D"),
        ];
        for (answers, expected) in cases {
            assert_eq!(verdicts(answers).0, expected, "{answers}");
        }
    }

    #[test]
    fn intervals_are_those_of_the_state_and_of_its_edges() {
        assert_eq!(verdicts("ppuuuupp").1, [10, 10, 12, 12, 11, 11, 13, 10]);
        let mut checker = Checker::default();
        let verdict = checker.handle(Answer::Passed, &settings(), (false, 0));
        assert_eq!(verdict.pause.as_secs(), 61);
        let verdict = checker.handle(Answer::Failed, &settings(), (false, 0));
        assert_eq!(verdict.pause.as_secs(), 60);
    }

    #[test]
    fn jitter_is_a_part_of_what_is_allowed() {
        let mut settings = settings();
        settings.interval_jitter = Duration::from_secs(1);
        settings.interval_jitter_percent = 50;
        let pauses = |draw| {
            let verdict = Checker::default().handle(Answer::Passed, &settings, (true, draw));
            verdict.pause
        };
        assert_eq!(pauses(0), Duration::from_secs(10));
        for draw in [1, u64::MAX, 0x1234_5678_9abc_def0] {
            assert!(pauses(draw) >= Duration::from_secs(10));
            assert!(pauses(draw) < Duration::from_secs(16));
        }
        assert!(Checker::first_pause(&settings, u64::MAX) < Duration::from_secs(4));
    }
}
