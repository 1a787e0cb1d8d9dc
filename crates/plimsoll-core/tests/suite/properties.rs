//! Property tests through the public API.
//!
//! The seed is fixed, so that results are reproducible, and a failure prints its minimal input. The
//! fuzz targets explore further with sequences of operations. `properties/generate.rs` has the
//! strategies, the files beside it the properties.

use proptest::test_runner::{Config, RngSeed};

mod endpoints;
mod explained;
mod generate;
mod hashing;
mod loads;
mod many_zones;
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
