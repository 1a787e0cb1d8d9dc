//! What a proxy or client of your own needs of this crate, in one list: the stable part.
//!
//! A [`Balancer`] takes settings, endpoints, health and demand, and yields snapshots; [`channel`]
//! publishes them; a [`Picker`] per worker picks hosts. The example of the crate and `own_proxy`
//! use nothing else.
//!
//! These items, and the types that their methods take and return, follow semantic versioning. The
//! modules behind them are public for control planes, simulators and tests of Plimsoll; what is in
//! them and not reached from here may change in any release.

pub use crate::balancer::Balancer;
pub use crate::event::Event;
pub use crate::explain::Explanation;
pub use crate::host::{ActiveRequest, Host, RequestOutcome};
pub use crate::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
pub use crate::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
pub use crate::model::endpoint_policy::EndpointPolicy;
pub use crate::model::health::{HealthSignal, HealthStatus};
pub use crate::model::locality::Locality;
pub use crate::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
pub use crate::picker::{PickArgs, PickResult, Picker};
pub use crate::publish::{Publisher, Reader, channel};
pub use crate::rng::Xoshiro256;
pub use crate::snapshot::RoutingSnapshot;
pub use crate::time::Instant;
pub use crate::units::FieldError;
