//! The control plane: endpoints in, load reports in, assignments out.
//!
//! [`config`] is what files say. [`state`] is the single writer that knows fleets, services and
//! demand, as a machine without IO; what to deliver to whom is decided in `delivery`, and turned
//! into resources in `view`. Arithmetic lives in `plimsoll_core::planner`, protobuf in
//! plimsoll-xds. The binary and tests call in.

pub mod admin;
pub mod bootstrap;
pub mod config;
mod counters;
pub mod delivery;
pub mod explain;
pub mod fleet;
pub mod fleet_plan;
pub mod relay;
pub mod run;
pub mod server;
pub mod source;
pub mod state;
pub mod unreported;
mod view;
