//! The nouns, named and spelled as in xDS, but ours: private fields, one checked way in.
//!
//! No decision is made here and no protobuf is known here; `plimsoll-xds` converts. Everything else
//! in the crate reads these types and trusts them.

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
pub mod zone_aware;
