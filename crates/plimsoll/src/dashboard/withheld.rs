//! Notices about fleets whose demand is not delivered.

use plimsoll_admin::state::{Notice, Severity};
use plimsoll_control::demand::Withheld;
use plimsoll_control::state::State;
use plimsoll_core::time::Instant;

/// Names the fleets whose newest demand is not delivered, apart from those of which nothing is
/// known yet, and those about which replicas agree in a moment.
pub(super) fn notices(state: &State, now: Instant) -> Vec<Notice> {
    let fleets = state.fleets().iter();
    let withheld = fleets.filter_map(|(fleet, _)| {
        let reason = match state.withheld(fleet, None, now)? {
            Withheld::Starting { .. } | Withheld::Agreeing => return None,
            reason @ (Withheld::StoreUnread | Withheld::Incomplete { .. }) => reason,
        };
        Some(Notice {
            severity: Severity::Info,
            text: format!("demand of {fleet} is not delivered yet: {reason}"),
        })
    });
    withheld.take(super::MAX_SUSPICIONS).collect()
}
