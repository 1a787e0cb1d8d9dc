//! [`Counters`]: what happened so far, for `/metrics`.
//!
//! The writer and the reporting streams count here; totals of discovery are kept with the records
//! of streams (`server::Records`). Names and help texts live in `admin::metrics`. No label names a
//! node: there may be thousands.

use plimsoll_core::planner::UpdateCause;
use plimsoll_core::planner::{IgnoreReason, LeaveReason, PlannerEvent};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::state::ControlEvent;

/// One label.
pub(crate) type Label = [(&'static str, &'static str); 1];

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Load reports that arrived.
    pub(crate) load_reports: Counter,
    /// Reports about one cluster that were not used, by reason.
    pub(crate) load_reports_ignored: Family<Label, Counter>,
    /// Plans, by cause.
    pub(crate) plans: Family<Label, Counter>,
    /// Proxies whose demand began to count.
    pub(crate) reporters_joined: Counter,
    /// Proxies whose demand no longer counts, by reason.
    pub(crate) reporters_left: Family<Label, Counter>,
}

impl Counters {
    /// Something happened in the state.
    pub(crate) fn event(&self, event: &ControlEvent) {
        match event {
            ControlEvent::Planned(plan) => {
                let cause = [("cause", cause(plan.cause))];
                self.plans.get_or_create(&cause).inc();
            }
            ControlEvent::Planner(PlannerEvent::ReportIgnored { reason, .. }) => {
                self.ignored(ignored(*reason), 1);
            }
            ControlEvent::Planner(PlannerEvent::NodeJoined { .. }) => {
                self.reporters_joined.inc();
            }
            ControlEvent::Planner(PlannerEvent::NodeLeft { reason, .. }) => {
                let reason = [("reason", left(*reason))];
                self.reporters_left.get_or_create(&reason).inc();
            }
            ControlEvent::Planner(PlannerEvent::NodeMoved { .. })
            | ControlEvent::ConfigApplied { .. }
            | ControlEvent::HeartbeatShortened { .. }
            | ControlEvent::FleetChanged { .. } => {}
        }
    }

    /// Reports about `count` clusters were not used.
    pub(crate) fn ignored(&self, reason: &'static str, count: u64) {
        if count > 0 {
            let reason = [("reason", reason)];
            self.load_reports_ignored
                .get_or_create(&reason)
                .inc_by(count);
        }
    }
}

/// The name of a cause, as pages and metrics spell it.
pub(crate) const fn cause(cause: UpdateCause) -> &'static str {
    match cause {
        UpdateCause::EndpointsChanged => "endpoints_changed",
        UpdateCause::FirstData => "first_data",
        UpdateCause::FractionsMoved => "fractions_moved",
        UpdateCause::Heartbeat => "heartbeat",
        UpdateCause::NoData => "no_data",
        UpdateCause::WarmedUp => "warmed_up",
        UpdateCause::ZonesChanged => "zones_changed",
    }
}

const fn ignored(reason: IgnoreReason) -> &'static str {
    match reason {
        IgnoreReason::ImplausibleInterval => "implausible_interval",
        IgnoreReason::ImplausibleRate => "implausible_rate",
        IgnoreReason::NodeWithoutId => "node_without_id",
        IgnoreReason::NodeWithoutLocality => "node_without_locality",
    }
}

const fn left(reason: LeaveReason) -> &'static str {
    match reason {
        LeaveReason::Disconnected => "disconnected",
        LeaveReason::Silent => "silent",
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    #[test]
    fn events_are_counted_by_their_reason() {
        let counters = Counters::default();
        let event = |reason| {
            ControlEvent::Planner(PlannerEvent::NodeLeft {
                fleet: "gateway".into(),
                node: "1".into(),
                locality: Locality::zone_only("a"),
                reason,
            })
        };
        counters.event(&event(LeaveReason::Silent));
        counters.event(&event(LeaveReason::Silent));
        counters.event(&event(LeaveReason::Disconnected));
        let left = |reason| {
            let label = [("reason", reason)];
            counters.reporters_left.get_or_create(&label).get()
        };
        assert_eq!((left("silent"), left("disconnected")), (2, 1));
    }

    #[test]
    fn nothing_ignored_makes_no_series() {
        let counters = Counters::default();
        counters.ignored("unknown_cluster", 0);
        let label = [("reason", "unknown_cluster")];
        assert!(counters.load_reports_ignored.get(&label).is_none());
    }
}
