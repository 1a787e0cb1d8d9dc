//! [`Unknown`]: why a load line has no numbers for `now` or `enforce`. Every view shows the reason
//! instead of a blank.

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
}

impl Unknown {
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
            Self::OnlyProxiesKnow => {
                "proxies choose zones by the load that they observe; with ENFORCE they would also \
                 follow demand, and only they can tell the outcome"
            }
        }
    }
}
