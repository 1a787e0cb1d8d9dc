//! xDS control plane: measures the demand of each zone from load reports and delivers it to the
//! proxies.
//!
//! [`config`] parses the files, [`services`] merges the services of all [`sources`]. [`state`] is
//! the core, a state machine without IO that knows fleets, services and demand. `delivery` decides
//! how each class of nodes gets demand; `view` encodes it as resources. The arithmetic is in
//! `plimsoll_core::planner`, the protocols are in plimsoll-xds. [`run::Control`] starts a control
//! plane.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
pub mod audit;
pub mod bootstrap;
pub mod certificates;
pub mod config;
pub mod consul;
mod counters;
pub mod delivery;
pub mod demand;
pub mod evacuation;
pub mod events;
pub mod explain;
pub mod fleet;
pub mod fleet_plan;
/// Interpreters of byte strings for the fuzz targets in `fuzz/`.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::transport::fuzzing as frames;
}
mod handshakes;
pub mod identity;
pub mod kubernetes;
pub mod load_line;
mod log_lines;
#[doc(hidden)]
pub mod matrix;
mod otlp;
pub mod output;
pub mod relay;
pub mod reload;
pub mod replicas;
pub mod run;
pub mod server;
pub mod services;
pub mod settings;
pub mod source;
pub mod sources;
pub mod state;
pub mod store;
mod supervisor;
mod tls_dialer;
mod transport;
pub mod unreported;
pub mod verdict;
mod view;
pub mod zone_loss;

#[doc(hidden)]
pub use log_lines::LOG_LINES;
