//! End-to-end tests with real peers: Envoys of three releases, gRPC clients, curl, h2load.
//!
//! `make test` installs the peers; without them every test fails and says so. Everything listens on
//! free ports of loopback. Tests assert shares, states and the absence of failures; times are
//! printed, not asserted.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(clippy::print_stderr, reason = "figures for people")]

mod demo;
mod real_kubernetes;
mod real_peers;
mod support;
