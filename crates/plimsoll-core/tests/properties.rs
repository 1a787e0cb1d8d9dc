//! Property tests through the public API.
//!
//! The seed is fixed, so that results are reproducible, and a failure prints its minimal input. The
//! fuzz targets explore further with sequences of operations. `properties/generate.rs` has the
//! strategies, the files beside it the properties.

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
#[path = "properties/many_zones.rs"]
mod many_zones;
#[path = "properties/zones.rs"]
mod zones;

/// Returns a configuration with a fixed seed. Failures are printed but not stored, since the seed
/// reproduces them.
fn cases(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x0070_6c69_6d73_6f6c),
        failure_persistence: None,
        ..Config::default()
    }
}
