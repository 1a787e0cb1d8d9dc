//! The engine through its public API, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod concurrency;
mod load_aware;
mod no_alloc;
mod observed_load;
mod ops;
mod orca_no_alloc;
mod orca_weights_no_alloc;
mod planner_ops;
mod properties;
mod seed_000;
mod worked_examples;
