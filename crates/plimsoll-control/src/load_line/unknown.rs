//! [`Unknown`]: why a load line has no numbers for `now` or `enforce`. Every view shows the reason
//! instead of a blank.

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::Plan;

/// Why it is not known how measured demand is, or would be, divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Shares are computed beside the writer, a few services at a time.
    NotComputed,
    NoDemand,
    /// The fleet has no proxies, or the service no endpoints.
    NoShares,
    /// The policy chooses by what proxies observe, and none has reported where requests go.
    NotReported,
    /// As above, and demand would be one more input of the policy.
    OnlyProxiesKnow,
    /// Requests to a zone fail, so that its hosts are no capacity to plan with.
    ZoneFails,
    /// No request to a zone is reported: it may be idle, or what is sent there may vanish, and the
    /// demand of its proxies with it.
    ZoneUnseen,
}

impl Unknown {
    /// Returns why the measured demand of a plan says nothing about what ENFORCE would do.
    pub(crate) fn distorted(plan: &Plan, has_hosts: impl Fn(&Locality) -> bool) -> Option<Self> {
        if !plan.failing.is_empty() || !plan.failed_shares.is_empty() {
            return Some(Self::ZoneFails);
        }
        let mut unseen = plan.unseen.union(&plan.tried);
        unseen.any(has_hosts).then_some(Self::ZoneUnseen)
    }

    /// Returns the reason as a clause, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotComputed => "it is being computed",
            Self::NoDemand => "no load report has counted requests to the service yet",
            Self::NoShares => "the fleet has no proxies, or the service has no endpoints",
            Self::NotReported => {
                "proxies choose zones by the load that they observe, and no load report says yet \
                 where their requests go"
            }
            Self::ZoneFails => {
                "requests to a zone fail; the numbers mean nothing until it recovers"
            }
            Self::ZoneUnseen => {
                "no proxy reports requests to a zone that has hosts; the numbers mean nothing \
                 until it answers some"
            }
            Self::OnlyProxiesKnow => {
                "proxies choose zones by the load that they observe; with ENFORCE they would also \
                 follow demand, and only they can tell the outcome"
            }
        }
    }
}
