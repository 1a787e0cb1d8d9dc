//! [`RecentEvents`]: the latest events as text, for the dashboard. The writer adds events of the
//! state, discovery streams add NACKs. Logs and counters do not use these events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::PlannerEvent;
use plimsoll_core::planner::event::{IgnoreReason, LeaveReason};
use plimsoll_core::time::Instant;

use crate::audit::{AuditEntry, AuditKind, Delivered};
use crate::state::ControlEvent;

/// Bytes of an event's text to keep: names and reasons come from the network.
const MAX_TEXT: usize = 1024;
/// Among this many of the newest events, a repeated one replaces the earlier.
const REPEATED: usize = 20;
/// Number of events to keep; the oldest are dropped.
const CAPACITY: usize = 100;

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSeverity {
    Error,
    Warning,
    Info,
}

/// An event, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentEvent {
    pub at: Instant,
    pub severity: EventSeverity,
    pub text: String,
}

/// Ring buffer of the latest events.
#[derive(Debug, Default)]
pub struct RecentEvents {
    entries: Mutex<VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    event: RecentEvent,
    /// Fleet whose size changed. Consecutive events about the same fleet are merged.
    fleet: Option<Arc<str>>,
}

impl RecentEvents {
    /// Returns all events, newest first.
    pub fn all(&self) -> Vec<RecentEvent> {
        let entries = self.lock();
        entries
            .iter()
            .rev()
            .map(|entry| entry.event.clone())
            .collect()
    }

    /// Adds an event of the state, except for `Planned` events, which are too frequent.
    pub(crate) fn event(&self, event: &ControlEvent, at: Instant) {
        let (severity, text, fleet) = match event {
            // `audited` adds what changed.
            ControlEvent::Planned(_) | ControlEvent::ConfigApplied { .. } => return,
            ControlEvent::HeartbeatShortened {
                cluster, heartbeat, ..
            } => {
                let text = format!(
                    "demand is confirmed every {heartbeat:?}, which the staleness_threshold of \
                     {cluster} requires"
                );
                (EventSeverity::Info, text, None)
            }
            ControlEvent::FleetChanged { fleet, nodes } => {
                let proxies = if *nodes == 1 { "proxy" } else { "proxies" };
                let text = format!("fleet {fleet} has {nodes} {proxies}");
                (EventSeverity::Info, text, Some(Arc::clone(fleet)))
            }
            ControlEvent::UnknownLocality {
                fleet,
                node,
                locality,
                nearest,
            } => {
                let text = unknown_locality(fleet, node, locality, nearest.as_ref());
                (EventSeverity::Warning, text, None)
            }
            ControlEvent::SharedId {
                fleet,
                node,
                streams,
            } => {
                let text = format!(
                    "{streams} proxies of fleet {fleet} have the id {node}: their load reports \
                     replace each other"
                );
                (EventSeverity::Warning, text, None)
            }
            ControlEvent::StreamRefused {
                fleet,
                node,
                refusal,
            } => {
                let text = format!("stream of {node} of fleet {fleet} refused: {refusal}");
                (EventSeverity::Warning, text, None)
            }
            ControlEvent::DuplicateNode {
                fleet,
                node,
                replica,
            } => {
                let text = format!("{node} of fleet {fleet} reports here and to {replica} at once");
                (EventSeverity::Warning, text, None)
            }
            ControlEvent::StoreConnected { nodes } => {
                let text = format!("store connected, {nodes} proxies at all replicas");
                (EventSeverity::Info, text, None)
            }
            ControlEvent::StoreLost { reason } => {
                let text = format!("store lost, going on with what is known: {reason}");
                (EventSeverity::Error, text, None)
            }
            ControlEvent::Planner(event) => {
                let (severity, text) = describe(event);
                (severity, text, None)
            }
        };
        let event = RecentEvent { at, severity, text };
        self.push(Entry { event, fleet });
    }

    /// Adds an entry of the audit.
    pub(crate) fn audited(&self, entry: &AuditEntry) {
        let severity = match entry.kind {
            AuditKind::Refused => EventSeverity::Error,
            AuditKind::Started | AuditKind::Changed => EventSeverity::Info,
        };
        let event = RecentEvent {
            at: entry.at,
            severity,
            text: entry.text(),
        };
        self.push(Entry { event, fleet: None });
    }

    /// Adds that proxies have answered a change.
    pub(crate) fn delivered(&self, delivered: &Delivered, at: Instant) {
        let is_refused = delivered.delivery.refused > 0;
        let event = RecentEvent {
            at,
            severity: if is_refused {
                EventSeverity::Error
            } else {
                EventSeverity::Info
            },
            text: delivered.text(),
        };
        self.push(Entry { event, fleet: None });
    }

