//! The control plane with real peers: stock Envoys of three releases and gRPC clients.
//!
//! `make test` installs the peers; without them every test here fails and says so. Everything
//! listens on loopback, on ports that the system chooses. What is asserted are shares, states and
//! the absence of failures; times are printed, never asserted.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(clippy::print_stderr, reason = "figures for people")]

#[path = "../demo/process.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of the demo, which use all of it"
)]
mod demo_process;
#[path = "../documented/run.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of documents, which use all of it"
)]
mod documented;
mod real_peers;
mod support;
