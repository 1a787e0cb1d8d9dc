//! Load Reporting Service (LRS): protocol state machines without IO.
//!
//! [`message`] holds the two LRS messages as plain structs; `convert::load_report` encodes and
//! decodes them. [`ServerStream`] is one server-side stream, [`Client`] the reporting side of a
//! data plane, [`ReportedClusters`] the clusters that a data plane reports. The planner of the core
//! computes demand from load reports.

mod client;
mod merge;
pub mod message;
mod reported;
mod server;

pub use client::{Client, ClientEvent, ClusterSelection, ObservedTraffic, ReporterStats};
pub use reported::{EdsNames, ReportedClusters, with_eds_names};
pub use server::{LrsSettings, LrsTraffic, MissingNode, Report, ServerStream};

/// Entry of `node.client_features` that announces support for `send_all_clusters`.
pub const SUPPORTS_SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