    pub(crate) fn nacked(&self, node: &str, what: &str, why: &str, at: Instant) {
        let event = RecentEvent {
            at,
            severity: EventSeverity::Error,
            text: format!("{node} rejected {what} and keeps its previous version: {why}"),
        };
        self.push(Entry { event, fleet: None });
    }

    /// Adds a request beyond a limit.
    pub(crate) fn refused(&self, peer: Option<SocketAddr>, why: &str, at: Instant) {
        let peer = peer.map_or_else(|| "a peer".to_owned(), |peer| peer.to_string());
        let event = RecentEvent {
            at,
            severity: EventSeverity::Warning,
            text: format!("request of {peer} refused: {why}"),
        };
        self.push(Entry { event, fleet: None });
    }

    fn push(&self, mut entry: Entry) {
        cut(&mut entry.event.text, MAX_TEXT);
        let mut all = self.lock();
        // What peers repeat must not push out everything else.
        let first = all.len().saturating_sub(REPEATED);
        let is_warning = entry.event.severity == EventSeverity::Warning;
        let repeated = |index: &usize| is_warning && all[*index].event.text == entry.event.text;
        if let Some(index) = (first..all.len()).find(repeated) {
            all.remove(index);
        }
        let same = |last: &Entry| last.fleet.is_some() && last.fleet == entry.fleet;
        if all.back().is_some_and(same) {
            all.pop_back();
        } else if all.len() >= CAPACITY {
            all.pop_front();
        }
        all.push_back(entry);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown_locality(
    fleet: &str,
    node: &str,
    locality: &Locality,
    nearest: Option<&Locality>,
) -> String {
    if locality.is_unset() {
        return format!("{node} of fleet {fleet} has no locality, so its demand does not count");
    }
    let hint = nearest.map(|nearest| format!("; did you mean {nearest}?"));
    let meant = hint.unwrap_or_default();
    format!(
        "{node} of fleet {fleet} is in {locality}, which no service has, so its demand does not \
         count{meant}"
    )
}

/// Cuts a text to at most `bytes`, at a character boundary, and marks the cut.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
        text.shrink_to_fit();
    }
}

