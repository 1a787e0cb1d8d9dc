//! Support of the end-to-end tests: processes, a small fleet, traffic, and waiting.

pub(crate) mod api_server;
pub(crate) mod backends;
pub(crate) mod balancer;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod closed_loop;
pub(crate) mod control;
pub(crate) mod declared;
pub(crate) mod demo;
pub(crate) mod descriptors;
pub(crate) mod dynamic_proxy;
pub(crate) mod echo;
pub(crate) mod envoy;
pub(crate) mod etcd;
pub(crate) mod fleet;
pub(crate) mod gate;
pub(crate) mod grpc;
pub(crate) mod hosts;
pub(crate) mod http2_load;
pub(crate) mod http_differential;
pub(crate) mod kubernetes;
pub(crate) mod load;
pub(crate) mod loop_quality;
pub(crate) mod management_server;
pub(crate) mod open_load;
pub(crate) mod orca_backends;
pub(crate) mod orca_streams;
pub(crate) mod proxy;
pub(crate) mod replicated;
pub(crate) mod sides;
pub(crate) mod tls_backend;
pub(crate) mod xds_server;

use std::env;
use std::path::PathBuf;

pub(crate) use plimsoll_testing::{peers, wait_for, wait_to_see, wait_until};

/// Whether to assert what we promise of a machine that does nothing else (`make bench-loop`), or
/// what separates right from wrong whatever else the machine does.
pub(crate) fn asserts_promises() -> bool {
    env::var_os("PLIMSOLL_PROMISED_LIMITS").is_some()
}

/// Creates an empty directory for the files and logs of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    plimsoll_testing::scratch("e2e", name)
}
