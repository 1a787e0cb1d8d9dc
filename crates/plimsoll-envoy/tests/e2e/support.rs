//! Support of the tests: Envoys with the module, servers, traffic, and waiting.

pub(crate) mod bootstrap;
pub(crate) mod demand;
pub(crate) mod envoy;
pub(crate) mod servers;
pub(crate) mod traffic;

use std::path::PathBuf;

pub(crate) use plimsoll_testing::{wait_for, wait_to_see, wait_until};

/// Releases that the library supports.
pub(crate) const RELEASES: [&str; 3] = ["1.38.3", "1.39.3", "1.40.0"];

/// Creates an empty directory for the files and logs of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    plimsoll_testing::scratch("envoy-module", name)
}

/// Returns the library that Cargo built with the tests.
pub(crate) fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libplimsoll_envoy.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}
