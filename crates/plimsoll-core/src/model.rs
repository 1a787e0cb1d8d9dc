//! Data types of the engine, named and spelled as in xDS, each built by one validating constructor.
//!
//! Nothing is decided here and no protobuf is known here; `plimsoll-xds` converts messages. The
//! rest of the crate reads these types and relies on their invariants.

pub mod assignment;
pub mod client_side_weighted_round_robin;
pub mod cluster;
pub mod endpoint_policy;
pub mod health;
pub mod load_aware_locality;
pub mod load_report;
pub mod locality;
pub mod metadata;
pub mod orca;
pub mod outlier_detection;
pub mod subset;
pub mod transport;
pub mod zone_aware;
