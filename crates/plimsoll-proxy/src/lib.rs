//! The proxy: listeners, routes and draining around the client of Plimsoll.
//!
//! Requests are served by threads with a runtime each (`worker`, `accept`); every thread has a
//! socket per listener and connections of its own to every host, so that a request never changes
//! cores. One [`run`] task owns what may change. A request travels `listener`, `forward`, `router`,
//! and then the client, which balances: nothing here chooses a host.
//!
//! [`config`] reads files in the shape of Envoy's bootstrap. [`access_log`] and [`stats`] say what
//! happened, `admin` shows it.

mod accept;
pub mod access_log;
mod admin;
mod body;
pub mod clusters;
pub mod config;
mod connection;
mod exchange;
mod forward;
mod head_scan;
pub mod header_rules;
mod headers;
mod inside;
mod listener;
mod local_reply;
mod metadata_json;
pub mod router;
mod run;
pub mod source;
mod state;
pub mod stats;
mod substitution;
mod tls;
mod upgrade;
mod worker;

pub use admin::PATHS as ADMIN_PATHS;
pub use inside::{AdminOptions, Inside, Pages};
pub use run::{Bound, Options, RunError, SetLogging, check, run, run_with};
