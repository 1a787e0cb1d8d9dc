//! [`Counters`]: event counters for `/metrics`. Events say what they count
//! ([`Description`](crate::events::Description)), the rest is counted here; totals of discovery are
//! in `server::StreamRecords`. Names and help texts are in `admin::metrics`. Labels never name
//! nodes, of which there may be thousands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sources::SourceId;

/// Counts by metric and label value; the label value is empty for metrics without label.
type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// Event counters, shared by cloning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<Mutex<Counts>>);

impl Counters {
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

    /// Counts a setting or an object of a source that is not in force.
    pub(crate) fn setting_refused(&self, source: SourceId) {
        self.add("source_settings_refused_total", source.label(), 1);
        if source == SourceId::Kubernetes {
            self.add("kubernetes_settings_refused_total", "", 1);
        }
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

    /// Adds to a counter; the label is empty for counters without label.
    pub(crate) fn add(&self, metric: &'static str, label: &'static str, count: u64) {
        *self.lock().entry((metric, label)).or_default() += count;
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::planner::{IgnoreReason, LeaveReason, PlannerEvent, UpdateCause};
    use plimsoll_core::time::Instant;

    use super::*;
    use crate::events::reasons::Reason;
    use crate::events::{ControlEvent, Events};
    use crate::fleet::OpenRefusal;

    fn count(events: &Events, event: &ControlEvent) {
        events.tell(event.describe(), Instant::ORIGIN);
    }

    #[test]
    fn events_are_counted_by_reason() {
        let events = Events::default();
        let counters = &events.counters;
        let event = |reason| {
            ControlEvent::Planner(PlannerEvent::NodeLeft {
                fleet: "gateway".into(),
                node: "1".into(),
                locality: Locality::zone_only("a"),
                reason,
            })
        };
        count(&events, &event(LeaveReason::Silent));
        count(&events, &event(LeaveReason::Silent));
        count(&events, &event(LeaveReason::Disconnected));
        let values = counters.values();
        let left = |reason| values[&("reporters_left_total", reason)];
        assert_eq!((left("silent"), left("disconnected")), (2, 1));
    }

    #[test]
    fn refusals_are_counted_by_limit() {
        let events = Events::default();
        let counters = &events.counters;
        let refused = |refusal| ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: "1".into(),
            refusal,
        };
        count(&events, &refused(OpenRefusal::Nodes(1)));
        count(&events, &refused(OpenRefusal::Zones(1)));
        count(&events, &refused(OpenRefusal::Zones(1)));
        let [first, second] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]).into());
        count(
            &events,
            &refused(OpenRefusal::DuplicateId { first, second }),
        );
        count(
            &events,
            &ControlEvent::Planner(PlannerEvent::NodeCapped {
                fleet: "edge".into(),
                node: "1".into(),
                locality: Locality::zone_only("a"),
                reported_per_second: 2.0,
                counted_per_second: 1.0,
            }),
        );
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
        let events = Events::default();
        let counters = &events.counters;
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
            count(&events, &event);
        }
        counters.load_report();
        counters.refused("zones");
        counters.relay_refused();
        counters.removal_refused();
        counters.setting_refused(SourceId::Kubernetes);
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
            (("source_settings_refused_total", "kubernetes"), 1),
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

    fn has_label<R: Reason>(reason: R) -> bool {
        R::LABELS.contains(&reason.label())
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
            assert!(has_label(reason), "{reason:?}");
        }
        for reason in [LeaveReason::Disconnected, LeaveReason::Silent] {
            assert!(has_label(reason), "{reason:?}");
        }
        let causes = [
            UpdateCause::FirstData,
            UpdateCause::FractionsMoved,
            UpdateCause::Heartbeat,
            UpdateCause::Confirmation,
            UpdateCause::NoData,
            UpdateCause::WarmedUp,
            UpdateCause::ZonesChanged,
        ];
        for one in causes {
            assert!(has_label(one), "{one:?}");
        }
    }

    #[test]
    fn a_count_of_zero_adds_no_series() {
        let counters = Counters::default();
        counters.ignored("unknown_cluster", 0);
        assert!(counters.values().is_empty());
    }
}