fn describe(event: &PlannerEvent) -> (EventSeverity, String) {
    match event {
        PlannerEvent::NodeJoined { node, locality, .. } => {
            let text = format!("{node} reports load from {locality}");
            (EventSeverity::Info, text)
        }
        PlannerEvent::NodeLeft {
            node,
            locality,
            reason,
            ..
        } => {
            let why = match reason {
                LeaveReason::Disconnected => "its stream closed",
                LeaveReason::Silent => "it missed its reports",
            };
            let text = format!("demand of {node} in {locality} is no longer counted: {why}");
            (EventSeverity::Warning, text)
        }
        PlannerEvent::NodeMoved { node, from, to, .. } => {
            let text = format!("{node} moved from {from} to {to}");
            (EventSeverity::Info, text)
        }
        PlannerEvent::NodeCapped {
            node,
            locality,
            reported_per_second,
            counted_per_second,
            ..
        } => {
            let text = format!(
                "{node} in {locality} reports {reported_per_second:.0} requests/s, many times the \
                 median of its fleet; {counted_per_second:.0} count"
            );
            (EventSeverity::Warning, text)
        }
        PlannerEvent::ReportIgnored {
            node,
            upstream_cluster,
            reason,
            ..
        } => {
            let why = match reason {
                IgnoreReason::ImplausibleInterval => "its interval is implausibly short",
                IgnoreReason::ImplausibleRate => "its rate is implausibly high",
                IgnoreReason::NodeWithoutId => "the node has no id",
                IgnoreReason::NodeWithoutLocality => "the node has no locality",
                IgnoreReason::UnknownZone => "no service has endpoints in its zone",
                IgnoreReason::TooManyClusters => "its fleet reports too many clusters",
            };
            let text =
                format!("load report of {node:?} about {upstream_cluster} is ignored: {why}");
            (EventSeverity::Warning, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;
    use crate::fleet::OpenRefusal;

    fn texts(recent: &RecentEvents) -> Vec<String> {
        recent.all().into_iter().map(|each| each.text).collect()
    }

    fn fleet_changed(fleet: &str, nodes: usize) -> ControlEvent {
        ControlEvent::FleetChanged {
            fleet: fleet.into(),
            nodes,
        }
    }

    #[test]
    fn consecutive_changes_of_a_fleet_are_one_event() {
        let recent = RecentEvents::default();
        for nodes in 1..=1000 {
            recent.event(&fleet_changed("gateway", nodes), Instant::from_secs(1));
        }
        recent.event(&fleet_changed("batch", 1), Instant::from_secs(2));
        let lines = ["fleet batch has 1 proxy", "fleet gateway has 1000 proxies"];
        assert_eq!(texts(&recent), lines);
    }

    #[test]
    fn a_repeated_warning_replaces_the_earlier() {
        let recent = RecentEvents::default();
        let lost = |nearest| ControlEvent::UnknownLocality {
            fleet: "edge".into(),
            node: "1".into(),
            locality: Locality::zone_only("b"),
            nearest,
        };
        let near = Some(Locality::new("r1", "b", ""));
        recent.event(&lost(near.clone()), Instant::from_secs(1));
        recent.event(&lost(None), Instant::from_secs(2));
        recent.event(&lost(near), Instant::from_secs(3));
        let lines = [
            "1 of fleet edge is in b, which no service has, so its demand does not count; did you \
             mean r1/b?",
            "1 of fleet edge is in b, which no service has, so its demand does not count",
        ];
        assert_eq!(texts(&recent), lines);
        assert_eq!(recent.all()[0].at, Instant::from_secs(3));
    }

    #[test]
    fn texts_are_cut() {
        let recent = RecentEvents::default();
        recent.nacked("n", "orders", &"é".repeat(5000), Instant::ORIGIN);
        recent.refused(None, "why", Instant::ORIGIN);
        let peer = Some(([10, 0, 0, 1], 80).into());
        recent.refused(peer, "why", Instant::ORIGIN);
        let all = texts(&recent);
        assert_eq!(all[0], "request of 10.0.0.1:80 refused: why");
        assert_eq!(all[1], "request of a peer refused: why");
        assert!(all[2].len() <= MAX_TEXT + '…'.len_utf8() && all[2].ends_with("éé…"));
        let whole = "x".repeat(MAX_TEXT);
        let mut same = whole.clone();
        cut(&mut same, MAX_TEXT);
        assert_eq!(same, whole);
    }

    #[test]
    fn refused_streams_and_capped_nodes_are_listed() {
        let recent = RecentEvents::default();
        let refused = ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: "1".into(),
            refusal: OpenRefusal::Fleets(3),
        };
        recent.event(&refused, Instant::ORIGIN);
        let capped = ControlEvent::Planner(PlannerEvent::NodeCapped {
            fleet: "edge".into(),
            node: "1".into(),
            locality: Locality::zone_only("a"),
            reported_per_second: 5000.0,
            counted_per_second: 200.0,
        });
        recent.event(&capped, Instant::ORIGIN);
        let lines = [
            "1 in a reports 5000 requests/s, many times the median of its fleet; 200 count",
            "stream of 1 of fleet edge refused: node.cluster: 3 fleets are connected \
             (limits.fleets)",
        ];
        assert_eq!(texts(&recent), lines);
    }

    #[test]
    fn refused_changes_are_errors() {
        let recent = RecentEvents::default();
        for refused in [0, 1] {
            let delivery = crate::audit::Delivery {
                streams: 3,
                accepted: 2,
                refused,
                ..Default::default()
            };
            let number = 7;
            recent.delivered(&Delivered { number, delivery }, Instant::from_secs(1));
        }
        let audit = crate::audit::Audit::default();
        recent.audited(&audit.refuse("edit", "no", Instant::from_secs(2)));
        let text = audit.all()[0].text();
        let event = |at, severity, text: &str| RecentEvent {
            at: Instant::from_secs(at),
            severity,
            text: text.to_owned(),
        };
        let accepted = "change 7 accepted by 2 of 3 proxies";
        let expected = [
            event(2, EventSeverity::Error, &text),
            event(
                1,
                EventSeverity::Error,
                &format!("{accepted}, refused by 1"),
            ),
            event(1, EventSeverity::Info, accepted),
        ];
        assert_eq!(recent.all(), expected);
    }

    #[test]
    fn events_are_newest_first_and_bounded() {
        let recent = RecentEvents::default();
        for number in 0..CAPACITY + 5 {
            recent.nacked(&format!("node-{number}"), "orders", "why", Instant::ORIGIN);
        }
        let all = texts(&recent);
        assert_eq!(all.len(), CAPACITY);
        assert!(all[0].starts_with("node-104 rejected orders"), "{}", all[0]);
        assert!(
            all[CAPACITY - 1].starts_with("node-5 "),
            "{}",
            all[CAPACITY - 1]
        );
    }

    #[test]
    fn departed_reporters_are_listed_with_the_reason() {
        let recent = RecentEvents::default();
        let left = |reason| {
            ControlEvent::Planner(PlannerEvent::NodeLeft {
                fleet: "gateway".into(),
                node: "1".into(),
                locality: Locality::new("r1", "a", ""),
                reason,
            })
        };
        recent.event(&left(LeaveReason::Silent), Instant::ORIGIN);
        recent.event(&left(LeaveReason::Disconnected), Instant::ORIGIN);
        let all = recent.all();
        assert_eq!(
            all[1].text,
            "demand of 1 in r1/a is no longer counted: it missed its reports"
        );
        assert_eq!(
            all[0].text,
            "demand of 1 in r1/a is no longer counted: its stream closed"
        );
        assert_eq!(all[0].severity, EventSeverity::Warning);
    }
}
