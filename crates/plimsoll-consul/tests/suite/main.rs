//! The source of services against a real agent of Consul, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod access;
mod datacenters;
mod outages;
mod services;
mod watched;
