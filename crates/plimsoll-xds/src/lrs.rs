//! The load reporting service, as protocol state without IO.
//!
//! [`message`] holds its two messages in our own words; `convert::load_report` turns them into
//! bytes and back. [`ServerStream`] is one stream as a server sees it, [`Client`] all streams of a
//! data plane, [`ReportedClusters`] what it reports. Demand is not computed here but by the planner
//! of the core.

mod client;
mod merge;
pub mod message;
mod reported;
mod server;

pub use client::{Client, ClientEvent, Observed, ReporterStats, Wanted};
pub use reported::{EdsNames, ReportedClusters, messages};
pub use server::{LrsSettings, LrsTraffic, NoNode, Report, ServerStream};

/// What a client announces in `node.client_features` when it understands `send_all_clusters`.
pub const SUPPORTS_SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
