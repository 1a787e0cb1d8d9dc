//! [`Plan`]: what a control plane is to tell the proxies of a fleet, as immutable data.
//!
//! One plan per grain: a fleet over all its upstream clusters, or a fleet and one upstream cluster.
//! When a plan is made lives in `grain`, how in `fractions`, `weights` and `fleet_weights`.
//! Encoding is the control plane's business (decisions D9).

use std::sync::Arc;

use super::fleet_weights::FleetWeights;
use super::fractions::ZoneFraction;
use super::weights::ReceiverWeights;
use crate::locality_picking::demand::FractionMap;
use crate::time::Instant;

/// What a plan is about. Ordered by fleet, the fleet as a whole before its upstream clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grain {
    /// `node.cluster` of the reporters.
    pub fleet: Arc<str>,
    /// One upstream cluster; `None` = the sum over all of them.
    pub upstream_cluster: Option<Arc<str>>,
}

/// Why a plan was made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateCause {
    /// Endpoints of the fleet or of the upstream cluster changed what the plan says.
    EndpointsChanged,
    /// The first data of this grain, or the first since it was without.
    FirstData,
    /// A fraction moved by `material_change_bp` or more.
    FractionsMoved,
    /// Nothing worth an update happened, but receivers must hear that the data is fresh (D3).
    Heartbeat,
    /// There is no demand to go by any more: see [`Plan::has_data`].
    NoData,
    /// Every proxy had the time to report once: sums are complete from here on.
    WarmedUp,
    /// A zone came, went, or began or ceased to be estimated.
    ZonesChanged,
}

/// What to tell the proxies of one fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it is about.
    pub grain: Grain,
    /// Grows with every plan of a planner, heartbeats included: good for a version.
    pub generation: u64,
    /// Why it was made now.
    pub cause: UpdateCause,
    /// The grain is younger than one reporting interval: not every proxy has reported yet, and the
    /// fractions may be far off. A control plane may hold such a plan back; one with
    /// [`UpdateCause::WarmedUp`] follows.
    pub warming_up: bool,
    /// When the newest report that it is made of arrived. A heartbeat repeats what is known, and
    /// does not make it newer.
    pub observed_at: Instant,
    /// Every zone and its share, sorted by locality, summing to 10000. Empty without data.
    pub zones: Vec<ZoneFraction>,
    /// Endpoint weights of the fleet's assignment for stock Envoys. Only in the plan of a fleet as
    /// a whole, with data, whose assignment is known.
    pub fleet_weights: Option<FleetWeights>,
    /// Locality weights of the upstream cluster per receiving zone. Only in the plan of an upstream
    /// cluster whose assignment is known.
    pub locality_weights: Vec<ReceiverWeights>,
}

impl Plan {
    /// Whether there is any demand to go by. Without, fractions must no longer be sent: receivers
    /// fall back to host counts, at once or when the last ones are stale. Locality weights are
    /// there all the same and follow the fleet's healthy hosts.
    pub fn has_data(&self) -> bool {
        !self.zones.is_empty()
    }

    /// Whether this only repeats that nothing worth an update happened.
    pub fn heartbeat(&self) -> bool {
        self.cause == UpdateCause::Heartbeat
    }

    /// The fractions as a map, for converters. Empty without data.
    pub fn fractions(&self) -> FractionMap {
        let entry = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
        self.zones.iter().map(entry).collect()
    }
}
