//! Script of `plimsoll demo --auto`: which action runs when.

use std::time::Duration;

use crate::setting::{Action, Mix, Policy};

/// Time per step if `--duration` is not given.
const STEP: Duration = Duration::from_secs(15);

/// Actions of the script, after the initial setting.
pub(crate) const STEPS: [Action; 11] = [
    Action::Route(Policy::LrsReportedRate),
    Action::Traffic(Mix::Moved),
    Action::Lose(true),
    Action::Lose(false),
    Action::Control(false),
    Action::Control(true),
    Action::Route(Policy::Headroom),
    Action::Route(Policy::Convergent),
    Action::Surge(true),
    Action::Traffic(Mix::Skewed),
    Action::Route(Policy::HostCounts),
];

#[derive(Clone, Debug)]
pub(crate) struct Script {
    step: Duration,
    left: std::slice::Iter<'static, Action>,
    due: Duration,
}

impl Script {
    /// Creates the script, spread evenly over `duration` if that is given; empty without `auto`.
    pub(crate) fn new(auto: bool, duration: Option<Duration>) -> Self {
        let shown = u32::try_from(STEPS.len()).unwrap_or(u32::MAX) + 1;
        let step = duration.map_or(STEP, |duration| duration / shown);
        Self {
            step,
            left: if auto { STEPS.iter() } else { [].iter() },
            due: step,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left.len() == 0
    }

    pub(crate) fn next(&mut self, elapsed: Duration) -> Option<Action> {
        if elapsed < self.due {
            return None;
        }
        self.due += self.step;
        self.left.next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[test]
    fn the_script_covers_all_policies_and_ends_with_everything_running() {
        let policies = [
            Policy::LrsReportedRate,
            Policy::Headroom,
            Policy::Convergent,
        ];
        for policy in policies {
            assert!(STEPS.contains(&Action::Route(policy)), "{policy:?}");
        }
        let mut setting = Setting::OPENING;
        for action in STEPS {
            assert_ne!(setting.after(action), setting, "{action} changes something");
            setting = setting.after(action);
        }
        assert!(setting.control && !setting.lost);
    }

    #[test]
    fn steps_run_one_by_one_when_they_are_due() {
        let second = Duration::from_secs(1);
        let mut script = Script::new(true, Some(12 * second));
        assert_eq!(script.next(Duration::ZERO), None);
        let done: Vec<_> = (1..=11).filter_map(|at| script.next(at * second)).collect();
        assert_eq!(done, STEPS);
        assert!(script.is_done());
        assert_eq!(script.next(100 * second), None);
        assert_eq!(Script::new(false, None).next(100 * second), None);
    }
}
