//! [`RecentEvents`]: the latest events as text, for the dashboard.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::time::Instant;

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

    /// Adds an event; `fleet` is set if its size changed.
    pub(super) fn add(&self, event: RecentEvent, fleet: Option<Arc<str>>) {
        self.push(Entry { event, fleet });
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

/// Cuts a text to at most `bytes`, at a character boundary, and marks the cut.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::planner::{LeaveReason, PlannerEvent};
    use plimsoll_xds::ads::message::ErrorDetail;
    use plimsoll_xds::ads::server::Nack;

    use super::*;
    use crate::audit::Delivered;
    use crate::delivery::NodeClass;
    use crate::events::streams::{nacked, request_refused};
    use crate::events::{ControlEvent, Events};
    use crate::fleet::OpenRefusal;
    use crate::state::tests::driver::node;

    fn texts(recent: &RecentEvents) -> Vec<String> {
        recent.all().into_iter().map(|each| each.text).collect()
    }

    fn nack(events: &Events, id: &str, why: &str) {
        let info = node(NodeClass::Envoy, id, "a");
        let nack = Nack {
            version: "1".into(),
            names: Vec::new(),
            detail: ErrorDetail {
                code: 3,
                message: why.into(),
            },
        };
        events.tell(nacked(&info.node, "orders", &nack), Instant::ORIGIN);
    }

    fn fleet_changed(fleet: &str, nodes: usize) -> ControlEvent {
        ControlEvent::FleetChanged {
            fleet: fleet.into(),
            nodes,
        }
    }

    #[test]
    fn consecutive_changes_of_a_fleet_are_one_event() {
        let events = Events::default();
        let recent = &events.recent;
        for nodes in 1..=1000 {
            events.tell(
                fleet_changed("gateway", nodes).describe(),
                Instant::from_secs(1),
            );
        }
        events.tell(fleet_changed("batch", 1).describe(), Instant::from_secs(2));
        let lines = ["fleet batch has 1 proxy", "fleet gateway has 1000 proxies"];
        assert_eq!(texts(recent), lines);
    }

    #[test]
    fn a_repeated_warning_replaces_the_earlier() {
        let events = Events::default();
        let recent = &events.recent;
        let lost = |nearest| ControlEvent::UnknownLocality {
            fleet: "edge".into(),
            node: "1".into(),
            locality: Locality::zone_only("b"),
            nearest,
        };
        let near = Some(Locality::new("r1", "b", ""));
        events.tell(lost(near.clone()).describe(), Instant::from_secs(1));
        events.tell(lost(None).describe(), Instant::from_secs(2));
        events.tell(lost(near).describe(), Instant::from_secs(3));
        let lines = [
            "1 of fleet edge is in b, which no service has, so its demand does not count; did you \
             mean r1/b?",
            "1 of fleet edge is in b, which no service has, so its demand does not count",
        ];
        assert_eq!(texts(recent), lines);
        assert_eq!(recent.all()[0].at, Instant::from_secs(3));
    }

    #[test]
    fn texts_are_cut() {
        let events = Events::default();
        let recent = &events.recent;
        nack(&events, "n", &"é".repeat(5000));
        events.tell(request_refused("names", None, "why"), Instant::ORIGIN);
        let peer = Some(([10, 0, 0, 1], 80).into());
        events.tell(request_refused("names", peer, "why"), Instant::ORIGIN);
        let all = texts(recent);
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
        let events = Events::default();
        let recent = &events.recent;
        let refused = ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: "1".into(),
            refusal: OpenRefusal::Fleets(3),
        };
        events.tell(refused.describe(), Instant::ORIGIN);
        let capped = ControlEvent::Planner(PlannerEvent::NodeCapped {
            fleet: "edge".into(),
            node: "1".into(),
            locality: Locality::zone_only("a"),
            reported_per_second: 5000.0,
            counted_per_second: 200.0,
        });
        events.tell(capped.describe(), Instant::ORIGIN);
        let lines = [
            "1 in a reports 5000 requests/s, many times the median of its fleet; 200 count",
            "stream of 1 of fleet edge refused: node.cluster: 3 fleets are connected \
             (limits.fleets)",
        ];
        assert_eq!(texts(recent), lines);
    }

    #[test]
    fn refused_changes_are_errors() {
        let events = Events::default();
        let recent = &events.recent;
        for refused in [0, 1] {
            let delivery = crate::audit::Delivery {
                streams: 3,
                accepted: 2,
                refused,
                ..Default::default()
            };
            let number = 7;
            let delivered = Delivered { number, delivery };
            events.tell(delivered.describe(), Instant::from_secs(1));
        }
        let audit = crate::audit::Audit::default();
        let at = Instant::from_secs(2);
        events.tell(audit.refuse("edit", "no", at).describe(), at);
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
        let events = Events::default();
        let recent = &events.recent;
        for number in 0..CAPACITY + 5 {
            nack(&events, &format!("node-{number}"), "why");
        }
        let all = texts(recent);
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
        let events = Events::default();
        let recent = &events.recent;
        let left = |reason| {
            ControlEvent::Planner(PlannerEvent::NodeLeft {
                fleet: "gateway".into(),
                node: "1".into(),
                locality: Locality::new("r1", "a", ""),
                reason,
            })
        };
        events.tell(left(LeaveReason::Silent).describe(), Instant::ORIGIN);
        events.tell(left(LeaveReason::Disconnected).describe(), Instant::ORIGIN);
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
