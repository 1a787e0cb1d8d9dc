//! The protocols through the public API, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod ads_client;
mod ads_client_ops;
mod ads_convergence;
mod ads_conversation;
mod ads_ops;
mod both_readers;
mod lrs_ops;
mod orca;
mod records;
mod service_config;
mod wire;
