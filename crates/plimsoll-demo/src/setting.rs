//! [`Setting`] of the demo, and the [`Action`]s of a user that change it. No IO: `environment`
//! applies the setting to the running components.

use std::fmt;

pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Index of the zone that the user can kill.
pub(crate) const LOST: usize = 2;
pub(crate) const BACKENDS: usize = 4;
pub(crate) const PROXIES: usize = 2;
/// Requests per second of all zones together.
pub(crate) const RATE: f64 = 216.0;
/// Requests per second that one backend can serve; the mean utilization is then 0.6.
pub(crate) const CAPACITY: f64 = 30.0;
/// Factor on the request rate during a surge.
const SURGE: f64 = 1.3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Zone-aware routing that estimates demand from host counts, as Envoy does.
    HostCounts,
    /// Zone-aware routing by the demand that the control plane measures.
    LrsReportedRate,
    /// `load_aware_locality` with its default spill controller.
    Headroom,
    Convergent,
}

/// Distribution of requests over the zones in which they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Most requests arrive in the first zone.
    Skewed,
    /// Most requests arrive in the second zone.
    Moved,
    /// The same number arrives in every zone.
    Even,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) policy: Policy,
    pub(crate) mix: Mix,
    pub(crate) surge: bool,
    /// Whether the backends of zone [`LOST`] are down.
    pub(crate) lost: bool,
    pub(crate) control: bool,
}

/// Change that a user can make; each has a button on the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Route(Policy),
    Traffic(Mix),
    Surge(bool),
    Lose(bool),
    Control(bool),
}

impl Policy {
    /// Name of the policy in the configuration of a cluster.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HostCounts => "HEALTHY_HOSTS_NUM",
            Self::LrsReportedRate => "LRS_REPORTED_RATE",
            Self::Headroom => "HEADROOM",
            Self::Convergent => "CONVERGENT",
        }
    }

    /// Whether load reports of backends (ORCA) decide how traffic is routed.
    pub(crate) const fn is_load_aware(self) -> bool {
        matches!(self, Self::Headroom | Self::Convergent)
    }
}

impl Mix {
    pub(crate) const fn shares(self) -> [u32; 3] {
        match self {
            Self::Skewed => [60, 20, 20],
            Self::Moved => [20, 60, 20],
            Self::Even => [34, 33, 33],
        }
    }
}

impl Setting {
    pub(crate) const OPENING: Self = Self {
        policy: Policy::HostCounts,
        mix: Mix::Skewed,
        surge: false,
        lost: false,
        control: true,
    };

    #[must_use]
    pub(crate) const fn after(mut self, action: Action) -> Self {
        match action {
            Action::Route(policy) => self.policy = policy,
            Action::Traffic(mix) => self.mix = mix,
            Action::Surge(surge) => self.surge = surge,
            Action::Lose(lost) => self.lost = lost,
            Action::Control(control) => self.control = control,
        }
        self
    }

    /// Returns the requests per second that arrive in each zone.
    pub(crate) fn rates(self) -> [f64; 3] {
        let all = if self.surge { RATE * SURGE } else { RATE };
        self.mix
            .shares()
            .map(|share| all * f64::from(share) / 100.0)
    }
}

impl Action {
    /// All actions, in the order of their buttons.
    pub(crate) const ALL: [Self; 13] = [
        Self::Route(Policy::HostCounts),
        Self::Route(Policy::LrsReportedRate),
        Self::Route(Policy::Headroom),
        Self::Route(Policy::Convergent),
        Self::Traffic(Mix::Skewed),
        Self::Traffic(Mix::Moved),
        Self::Traffic(Mix::Even),
        Self::Surge(true),
        Self::Surge(false),
        Self::Lose(true),
        Self::Lose(false),
        Self::Control(false),
        Self::Control(true),
    ];

    /// Finds an action by its [`name`](Self::name).
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Name of the action in URLs and in JSON output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => "host-counts",
            Self::Route(Policy::LrsReportedRate) => "lrs-reported-rate",
            Self::Route(Policy::Headroom) => "headroom",
            Self::Route(Policy::Convergent) => "convergent",
            Self::Traffic(Mix::Skewed) => "traffic-a",
            Self::Traffic(Mix::Moved) => "traffic-b",
            Self::Traffic(Mix::Even) => "traffic-even",
            Self::Surge(true) => "surge",
            Self::Surge(false) => "calm",
            Self::Lose(true) => "kill-zone",
            Self::Lose(false) => "restore-zone",
            Self::Control(false) => "stop-control",
            Self::Control(true) => "start-control",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_to_their_actions() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.name()), Some(action));
        }
        assert_eq!(Action::parse("make-coffee"), None);
    }

    #[test]
    fn actions_are_idempotent_and_can_be_undone() {
        let opening = Setting::OPENING;
        for action in Action::ALL {
            let after = opening.after(action);
            assert_eq!(
                after.after(action),
                after,
                "{action} twice is {action} once"
            );
        }
        let lost = opening.after(Action::Lose(true));
        assert_ne!(lost, opening);
        assert_eq!(lost.after(Action::Lose(false)), opening);
    }

    #[test]
    fn demand_exceeds_the_capacity_of_the_busy_zone_but_not_of_all_zones() {
        let rates = Setting::OPENING.rates();
        let zone = CAPACITY * BACKENDS as f64;
        assert!(rates[0] > zone, "{rates:?}");
        assert!((rates.iter().sum::<f64>() / (3.0 * zone) - 0.6).abs() < 1e-9);
        let surge = Setting::OPENING.after(Action::Surge(true)).rates();
        assert!(surge.iter().sum::<f64>() < 3.0 * zone);
    }
}
