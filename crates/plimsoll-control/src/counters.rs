//! [`Counters`]: event counters for `/metrics`. The writer task and the load reporting streams
//! increment them; totals of discovery are in `server::StreamRecords`. Names and help texts are in
//! `admin::metrics`. Labels never name nodes, of which there may be thousands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::planner::UpdateCause;
use plimsoll_core::planner::{IgnoreReason, LeaveReason, PlannerEvent};

use crate::fleet::OpenRefusal;
use crate::state::ControlEvent;

/// Reasons why a report about a cluster is ignored.
pub(crate) const IGNORED: [&str; 7] = [
    "unknown_cluster",
    "implausible_interval",
    "implausible_rate",
    "node_without_id",
    "node_without_locality",
    "unknown_zone",
    "too_many_clusters",
];
/// Reasons why the demand of a node is no longer counted.
pub(crate) const LEFT: [&str; 2] = ["silent", "disconnected"];
/// Causes of plans, as labels.
pub(crate) const CAUSES: [&str; 6] = [
    "heartbeat",
    "fractions_moved",
    "zones_changed",
    "first_data",
    "warmed_up",
    "no_data",
];

/// Counts by metric and label value; the label value is empty for metrics without label.
type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// Event counters, shared by cloning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<Mutex<Counts>>);

impl Counters {
    pub(crate) fn event(&self, event: &ControlEvent) {
        match event {
            ControlEvent::Planned(plan) => self.add("plans_total", cause(plan.cause), 1),
            ControlEvent::Planner(PlannerEvent::ReportIgnored { reason, .. }) => {
                self.ignored(ignored(*reason), 1);
            }
            ControlEvent::Planner(PlannerEvent::NodeJoined { .. }) => {
                self.add("reporters_joined_total", "", 1);
            }
            ControlEvent::Planner(PlannerEvent::NodeLeft { reason, .. }) => {
                self.add("reporters_left_total", left(*reason), 1);
            }
            ControlEvent::Planner(PlannerEvent::NodeCapped { .. }) => {
                self.add("nodes_capped_total", "", 1);
            }
            ControlEvent::SharedId { .. } => self.add("identity_mistakes_total", "shared_id", 1),
            ControlEvent::UnknownLocality { locality, .. } => {
                let kind = if locality.is_unset() {
                    "no_locality"
                } else {
                    "unknown_locality"
                };
                self.add("identity_mistakes_total", kind, 1);
            }
            ControlEvent::StreamRefused { refusal, .. } => match refusal {
                OpenRefusal::DuplicateId { .. } => self.add("duplicate_nodes_total", "", 1),
                refusal => self.limit_exceeded(refusal.limit()),
            },
            ControlEvent::DuplicateNode { .. } => self.add("duplicate_nodes_total", "", 1),
            ControlEvent::StoreConnected { .. }
            | ControlEvent::StoreLost { .. }
            | ControlEvent::Planner(PlannerEvent::NodeMoved { .. })
            | ControlEvent::ConfigApplied { .. }
            | ControlEvent::HeartbeatShortened { .. }
            | ControlEvent::FleetChanged { .. } => {}
        }
    }

    /// Counts something that was refused, cut or delayed because of a limit of the configuration.
    pub(crate) fn limit_exceeded(&self, limit: &'static str) {
        self.add("limit_exceeded_total", limit, 1);
    }

    pub(crate) fn load_report(&self) {
        self.add("load_reports_total", "", 1);
    }

    /// Counts a client that the setting `field` of a rule does not allow.
    pub(crate) fn refused(&self, field: &'static str) {
        self.add("nodes_refused_total", field, 1);
    }

    /// Counts a discovery stream that the limit of connections to the relayed server refused.
    pub(crate) fn relay_refused(&self) {
        self.add("relay_streams_refused_total", "", 1);
    }

    /// Counts an edit that would remove too much.
    pub(crate) fn removal_refused(&self) {
        self.add("config_removals_refused_total", "", 1);
    }

    /// Counts a setting of a Kubernetes object that is not in force.
    pub(crate) fn kubernetes_refused(&self) {
        self.add("kubernetes_settings_refused_total", "", 1);
    }

    /// Counts an export of metrics.
    pub(crate) fn otlp_export(&self, is_accepted: bool) {
        let result = if is_accepted { "ok" } else { "failed" };
        self.add("otlp_exports_total", result, 1);
    }

    /// Counts `count` clusters in load reports that were not used.
    pub(crate) fn ignored(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.add("load_reports_ignored_total", reason, count);
        }
    }

    pub(crate) fn values(&self) -> Counts {
        self.lock().clone()
    }

    fn add(&self, metric: &'static str, label: &'static str, count: u64) {
        *self.lock().entry((metric, label)).or_default() += count;
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of an update's cause in the admin API and in metrics.
pub(crate) const fn cause(cause: UpdateCause) -> &'static str {
    match cause {
        UpdateCause::FirstData => "first_data",
        UpdateCause::FractionsMoved => "fractions_moved",
        UpdateCause::Heartbeat => "heartbeat",
        UpdateCause::NoData => "no_data",
        UpdateCause::WarmedUp => "warmed_up",
        UpdateCause::ZonesChanged => "zones_changed",
    }
}

