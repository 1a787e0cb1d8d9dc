//! [`Reason`]: labels and texts of reasons in events.

use plimsoll_core::planner::{IgnoreReason, LeaveReason, UpdateCause};

/// A reason with a label in metrics, log lines and the admin API.
pub(crate) trait Reason: Copy {
    /// All labels, of which each has a series from the start.
    const LABELS: &'static [&'static str];

    fn label(self) -> &'static str;

    /// Returns the reason as a sentence; empty if no event shows it.
    fn text(self) -> &'static str;
}

macro_rules! reasons {
    ($reason:ident { $($variant:ident = $label:literal, $text:literal;)+ }) => {
        impl Reason for $reason {
            const LABELS: &'static [&'static str] = &[$($label),+];

            fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }

            fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

reasons! {
    IgnoreReason {
        ImplausibleInterval = "implausible_interval", "its interval is implausibly short";
        ImplausibleRate = "implausible_rate", "its rate is implausibly high";
        NodeWithoutId = "node_without_id", "the node has no id";
        NodeWithoutLocality = "node_without_locality", "the node has no locality";
        UnknownZone = "unknown_zone", "no service has endpoints in its zone";
        TooManyClusters = "too_many_clusters", "its fleet reports too many clusters";
    }
}

reasons! {
    LeaveReason {
        Silent = "silent", "it missed its reports";
        Disconnected = "disconnected", "its stream closed";
    }
}

reasons! {
    UpdateCause {
        Heartbeat = "heartbeat", "";
        Confirmation = "confirmation", "";
        FractionsMoved = "fractions_moved", "";
        ZonesChanged = "zones_changed", "";
        FirstData = "first_data", "";
        WarmedUp = "warmed_up", "";
        NoData = "no_data", "";
    }
}
