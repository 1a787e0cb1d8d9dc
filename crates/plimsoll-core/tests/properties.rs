//! Properties that hold for every input, tried on random ones, through the public API.
//!
//! The seed is fixed: a test that passed yesterday passes today, and a failure names its smallest
//! input. Exploring further is the business of the fuzz targets, which run sequences of operations.
//! Strategies are in `properties/generate.rs`, the properties in the files beside it.

use proptest::test_runner::{Config, RngSeed};

mod support;

#[path = "properties/endpoints.rs"]
mod endpoints;
#[path = "properties/explained.rs"]
mod explained;
#[path = "properties/generate.rs"]
mod generate;
#[path = "properties/hashing.rs"]
mod hashing;
#[path = "properties/loads.rs"]
mod loads;
#[path = "properties/zones.rs"]
mod zones;

/// So many cases, always the same ones. Failures are printed, not stored: the seed brings them
/// back.
fn cases(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x0070_6c69_6d73_6f6c),
        failure_persistence: None,
        ..Config::default()
    }
}
