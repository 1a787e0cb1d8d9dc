//! [`Recent`]: the last things that happened, in words, for people to look at.
//!
//! The writer adds what the state tells, streams add refusals; a page shows them. Logs and counters
//! do not come from here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::planner::PlannerEvent;
use plimsoll_core::planner::event::{IgnoreReason, LeaveReason};
use plimsoll_core::time::Instant;

use crate::state::ControlEvent;

/// Happenings that are kept; the oldest go first.
const MAX: usize = 100;

/// How much attention something needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Somebody must act.
    Error,
    /// Not as it should be.
    Warning,
    /// Good to know.
    Info,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// When.
    pub at: Instant,
    /// How much attention it needs.
    pub attention: Attention,
    /// In words.
    pub text: String,
}

/// The last things that happened.
#[derive(Debug, Default)]
pub struct Recent {
    happenings: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    happening: Happening,
    /// Of several in a row about one fleet's size the last one is enough.
    fleet: Option<Arc<str>>,
}

impl Recent {
    /// All that are kept, newest first.
    pub fn all(&self) -> Vec<Happening> {
        let kept = self.lock();
        kept.iter()
            .rev()
            .map(|kept| kept.happening.clone())
            .collect()
    }

    /// Something happened to the state. Plans are too many to tell.
    pub(crate) fn event(&self, event: &ControlEvent, at: Instant) {
        let (attention, text, fleet) = match event {
            ControlEvent::Planned(_) => return,
            ControlEvent::ConfigApplied { services } => {
                let plural = if *services == 1 { "" } else { "s" };
                let text = format!("configuration applied, {services} service{plural}");
                (Attention::Info, text, None)
            }
            ControlEvent::HeartbeatShortened {
                cluster, heartbeat, ..
            } => {
                let text = format!(
                    "demand is confirmed every {heartbeat:?}, as {cluster} needs it for its \
                     staleness_threshold"
                );
                (Attention::Info, text, None)
            }
            ControlEvent::FleetChanged { fleet, nodes } => {
                let text = format!("fleet {fleet} has {nodes} proxies");
                (Attention::Info, text, Some(Arc::clone(fleet)))
            }
            ControlEvent::Planner(event) => {
                let (attention, text) = reporter(event);
                (attention, text, None)
            }
        };
        let happening = Happening {
            at,
            attention,
            text,
        };
        self.push(Kept { happening, fleet });
    }

    /// A node refused an update.
    pub(crate) fn refused(&self, node: &str, what: &str, why: &str, at: Instant) {
        let happening = Happening {
            at,
            attention: Attention::Error,
            text: format!("{node} refused {what} and keeps what it had: {why}"),
        };
        self.push(Kept {
            happening,
            fleet: None,
        });
    }

    fn push(&self, kept: Kept) {
        let mut all = self.lock();
        let same = |last: &Kept| last.fleet.is_some() && last.fleet == kept.fleet;
        if all.back().is_some_and(same) || all.len() >= MAX {
            match all.back().is_some_and(same) {
                true => all.pop_back(),
                false => all.pop_front(),
            };
        }
        all.push_back(kept);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        // Nothing in here can be half done.
        self.happenings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happened among the reporters.
fn reporter(event: &PlannerEvent) -> (Attention, String) {
    match event {
        PlannerEvent::NodeJoined { node, locality, .. } => {
            let text = format!("{node} reports load from {locality}");
            (Attention::Info, text)
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
            let text = format!("{node} in {locality} does not count any more: {why}");
            (Attention::Warning, text)
        }
        PlannerEvent::NodeMoved { node, from, to, .. } => {
            let text = format!("{node} moved from {from} to {to}");
            (Attention::Info, text)
        }
        PlannerEvent::ReportIgnored {
            node,
            upstream_cluster,
            reason,
            ..
        } => {
            let why = match reason {
                IgnoreReason::ImplausibleInterval => "its interval is too short to be true",
                IgnoreReason::ImplausibleRate => "its rate is too high to be true",
                IgnoreReason::NodeWithoutId => "the node has no id",
                IgnoreReason::NodeWithoutLocality => "the node has no locality",
            };
            let text = format!("a report of {node:?} about {upstream_cluster} is ignored: {why}");
            (Attention::Warning, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn texts(recent: &Recent) -> Vec<String> {
        recent.all().into_iter().map(|each| each.text).collect()
    }

    fn grown(fleet: &str, nodes: usize) -> ControlEvent {
        ControlEvent::FleetChanged {
            fleet: fleet.into(),
            nodes,
        }
    }

    #[test]
    fn a_fleet_that_grows_is_one_line() {
        let recent = Recent::default();
        for nodes in 1..=1000 {
            recent.event(&grown("gateway", nodes), Instant::from_secs(1));
        }
        recent.event(&grown("batch", 1), Instant::from_secs(2));
        let lines = [
            "fleet batch has 1 proxies",
            "fleet gateway has 1000 proxies",
        ];
        assert_eq!(texts(&recent), lines);
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let recent = Recent::default();
        for number in 0..MAX + 5 {
            recent.refused(&format!("node-{number}"), "orders", "why", Instant::ORIGIN);
        }
        let all = texts(&recent);
        assert_eq!(all.len(), MAX);
        assert!(all[0].starts_with("node-104 refused orders"), "{}", all[0]);
        assert!(all[MAX - 1].starts_with("node-5 "), "{}", all[MAX - 1]);
    }

    #[test]
    fn who_stops_counting_is_told_with_the_reason() {
        let recent = Recent::default();
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
            "1 in r1/a does not count any more: it missed its reports"
        );
        assert_eq!(
            all[0].text,
            "1 in r1/a does not count any more: its stream closed"
        );
        assert_eq!(all[0].attention, Attention::Warning);
    }
}
