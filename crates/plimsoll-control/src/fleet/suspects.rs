//! [`Suspects`]: recent signs that a node is not what it says, for the dashboard.
//!
//! Kept for a few minutes and in a small number, because their content comes from the network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::MemberKey;
use crate::events::ControlEvent;

/// How long a sign is shown after its last occurrence.
const SHOWN_FOR: Duration = Duration::from_secs(300);
/// Most nodes that are kept for each kind of sign; the oldest is replaced.
const MAX_NODES: usize = 100;

/// Nodes with recent signs of a wrong identity or load report.
#[derive(Debug, Default)]
pub struct Suspects {
    kinds: BTreeMap<Suspicion, BTreeMap<MemberKey, Instant>>,
}

/// Kind of a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspicion {
    /// Two addresses use the id of the node at the same time.
    DuplicateId,
    /// Two proxies at one address use the id of the node.
    SharedId,
    /// The node is in a locality that is not configured, or in none.
    UnknownLocality,
    /// The node reports many times the load of its peers, of which only a part counts.
    Capped,
}

impl Suspects {
    pub(super) fn handle_event(&mut self, event: &ControlEvent, now: Instant) {
        let Some((kind, fleet, node)) = event.describe().suspect else {
            return;
        };
        let nodes = self.kinds.entry(kind).or_default();
        let key = (Arc::clone(fleet), Arc::clone(node));
        if nodes.len() >= MAX_NODES && !nodes.contains_key(&key) {
            let oldest = nodes.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                nodes.remove(&oldest);
            }
        }
        nodes.insert(key, now);
    }

    /// Whether a node had a sign of this kind recently.
    pub(super) fn is_recent(&self, kind: Suspicion, key: &MemberKey, now: Instant) -> bool {
        self.recent(kind, now).any(|recent| recent == key)
    }

    /// Iterates over the nodes, as fleet and id, that had a sign of this kind recently.
    pub fn recent(&self, kind: Suspicion, now: Instant) -> impl Iterator<Item = &MemberKey> {
        let nodes = self.kinds.get(&kind).into_iter().flatten();
        nodes
            .filter(move |(_, at)| now.saturating_duration_since(**at) < SHOWN_FOR)
            .map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::planner::{IgnoreReason, PlannerEvent};

    use super::*;
    use crate::fleet::OpenRefusal;

    fn duplicate(node: &str) -> ControlEvent {
        ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: node.into(),
            refusal: OpenRefusal::DuplicateId {
                first: std::net::IpAddr::from([10, 0, 0, 1]).into(),
                second: std::net::IpAddr::from([10, 0, 0, 2]).into(),
            },
        }
    }

    fn ids(suspects: &Suspects, kind: Suspicion, now: u64) -> Vec<&str> {
        let nodes = suspects.recent(kind, Instant::from_secs(now));
        nodes.map(|(_, id)| id.as_ref()).collect()
    }

    #[test]
    fn signs_are_kept_by_kind_for_five_minutes() {
        let mut suspects = Suspects::default();
        let ignored = |reason| {
            ControlEvent::Planner(PlannerEvent::ReportIgnored {
                fleet: "edge".into(),
                node: "2".into(),
                upstream_cluster: "orders".into(),
                reason,
            })
        };
        let capped = ControlEvent::Planner(PlannerEvent::NodeCapped {
            fleet: "edge".into(),
            node: "3".into(),
            locality: Locality::zone_only("a"),
            reported_per_second: 2.0,
            counted_per_second: 1.0,
        });
        let at = Instant::from_secs(10);
        suspects.handle_event(&duplicate("1"), at);
        suspects.handle_event(&ignored(IgnoreReason::UnknownZone), at);
        suspects.handle_event(&ignored(IgnoreReason::ImplausibleRate), at);
        suspects.handle_event(&capped, at);
        let full = ControlEvent::StreamRefused {
            fleet: "edge".into(),
            node: "4".into(),
            refusal: OpenRefusal::Nodes(1),
        };
        suspects.handle_event(&full, at);
        for (kind, id) in [
            (Suspicion::DuplicateId, "1"),
            (Suspicion::UnknownLocality, "2"),
            (Suspicion::Capped, "3"),
        ] {
            assert_eq!(ids(&suspects, kind, 309), [id]);
            assert_eq!(ids(&suspects, kind, 310), [""; 0]);
        }
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let mut suspects = Suspects::default();
        for number in 0..=100 {
            let at = Instant::from_secs(number);
            suspects.handle_event(&duplicate(&format!("n{number:03}")), at);
            // Seen again, so it is not the oldest.
            suspects.handle_event(&duplicate("n000"), at);
        }
        let kept = ids(&suspects, Suspicion::DuplicateId, 100);
        assert_eq!(kept.len(), 100);
        assert!(kept.contains(&"n000") && kept.contains(&"n100") && !kept.contains(&"n001"));
    }
}
