//! Streams over sockets: the only place of this crate that awaits.
//!
//! [`serve`] answers discovery and load reporting for whoever implements [`AdsHandler`] and
//! [`LrsHandler`]; [`ads_client`] and [`lrs_client`] are the other ends. All of them are thin: they
//! move messages between a transport and a machine of `ads` or `lrs`, and machines decide. Messages
//! cross the transport as bytes, so generated types are not needed here.

mod admin_path;
pub mod ads_client;
mod backoff;
mod clock;
mod codec;
mod connect;
mod connector;
mod handler;
mod http_guard;
pub mod lrs_client;
mod messages;
mod server;
mod servers;
mod session;

pub use admin_path::AdminPath;
pub use backoff::Backoff;
pub use clock::Clock;
pub use connect::ConnectOptions;
pub use connector::{Connecting, Connector, Socket};
pub use handler::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, LrsHandler, LrsInstructions, LrsReporter,
    LrsSession,
};
pub use http_guard::HttpGuard;
pub use server::{ServerOptions, serve};
pub use servers::Servers;
/// How a stream ends.
pub use tonic::{Code, Status};

/// `:path` of state-of-the-world discovery.
pub const STREAM_AGGREGATED_RESOURCES: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// `:path` of incremental discovery.
pub const DELTA_AGGREGATED_RESOURCES: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// `:path` of load reporting.
pub const STREAM_LOAD_STATS: &str =
    "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

#[cfg(test)]
mod tests;
