//! plimsoll-core
pub mod counts;
pub mod edf;
pub mod endpoint_picking;
pub mod explain;
pub mod host_source;
pub mod locality_picking;
pub mod model;
pub mod priority;
pub mod rng;
pub mod stats;
pub mod time;
pub mod units;
