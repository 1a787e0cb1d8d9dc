//! [`Gate`]: whether the demand of a fleet may be delivered, and why not.
//!
//! Partial demand misleads more than an earlier plan, or none: it stays with the control plane
//! until it is complete, and proxies keep what they have.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::planner::{Plan, PlanScope, Planner};
use plimsoll_core::time::Instant;

use super::PlanTable;
use crate::fleet::Fleets;
use crate::replicas::Replicas;

/// Why the demand of a fleet or service is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The store has not been read since the start, so that nodes of other replicas are missing.
    StoreUnread,
    /// Some proxies have not reported since the start.
    Incomplete {
        /// Nodes of the fleet that have reported.
        reported: usize,
        /// Nodes of the fleet in zones that count.
        nodes: usize,
    },
    /// The plan waits for the store, which replicas agree with.
    Agreeing,
    /// No demand is known since the start. Proxies that had demand before keep it until then.
    Starting { until: Instant },
}

/// What decides whether demand may be delivered. Built for a question and dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a> {
    /// When demand counts as known after the start, at the latest.
    pub(super) starting_until: Option<Instant>,
    pub(super) replicas: Option<&'a Replicas>,
    pub(super) planner: &'a Planner,
    pub(super) plans: &'a PlanTable,
}

impl Gate<'_> {
    /// Whether the newest plan of a scope may be delivered.
    pub(crate) fn may_deliver(
        &self,
        scope: &PlanScope,
        fleets: &Fleets,
        now: Instant,
    ) -> Result<(), Withheld> {
        if let Some(plan) = self.planner.plan(scope) {
            self.may_propose(plan, fleets, now)?;
        } else if self.is_store_unread() {
            return Err(Withheld::StoreUnread);
        }
        if self.plans.delivered(scope).is_none() && self.plans.is_proposed(scope) {
            return Err(Withheld::Agreeing);
        }
        match self.starting_until {
            Some(until) if now < until && !self.plans.has_demand(&scope.fleet) => {
                Err(Withheld::Starting { until })
            }
            _ => Ok(()),
        }
    }

    /// Whether a plan of the planner may be delivered, or proposed to other replicas.
    pub(super) fn may_propose(
        &self,
        plan: &Plan,
        fleets: &Fleets,
        now: Instant,
    ) -> Result<(), Withheld> {
        if self.is_store_unread() {
            // Other replicas may know more nodes.
            return Err(Withheld::StoreUnread);
        }
        let fleet = &plan.scope.fleet;
        let had_demand = |replicas: &Replicas| replicas.had_demand_at_start(fleet);
        if !plan.warming_up || self.replicas.is_some_and(had_demand) {
            return Ok(());
        }
        // With the first reports of all nodes, sums are complete before the interval is over.
        let view = self.planner.fleet(fleet, now);
        let reported = view.map_or(0, |view| view.nodes_with_demand());
        let nodes = fleets.counted_nodes(fleet);
        if reported > 0 && reported >= nodes {
            return Ok(());
        }
        // Partial demand would mislead more than the previous plan, which stays.
        Err(Withheld::Incomplete { reported, nodes })
    }

    /// Whether proxies of a fleet that come back keep the demand that they have.
    pub(crate) fn is_starting(&self, fleet: &Arc<str>, now: Instant) -> bool {
        let until = self.starting_until.filter(|until| now < *until);
        (until.is_some() || self.is_store_unread()) && !self.plans.has_demand(fleet)
    }

    /// Like [`Self::is_starting`], until the timer of the start has been handled.
    pub(crate) fn withholds(&self, fleet: &Arc<str>) -> bool {
        (self.starting_until.is_some() || self.is_store_unread()) && !self.plans.has_demand(fleet)
    }

    /// Whether the store has not been read since the start, so that demand is incomplete.
    pub(super) fn is_store_unread(&self) -> bool {
        self.replicas.is_some_and(|replicas| !replicas.is_synced())
    }
}

impl Withheld {
    /// All reasons, for metrics and documentation.
    pub const LABELS: [&'static str; 4] = ["store_unread", "incomplete", "agreeing", "starting"];

    /// Returns the name for metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::StoreUnread => "store_unread",
            Self::Incomplete { .. } => "incomplete",
            Self::Agreeing => "agreeing",
            Self::Starting { .. } => "starting",
        }
    }
}

/// The reason as a clause, for people.
impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreUnread => {
                f.write_str("the store of the replicas has not been read since the start")
            }
            Self::Incomplete { reported, nodes } => {
                write!(f, "{reported} of {nodes} proxies have reported load")
            }
            Self::Agreeing => f.write_str("replicas agree on the first plan"),
            Self::Starting { .. } => f.write_str("no load report has arrived since the start"),
        }
    }
}
