//! What tests of several crates share: waiting, processes, HTTP, and paths of the repository and of
//! what Cargo builds.
//!
//! It knows no other crate of the workspace, so that unit tests of each can use it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

mod alerts;
#[cfg(feature = "api-server")]
pub mod api_server;
mod built;
#[cfg(feature = "certificates")]
mod certificates;
mod consul;
mod etcd;
pub mod http;
#[cfg(feature = "logs")]
mod logs;
mod ports;
mod process;
#[cfg(feature = "tokio")]
pub mod tasks;
mod wait;

pub use alerts::Drill;
pub use built::{envoy, kubectl, peers, plimsoll, repository, scratch, target};
#[cfg(feature = "certificates")]
pub use certificates::Authority;
pub use consul::Consul;
pub use etcd::etcd;
#[cfg(feature = "logs")]
pub use logs::CapturedLogs;
pub use ports::free_address;
pub use process::{Process, print_log_of_failed_test};
pub use wait::{wait_for, wait_to_see, wait_until};
