//! How a host is chosen from a list: one file per policy.
//!
//! Tables that cost something to build (`ring_hash`, `maglev`) are built by the writer and are
//! immutable; cursors and schedules belong to workers (`picker`). Which list is used is decided in
//! `host_source`.
pub mod bounded_load;
pub mod client_side_weighted_round_robin;
pub mod hash_key;
pub mod least_request;
pub mod maglev;
pub mod random;
pub mod ring_hash;
pub mod round_robin;
pub mod slow_start;
