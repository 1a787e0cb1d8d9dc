//! The control plane with what it depends on, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod config_text;
mod consul;
mod dns;
mod etcd;
mod every_cell;
mod identity;
mod kubernetes;
mod running;
