//! End-to-end tests of the module inside released Envoys: one suite, three releases.
//!
//! `make test` installs the Envoys; without them every test fails and says so. The library is the
//! one that Cargo built with these tests. Tests assert shares, states and the absence of failures.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::print_stderr, reason = "figures for people")]

mod real_peers;
mod support;
