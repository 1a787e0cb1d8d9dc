//! Services and endpoints of a Kubernetes cluster.
//!
//! [`reflector`] is the protocol of list and watch, [`merge`] the rules that turn EndpointSlices
//! into endpoints of a Service, [`budget`] what a namespace may use, and [`inventory`] knows which
//! Services changed: state machines without IO. [`source`] drives them against an API server:
//! `access` has its address and credentials, `session` a connection to it. The control plane turns
//! the [`DiscoveredService`]s that come out into clusters; nothing here decides about routing.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod budget;
pub mod inventory;
mod log_lines;
pub mod merge;
pub mod node;
pub mod objects;
pub mod reflector;
mod session;
pub mod settings;
pub mod source;
pub mod write;

pub use access::{ApiAccess, ApiServer};
pub use inventory::{DiscoveredService, ServicePort};
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use plimsoll_serve::discovery::SourceStatus;
pub use source::{Batch, Source, SourceOptions, start};
