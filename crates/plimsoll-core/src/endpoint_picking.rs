//! Endpoint policies: choice of a host from a list, one file each.
//!
//! Tables that are expensive to build (`ring_hash`, `maglev`) are immutable and built by the
//! writer; cursors and schedules belong to workers (`picker`). `host_source` decides which list is
//! used.
pub mod bounded_load;
pub mod client_side_weighted_round_robin;
pub mod hash_key;
pub mod least_request;
pub mod maglev;
pub mod random;
pub mod ring_hash;
pub mod round_robin;
pub mod slow_start;