pub(crate) const fn ignored(reason: IgnoreReason) -> &'static str {
    match reason {
        IgnoreReason::ImplausibleInterval => "implausible_interval",
        IgnoreReason::ImplausibleRate => "implausible_rate",
        IgnoreReason::NodeWithoutId => "node_without_id",
        IgnoreReason::NodeWithoutLocality => "node_without_locality",
        IgnoreReason::UnknownZone => "unknown_zone",
        IgnoreReason::TooManyClusters => "too_many_clusters",
    }
}

pub(crate) const fn left(reason: LeaveReason) -> &'static str {
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
    fn events_are_counted_by_reason() {
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
        let values = counters.values();
        let left = |reason| values[&("reporters_left_total", reason)];
        assert_eq!((left("silent"), left("disconnected")), (2, 1));
    }

    #[test]
    fn refusals_are_counted_by_limit() {
        let counters = Counters::default();
        let refused = |refusal| ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: "1".into(),
            refusal,
        };
        counters.event(&refused(OpenRefusal::Nodes(1)));
        counters.event(&refused(OpenRefusal::Zones(1)));
        counters.event(&refused(OpenRefusal::Zones(1)));
        let [first, second] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]).into());
        counters.event(&refused(OpenRefusal::DuplicateId { first, second }));
        counters.event(&ControlEvent::Planner(PlannerEvent::NodeCapped {
            fleet: "edge".into(),
            node: "1".into(),
            locality: Locality::zone_only("a"),
            reported_per_second: 2.0,
            counted_per_second: 1.0,
        }));
        let expected = [
            (("duplicate_nodes_total", ""), 1),
            (("limit_exceeded_total", "nodes"), 1),
            (("limit_exceeded_total", "zones_per_fleet"), 2),
            (("nodes_capped_total", ""), 1),
        ];
        assert_eq!(counters.values(), BTreeMap::from(expected));
    }

    #[test]
    fn events_and_refusals_have_counters_of_their_own() {
        let counters = Counters::default();
        let (fleet, node) = (|| "edge".into(), || "1".into());
        let unknown = |locality| ControlEvent::UnknownLocality {
            fleet: fleet(),
            node: node(),
            locality,
            nearest: None,
        };
        for event in [
            ControlEvent::Planner(PlannerEvent::NodeJoined {
                fleet: fleet(),
                node: node(),
                locality: Locality::zone_only("a"),
            }),
            ControlEvent::Planner(PlannerEvent::ReportIgnored {
                fleet: fleet(),
                node: node(),
                upstream_cluster: "orders".into(),
                reason: IgnoreReason::UnknownZone,
            }),
            unknown(Locality::default()),
            unknown(Locality::zone_only("z")),
            unknown(Locality::zone_only("z")),
            ControlEvent::SharedId {
                fleet: fleet(),
                node: node(),
                streams: 3,
            },
            ControlEvent::DuplicateNode {
                fleet: fleet(),
                node: node(),
                replica: "r1".into(),
            },
            ControlEvent::ConfigApplied { services: 1 },
        ] {
            counters.event(&event);
        }
        counters.load_report();
        counters.refused("zones");
        counters.relay_refused();
        counters.removal_refused();
        counters.kubernetes_refused();
        for is_accepted in [true, false, false] {
            counters.otlp_export(is_accepted);
        }
        counters.ignored("unknown_cluster", 2);
        counters.ignored("unknown_cluster", 3);
        let expected = [
            (("config_removals_refused_total", ""), 1),
            (("duplicate_nodes_total", ""), 1),
            (("identity_mistakes_total", "no_locality"), 1),
            (("identity_mistakes_total", "shared_id"), 1),
            (("identity_mistakes_total", "unknown_locality"), 2),
            (("kubernetes_settings_refused_total", ""), 1),
            (("load_reports_ignored_total", "unknown_cluster"), 5),
            (("load_reports_ignored_total", "unknown_zone"), 1),
            (("load_reports_total", ""), 1),
            (("nodes_refused_total", "zones"), 1),
            (("otlp_exports_total", "failed"), 2),
            (("otlp_exports_total", "ok"), 1),
            (("relay_streams_refused_total", ""), 1),
            (("reporters_joined_total", ""), 1),
        ];
        assert_eq!(counters.values(), BTreeMap::from(expected));
    }

    #[test]
    fn every_reason_has_a_series_before_it_occurs() {
        let reasons = [
            IgnoreReason::ImplausibleInterval,
            IgnoreReason::ImplausibleRate,
            IgnoreReason::NodeWithoutId,
            IgnoreReason::NodeWithoutLocality,
            IgnoreReason::UnknownZone,
            IgnoreReason::TooManyClusters,
        ];
        for reason in reasons {
            assert!(IGNORED.contains(&ignored(reason)), "{reason:?}");
        }
        for reason in [LeaveReason::Disconnected, LeaveReason::Silent] {
            assert!(LEFT.contains(&left(reason)), "{reason:?}");
        }
        let causes = [
            UpdateCause::FirstData,
            UpdateCause::FractionsMoved,
            UpdateCause::Heartbeat,
            UpdateCause::NoData,
            UpdateCause::WarmedUp,
            UpdateCause::ZonesChanged,
        ];
        for one in causes {
            assert!(CAUSES.contains(&cause(one)), "{one:?}");
        }
    }

    #[test]
    fn a_count_of_zero_adds_no_series() {
        let counters = Counters::default();
        counters.ignored("unknown_cluster", 0);
        assert!(counters.values().is_empty());
    }
}
