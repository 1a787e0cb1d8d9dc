//! Batches changes of a fleet's membership. Every batch is an update for all nodes of the fleet.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::{ControlEvent, State};

const MEMBERSHIP_DELAY: Duration = Duration::from_secs(1);
/// In larger fleets than this one, batches wait a millisecond more for each node: otherwise each
/// node that connects would cost as much as there are nodes, and a fleet that connects at once
/// would take minutes.
const SMALL_FLEET: usize = 1000;
const MAX_MEMBERSHIP_DELAY: Duration = Duration::from_secs(10);

impl State {
    /// Returns when a change of membership is published.
    pub(super) fn next_batch(&self, fleet: &str, now: Instant) -> Instant {
        let more = self.fleets.node_count(fleet).saturating_sub(SMALL_FLEET);
        let delay = MEMBERSHIP_DELAY.saturating_add(Duration::from_millis(more as u64));
        now.saturating_add(delay.min(MAX_MEMBERSHIP_DELAY))
    }

    pub(super) fn membership_changed(&mut self, fleet: &Arc<str>, due: Instant) {
        let nodes = self.fleets.node_count(fleet);
        self.event(ControlEvent::FleetChanged {
            fleet: Arc::clone(fleet),
            nodes,
        });
        let deadline = self.membership_due.entry(Arc::clone(fleet)).or_insert(due);
        *deadline = due.min(*deadline);
    }
}
