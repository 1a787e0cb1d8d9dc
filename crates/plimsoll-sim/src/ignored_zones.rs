//! [`IgnoredZones`]: when a proxy picked hosts regardless of their zone, and why, in the words of
//! `explain`. Zone-aware routing switches itself off when one of its preconditions fails; results
//! of that time say nothing about the policy.

use std::sync::Arc;

use plimsoll_core::explain::StateName;
use plimsoll_core::snapshot::RoutingSnapshot;

/// A time in which a proxy ignored zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) reason: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct IgnoredZones {
    /// Explaining every snapshot of every proxy would take longer than the simulation.
    pub(crate) records: bool,
    pub(crate) past: Vec<Ignored>,
    now: Option<(u64, Arc<str>)>,
}

impl IgnoredZones {
    /// Handles a new snapshot.
    pub(crate) fn observe(&mut self, snapshot: &RoutingSnapshot, now: u64) {
        if self.records {
            let explained = snapshot.explain();
            let ignores = explained.state == StateName::NoLocalityRouting;
            self.change(ignores.then_some(explained.reason.as_str()), now);
        }
    }

    /// Closes the interval that is still open when the simulation ends.
    pub(crate) fn end(&mut self, now: u64) {
        self.change(None, now);
    }

    fn change(&mut self, reason: Option<&str>, now: u64) {
        if self.now.as_ref().map(|(_, reason)| &**reason) == reason {
            return;
        }
        if let Some((from, reason)) = self.now.take()
            && from < now
        {
            let until = now;
            self.past.push(Ignored {
                from,
                until,
                reason,
            });
        }
        self.now = reason.map(|reason| (now, reason.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_one_reason_are_joined_and_empty_ones_left_out() {
        let mut zones = IgnoredZones::default();
        for (now, reason) in [
            (0, Some("no fleet")),
            (0, None),
            (5, Some("5 hosts")),
            (7, Some("5 hosts")),
            (9, Some("4 hosts")),
            (12, None),
            (20, Some("panic")),
        ] {
            zones.change(reason, now);
        }
        zones.end(30);
        let past = zones.past.iter();
        let past: Vec<_> = past
            .map(|ignored| (ignored.from, ignored.until, &*ignored.reason))
            .collect();
        assert_eq!(
            past,
            [(5, 9, "5 hosts"), (9, 12, "4 hosts"), (20, 30, "panic")]
        );
    }
}
