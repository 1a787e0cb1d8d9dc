//! Expiry of endpoints that the management server does not confirm
//! (`ClusterLoadAssignment.policy.endpoint_stale_after`).
//!
//! A driver passes in each assignment from a management server, and applies the empty assignment
//! that [`AssignmentAge`] returns when the time is over. As in Envoy every assignment restarts the
//! timer, even one without changes; an assignment without the field stops it.

use std::time::Duration;

use crate::model::assignment::ClusterLoadAssignment;
use crate::time::Instant;

/// Staleness timer of one cluster's assignment.
#[derive(Clone, Debug, Default)]
pub struct AssignmentAge {
    armed: Option<Armed>,
}

#[derive(Clone, Debug)]
struct Armed {
    deadline: Instant,
    stale_after: Duration,
    empty: ClusterLoadAssignment,
}

impl AssignmentAge {
    /// Restarts the timer for a new assignment. Returns whether the assignment can become stale.
    pub fn handle_assignment(&mut self, assignment: &ClusterLoadAssignment, now: Instant) -> bool {
        self.armed = assignment.endpoint_stale_after().map(|stale_after| Armed {
            deadline: now.saturating_add(stale_after),
            stale_after,
            empty: ClusterLoadAssignment::empty(assignment.cluster_name()),
        });
        self.armed.is_some()
    }

    /// Returns when [`Self::handle_timeout`] must be called; `None` if the timer is stopped.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.armed.as_ref().map(|armed| armed.deadline)
    }

    /// After the deadline, returns the age at which the assignment became stale and an assignment
    /// without endpoints, to be used until the next one arrives.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<(Duration, ClusterLoadAssignment)> {
        let armed = self.armed.take_if(|armed| armed.deadline <= now)?;
        Some((armed.stale_after, armed.empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};

    fn assignment(stale_after: Option<Duration>) -> ClusterLoadAssignment {
        let endpoint = LbEndpoint::new(([10, 0, 0, 1], 80).into());
        ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: "orders".into(),
            endpoints: vec![LocalityParts {
                lb_endpoints: vec![endpoint],
                ..Default::default()
            }],
            endpoint_stale_after: stale_after,
            ..Default::default()
        })
        .unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn the_assignment_expires_unless_it_is_repeated() {
        let three = assignment(Some(Duration::from_secs(3)));
        let mut age = AssignmentAge::default();
        assert!(age.handle_assignment(&three, at(0)));
        assert_eq!(age.poll_timeout(), Some(at(3)));
        assert!(age.handle_timeout(at(2)).is_none(), "early");
        // Receiving the same assignment again restarts the timer.
        age.handle_assignment(&three, at(2));
        assert!(age.handle_timeout(at(4)).is_none());
        let (stale_after, empty) = age.handle_timeout(at(5)).unwrap();
        assert_eq!(stale_after, Duration::from_secs(3));
        assert_eq!(empty, ClusterLoadAssignment::empty("orders"));
        assert_eq!(empty.endpoints().len(), 0);
        // The timer fires only once.
        assert_eq!(age.poll_timeout(), None);
        assert!(age.handle_timeout(at(9)).is_none());
    }

    #[test]
    fn an_assignment_without_the_field_stops_the_timer() {
        let mut age = AssignmentAge::default();
        age.handle_assignment(&assignment(Some(Duration::from_secs(3))), at(0));
        assert!(!age.handle_assignment(&assignment(None), at(1)));
        assert_eq!(age.poll_timeout(), None);
        // An `endpoint_stale_after` of zero counts as unset, as in Envoy.
        assert!(!age.handle_assignment(&assignment(Some(Duration::ZERO)), at(1)));
    }
}
