//! Services and endpoints of Consul.
//!
//! [`query`] is the protocol of blocking queries, [`merge`] turns instances and their checks into
//! endpoints, and [`inventory`] joins datacenters: three parts without IO. [`source`] drives them
//! against an agent, whose address and token [`access`] has. The control plane turns the
//! [`DiscoveredService`]s that come out into clusters; nothing here decides about routing.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod inventory;
mod log_lines;
pub mod merge;
pub mod objects;
pub mod query;
pub mod source;

pub use access::ConsulAccess;
pub use inventory::DiscoveredService;
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use merge::{Endpoint, EndpointState, MergeOptions};
pub use query::Consistency;
pub use source::{Batch, Datacenter, Source, SourceOptions, start};
