//! Texts of the demo's actions: label, help, event and hint.

use crate::setting::{Action, Mix, Policy};

impl Action {
    pub(crate) const fn group(self) -> &'static str {
        match self {
            Self::Route(_) => "Route by",
            Self::Traffic(_) | Self::Surge(_) => "Traffic",
            Self::Lose(_) | Self::Control(_) => "Failures",
        }
    }

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

    pub(crate) const fn help(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => {
                "Zone-aware routing as in Envoy: demand is estimated from the number of proxies in \
                 each zone."
            }
            Self::Route(Policy::LrsReportedRate) => {
                "Zone-aware routing by measured demand: proxies report their load (LRS) and the \
                 control plane adds it up."
            }
            Self::Route(Policy::Headroom) => {
                "load_aware_locality with its default controller: proxies spill to other zones by \
                 the utilization that backends report (ORCA)."
            }
            Self::Route(Policy::Convergent) => {
                "load_aware_locality with a controller that converges instead of oscillating."
            }
            Self::Traffic(Mix::Skewed) => "60 % of the requests arrive in zone-a.",
            Self::Traffic(Mix::Moved) => "60 % of the requests arrive in zone-b.",
            Self::Traffic(Mix::Even) => "The same number of requests arrives in every zone.",
            Self::Surge(true) => "30 % more requests arrive in every zone.",
            Self::Surge(false) => "The request rate returns to normal.",
            Self::Lose(true) => {
                "All backends of zone-c are killed, and nobody is told: health checks of the \
                 proxies find out."
            }
            Self::Lose(false) => "The backends of zone-c are restarted.",
            Self::Control(false) => "No discovery and no load reports. Requests are still served.",
            Self::Control(true) => "It starts without any saved state.",
        }
    }

    pub(crate) const fn event(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => "routing by host counts",
            Self::Route(Policy::LrsReportedRate) => "routing by LRS_REPORTED_RATE",
            Self::Route(Policy::Headroom) => "routing by HEADROOM",
            Self::Route(Policy::Convergent) => "routing by CONVERGENT",
            Self::Traffic(Mix::Skewed) => "traffic arrives 60 / 20 / 20",
            Self::Traffic(Mix::Moved) => "traffic arrives 20 / 60 / 20",
            Self::Traffic(Mix::Even) => "traffic arrives evenly",
            Self::Surge(true) => "30 % more requests arrive",
            Self::Surge(false) => "the request rate is back to normal",
            Self::Lose(true) => "the backends of zone-c were killed",
            Self::Lose(false) => "the backends of zone-c were restarted",
            Self::Control(false) => "the control plane was stopped",
            Self::Control(true) => "the control plane was started",
        }
    }

    /// Hint at what to watch on the dashboard after the action.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::Route(Policy::HostCounts) => {
                "Watch zone-a: every zone has the same number of proxies, so host counts suggest \
                 equal demand. All requests stay in their zone, and zone-a is overloaded while the \
                 others have spare capacity."
            }
            Self::Route(Policy::LrsReportedRate) => {
                "Watch the load lines: within seconds every zone reaches 100 %. The ribbons show \
                 that only the excess leaves the busy zone and nothing leaves the others."
            }
            Self::Route(Policy::Headroom) => {
                "Watch load over time: the controller switches between keeping all requests and \
                 spilling. Zones overshoot, oscillate or settle away from their line."
            }
            Self::Route(Policy::Convergent) => {
                "Watch load over time: with the same reports of backends, every zone settles at \
                 100 %. This policy does not need the control plane."
            }
            Self::Traffic(Mix::Skewed | Mix::Moved) => {
                "Watch where requests arrive: another zone is busy now. Routing by measured demand \
                 or load follows; routing by host counts does not."
            }
            Self::Traffic(Mix::Even) => {
                "Watch kept local: with even demand no request has to leave its zone."
            }
            Self::Surge(true) => {
                "Watch utilization: it rises in every zone, the shares stay the same."
            }
            Self::Surge(false) => "Watch utilization: it falls in every zone alike.",
            Self::Lose(true) => {
                "Watch zone-c: its requests go to zones with spare capacity. The load lines of the \
                 other zones rise because less capacity is left."
            }
            Self::Lose(false) => "Watch zone-c: its requests stay in the zone again.",
            Self::Control(false) => {
                "Watch failed requests: there are none. Proxies keep their configuration; after \
                 60 s the measured demand is stale and they fall back to host counts."
            }
            Self::Control(true) => {
                "Watch the nodes: proxies reconnect, report their load and receive updates again."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_its_texts() {
        for action in Action::ALL {
            assert!(action.hint().starts_with("Watch "), "{action}");
            assert!(action.help().ends_with('.'), "{action}");
            assert!(!action.event().ends_with('.'), "{action}");
            let same = Action::ALL
                .iter()
                .filter(|one| one.label() == action.label());
            assert_eq!(same.count(), 1, "{action}");
        }
    }
}
