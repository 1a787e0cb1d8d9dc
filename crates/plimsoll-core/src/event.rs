//! [`Event`]: what happened, for drivers to log and count. The core writes no logs.
//!
//! Every event is in the table of docs/observability.md (a test of the house checks that).

use std::sync::Arc;
use std::time::Duration;

use crate::explain::StateName;
use crate::locality_picking::fractions::FractionOrigin;
use crate::locality_picking::zone_aware::Reason;

/// Something a driver may want to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Measured fractions became too old; host counts are used until new ones arrive, unless
    /// another origin still has fresh ones.
    FractionsStale {
        /// Which way they had come.
        origin: FractionOrigin,
        /// Their age.
        age: Duration,
        /// The age at which they stop counting.
        threshold: Duration,
    },
    /// Measured fractions are in force again after they had become too old.
    FractionsRecovered {
        /// Which way they came.
        origin: FractionOrigin,
    },
    /// Hosts came or went.
    MembershipChanged {
        /// Hosts that are new.
        added: usize,
        /// Hosts that are gone; requests in flight finish.
        removed: usize,
        /// Hosts now.
        total: usize,
    },
    /// A priority entered or left panic.
    PanicChanged {
        /// The priority.
        priority: usize,
        /// Whether it is in panic now.
        panic: bool,
    },
    /// Subsets came or went.
    SubsetsChanged {
        /// Subsets that got their first host.
        created: u64,
        /// Subsets that lost their last host.
        removed: u64,
        /// Subsets now.
        active: u64,
    },
    /// The metadata of the endpoints makes more subsets than the cluster may have: requests for
    /// those left out fall back as if they did not exist.
    SubsetLimitReached {
        /// `max_subsets`.
        limit: u32,
        /// How often a host could not join a subset of its own.
        left_out: u64,
    },
    /// Zone-aware routing of a priority changed its state, or its reason to be off.
    ZoneRoutingChanged {
        /// The cluster.
        cluster: Arc<str>,
        /// The priority.
        priority: usize,
        /// State now.
        state: StateName,
        /// Why localities play no part; `None` when they do.
        reason: Option<Reason>,
    },
}
