//! Network drivers of ADS and LRS: the only async code of this crate.
//!
//! [`serve`] serves discovery and load reporting for implementations of [`AdsHandler`] and
//! [`LrsHandler`]; [`ads_client`] and [`lrs_client`] are the client side. Drivers only move
//! messages between a transport and a state machine of `ads` or `lrs`. Messages cross the transport
//! as bytes, so no generated types are needed.

mod accept;
pub mod ads_client;
mod backoff;
mod budget;
mod codec;
mod connect;
mod connector;
mod handler;
pub mod lrs_client;
mod messages;
mod outage;
mod pending;
mod request_limits;
mod server;
mod servers;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod trimmed;

pub use crate::clock::Clock;
pub use accept::{Accept, ClientIdentity, ClientInfo, Connection};
pub use backoff::Backoff;
pub use codec::BytesCodec;
pub use connect::ConnectOptions;
pub use connector::{Connecting, Connector, Socket, Sockets};
pub use handler::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, LrsHandler, LrsInstructions, LrsReporter,
    LrsSession, Refusal,
};
pub use request_limits::{RequestLimit, RequestLimits};
pub use server::{ServerOptions, serve};
pub use servers::Servers;
#[cfg(feature = "tls")]
pub use tls::connect_tls;
/// gRPC status with which streams end.
pub use tonic::{Code, Status};

/// `:path` of SotW discovery.
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
