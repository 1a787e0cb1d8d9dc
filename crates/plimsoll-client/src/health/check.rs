//! [`Checker`]: state machine of one active health check of one host: thresholds, edge intervals
//! and jitter, as in Envoy.
//!
//! Without IO: `probe` sends the checks, `checks` runs the tasks.

use std::time::Duration;

use plimsoll_core::model::health::HealthSignal;
use plimsoll_xds::upstream::HealthCheck;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Passed,
    /// Passed, and the response has the header `x-envoy-degraded`.
    Degraded,
    /// The host answered that it is unhealthy: fails at once, whatever `unhealthy_threshold` is.
    Failed,
    /// Timeout, connection failure or retriable status: counts toward `unhealthy_threshold`.
    Inconclusive,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    state: Option<HealthSignal>,
    /// Consecutive results that contradict `state`.
    streak: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) signal: Option<HealthSignal>,
    pub(crate) pause: Duration,
}

impl Checker {
    pub(crate) fn first_pause(settings: &HealthCheck, draw: u64) -> Duration {
        jitter(settings.initial_jitter, draw)
    }

    /// Processes a result. `has_traffic`: the cluster has had a connection for requests. The random
    /// `draw` adds jitter to the next interval.
    pub(crate) fn handle(
        &mut self,
        result: ProbeResult,
        settings: &HealthCheck,
        has_traffic: bool,
        draw: u64,
    ) -> Verdict {
        let good = matches!(result, ProbeResult::Passed | ProbeResult::Degraded);
        let observed = match result {
            ProbeResult::Passed => HealthSignal::ActiveCheckPassed,
            ProbeResult::Degraded => HealthSignal::ActiveCheckDegraded,
            ProbeResult::Failed | ProbeResult::Inconclusive => HealthSignal::ActiveCheckFailed,
        };
        let was_good = self.state != Some(HealthSignal::ActiveCheckFailed);
        let (signal, pending) = match self.state {
            // The first result of a host decides, whatever the thresholds are.
            None => (Some(observed), false),
            Some(state) if state == observed => (None, false),
            // Passed and degraded are both good results: no threshold applies between the two.
            Some(_) if good == was_good => (Some(observed), false),
            Some(_) => {
                self.streak += 1;
                let threshold = if good {
                    settings.healthy_threshold
                } else {
                    settings.unhealthy_threshold
                };
                let reached = result == ProbeResult::Failed || self.streak >= threshold;
                (reached.then_some(observed), !reached)
            }
        };
        if !pending {
            self.streak = 0;
        }
        self.state = signal.or(self.state);
        let interval = interval(settings, has_traffic, good, pending);
        Verdict {
            signal,
            pause: with_jitter(interval, settings, draw),
        }
    }
}

/// Interval to the next check. `pending`: the result counts toward a threshold that is not reached.
const fn interval(
    settings: &HealthCheck,
    has_traffic: bool,
    good: bool,
    pending: bool,
) -> Duration {
    match (has_traffic, good, pending) {
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
        .saturating_add(jitter(settings.interval_jitter, draw))
        .saturating_add(jitter(percent, draw.rotate_left(32)))
}

fn jitter(max: Duration, draw: u64) -> Duration {
    let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
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

    fn letter_of(signal: Option<HealthSignal>) -> char {
        match signal {
            None => '.',
            Some(HealthSignal::ActiveCheckPassed) => 'P',
            Some(HealthSignal::ActiveCheckDegraded) => 'D',
            _ => 'F',
        }
    }

    /// Results as letters `p d f i` in, signals as letters `P D F` and intervals in seconds out.
    fn verdicts(results: &str) -> (String, Vec<u64>) {
        let mut checker = Checker::default();
        let settings = settings();
        let verdicts = results.chars().map(|letter| {
            let result = match letter {
                'p' => ProbeResult::Passed,
                'd' => ProbeResult::Degraded,
                'f' => ProbeResult::Failed,
                _ => ProbeResult::Inconclusive,
            };
            let verdict = checker.handle(result, &settings, true, 0);
            (letter_of(verdict.signal), verdict.pause.as_secs())
        });
        verdicts.unzip()
    }

    #[test]
    fn thresholds_apply_except_to_the_first_result_and_explicit_failures() {
        let cases = [
            ("pp", "P."),
            ("ipp", "F.P"),
            ("piii", "P..F"),
            ("piipiii", "P.....F"),
            ("pf", "PF"),
            ("fpfpp", "F...P"),
            ("pdp", "PDP"),
            ("idd", "F.D"),
        ];
        for (results, expected) in cases {
            assert_eq!(verdicts(results).0, expected, "{results}");
        }
    }

    #[test]
    fn intervals_follow_the_state_and_its_edges() {
        assert_eq!(verdicts("ppiiiipp").1, [10, 10, 12, 12, 11, 11, 13, 10]);
        let mut checker = Checker::default();
        let verdict = checker.handle(ProbeResult::Passed, &settings(), false, 0);
        assert_eq!(verdict.pause.as_secs(), 61);
        let verdict = checker.handle(ProbeResult::Failed, &settings(), false, 0);
        assert_eq!(verdict.pause.as_secs(), 60);
    }

    #[test]
    fn jitter_stays_below_its_maximum() {
        let mut settings = settings();
        settings.interval_jitter = Duration::from_secs(1);
        settings.interval_jitter_percent = 50;
        let pauses = |draw| {
            let verdict = Checker::default().handle(ProbeResult::Passed, &settings, true, draw);
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
