//! The client against servers on loopback, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod bare;
mod connections;
mod deadlines;
mod examples;
mod front_door;
mod health;
mod held_calls;
mod hints;
mod initial_fetch;
mod layer;
mod metrics;
mod notices;
mod observed_load;
mod one_handle;
mod out_of_band;
mod outage_logs;
mod policies;
mod requests;
mod reqwest;
mod retries;
mod service_config;
mod shutdown;
mod startup;
mod subscriptions;
mod subsets;
mod tracing;
mod xds;
mod xds_fields;
mod xds_fleet;
mod xds_hostile;
mod xds_tls;
