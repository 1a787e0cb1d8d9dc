//! End-to-end tests with real peers: Envoys of three releases, gRPC clients, curl, h2load.
//!
//! `make test` installs the peers; without them every test fails and says so. Everything listens on
//! free ports of loopback. Tests assert shares, states and the absence of failures; times are
//! printed, not asserted.
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
mod real_kubernetes;
mod real_peers;
mod support;
