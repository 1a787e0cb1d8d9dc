//! Events of a balancer, for drivers to log and count. The core writes no logs; it declares their
//! lines ([`log_lines`]).
//!
//! Every event is in the table of docs/observability.md (a house rule checks that).

pub mod log_lines;

use std::sync::Arc;
use std::time::Duration;

use crate::explain::StateName;
use crate::locality_picking::fractions::FractionOrigin;
use crate::locality_picking::zone_aware::Reason;

/// A change that a driver may want to log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Measured fractions became stale; host counts apply unless another origin has fresh ones.
    FractionsStale {
        origin: FractionOrigin,
        age: Duration,
        threshold: Duration,
    },
    /// Measured fractions are in force again after they had been stale.
    FractionsRecovered { origin: FractionOrigin },
    MembershipChanged {
        added: usize,
        /// Number of removed hosts; their requests in flight finish.
        removed: usize,
        total: usize,
    },
    /// A priority entered or left panic.
    PanicChanged { priority: usize, panic: bool },
    SubsetsChanged {
        /// Subsets that got their first host.
        created: u64,
        /// Subsets that lost their last host.
        removed: u64,
        active: u64,
    },
    /// The metadata yields more subsets than `max_subsets`; requests for the rest use the fallback.
    SubsetLimitReached {
        limit: u32,
        /// Number of times that a host could not join a subset.
        left_out: u64,
    },
    /// Zone-aware routing of a priority changed its state, or the reason for being off.
    ZoneRoutingChanged {
        cluster: Arc<str>,
        priority: usize,
        state: StateName,
        /// Why zone-aware routing is off; `None` if it is on.
        reason: Option<Reason>,
    },
}
