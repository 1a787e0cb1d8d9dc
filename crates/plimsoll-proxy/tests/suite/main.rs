//! The proxy against backends and management servers on loopback, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod cors;
mod decodes;
mod edge;
mod filter_chains;
mod fleet;
mod forwarding;
mod lds;
mod lifecycle;
mod mirror;
mod observed_load;
mod overload;
mod rds;
mod route_fields;
mod safety;
mod safety_http2;
mod subsets;
mod timeouts;
mod tracing;
