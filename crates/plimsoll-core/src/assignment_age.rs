//! [`AssignmentAge`]: when endpoints that nobody confirms are forgotten
//! (`ClusterLoadAssignment.policy.endpoint_stale_after`).
//!
//! A machine without IO beside the balancer: a driver that takes assignments from a management
//! server shows it each one, and hands on the empty one it yields when the time is over. As in
//! Envoy every assignment counts, one that changes nothing too, and one without the field stops the
//! clock.

use std::time::Duration;

use crate::model::assignment::ClusterLoadAssignment;
use crate::time::Instant;

/// The age of one assignment.
#[derive(Clone, Debug, Default)]
pub struct AssignmentAge {
    armed: Option<Armed>,
}

#[derive(Clone, Debug)]
struct Armed {
    deadline: Instant,
    stale_after: Duration,
    /// What is handed on then.
    empty: ClusterLoadAssignment,
}

impl AssignmentAge {
    /// An assignment arrived. Returns whether it has a time after which it is stale.
    pub fn handle_assignment(&mut self, assignment: &ClusterLoadAssignment, now: Instant) -> bool {
        self.armed = assignment.endpoint_stale_after().map(|stale_after| Armed {
            deadline: now.saturating_add(stale_after),
            stale_after,
            empty: ClusterLoadAssignment::empty(assignment.cluster_name()),
        });
        self.armed.is_some()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.armed.as_ref().map(|armed| armed.deadline)
    }

    /// Once the time is over: the age at which that was, and an assignment without endpoints, to be
    /// used until the next one arrives.
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
    fn the_assignment_empties_unless_it_is_repeated() {
        let three = assignment(Some(Duration::from_secs(3)));
        let mut age = AssignmentAge::default();
        assert!(age.handle_assignment(&three, at(0)));
        assert_eq!(age.poll_timeout(), Some(at(3)));
        assert!(age.handle_timeout(at(2)).is_none(), "early");
        // The same again is confirmation.
        age.handle_assignment(&three, at(2));
        assert!(age.handle_timeout(at(4)).is_none());
        let (stale_after, empty) = age.handle_timeout(at(5)).unwrap();
        assert_eq!(stale_after, Duration::from_secs(3));
        assert_eq!(empty, ClusterLoadAssignment::empty("orders"));
        assert_eq!(empty.endpoints().len(), 0);
        // Once.
        assert_eq!(age.poll_timeout(), None);
        assert!(age.handle_timeout(at(9)).is_none());
    }

    #[test]
    fn one_without_the_field_stops_the_clock() {
        let mut age = AssignmentAge::default();
        age.handle_assignment(&assignment(Some(Duration::from_secs(3))), at(0));
        assert!(!age.handle_assignment(&assignment(None), at(1)));
        assert_eq!(age.poll_timeout(), None);
        // Zero is no time, as in Envoy.
        assert!(!age.handle_assignment(&assignment(Some(Duration::ZERO)), at(1)));
    }
}
