//! Whole simulated runs, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod failing;
mod liar;
mod loop_quality;
mod objectives;
mod random_failures;
mod recorded;
mod scenarios;
