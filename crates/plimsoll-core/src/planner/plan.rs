//! [`Plan`]: traffic fractions that a control plane delivers to the proxies of a fleet.
//!
//! There is one plan per [`PlanScope`]. `scope` decides when a plan is made and `fractions`
//! computes it. Weights and encoding are the control plane's job (decision 0028).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fractions::ZoneFraction;
use super::losses::Link;
use crate::locality_picking::demand::FractionMap;
use crate::model::locality::Locality;
use crate::time::Instant;

/// The demand that a plan covers: all requests of a fleet, or those to one upstream cluster.
/// Ordered by fleet, the whole fleet before its upstream clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanScope {
    /// `node.cluster` of the reporters.
    pub fleet: Arc<str>,
    /// `None` = the sum over all upstream clusters.
    pub upstream_cluster: Option<Arc<str>>,
}

/// Reason for publishing a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateCause {
    /// The first data of this scope, or the first after it had none.
    FirstData,
    /// A fraction moved by at least `material_change_bp`.
    FractionsMoved,
    /// Nothing worth an update happened, but receivers must learn that the data is fresh (0024).
    Heartbeat,
    /// The plan in force is repeated between two heartbeats, for receivers that must learn more
    /// often that it is fresh ([`Planner::set_confirmation`](super::Planner::set_confirmation)).
    Confirmation,
    /// There is no demand any more: see [`Plan::has_data`].
    NoData,
    /// Every proxy has had time to report once, so sums are complete from here on.
    WarmedUp,
    /// A zone appeared, disappeared, began or ceased to fail, or its demand to be estimated.
    ZonesChanged,
}

/// Traffic fractions for the proxies of one fleet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    pub scope: PlanScope,
    /// Increases with every plan of a planner, heartbeats included: usable as a resource version.
    pub generation: u64,
    pub cause: UpdateCause,
    /// The scope is younger than one reporting interval: proxies may be missing and fractions far
    /// off. Plans may be held back; one with [`UpdateCause::WarmedUp`] follows.
    pub warming_up: bool,
    /// When the newest load report arrived; a heartbeat by itself does not make it newer.
    pub observed_at: Instant,
    /// Every zone and its share, sorted by locality, summing to 10000. Empty without data.
    pub zones: Vec<ZoneFraction>,
    /// Upstream zones whose requests fail. Their hosts are no spare capacity: while there are any,
    /// proxies must be sent host counts instead of fractions.
    pub failing: BTreeSet<Locality>,
    /// Zones to which no proxy reports a request any more: nobody sends there, or what is sent
    /// fails in a way that load reports do not have (decision 0022). While the fractions would send
    /// requests to one, proxies must be sent host counts. Now and then it is tried.
    pub unseen: BTreeSet<Locality>,
    /// Zones that were unseen, or never seen, and are tried. Fractions that would send them more
    /// than two requests in a hundred must be sent with a lower ramp ([`Plan::caution`]).
    pub tried: BTreeSet<Locality>,
    /// Shares of the requests between zones, and of all to an upstream zone, that fail there and
    /// not elsewhere, 0 to 1, at the lower end of what chance allows. Links without are left out.
    /// While the fractions would fail half a percent of all requests by them, proxies must be sent
    /// host counts ([`Plan::caution`]).
    pub failed_shares: BTreeMap<Link, f64>,
}

/// The part of a [`Plan`] from which another planner makes the same one
/// ([`Planner::adopt`](super::Planner::adopt)): what does not depend on who made it.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPlan {
    pub scope: PlanScope,
    pub cause: UpdateCause,
    pub warming_up: bool,
    /// Demand of every zone. Fractions follow from it.
    pub zones: Vec<SharedZone>,
}

/// Demand of one zone in a [`SharedPlan`]; see [`ZoneFraction`].
#[derive(Clone, Debug, PartialEq)]
pub struct SharedZone {
    pub locality: Locality,
    pub rate_per_second: f64,
    pub reporters: u64,
    pub estimated: bool,
}

impl Plan {
    /// Whether there is any demand. If not, fractions must no longer be sent: receivers fall back
    /// to host counts, at once or when the last fractions are stale.
    pub fn has_data(&self) -> bool {
        !self.zones.is_empty()
    }

    /// Whether receivers may follow the fractions: there are some, no upstream zone
    /// fails, and requests to all of them are seen.
    pub fn may_steer(&self) -> bool {
        self.has_data() && self.failing.is_empty() && self.unseen.is_empty()
    }

    /// Whether this plan differs from the previous one by less than is worth an update, and keeps
    /// receivers fresh.
    pub fn is_heartbeat(&self) -> bool {
        matches!(
            self.cause,
            UpdateCause::Heartbeat | UpdateCause::Confirmation
        )
    }

    /// Whether this plan has the demand of the previous one, not what was measured since.
    pub fn is_confirmation(&self) -> bool {
        self.cause == UpdateCause::Confirmation
    }

    /// Whether this plan confirms the one `before` it: nothing but its age differs.
    pub fn confirms(&self, before: &Self) -> bool {
        let same = Self {
            generation: self.generation,
            cause: self.cause,
            observed_at: self.observed_at,
            ..before.clone()
        };
        self.is_confirmation() && *self == same
    }

    /// Returns what another planner needs to make the same plan.
    pub fn shared(&self) -> SharedPlan {
        let zone = |zone: &ZoneFraction| SharedZone {
            locality: zone.locality.clone(),
            rate_per_second: zone.rate_per_second,
            reporters: zone.reporters,
            estimated: zone.estimated,
        };
        SharedPlan {
            scope: self.scope.clone(),
            cause: self.cause,
            warming_up: self.warming_up,
            zones: self.zones.iter().map(zone).collect(),
        }
    }

    /// Returns the fractions as a map, for converters. Empty without data.
    pub fn fractions(&self) -> FractionMap {
        let entry = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
        self.zones.iter().map(entry).collect()
    }
}
