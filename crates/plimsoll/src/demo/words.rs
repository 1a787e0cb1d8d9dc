//! What the demo says: labels of buttons, what an action does, and what to look at after it.
//!
//! Words only. Which actions there are is in `setting`.

use super::setting::{Action, Mix, Policy};

impl Action {
    /// Buttons of a group stand together.
    pub(crate) const fn group(self) -> &'static str {
        match self {
            Self::Route(_) => "Route by",
            Self::Traffic(_) | Self::Surge(_) => "Traffic",
            Self::Lose(_) | Self::Control(_) => "Break things",
        }
    }

    /// For the button.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => "host counts",
            Self::Route(Policy::LrsReportedRate) => "LRS_REPORTED_RATE",
            Self::Route(Policy::Headroom) => "HEADROOM",
            Self::Route(Policy::Convergent) => "CONVERGENT",
            Self::Traffic(Mix::Skewed) => "60 / 20 / 20",
            Self::Traffic(Mix::Moved) => "20 / 60 / 20",
            Self::Traffic(Mix::Even) => "even",
            Self::Surge(true) => "30 % more",
            Self::Surge(false) => "normal",
            Self::Lose(true) => "kill zone-c",
            Self::Lose(false) => "bring zone-c back",
            Self::Control(false) => "stop the control plane",
            Self::Control(true) => "start the control plane",
        }
    }

    /// What it does, in a sentence.
    pub(crate) const fn help(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => {
                "Zone-aware routing as Envoy has it: the number of proxies in a zone stands for \
                 its demand."
            }
            Self::Route(Policy::LrsReportedRate) => {
                "Zone-aware routing by the demand that proxies report and the control plane adds \
                 up."
            }
            Self::Route(Policy::Headroom) => {
                "load_aware_locality: proxies spill by the utilization that backends report \
                 (ORCA), by its own rule."
            }
            Self::Route(Policy::Convergent) => {
                "load_aware_locality with a controller that settles instead of switching."
            }
            Self::Traffic(Mix::Skewed) => "Three fifths of the requests arrive in zone-a.",
            Self::Traffic(Mix::Moved) => "Three fifths of the requests arrive in zone-b.",
            Self::Traffic(Mix::Even) => "As many requests arrive in every zone.",
            Self::Surge(true) => "30 % more requests everywhere.",
            Self::Surge(false) => "As many requests as at the beginning.",
            Self::Lose(true) => "All backends of zone-c die; its proxies and clients live on.",
            Self::Lose(false) => "The backends of zone-c start again.",
            Self::Control(false) => "No discovery, no load reports. Requests go on.",
            Self::Control(true) => "It comes back with nothing in its memory.",
        }
    }

    /// What happened, for the list of events.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => "routing goes by host counts",
            Self::Route(Policy::LrsReportedRate) => "routing goes by LRS_REPORTED_RATE",
            Self::Route(Policy::Headroom) => "routing goes by HEADROOM",
            Self::Route(Policy::Convergent) => "routing goes by CONVERGENT",
            Self::Traffic(Mix::Skewed) => "traffic arrives 60 / 20 / 20",
            Self::Traffic(Mix::Moved) => "traffic arrives 20 / 60 / 20",
            Self::Traffic(Mix::Even) => "traffic arrives evenly",
            Self::Surge(true) => "30 % more requests arrive",
            Self::Surge(false) => "as many requests arrive as at the beginning",
            Self::Lose(true) => "the backends of zone-c were killed",
            Self::Lose(false) => "the backends of zone-c are back",
            Self::Control(false) => "the control plane was stopped",
            Self::Control(true) => "the control plane was started",
        }
    }

    /// What to look at now.
    pub(crate) const fn look(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => {
                "Look at zone-a: the same number of proxies everywhere looks like the same demand \
                 everywhere, so all requests stay in their zone, and the one with most of them \
                 drowns beside idle ones."
            }
            Self::Route(Policy::LrsReportedRate) => {
                "Look at the load lines: within seconds every zone comes to 100 %. The ribbons \
                 show that no more leaves the busy zone than must, and nothing leaves the others."
            }
            Self::Route(Policy::Headroom) => {
                "Look at load over time: the rule switches between keeping all and spilling. Zones \
                 overshoot, swing or come to rest beside their line."
            }
            Self::Route(Policy::Convergent) => {
                "Look at load over time: the same reports of backends, and the lines settle at \
                 100 %. No control plane takes part in this one."
            }
            Self::Traffic(Mix::Skewed | Mix::Moved) => {
                "Look at where requests arrive: the busy zone is another one. Measured demand and \
                 load follow; host counts do not."
            }
            Self::Traffic(Mix::Even) => {
                "Look at kept local: with even demand nothing has to leave its zone."
            }
            Self::Surge(true) => {
                "Look at utilization: all of it rises, shares stay. What was level stays level."
            }
            Self::Surge(false) => "Look at utilization: it falls everywhere alike.",
            Self::Lose(true) => {
                "Look at zone-c: its requests go where capacity is spare, and the load lines of \
                 the others move up, because there is less capacity to share."
            }
            Self::Lose(false) => "Look at zone-c: its traffic comes home.",
            Self::Control(false) => {
                "Look at failed requests: there are none. Proxies keep what they were told; after \
                 60 s they no longer trust old demand and go by host counts."
            }
            Self::Control(true) => {
                "Look at the nodes: proxies come back by themselves, report, and are told again."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_says_what_it_does_and_what_to_look_at() {
        for action in Action::ALL {
            assert!(action.look().starts_with("Look at "), "{action}");
            assert!(action.help().ends_with('.'), "{action}");
            assert!(!action.done().ends_with('.'), "{action}");
            let same = Action::ALL
                .iter()
                .filter(|one| one.label() == action.label());
            assert_eq!(same.count(), 1, "{action}");
        }
    }
}
